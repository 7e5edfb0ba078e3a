"""Interleaved passes (`search --copies`): executed on threads as the unsharded step says, over three steps; priced, drawn and applied as they are planned.

Shapes in which every two of model, plan, ranks, micro-batches and copies do so (all shapes with --all). The independent executor (step_check.py) is asked
too where it is there. Where collectives block the step of one copy, that of two is faster, by no more than what they block, and takes more memory.
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from tools.independent_step import independent

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = SOURCE / "models"
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared")
SHAPES = {"model": ("tiny_llama", "tiny_bert", "tiny_resnet"), "plan": ("auto", "data_parallel", "tensor", "mixed"), "ranks": (4, 8),
          "micro_batches": (2, 4, 8), "copies": (2, 4), "profile": ("ideal", "h100-megatron", "a100-eager")}
FOUR = {"format": "autopar-cluster", "version": 1, "name": "4 devices",
        "device": {"name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}},
        "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6},
                  {"name": "outer", "size": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}]}


def called(command, *arguments, code=0):
    done = subprocess.run([AUTOPAR, command, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command} {arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def pairwise():
    """Shapes in which every two values that go together do so once at least: greedily the one with the most new pairs."""
    shapes = [shape for shape in itertools.product(*SHAPES.values()) if shape[3] % shape[4] == 0]
    pairs = {shape: {(i, shape[i], j, shape[j]) for i in range(len(shape)) for j in range(i)} for shape in shapes}
    left, chosen = set().union(*pairs.values()), []
    while left:
        chosen.append(max(shapes, key=lambda shape: len(pairs[shape] & left)))
        left -= pairs[chosen[-1]]
    return shapes if "--all" in sys.argv else chosen


def searcher_of(plan, ranks):
    return {"tensor": f"uniform:dp=1 tp={ranks} zero=0", "mixed": f"uniform:dp=2 tp={ranks // 2} sp zero=1"}.get(plan, plan)


def same_files(one, other, name):
    for path in sorted(one.iterdir()):
        if path.name in ("report.json", "io.npz"):
            continue
        assert (other / path.name).read_bytes() == path.read_bytes(), f"{name}: apply writes another {path.name}"


def in_order(place, drawn, copies, name):
    """The program's collectives come in the order in which the first passes are predicted to send them."""
    nodes = onnx.load(place / "plan.c0.FB.onnx", load_external_data=False).graph.node
    written = [next((c for c in range(1, copies) if n.name.endswith(f".copy{c}")), 0) for n in nodes if n.domain == "ai.autopar" and n.op_type != "ShardSlice"]
    events = json.loads(drawn.read_text())["traceEvents"]
    links = {e["tid"] for e in events if e["name"] == "thread_name" and "collectives" in e["args"]["name"]}
    sent = [e["args"]["micro_batch"] for e in events if e["ph"] == "X" and e["tid"] in links and e["args"].get("micro_batch", copies) < copies
            and e["args"]["phase"] != "update"]
    assert written == sent, (name, written, sent)


