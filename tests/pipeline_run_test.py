"""Pipelines that `search --stages` plans: executed on threads (one on processes too), and as the unsharded step says.

Shapes in which every two of model, ranks, stages, schedule and micro-batches that go together do so (all shapes with --all): three steps on threads, and
applied again from their strategy. Stages of several devices in several layouts, with what updates need of all stages (counts of tokens, the norm of all
gradients, loss scales), activations kept split, repeated ops, tied embeddings. The independent executor (step_check.py) is asked too
where it is there.
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
ADAM = ["--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16]
CASES = {
    "two stages": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2]),
    "as many micro-batches as are best": ("llama_tiny", [*ADAM, "--micro-batches", "auto", "--stages", 2]),
    "four stages": ("llama_tiny", [*ADAM, "--micro-batches", 8, "--stages", 4]),
    "eight stages of one device": ("deep", [*ADAM, "--micro-batches", 2, "--stages", 8]),
    "gpipe, all split": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2, "--schedule", "gpipe", "--zero", 3]),
    "data parallel": ("llama_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--searcher", "data_parallel", "--cuts", "layers.1.attn.residual"]),
    "a stage without parameters": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 4, "--cuts", "layers.0.attn.scores,layers.0.attn.o,layers.1.attn.residual"]),
    "templates": ("llama_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--searcher", "uniform", "--zero", 1]),
    "templates beside a mask": ("shared/tiny_llama", [*ADAM[:-2], "--micro-batches", 2, "--stages", 2, "--searcher", "uniform"]),
    "norm of all gradients": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 4, "--clip-norm", 0.1, "--searcher", "data_parallel"]),
    "loss scale": ("gpt2_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--precision", "mixed-fp16"]),
    "repeated": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2, "--recompute", "full"]),
    "tied": ("gpt2_tiny", [*ADAM, "--micro-batches", 8, "--stages", 4, "--schedule", "dualpipev", "--zero", 1]),
    "mse": ("mlp", ["--optimizer", "sgd", "--momentum", 0.9, "--loss", "mse", "--micro-batches", 4, "--stages", 2]),
    "inputs that nobody reads": ("shared/tiny_dlrm", ["--optimizer", "adamw", "--loss", "mse", "--batch", 8, "--micro-batches", 2, "--stages", 2]),
    "convolutions": ("shared/tiny_unet3d", ["--optimizer", "sgd", "--loss", "mse", "--batch", 8, "--micro-batches", 4, "--stages", 4]),
    "of its units, where memory binds": ("deeper", [*ADAM, "--micro-batches", 4, "--stages", 2, "--memory", "2.5MiB"]),
    "one value for several ops of both stages": ("experts", [*ADAM, "--micro-batches", 4, "--stages", 2, "--schedule", "zb-h1", "--cuts", "layers.0.moe.experts.1.w1"]),
    "units that take no time, under a profile": ("layer", [*ADAM, "--micro-batches", 2, "--stages", 2, "--profile", "h100-megatron"]),
    "one micro-batch": ("llama_tiny", [*ADAM, "--micro-batches", 1, "--stages", 4]),
    "one micro-batch, there and back": ("gpt2_tiny", [*ADAM, "--micro-batches", 1, "--stages", 2, "--schedule", "zb-v", "--clip-norm", 0.1]),
    "gradients": ("llama_tiny", [*ADAM[2:], "--optimizer", "none", "--micro-batches", 4, "--stages", 2]),
}

DEEP = {"layer": 1, "deep": 8, "deeper": 24, "experts": 1}  # layers

SHAPES = {"model": ("tiny_llama", "tiny_bert", "tiny_resnet", "tiny_moe_gather"), "ranks": (4, 8), "stages": (2, 4),
          "schedule": ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev"), "micro_batches": (4, 8), "samples": (4, 3)}  # of a micro-batch: 3 cannot be split over the devices of a stage
FOUR = {"format": "autopar-cluster", "version": 1, "name": "4 devices",
        "device": {"name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}},
        "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6},
                  {"name": "outer", "size": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}]}


def called(command, *arguments, code=0):
    done = subprocess.run([AUTOPAR, command, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command} {arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def model_of(folder, name):
    if name.startswith("shared/"):
        return SHARED / "data" / "models" / f"{name.removeprefix('shared/')}.onnx"
    if name not in DEEP:
        return MODELS / f"{name}.onnx"
    path = folder / f"{name}.onnx"
    if not path.exists():
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", str(DEEP[name]), "--hidden", "32", "--heads", "4",
                        "--feed-forward", "64", "--vocabulary", "64", "--sequence", "8", *(["--experts", "2"] if name == "experts" else []), "-o", path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def planned(folder, name):
    model, options = CASES[name]
    place = folder / name.replace(" ", "_").replace(",", "")
    called("search", model_of(folder, model), "--cluster", "dgx-a100-1x8", "--train", *options, "-q", "-o", place)
    return place


def check(folder, name):
    if not model_of(folder, CASES[name][0]).exists():
        return print(f"skipped: {name}: the model is not here")
    place = planned(folder, name)
    report = json.loads((place / "report.json").read_text())
    step = json.loads((place / "step.json").read_text())
    stages = report["pipeline"]["stages"]
    assert step["world_size"] == 8 and len(report["pipeline"]["chunks"]) == stages * report["pipeline"]["chunks_per_stage"]
    assert report["cost"]["seconds"] >= max(c["forward_seconds"] + c["backward_seconds"] for c in report["pipeline"]["chunks"]) * step["micro_batches"]
    work, seconds = report["training"], report["cost"]["seconds"]
    assert work["micro_batches"] == step["micro_batches"] and abs(work["seconds_at_peak"] / seconds / work["model_flops_utilisation"] - 1) < 1e-9, work
    assert 0 < work["model_flops_utilisation"] < 1 and abs(work["samples"] / seconds / work["samples_per_second"] - 1) < 1e-9, work
    assert work["tokens"] is None or abs(work["tokens"] / seconds / 8 / work["tokens_per_second_per_device"] - 1) < 1e-9, work
    assert all(0 <= c["exposed_communication_seconds"] < seconds for c in report["pipeline"]["chunks"]), report["pipeline"]["chunks"]
    if "--cuts" in CASES[name][1]:
        assert report["pipeline"]["chunks"][1]["first_op"] == CASES[name][1][-1].split(",")[0], report["pipeline"]["chunks"]
    called("verify", place)
    run = json.loads(called("run", place, "--json").stdout)
    assert run["passed"] and run["ranks"] == 8, run
    outputs = {o["name"] for o in run["outputs"]}
    if (place / "train.onnx").exists():  # the model can be had with the whole batch
        whole = {o.name for o in onnx.load(place / "train.onnx").graph.output}
        assert outputs == whole, outputs ^ whole
    asked = "loss scale" not in name and "shared/" not in CASES[name][0]  # 16-bit floats, indices and masks
    told = independent(place, 1) if asked else "not asked elsewhere"
    print(f"{name}: {stages} stages, meshes {', '.join(c['mesh'] for c in report['pipeline']['chunks'])}; {told}")


def exists(shape):
    model, _, stages, schedule, micro_batches, samples = shape
    if model == "tiny_moe_gather" and samples == 3:  # constants of its graph go with multiples of its own batch
        return False
    return schedule != "dualpipev" or micro_batches >= 2 * stages


def pairwise():
    """Shapes in which every two values that go together do so once at least: greedily the one with the most new pairs."""
    shapes = [shape for shape in itertools.product(*SHAPES.values()) if exists(shape)]
    pairs = {shape: {(i, shape[i], j, shape[j]) for i in range(len(shape)) for j in range(i)} for shape in shapes}
    left, chosen = set().union(*pairs.values()), []
    while left:
        chosen.append(max(shapes, key=lambda shape: len(pairs[shape] & left)))
        left -= pairs[chosen[-1]]
    return shapes if "--all" in sys.argv else chosen


def same_files(one, other, name):
    for path in sorted(one.iterdir()):
        if path.name in ("report.json", "io.npz"):
            continue
        assert (other / path.name).read_bytes() == path.read_bytes(), f"{name}: apply writes another {path.name}"


def check_shape(folder, shape):
    model, ranks, stages, schedule, micro_batches, samples = shape
    name = f"{model}, {ranks} ranks, {stages} stages, {schedule}, {micro_batches} micro-batches of {samples}"
    place, again, path = folder / "shape", folder / "again", SHARED / "data" / "models" / f"{model}.onnx"
    for old in (place, again):
        shutil.rmtree(old, ignore_errors=True)
    cluster = folder / "four.json" if ranks == 4 else "dgx-a100-1x8"
    loss = ["--optimizer", "momentum", "--loss", "mse"] if model == "tiny_resnet" else ["--optimizer", "adamw", "--loss", "cross_entropy"]
    called("search", path, "--cluster", cluster, "--train", *loss, "--batch", samples * micro_batches, "--micro-batches", micro_batches, "--stages", stages, "--schedule",
           schedule, "-q", "-o", place)
    called("run", place, "--steps", 3, "-q")
    called("apply", path, "--cluster", cluster, "--strategy", place / "strategy.json", "-q", "-o", again)
    same_files(place, again, name)
    claimed = json.loads((place / "report.json").read_text())
    price = json.loads(called("price", path, "--cluster", cluster, "--strategy", place / "strategy.json", "--json").stdout)
    assert price["seconds"] == claimed["cost"]["seconds"], name
    print(name)


def by_processes(folder):
    place = planned(folder, "gpipe, all split")
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
    def said(*options, code=2):
        return called("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "-o", folder / "refused", *options, code=code).stderr

    assert "--micro-batches" in said("--stages", 2)
    assert "tiers" in said("--stages", 3, "--micro-batches", 2)
    assert "1f1b" in said("--stages", 2, "--micro-batches", 2, "--schedule", "2f2b")
    assert "--stages" in said("--schedule", "gpipe")
    two = ("--stages", 2, "--micro-batches", 2, "--cuts")
    assert "op 'here': the model's forward pass has no such op" in said(*two, "here", code=4)
    assert "2 chunks have 1 cuts" in said(*two, "layers.0.mlp.residual,layers.1.mlp.residual", code=4)
    assert "does not come behind" in said(*two, "layers.1.mlp.residual,layers.0.mlp.residual", code=4)
    assert "--stages" in said("--stages", "auto", *two[2:], "layers.1.mlp.residual")
    # More stages than the model has weights are no error where others are asked for too.
    called("search", MODELS / "mlp.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "mse", "--micro-batches", 4, "--stages", "auto", "-q", "-o", folder / "auto")
    # Nor is one pass of a model whose constants say another batch.
    called("search", MODELS / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--micro-batches", "auto", "--stages", "auto", "-q", "-o", folder / "own_batch")
    # One stage is fastest there; the bound is about pipelines too, of which less is known.
    cost = json.loads((folder / "auto" / "report.json").read_text())["cost"]
    called("search", MODELS / "mlp.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "mse", "--micro-batches", 4, "--stages", 2, "-q", "-o", folder / "two")
    pipelines = json.loads((folder / "two" / "report.json").read_text())["cost"]
    assert cost["seconds"] < pipelines["seconds"] and not cost["proven_optimal"], cost
    assert 0 < cost["lower_bound_seconds"] <= pipelines["lower_bound_seconds"] * (1 + 1e-9), (cost, pipelines)
    fit = said("--stages", 2, "--micro-batches", 2, "--memory", "64KiB", code=3)
    assert "stage 0" in fit, fit
    # Of many forms that do not fit the first few are told of.
    fit = called("search", MODELS / "mlp.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "mse", "--micro-batches", "auto", "--stages", "auto",
                 "--memory", "1KiB", "-o", folder / "refused", code=3).stderr.splitlines()[-1]
    assert "25 more forms have none either" in fit and len(fit) < 1500, fit
    assert "try 4 micro-batches" in said("--stages", 4, "--micro-batches", 2, "--schedule", "interleaved", code=4)
    assert "try 8 micro-batches" in said("--stages", 4, "--micro-batches", 4, "--schedule", "dualpipev", code=4)
    assert "expected 1 chunk per stage, found 2" in said("--stages", 2, "--micro-batches", 4, "--chunks", 2, code=4)
    assert "try fewer stages" in said("--stages", 2, "--micro-batches", 4, "--schedule", "interleaved", "--chunks", 64, code=4)
    table = folder / "table.csv"
    good = "0F0,0F1,0B0,0B1"
    for lines, stages, micro_batches, options, told in (
            ("0F0,0F1,0B0", 2, 2, (), "0B1 stands nowhere"), ("0F0,0F1,0B0,0B1,0B1", 2, 2, (), "0B1 stands twice"),
            ("0F0,0B0,0U,0F1,0B1", 2, 2, (), "line 1: 0U stands before 0B1"), (good + ",0R,0R", 2, 2, (), "line 1: 0R stands twice"),
            (good + ",0U,0R", 2, 2, (), "line 1: 0U stands before 0R"), (good + ",1U", 2, 2, (), "line 2: 1F0 is of a chunk that has actions in line 1 too"),
            (good + ",7R", 2, 2, (), "line 1 has chunk 7, no line has chunk 2"), ("0F1,0B1,0F0,0B0", 2, 2, (), "in a circle"), (good, 2, 4, (), "it has 2 micro-batches, and --micro-batches is 4"),
            (good, 4, 2, (), "it has 2 lines, and --stages is 4"), (good, 2, 2, ("--chunks", 2), "it has 2 chunks, and --chunks is 2")):
        table.write_text(f"{lines}\n1F0,1B0,1F1,1B1\n")
        error = said("--stages", stages, "--micro-batches", micro_batches, *options, "--schedule", table, code=4)
        assert told in error and str(table) in error, error
    table.write_text("0F0,0F1,0B0,0B1\n\n1F0,1B0,1F1,1B1\n")
    called("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--stages", 2, "--micro-batches", 2, "--schedule", table, "-q",
           "-o", folder / "own")
    assert (folder / "own" / "schedule.csv").read_text().startswith("0F0,0F1,0B0,0B1,"), (folder / "own" / "schedule.csv").read_text()
    called("apply", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", "--strategy", folder / "own" / "strategy.json", "-q", "-o", folder / "own2")
    same_files(folder / "own", folder / "own2", "a schedule of one's own")
    assert not (folder / "refused").exists()
    place = planned(folder, "two stages")
    back = called("apply", place / "train.onnx", "--cluster", "dgx-a100-1x8", "--strategy", place / "strategy.json", "-o", folder / "refused", code=2).stderr
    assert "forward model" in back, back
    other = called("apply", MODELS / "llama_tiny.onnx", "--cluster", "cpu-4hosts", "--strategy", place / "strategy.json", "-o", folder / "refused", code=4).stderr
    assert "step.stages[0].ranks: expected 2" in other, other
    assert not (folder / "refused").exists()


def weights(folder):
    """Files of ranks, from a file to four stages and on to two: the next step is the same."""
    one, other = folder / "one", folder / "other"
    for place, options in ((one, ("--stages", 4, "--schedule", "zb-v", "--zero", 1)), (other, ("--stages", 2))):
        called("search", MODELS / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--micro-batches", 8, *options, "-q", "-o", place)
    first, second = folder / "first.npz", folder / "second.npz"
    called("run", one, "--save", first)
    called("search", MODELS / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--micro-batches", 8, "--stages", 4, "--schedule", "zb-v",
           "--zero", 1, "--weights", "sharded", "--weights-from", first, "-q", "-o", one)
    called("reshard-weights", "--from", one, "--to", other)
    assert "ranks" in called("verify", other).stdout
    for place in (one, other):
        called("merge", place, "-o", folder / f"{place.name}.safetensors")
        called("run", place, "--save", folder / f"{place.name}.npz")
    assert (folder / "one.safetensors").read_bytes() == (folder / "other.safetensors").read_bytes()
    after = [np.load(folder / f"{name}.npz") for name in ("one", "other", "first")]
    for name in after[0].files:
        assert np.allclose(after[0][name], after[1][name], rtol=1e-3, atol=1e-4), name
    assert any(not np.array_equal(after[0][name], after[2][name]) for name in after[0].files), "the weights that were given are not read"
    called("reshard-weights", "--from", one, "--to", other, "-o", folder / "third")
    for path in sorted(other.rglob("*")):
        if path.is_file() and path.name not in ("report.json", "io.npz"):
            assert (folder / "third" / path.relative_to(other)).read_bytes() == path.read_bytes(), path
    called("run", folder / "third", "--save", folder / "third.npz")
    same = np.load(folder / "third.npz")
    assert all(np.array_equal(same[name], after[1][name]) for name in same.files)
    again = called("reshard-weights", "--from", one, "--to", other, "-o", one, code=2).stderr
    assert "is where the weights come from" in again, again
    shutil.rmtree(other / "rank00000")
    shutil.copytree(one / "rank00000", other / "rank00000")
    for command in ("run", "verify"):
        error = called(command, other, code=4).stderr
        assert "rank00000" in error and "other stages or layouts" in error, error
    print("weights of ranks: sharded, merged, from four stages to two")


def bounded(folder):
    """No cut that pins say is faster than the bound over all cuts, and chunks begin where they say."""
    asked = (model_of(folder, "deep"), "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--micro-batches", 4, "-q", "-o", folder / "bounded")

    def report(*options):
        called("search", *asked, *options)
        return json.loads((folder / "bounded" / "report.json").read_text())

    for schedule in ("1f1b", "zb-h1"):
        free = report("--stages", 2, "--schedule", schedule)["cost"]
        assert 0 < free["lower_bound_seconds"] <= free["seconds"], free
        for layer in (1, 3, 4, 6):
            (folder / "stages.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {f"layers.{layer}.*": {"pipeline_stage": 1}}}))
            pinned = report("--stages", "auto", "--schedule", schedule, "--pin", folder / "stages.json")
            chunks = pinned["pipeline"]["chunks"]
            assert chunks[1]["first_op"].startswith(f"layers.{layer}.") or f"layers.{layer - 1}." in chunks[0]["last_op"], chunks
            assert pinned["cost"]["seconds"] >= free["lower_bound_seconds"], (layer, pinned["cost"], free)
    of_two = free
    tight = (model_of(folder, "deeper"), *asked[1:], "--stages", 2, "--memory", "2.5MiB")
    called("search", *tight)
    free = json.loads((folder / "bounded" / "report.json").read_text())["cost"]
    (folder / "stages.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"layers.11.*": {"pipeline_stage": 1}}}))
    called("search", *tight, "--pin", folder / "stages.json")
    pinned = json.loads((folder / "bounded" / "report.json").read_text())["cost"]
    assert pinned["seconds"] >= free["lower_bound_seconds"] > 0, (pinned, free)
    auto = report("--stages", "auto", "--schedule", "auto")
    assert auto["cost"]["lower_bound_seconds"] <= auto["cost"]["seconds"] <= of_two["seconds"], auto["cost"]
    print("bounds: below every pinned cut")


def timelines(folder):
    """No row does two things at a time, and the last ends when the plan says."""
    place, path = folder / "drawn", folder / "drawn.json"
    called("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--micro-batches", 4, "--stages", 2, "--schedule", "interleaved",
           "-q", "-o", place, "--timeline", path)
    rows = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for row in rows.values():
        row.sort()
        assert all(before[1] <= after[0] + 2e-3 for before, after in zip(row, row[1:]))
    seconds = json.loads((place / "report.json").read_text())["cost"]["seconds"]
    assert abs(max(end for row in rows.values() for _, end in row) - seconds * 1e6) < 2e-3
    programs = json.loads(called("price", place, "--cluster", "dgx-a100-1x8", "--json").stdout)
    assert 0.5 * seconds < programs["seconds"] < 2 * seconds, (programs["seconds"], seconds)
    print(f"timeline: {len(rows)} rows; {seconds * 1e6:.1f} us planned, {programs['seconds'] * 1e6:.1f} us by the programs")


def partial_sums(folder):
    """Whether gradients are finite may be asked of partial sums, which the update adds up: then each reads the accumulator. What is
    added up before is handed on, and then nothing but that is read."""
    pins, place = folder / "partial.json", folder / "partial"
    axes = [{"name": name, "size": 2, "tier": "nvlink"} for name in ("data", "tensor")]
    ops = {f"h.{layer}.{op}": {"assignment": {"data": "b", "tensor": factor}} for layer in (0, 1)
           for op, factor in (("attn.qkv", "n"), ("attn.proj", "k"), ("mlp.fc", "n"), ("mlp.proj", "k"))}
    pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": axes, "ops": ops}))
    called("search", MODELS / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", *ADAM, "--precision", "mixed-fp16", "--reduce-precision", "fp32",
           "--profile", "a100-megatron", "--micro-batches", 2, "--stages", 2, "--pin", pins, "-q", "-o", place)
    called("verify", place)
    called("run", place)
    reduces, update = ({value.name for value in onnx.load(place / f"plan.c0.{name}.onnx").graph.input} for name in ("R", "U"))
    added_before = []
    for weight in ("wte.weight", "wpe.weight", "h.0.mlp.fc.weight"):
        is_handed_on = f"sums.acc.{weight}.update" in update
        added_before.append(is_handed_on)
        assert f"acc.{weight}" in reduces and (f"acc.{weight}" in update) != is_handed_on, (weight, update)
    assert any(added_before), update
    print("partial sums:", independent(place, 3))


def tiers(folder):
    """A message goes over the tier between the two stages, and every other pair of these has the slow one between them."""
    cluster = folder / "tiers.json"
    cluster.write_text(json.dumps({**FOUR, "tiers": [*FOUR["tiers"], {"name": "slow", "size": 2, "bandwidth_bytes_per_s": 1e8, "latency_s": 1e-4}]}))
    called("search", model_of(folder, "deep"), "--cluster", cluster, "--train", *ADAM, "--micro-batches", 8, "--stages", 4, "-q", "-o", folder / "tiers")
    claimed = json.loads((folder / "tiers" / "report.json").read_text())["cost"]["seconds"]
    found = json.loads(called("price", folder / "tiers", "--cluster", cluster, "--json").stdout)["seconds"]
    assert abs(found / claimed - 1) < 0.15, (found, claimed)  # the number of labels is sent to the updates
    print(f"three tiers: {claimed:.3g} s, its programs {found:.3g} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in CASES:
            check(folder, name)
        if (SHARED / "data" / "models" / "tiny_llama.onnx").exists():
            (folder / "four.json").write_text(json.dumps(FOUR))
            for shape in pairwise():
                check_shape(folder, shape)
        else:
            print("skipped: all shapes, there is no data/models below AUTOPAR_SHARED")
        by_processes(folder)
        weights(folder)
        bounded(folder)
        partial_sums(folder)
        tiers(folder)
        timelines(folder)
        refused(folder)


if __name__ == "__main__":
    main()
