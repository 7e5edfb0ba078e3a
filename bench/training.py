#!/usr/bin/env python3
"""Is the plan that the search finds for a training step never worse than the plans that people write by hand?

  bench/training.py                      a small case, some seconds (.deps/venv/bin/python; AUTOPAR names the program)
  bench/training.py --full               8B on 64 H100, 70B on 512 and 405B on 16,384
  bench/training.py --held-out           other families, batches and clusters
  bench/training.py --case NAME,...      some of all of them (--list names them); --json LINES as well

Templates are data parallelism and tensor parallelism inside a machine (dp x tp), after Megatron-LM, with what is stored whole
("plain"), optimizer states and masters split over the data axes ("ZeRO-1"), accumulators too ("ZeRO-2"), or the weights that passes read as well
("ZeRO-3"); "+seq" splits the sequence between the products (Korthikanti et al. 2022). A template says how every product
with a weight is split, how what is stored lies and how residuals lie. All else, its number of micro-batches and what is
computed again too, is searched, which can only help it, and priced by the same cost model. A row with a ratio below 1
that fits is a plan that the search should have found: exit status 1.
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import onnx

import inputs

ROOT = inputs.ROOT
COLUMN = re.compile(r"(q_proj|k_proj|v_proj|qkv_proj|c_attn|gate_proj|up_proj|c_gate|c_fc|w1|w3|lm_head)\.weight$")
ROW = re.compile(r"(o_proj|c_proj|down_proj|w2)\.weight$")
EMBEDDING = re.compile(r"(embed_tokens|wte)\.weight$")
TOLERANCE = 5e-4
# A template that does not fit is priced once more with this much, to say how much it would need.
UNLIMITED = "1000TiB"


@dataclasses.dataclass
class Case:
    """`model`: options of scripts/make_models.py, or a file of the folder in AUTOPAR_SHARED."""
    model: str
    cluster: str
    batch: int
    tensor: tuple = (1, 2, 4, 8, 16)
    precision: str = "mixed-bf16"


SMALL = {"small": Case("--family llama --layers 2 --hidden 1024 --heads 16 --kv-heads 8 --feed-forward 2816 --vocabulary 32000 "
                       "--sequence 1024", "dgx-a100-1x8", 32, (1, 2, 8))}
FULL = {
    "8b": Case("--preset llama3-8b", "dgx-h100-8x8", 128),
    "8b-export": Case("llama3_8b.onnx", "dgx-h100-8x8", 128),
    "70b": Case("--preset llama3-70b", "dgx-h100-64x8", 1024),
    "405b": Case("--preset llama3-405b", "dgx-h100-2048x8", 2048, (4, 8, 16)),
}
HELD_OUT = {
    "gpt3-6.7b": Case("--preset gpt3-6.7b --no-fused-qkv --vocabulary 50304", "dgx-a100-8x8", 512),
    "gpt3-13b-fused": Case("--preset gpt3-13b --vocabulary 50304", "dgx-a100-8x8", 256, (1, 2, 4, 8)),
    "mixtral": Case("--preset mixtral-8x7b --layers 8", "dgx-a100-8x8", 64, (1, 2, 4, 8)),
    "8b-few": Case("--preset llama3-8b", "dgx-a100-8x8", 16),
    "8b-512": Case("--preset llama3-8b", "dgx-h100-64x8", 512),
    "2-wide": Case("--family llama --layers 2 --hidden 8192 --heads 64 --kv-heads 8 --feed-forward 28672 --vocabulary 128256 "
                   "--sequence 4096", "dgx-a100-8x8", 64),
    "gpt2-fp32": Case("--preset gpt2-medium --no-fused-qkv --vocabulary 50304", "dgx-a100-2x8", 64, (1, 2, 4, 8), "fp32"),
}


class Step:
    """The training step of a case: which ops multiply with a weight and how, what is stored."""

    def __init__(self, path):
        graph = onnx.load(path, load_external_data=False).graph
        self.shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input}
        self.products = {}  # op -> "n" or "k", the dimension of the weight that tensor parallelism splits
        self.split = {}  # weight -> its dimension that is split
        self.multiplied = set()  # weights that both passes read
        self.gathered, self.residuals = set(), set()  # what column products read; what row products are added to
        self.logits = {}  # what the loss reads, and its shape
        self.losses = {}  # the op that sums up the words -> what it reads
        self.data = [n for n in ("input_ids", "labels") if n in self.shapes]
        made_by = {o: n for n in graph.node for o in n.output}
        readers = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.value_info}
        for node in graph.node:
            if node.op_type == "ReduceLogSumExp" and node.name.startswith("loss"):
                self.logits[node.input[0]] = shapes.get(node.input[0]) or shapes[made_by[node.input[0]].input[0]]
                self.losses[node.name] = node.input[0]
            if node.op_type != "MatMul" or ".grad" in node.name:
                continue
            weight, turned = node.input[1], False
            while weight in made_by and made_by[weight].op_type in ("Transpose", "Cast"):
                turned ^= made_by[weight].op_type == "Transpose"
                weight = made_by[weight].input[0]
            if weight not in self.shapes or len(self.shapes[weight]) != 2:
                continue
            if COLUMN.search(weight) or ROW.search(weight):
                self.multiplied.add(weight)
            if COLUMN.search(weight):
                self.products[node.name], self.split[weight] = "n", 0 if turned else 1
                self.gathered.add(node.input[0])
            elif ROW.search(weight) and not weight.endswith("attn.c_attn.weight"):
                self.products[node.name], self.split[weight] = "k", 1 if turned else 0
                self.residuals.update(self.added(node.output[0], readers))
        self.gradients = self.gradients_of_products(graph, made_by)
        # Weight -> its gradient in float32, which its update makes.
        self.updates = {n.name[:-len(".update")]: n.output[0] for n in graph.node if n.name.endswith(".update") and n.op_type == "Cast"}
        # What a layer or the head makes -> the first op that reads it.
        self.head = next((n.output[0] for n in graph.node if n.name == "lm_head"), None)
        self.layer_ends = [n.output[0] for n in graph.node if re.fullmatch(r"(layers|h)\.\d+\.mlp\.residual", n.name)]
        ends = {*self.layer_ends, self.head}
        self.first_reader = {}
        for node in graph.node:
            for name in ends & set(node.input):
                self.first_reader.setdefault(name, node.name)
        names = [n.name for n in graph.node]
        self.behind_cast = names[names.index(self.first_reader[self.head]) + 1] if self.head in self.first_reader else None
        for name in self.shapes:
            if EMBEDDING.search(name) and name not in self.split:
                self.split[name] = 0

    def begin_of(self, block):
        """The first forward op of a layer, by its number, of the "head" or of the "cast" of the logits: the first reader of what is before
        it; of the "loss": what is behind the cast."""
        if block == "loss":
            return self.behind_cast
        layers = [name for name in self.first_reader if name != self.head]
        return self.first_reader[self.head if block == "cast" else layers[-1] if block == "head" else layers[block - 1]]

    def gradients_of_products(self, graph, made_by):
        """Op -> the dimensions of the products that make gradients of inputs and of weights: of the tokens, and that of tensor parallelism."""
        found = {}
        for node in graph.node:
            of = re.fullmatch(r"(.+)\.grad(\.\d+)?", node.name)
            if not of or node.op_type != "Gemm" or of.group(1) not in self.products:
                continue
            read = node.input[1]
            while read in made_by and made_by[read].op_type in ("Transpose", "Cast"):
                read = made_by[read].input[0]
            column = self.products[of.group(1)] == "n"
            found[node.name] = ("m", "k" if column else "n") if read in self.shapes else ("k", "n" if column else "m")
        return found

    def added(self, name, readers):
        """The sum of residual and product: behind casts, and behind the sum with a bias."""
        forward = [n for n in readers.get(name, []) if ".grad" not in n.name]
        if len(forward) != 1 or forward[0].op_type not in ("Add", "Cast"):
            return []
        node = forward[0]
        return [node.output[0]] if node.op_type == "Add" and not set(node.input) & set(self.shapes) else self.added(node.output[0], readers)

    def stored(self):
        """(name, weight that it belongs to, whether the passes read it)."""
        weights = {n for n in self.shapes if f"adam.m.{n}" in self.shapes}
        for name in weights:
            copies = [c for c in (f"bf16.{name}", f"fp16.{name}") if c in self.shapes]
            yield name, name, not copies
            yield from ((c, name, True) for c in copies)
            yield from ((f"adam.{s}.{name}", name, False) for s in ("m", "v"))

    def divides_into(self, parts):
        """Whether each weight of a product has a dimension that does."""
        return all(any(size % parts == 0 for size in self.shapes[name]) for name in self.multiplied)

    def role(self, name):
        return next((self.split[n] for n in (name, f"bf16.{name}", f"fp16.{name}") if n in self.split), None)


@dataclasses.dataclass
class Template:
    tensor: int
    data: int
    stored: str
    sequence: bool
    mesh: list  # (name, size, tier), outermost first
    tensor_axes: list
    data_axes: list
    context_axes: list = dataclasses.field(default_factory=list)  # that split the sequence everywhere
    copy_axes: list = dataclasses.field(default_factory=list)  # data axes over which nothing that is stored is split

    def __str__(self):
        return f"dp={self.data} tp={self.tensor}{' +seq' if self.sequence else ''} {self.stored}"


def axes_of(tiers, tensor):
    """The mesh of data and tensor axes, tensor parallelism innermost; None where it does not divide."""
    mesh, left = [], tensor
    for tier in tiers:
        inner = math.gcd(left, tier["size"])
        if left > 1 and inner > 1:
            mesh.insert(0, (f"{tier['name']}_t", inner, tier["name"], True))
            left //= inner
        else:
            inner = 1
        if tier["size"] > inner:
            mesh.insert(0, (f"{tier['name']}_d", tier["size"] // inner, tier["name"], False))
    return None if left > 1 else mesh


def templates(case, tiers):
    for tensor in case.tensor:
        mesh = axes_of(tiers, tensor)
        if mesh is None:
            continue
        data = math.prod(size for _, size, _, is_tensor in mesh if not is_tensor)
        for sequence in ((False,) if tensor == 1 else (False, True)):
            for stored in ("plain", "ZeRO-1", "ZeRO-3") if tensor == 1 else ("ZeRO-1", "ZeRO-3"):
                yield Template(tensor, data, stored, sequence, [a[:3] for a in mesh], [a[0] for a in mesh if a[3]], [a[0] for a in mesh if not a[3]])


def dimensions_of(text):
    return [[a for a in part.split(",") if a] for part in re.findall(r"{([^}]*)}", text)]


def spec_text(dimensions):
    return "[" + ",".join("{" + ",".join(axes) + "}" for axes in dimensions) + "]"


def pins(step, template, as_run=0, gathers_again=False, repeats=False):
    """The template as a strategy file. `as_run`, a number of micro-batches: the loss is taken of split words, gradients of products are
    made in the template's way and added up where they are made, as the programs do that run such templates; 0: that is searched.
    `gathers_again`: what split sequences are gathered for is kept split for the backward pass. `repeats`: ops are computed again."""
    size = {name: count for name, count, _ in template.mesh}
    t, d, c = template.tensor_axes, template.data_axes, template.context_axes
    along = d if template.data > 1 else []  # one sample may be all that a micro-batch has
    ops = {op: {"assignment": {**{a: "b" for a in along}, **{a: "m" for a in c}, **{a: factor for a in t}}} for op, factor in step.products.items()}
    for op, (tokens, factor) in step.gradients.items() if as_run else ():
        ops[op] = {"assignment": {**{a: tokens for a in along + c}, **{a: factor for a in t}}}
    tensors = {name: {"spec": spec_text(([d, c] + [[]] * len(step.shapes[name]))[:len(step.shapes[name])])} for name in step.data}
    shared = [a for a in d + c if a not in template.copy_axes]  # the states of a weight
    for name, weight, is_read in step.stored():
        shape, dimensions = step.shapes[name], [[] for _ in step.shapes[name]]
        left = list(shape)
        role = step.role(weight)
        if role is not None and t and shape[role] % template.tensor == 0:
            dimensions[role] = list(t)
            left[role] //= template.tensor
        if template.stored == "ZeRO-3" or (template.stored != "plain" and not is_read):
            fitting = [i for i in range(len(shape)) if left[i] % math.prod(size[a] for a in shared) == 0]
            if fitting:
                dimensions[max(fitting, key=lambda i: (not dimensions[i], left[i]))] += shared
            else:  # over several dimensions, axis by axis
                for axis in shared:
                    for i in range(len(shape)):
                        if left[i] % size[axis] == 0:
                            dimensions[i].append(axis)
                            left[i] //= size[axis]
                            break
        tensors[name] = {"spec": spec_text(dimensions)}
        if as_run and template.stored == "ZeRO-3" and name in step.multiplied:  # gathered by each pass, and let go
            whole = spec_text([[a for a in axes if a in t] for axes in dimensions])
            tensors[name].update({"kept_spec": spec_text(dimensions), "hub_spec": whole, "backward_hub_spec": whole})
    if t:
        between = spec_text([d, c + t if template.sequence else c, []])
        tensors.update({name: {"spec": between} for name in step.residuals | step.gathered})
        if as_run:
            for name in step.logits:
                words = spec_text([d] + [c] * (len(step.logits[name]) - 2) + [t if step.logits[name][-1] % template.tensor == 0 else []])
                # Where passes are repeated, nobody knows which one reads it.
                tensors[name] = {key: words for key in (("spec",) if repeats else ("spec", "kept_spec", "hub_spec", "backward_hub_spec"))}
            for op, name in step.losses.items():  # of the words that a rank has, however much sooner the host were done with all of them
                last = len(step.logits[name]) - 1
                ops[op] = {"assignment": {**{a: "d0" for a in along}, **{a: f"d{last - 1}" for a in (c if last > 1 else ())},
                                          **{a: f"d{last}" for a in (t if step.logits[name][-1] % template.tensor == 0 else ())}}}
        if gathers_again and template.sequence and not repeats:
            whole = spec_text([d, c, []])
            tensors.update({name: {"spec": between, "kept_spec": between, "hub_spec": whole, "backward_hub_spec": whole} for name in step.gathered})
    # States that are split get their part of the sum of gradients, not all of it.
    for name, weight, _ in step.stored() if as_run and template.stored != "plain" else ():
        if name != weight or step.role(weight) is None:
            continue
        split = tensors[f"adam.m.{name}"]["spec"]
        if as_run > 1:
            ops[name + ".update"] = {"assignment": {a: f"d{i}" for i, axes in enumerate(dimensions_of(split)) for a in axes}}
        elif name in step.updates:
            tensors[step.updates[name]] = {"hub_spec": split}
    for name, weight, _ in step.stored() if as_run > 1 else ():
        role = step.role(weight)
        if name == weight and role is not None and template.stored in ("ZeRO-2", "ZeRO-3"):  # each pass adds up its sums
            tensors["acc." + name] = {"spec": tensors[f"adam.m.{name}"]["spec"]}
        elif name == weight and role is not None:
            dimensions = [[] for _ in step.shapes[name]]
            if t and step.shapes[name][role] % template.tensor == 0:
                dimensions[role] = list(t)
            tensors["acc." + name] = {"spec": spec_text(dimensions) + (" +{" + ",".join(shared) + "}" if shared else "")}
    mesh = [{"name": name, "size": count, "tier": tier} for name, count, tier in template.mesh]
    return {"format": "autopar-strategy", "version": 1, "mesh": mesh, "ops": ops, "tensors": tensors}


class Searches:
    def __init__(self, program, model, cluster, case, folder):
        self.program, self.folder = program, folder
        self.training = ["--optimizer", "adamw", "--precision", case.precision, "--loss", "cross_entropy", "--batch", str(case.batch)]
        self.model, self.cluster = str(model), str(cluster)

    def step(self):
        path = self.folder / "step.onnx"
        subprocess.run([self.program, "grad", self.model, *self.training, "-q", "-o", path], check=True)
        return Step(path)

    def search(self, *options):
        begin = time.monotonic()
        command = [self.program, "search", self.model, "--cluster", self.cluster, "--train", *self.training, "-o", str(self.folder / "plan"), "--json", *options]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        row = {"wall_seconds": time.monotonic() - begin, "command": " ".join(str(c) for c in command)}
        if done.returncode:
            return {**row, "error": done.stderr.strip().splitlines()[-1]}
        report = json.loads(done.stdout)
        strategy = json.loads((self.folder / "plan" / "strategy.json").read_text())
        return {**row, "mesh": "x".join(str(a["size"]) for a in report["mesh"]), "seconds": report["cost"]["seconds"], "gap": report["cost"]["gap"],
                "unlimited": report["cost"]["unlimited_lower_bound_seconds"], "memory_bytes": report["memory"]["peak_bytes"],
                "recompute": report["memory"]["recompute"], "devices": report["cluster"]["devices"], "micro_batches": micro_batches(strategy),
                **{k: report["training"][k] for k in ("tokens_per_second_per_device", "model_flops_utilisation")}}


def micro_batches(strategy):
    return strategy.get("step", {}).get("micro_batches", 1)


def priced(searches, step, template, batch):
    """The template with the number of micro-batches that suits it best."""
    if batch % template.data:
        return {"error": f"the batch does not divide into {template.data}"}
    path = searches.folder / "pins.json"
    path.write_text(json.dumps(pins(step, template)))
    best, last = None, None
    for passes in (m for m in range(1, batch // template.data + 1) if batch % (m * template.data) == 0):
        last = searches.search("--pin", path, "--micro-batches", passes)
        if "error" in last and "fit" not in last["error"]:
            return last
        if "seconds" in last:
            last["micro_batches"] = passes
            if best is None or last["seconds"] < best["seconds"]:
                best = last
            # Memory is no hindrance any more: what more passes could save is nothing, and they send more.
            if last["recompute"] == "none" and last["seconds"] <= last["unlimited"] * (1 + TOLERANCE):
                break
    if best is not None:
        return best
    unlimited = searches.search("--pin", path, "--micro-batches", batch // template.data, "--memory", UNLIMITED, "--recompute", "products")
    return {**unlimited, "too_large": last["error"], "micro_batches": batch // template.data}


def line(name, row, found):
    if "seconds" not in row:
        return [name, "-", "-", "-", "-", "-", "-", "-", "-", f"{row.get('wall_seconds', 0):.1f}", row["error"]]
    fits = "too_large" not in row
    ratio = row["seconds"] / found["seconds"] if "seconds" in found else math.nan
    note = "does not fit" if not fits else "CHEAPER than what was searched" if ratio < 1 - TOLERANCE else ""
    return [name, row["mesh"], str(row["micro_batches"]), row["recompute"], f"{row['seconds']:.4g}", f"{row['tokens_per_second_per_device']:,.0f}",
            f"{row['model_flops_utilisation'] * 100:.1f} %", f"{row['memory_bytes'] / 2**30:.1f}", f"{ratio:.4f}" if fits else f"({ratio:.4f})",
            f"{row['wall_seconds']:.1f}", note or (f"gap {row['gap'] * 100:.2g} %" if row["gap"] else "")]


def shown(name, case, program, folder, lines, each):
    """Prints the table of a case. Returns whether no template is cheaper."""
    clusters = ROOT / "models" / "clusters"
    cluster = clusters / f"{case.cluster}.json"
    model = folder / f"{name}.onnx"
    if case.model.startswith("--"):
        subprocess.run([sys.executable, ROOT / "scripts" / "make_models.py", *case.model.split(), "-o", model], check=True, stdout=subprocess.DEVNULL)
    else:
        model = pathlib.Path(os.environ.get("AUTOPAR_SHARED", ROOT.parent / "shared")) / "data" / "models" / case.model
        if not model.exists():
            print(f"skipped: {model} does not exist", file=sys.stderr)
            return True
    searches = Searches(program, model, cluster, case, folder)
    step = searches.step()
    tiers = json.loads(cluster.read_text())["tiers"]
    print(f"\n{name}: {case.model} on {case.cluster}, batch {case.batch}, {case.precision}\n", flush=True)
    heads = ["plan", "mesh", "M", "recompute", "s/step", "tokens/s/device", "MFU", "GiB", "ratio", "search s", ""]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    good, found = True, {}

    def show(label, row):
        nonlocal good
        cells = line(label, row, found)
        good = good and not cells[-1].startswith("CHEAPER")
        print("| " + " | ".join(cells) + " |", flush=True)
        print(json.dumps({"case": name, "plan": label, **row}), file=lines, flush=True)

    found = searches.search("--micro-batches", "auto")
    show("searched", found)
    for passes in (m for m in range(1, case.batch + 1) if case.batch % m == 0) if each else ():
        show(f"searched, M={passes}", searches.search("--micro-batches", passes))
    for template in templates(case, tiers):
        show(str(template), priced(searches, step, template, case.batch))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--case", metavar="NAME,...")
    parser.add_argument("--tensor", metavar="N,...", help="only these sizes of tensor parallelism")
    parser.add_argument("--each", action="store_true", help="also what the search finds for each number of micro-batches")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="every row as a JSON line, with its command")
    options = parser.parse_args()
    known = {**SMALL, **FULL, **HELD_OUT}
    if options.list:
        return print("\n".join(f"{n}: {c.model} on {c.cluster}, batch {c.batch}, {c.precision}" for n, c in known.items()))
    names = options.case.split(",") if options.case else [*(FULL if options.full else ()), *(HELD_OUT if options.held_out else ())] or [*SMALL]
    if unknown := set(names) - set(known):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    program = os.environ.get("AUTOPAR", str(ROOT / "build" / "src" / "autopar"))
    good = True
    for name in names:
        case = known[name]
        if options.tensor:
            case = dataclasses.replace(case, tensor=tuple(map(int, options.tensor.split(","))))
        with tempfile.TemporaryDirectory() as folder, open(options.json or os.devnull, "a") as lines:
            good = shown(name, case, program, pathlib.Path(folder), lines, options.each) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