def check_shape(folder, shape):
    model, plan, ranks, micro_batches, copies, profile = shape
    name = ", ".join(map(str, shape))
    place, again, path = folder / "shape", folder / "again", SHARED / "data" / "models" / f"{model}.onnx"
    for old in (place, again):
        shutil.rmtree(old, ignore_errors=True)
    cluster = folder / "four.json" if ranks == 4 else "dgx-a100-1x8"
    options = ["--cluster", cluster, "--profile", profile]
    loss = ["--optimizer", "momentum", "--loss", "mse"] if model == "tiny_resnet" else ["--optimizer", "adamw", "--loss", "cross_entropy"]
    drawn = folder / "drawn.json"
    called("search", path, *options, "--train", *loss, "--batch", 8 * micro_batches, "--micro-batches", micro_batches, "--copies", copies, "--searcher",
           searcher_of(plan, ranks), "-q", "-o", place, "--timeline", drawn)
    step = json.loads((place / "step.json").read_text())
    assert (step["micro_batches"], step["copies"]) == (micro_batches // copies, copies), step
    report = json.loads((place / "report.json").read_text())
    assert report["training"]["copies"] == copies and report["cost"]["lower_bound_seconds"] <= report["cost"]["seconds"], report["cost"]
    called("verify", place)
    called("run", place, "--steps", 3, "-q")
    # Statistics of a batch are those of each pass, in the order of the copies, which train.FB.onnx has as well.
    below = 2 if model == "tiny_bert" else 60  # which has two types of tokens
    told = independent(place, 3, below) if model != "tiny_resnet" else "not asked elsewhere"
    called("apply", path, *options, "--strategy", place / "strategy.json", "-q", "-o", again)
    same_files(place, again, name)
    price = json.loads(called("price", path, *options, "--strategy", place / "strategy.json", "--json").stdout)
    assert price["seconds"] == report["cost"]["seconds"], (name, price["seconds"], report["cost"])
    applied = json.loads((again / "report.json").read_text())
    assert applied["cost"]["seconds"] == report["cost"]["seconds"] and applied["memory"] == report["memory"], (name, applied["cost"], report["cost"])
    if profile == "ideal":  # in which programs are priced
        programs = json.loads(called("price", place, "--cluster", cluster, "--json").stdout)
        assert 0.8 < programs["seconds"] / report["cost"]["seconds"] < 1.25, (name, programs["seconds"], report["cost"])
    ends = {}
    if profile != "ideal":
        in_order(place, drawn, copies, name)
    for event in json.loads(drawn.read_text())["traceEvents"]:
        if event["ph"] == "X":
            ends.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for row in ends.values():
        row.sort()
        assert all(before[1] <= after[0] + 2e-3 for before, after in zip(row, row[1:])), name
    assert abs(max(end for row in ends.values() for _, end in row) - report["cost"]["seconds"] * 1e6) < 2e-3 + 1e-6 * report["cost"]["seconds"] * 1e6, name
    print(f"{name}: {told}")


def llama(folder):
    path = folder / "wide.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "4", "--hidden", "4096", "--heads", "32",
                    "--feed-forward", "11008", "--vocabulary", "32000", "--sequence", "2048", "-o", path], check=True, stdout=subprocess.DEVNULL)
    return path


def hidden_collectives(folder):
    """Tensor parallelism blocks compute; the other copy's compute hides it."""
    model, common = llama(folder), ["--cluster", "dgx-h100-8x8", "--mesh", "8x8", "--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--precision",
                                    "mixed-bf16", "--batch", 64, "--micro-batches", 8, "--profile", "h100-megatron", "--recompute", "none", "--searcher", "uniform:dp=8 tp=8 sp zero=1", "-q"]

    def report(copies):
        place = folder / f"hidden{copies}"
        called("search", model, *common, "--copies", copies, "-o", place)
        return json.loads((place / "report.json").read_text())

    one, two = report(1), report(2)
    times = one["cost"]["seconds"], two["cost"]["seconds"]
    assert times[1] < 0.9 * times[0], times
    assert two["cost"]["lower_bound_seconds"] <= times[1]
    memory = [r["memory"]["peak_bytes"] for r in (one, two)]
    assert memory[0] < memory[1] < 2 * memory[0], memory
    print(f"tensor parallel 8, data parallel 8: {times[0] * 1e3:.1f} ms, with two copies {times[1] * 1e3:.1f} ms; "
          f"{memory[0] / 2**30:.2f} and {memory[1] / 2**30:.2f} GiB")


