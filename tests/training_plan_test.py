"""Plans of training steps: the type in which gradients are added up (--reduce-precision), small collectives that are joined
(--gradient-bucket), what the memory at the peak is there for, and the warning of initializers that are no weights.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = SOURCE / "models"
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared") / "data"
CLUSTER = ("--cluster", "dgx-a100-1x8", "--mesh", "8")
LOSS = {"mlp": ("--loss", "mse"), "gpt2_tiny": ("--loss", "cross_entropy"), "llama_tiny": ("--loss", "cross_entropy")}


def run(*arguments, code=0):
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def plan_of(folder, name, model, *options):
    plan = folder / name
    run("search", MODELS / f"{model}.onnx", *CLUSTER, "--train", *LOSS[model], *options, "-o", plan, "-q")
    return plan


def passes(plan, *options):
    return run("run", plan, "-q", *options).stdout.splitlines()[-1] == "PASSED"


def collectives_of(plan, *kinds):
    """(kind, type, elements per rank) of those that exchange more than single numbers."""
    model = onnx.load(plan / "plan.onnx", load_external_data=False)
    types = {v.name: v.type.tensor_type for v in [*model.graph.value_info, *model.graph.input, *model.graph.output]}
    found = []
    for node in model.graph.node:
        if node.domain != "ai.autopar" or node.op_type not in kinds:
            continue
        made = types[node.output[0]]
        found.append((node.op_type, TensorProto.DataType.Name(made.elem_type), int(np.prod([d.dim_value for d in made.shape.dim]))))
    return [c for c in found if c[2] > 1]


def reduced_types(plan):
    return {dtype for _, dtype, _ in collectives_of(plan, "AllReduce", "ReduceScatter")}


def reduce_precision(folder):
    # Data parallel: what is reduced is gradients, and the loss, which is one number.
    own = {"mixed-fp16": "FLOAT16", "mixed-bf16": "BFLOAT16"}
    for precision, narrow in own.items():
        option = narrow.replace("BFLOAT16", "bf16").replace("FLOAT16", "fp16")
        for reduce, types in (("fp32", {"FLOAT"}), (option, {narrow}), ("auto", None)):
            name = f"{precision}.{reduce}"
            plan = plan_of(folder, name, "mlp", "--optimizer", "adam", "--precision", precision, "--searcher", "data_parallel", "--reduce-precision", reduce)
            found = reduced_types(plan)
            assert found and (types is None or found == types), (name, found)
            if precision == "mixed-fp16":
                assert passes(plan)
    # Gradients that are float32 are rounded for it; a plan that is searched keeps to it too.
    plan = plan_of(folder, "rounded", "mlp", "--optimizer", "sgd", "--searcher", "data_parallel", "--reduce-precision", "fp16")
    assert reduced_types(plan) == {"FLOAT16"} and passes(plan)
    plan = plan_of(folder, "tied", "gpt2_tiny", "--precision", "mixed-fp16", "--searcher", "data_parallel", "--reduce-precision", "fp32")
    assert reduced_types(plan) == {"FLOAT"} and passes(plan)
    searched = plan_of(folder, "searched", "mlp", "--precision", "mixed-fp16", "--reduce-precision", "fp32")
    assert passes(searched)
    # Whoever reads the step anew knows it too, and writes the same plan.
    again = folder / "again"
    run("apply", MODELS / "mlp.onnx", *CLUSTER[:2], "--strategy", searched / "strategy.json", "-o", again, "-q")
    assert (again / "plan.onnx").read_bytes() == (searched / "plan.onnx").read_bytes()
    nodes = onnx.load(searched / "train.onnx").graph.node
    assert {e.value for n in nodes for e in n.metadata_props if e.key == "autopar.sums"} == {"before", "after"}
    print("gradients are added up in float32, float16 or bfloat16, as was said")


def gradient_bucket(folder):
    for model, options in (("gpt2_tiny", ("--optimizer", "adamw", "--clip-norm", "1")), ("llama_tiny", ("--optimizer", "sgd"))):
        few = []
        for bucket in ("", "1MiB", "128KiB"):
            size = ("--gradient-bucket", bucket) if bucket else ()
            plan = plan_of(folder, f"{model}{bucket}", model, *options, "--searcher", "data_parallel", *size)
            saved = folder / f"{model}{bucket}.npz"
            assert passes(plan, "--save", saved)
            priced = json.loads(run("price", plan, *CLUSTER[:2], "--json").stdout)
            few.append((len(collectives_of(plan, "AllReduce")), priced, dict(np.load(saved)), plan))
        (plain, before, expected, _), (joined, after, found, plan), (some, _, others, _) = few
        assert joined < some < plain, (joined, some, plain)
        assert json.dumps(after) != json.dumps(before)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes() == others[name].tobytes(), name
        again = folder / f"{model}.again"
        run("apply", MODELS / f"{model}.onnx", *CLUSTER[:2], "--strategy", plan / "strategy.json", "-o", again, "-q")
        assert (again / "plan.onnx").read_bytes() == (plan / "plan.onnx").read_bytes()
        assert (again / "strategy.json").read_text().count('"gradient_bucket": 1048576') == 1
        print(f"{model}: {plain} AllReduce, {some} in buckets of 128 KiB, {joined} in those of 1 MiB; the same bits")
    # Whole weights and cut states: gradients are reduced to the part that a rank updates, and its new weights are gathered.
    shapes = {"fc1.weight": 2, "fc1.bias": 1, "fc2.weight": 2, "fc2.bias": 1}
    spec = {2: ("[{nvlink},{}]", "[{},{}]"), 1: ("[{nvlink}]", "[{}]")}
    pins = {"format": "autopar-strategy", "version": 1,
            "ops": {"fc1.grad": {"in_strategy": [[8, 1], [8, 1]]}, "fc2.grad.1": {"in_strategy": [[8, 1], [8, 1]]}},
            "tensors": {f"sgd.m.{name}": {"spec": spec[rank][0]} for name, rank in shapes.items()}
            | {name: {"spec": spec[rank][1]} for name, rank in shapes.items()}}
    (folder / "pins.json").write_text(json.dumps(pins))
    found = []
    for bucket in ((), ("--gradient-bucket", "1MiB")):
        plan = plan_of(folder, "cut" + "".join(bucket), "mlp", "--optimizer", "momentum", "--pin", folder / "pins.json", *bucket)
        saved = folder / "cut.npz"
        assert passes(plan, "--save", saved)
        found.append((collections.Counter(kind for kind, _, _ in collectives_of(plan, "AllReduce", "ReduceScatter", "AllGather")), dict(np.load(saved))))
        nodes = [node.name for node in onnx.load(plan / "plan.onnx").graph.node]
        # With one pass the gradient of a layer is reduced, and handed to the update, before that of the layer before is made.
        assert bucket or nodes.index("fc2.weight.grad") < nodes.index("fc1.grad"), nodes
    assert all(found[1][1][name].tobytes() == array.tobytes() for name, array in found[0][1].items())
    assert found[0][0]["ReduceScatter"] > 1 and found[0][0]["AllGather"] > 1, found[0][0]
    assert found[1][0]["ReduceScatter"] == 1 and found[1][0]["AllGather"] < found[0][0]["AllGather"], found
    print(f"cut states: {dict(found[0][0])} become {dict(found[1][0])}; the same bits")
    done = run("search", MODELS / "mlp.onnx", *CLUSTER, "--gradient-bucket", "much", code=2)
    assert "--gradient-bucket 'much': expected a size" in done.stderr, done.stderr


def memory_parts(folder):
    states = {}
    for optimizer in ("sgd", "momentum", "adamw"):
        plan = plan_of(folder, optimizer, "gpt2_tiny", "--optimizer", optimizer, "--searcher", "data_parallel")
        memory = json.loads((plan / "report.json").read_text())["memory"]
        parts = memory["parts"]
        assert sum(parts.values()) == memory["peak_bytes"], memory
        states[optimizer] = parts["states_bytes"]
        assert parts["kept_activations_bytes"] + parts["temporaries_bytes"] > 0 and parts["data_bytes"] > 0, parts
        parameters = parts["parameters_bytes"]
        assert parts["accumulators_bytes"] == 0
    # Data parallel: every rank has all of them. Beside the moments there are single numbers.
    assert 0 <= states["sgd"] < 64 and abs(states["momentum"] - parameters) < 64 and abs(states["adamw"] - 2 * parameters) < 64, states
    mixed = plan_of(folder, "mixed", "gpt2_tiny", "--optimizer", "adamw", "--precision", "mixed-bf16", "--searcher", "data_parallel")
    parts = json.loads((mixed / "report.json").read_text())["memory"]["parts"]
    assert parts["states_bytes"] == states["adamw"] and parts["parameters_bytes"] > parameters, parts
    table = run("search", MODELS / "mlp.onnx", *CLUSTER, "--train", *LOSS["mlp"], "-o", folder / "table").stdout
    assert "optimizer states" in table and "kept activations" in table and "accumulators" not in table, table
    table = run("search", MODELS / "mlp.onnx", *CLUSTER, "--train", *LOSS["mlp"], "--micro-batches", "2", "-o", folder / "two").stdout
    memory = json.loads((folder / "two" / "report.json").read_text())["memory"]
    assert "accumulators" in table and memory["parts"]["accumulators_bytes"] > 0 and sum(memory["parts"].values()) == memory["peak_bytes"], memory
    inference = folder / "inference"
    run("search", MODELS / "mlp.onnx", *CLUSTER, "-o", inference, "-q")
    assert "parts" not in json.loads((inference / "report.json").read_text())["memory"]
    print(f"memory at the peak adds up; states {states}")


def computed(text):
    """The names that the warning has."""
    found = re.search(r"looks as if they were computed: (.*); --freeze (\S+) leaves", text)
    if not found:
        return set()
    names = set(re.findall(r"'([^']+)' \(", found[1]))
    assert names == set(found[2].split(",")), text
    return names


def tables(folder):
    """A model with everything that looks like a weight and is none, beside weights that look like such tables at first."""
    rows = np.arange(8)[:, None] * (1.0 / 10 ** np.arange(4))[None, :]
    rng = np.random.default_rng(1)
    lower = np.tril(np.ones((8, 8)))
    arrays = {"cos": np.cos(rows), "sin": np.sin(rows), "both": np.concatenate([np.sin(rows), np.cos(rows)], 1)[:, :4],
              "mask": np.where(lower > 0, 0, np.finfo(np.float32).min), "minus_inf": np.where(lower > 0, 0, -np.inf), "triangle": lower,
              "ramp": np.arange(8.0)[:, None] * np.ones((1, 4)), "slopes": 0.5 ** np.arange(1, 9)[:, None] * np.ones((1, 4)),
              "weight": rng.normal(size=(4, 4)), "zeros": np.zeros(4), "ones": np.ones((8, 4)), "bias": np.float64([0, 0, 1, 0]),
              "eye": np.eye(8), "random": rng.normal(size=(8, 4)), "small": np.cos(rows[:3]), "one": np.ones(1), "constant": np.full((8, 8), -3.0)}
    wanted = {"cos", "sin", "both", "mask", "minus_inf", "triangle", "ramp", "slopes"}
    nodes, value = [helper.make_node("MatMul", ["x", "weight"], ["v"])], "v"
    for name in ("cos", "sin", "both", "ramp", "slopes", "ones", "random", "one", "zeros", "bias"):
        nodes.append(helper.make_node("Mul" if name != "bias" else "Add", [value, name], [f"{name}.y"]))
        value = f"{name}.y"
    nodes.append(helper.make_node("Slice", [value, "start", "end"], ["cut"]))
    nodes.append(helper.make_node("Mul", ["cut", "small"], ["cut.y"]))
    nodes.append(helper.make_node("Transpose", [value], ["turned"]))
    nodes.append(helper.make_node("MatMul", [value, "turned"], ["scores"]))
    value = "scores"
    for name in ("mask", "minus_inf", "triangle", "eye", "constant"):
        nodes.append(helper.make_node("Mul" if name in ("triangle", "eye") else "Add", [value, name], [f"{name}.y"]))
        value = f"{name}.y"
    nodes += [helper.make_node("Softmax", [value], ["p"]), helper.make_node("ReduceSum", ["p"], ["all"], keepdims=0),
              helper.make_node("ReduceSum", ["cut.y"], ["more"], keepdims=0), helper.make_node("Add", ["all", "more"], ["loss"])]
    initializers = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in arrays.items()]
    initializers += [numpy_helper.from_array(np.int64([0]), "start"), numpy_helper.from_array(np.int64([3]), "end")]
    graph = helper.make_graph(nodes, "tables", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4])],
                              [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])], initializers)
    path = folder / "tables.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    grad = ("grad", path, "-o", folder / "train.onnx")
    found = computed(run(*grad).stderr)
    assert found == wanted, (found ^ wanted)
    assert computed(run(*grad, "--freeze", ",".join(sorted(wanted))).stderr) == set()
    assert computed(run(*grad, "--parameters", "*").stderr) == set(), "who names what is trained knows"
    print(f"{len(wanted)} computed tables are told, {len(arrays) - len(wanted)} weights are not")


def tables_of_models(folder):
    """Of the forward models here: what their exporter left, and nothing else."""
    known = {"tiny_llama": {"unsqueeze_4", "unsqueeze_5", "val_100"}}
    for path in sorted([*MODELS.glob("*_tiny.onnx"), MODELS / "mlp.onnx", *SHARED.glob("models/tiny_[a-su-z]*.onnx"), *SHARED.glob("grad/*.fwd.onnx")]):
        names = [o.name for o in onnx.load(path, load_external_data=False).graph.output]
        done = subprocess.run([AUTOPAR, "grad", path, "--loss", "loss" if "loss" in names else f"sum:{names[0]}", "-o", folder / "t.onnx"],
                              capture_output=True, text=True, timeout=300)
        found = computed(done.stderr) if done.returncode == 0 else done.stderr[:200]
        print(f"{path.stem}: {sorted(found) if isinstance(found, set) else found}")
        if path.stem in known:
            assert found == known[path.stem], found


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in (tables, tables_of_models, reduce_precision, memory_parts, gradient_bucket):
            sub = folder / part.__name__
            sub.mkdir()
            part(sub)
    return 0


if __name__ == "__main__":
    sys.exit(main())