def weights(folder):
    """Files of ranks, from two copies on to none: the next step is the same."""
    one, other, first = folder / "one", folder / "other", folder / "first.npz"
    step = MODELS / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--batch", 16, "--micro-batches", 4, "-q"
    called("search", *step, "--copies", 2, "-o", one)
    called("run", one, "--save", first)
    called("search", *step, "--copies", 2, "--weights", "sharded", "--weights-from", first, "-o", one)
    called("search", *step, "--zero", 3, "-o", other)
    called("reshard-weights", "--from", one, "--to", other)
    for place in (one, other):
        called("merge", place, "-o", folder / f"{place.name}.safetensors")
        called("run", place, "--save", folder / f"{place.name}.npz")
    assert (folder / "one.safetensors").read_bytes() == (folder / "other.safetensors").read_bytes()
    after = [np.load(folder / f"{name}.npz") for name in ("one", "other", "first")]
    for name in after[0].files:
        assert np.allclose(after[0][name], after[1][name], rtol=1e-3, atol=1e-4), name
    assert any(not np.array_equal(after[0][name], after[2][name]) for name in after[0].files), "the weights that were given are not read"
    print("weights of ranks: sharded, merged, from two copies to none")


def by_processes(folder):
    place = folder / "one"
    called("run", place, "--save", folder / "threads.npz")
    for mpi, more in (("openmpi", ["--oversubscribe"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])), ("mpich", [])):
        launcher = shutil.which(f"mpirun.{mpi}")
        if launcher is None or not (pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / f"libautopar_{mpi}.so").exists():
            print(f"skipped: {mpi} is not here")
            continue
        done = subprocess.run([launcher, *more, "-n", "8", AUTOPAR, "run", place, "--ranks-by", "mpi", "--save", folder / "mpi.npz"],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        one, other = np.load(folder / "threads.npz"), np.load(folder / "mpi.npz")
        assert all(one[k].tobytes() == other[k].tobytes() for k in one.files)
        print(f"{mpi}: the same bits as threads")


def refused(folder):
    def said(*options, command="search", code=2):
        return called(command, MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", *options, "-o", folder / "refused", code=code).stderr

    train = ("--train", "--loss", "cross_entropy", "--batch", 12)
    assert "--train" in said("--copies", 2)
    assert "expected 1 or more" in said(*train, "--micro-batches", 4, "--copies", 0)
    assert "--micro-batches" in said(*train, "--copies", 2)
    assert "--micro-batches" in said(*train, "--copies", 2, "--micro-batches", "auto")
    assert "not with 3" in said(*train, "--copies", 2, "--micro-batches", 3)
    assert "one stage" in said(*train, "--copies", 2, "--micro-batches", 4, "--stages", 2)
    assert "fewer --copies" in said(*train, "--copies", 2, "--micro-batches", 4, "--memory", "64KiB", code=3)
    assert not (folder / "refused").exists()
    place = folder / "taken"
    called("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", *train, "--micro-batches", 4, "--copies", 2, "-q", "-o", place)
    strategy = json.loads((place / "strategy.json").read_text())
    assert strategy["step"]["copies"] == 2
    strategy["step"]["copies"] = 3
    (folder / "three.json").write_text(json.dumps(strategy))
    error = said("--strategy", folder / "three.json", command="apply", code=4)
    assert "step.copies" in error and "divides the 4" in error, error
    assert not (folder / "refused").exists()
    warned = called("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", *train, "--micro-batches", 4, "--copies", 2, "-o", place)
    assert "ideal prices" in warned.stderr and "2 passes at a time" in warned.stdout, warned.stderr + warned.stdout
    assert "2 copies" in called("show", place).stdout
    assert "interleaved" in " ".join(json.loads(called("export", place, "--as", "megatron", "--json").stdout)["unsaid"])
    told = called("export", place, "--as", "mindspore").stdout
    assert "MicroBatchInterleaved(net, 2)" in told and "GradAccumulationCell(net, 2)" in told, told


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        refused(folder)
        hidden_collectives(folder)
        weights(folder)
        by_processes(folder)
        if not (SHARED / "data" / "models" / "tiny_llama.onnx").exists():
            print("skipped: all shapes, there is no data/models below AUTOPAR_SHARED")
            return
        (folder / "four.json").write_text(json.dumps(FOUR))
        for shape in pairwise():
            check_shape(folder, shape)


if __name__ == "__main__":
    main()
