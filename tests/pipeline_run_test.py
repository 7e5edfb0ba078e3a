"""Pipelines that `search --stages` plans: executed on threads (one on processes too), and as the unsharded step says.

Stages of several devices in several layouts, 1F1B and GPipe, with what updates need of all stages (counts of tokens, the norm of all
gradients, loss scales), activations kept split, repeated ops, tied embeddings. The independent executor (step_check.py) is asked too
where it is there.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = SOURCE / "models"
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared")
CHECK = SHARED / "tools" / "step_check.py"
ADAM = ["--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16]
CASES = {
    "two stages": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2]),
    "four stages": ("llama_tiny", [*ADAM, "--micro-batches", 8, "--stages", 4]),
    "eight stages of one device": ("deep", [*ADAM, "--micro-batches", 2, "--stages", 8]),
    "gpipe, all split": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2, "--schedule", "gpipe", "--zero", 3]),
    "data parallel": ("llama_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--searcher", "data_parallel", "--cuts", "layers.1.attn.residual"]),
    "templates": ("llama_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--searcher", "uniform", "--zero", 1]),
    "norm of all gradients": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 4, "--clip-norm", 0.1, "--searcher", "data_parallel"]),
    "loss scale": ("gpt2_tiny", [*ADAM, "--micro-batches", 2, "--stages", 2, "--precision", "mixed-fp16"]),
    "repeated": ("llama_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2, "--recompute", "full"]),
    "tied": ("gpt2_tiny", [*ADAM, "--micro-batches", 4, "--stages", 2, "--zero", 1]),
    "mse": ("mlp", ["--optimizer", "sgd", "--momentum", 0.9, "--loss", "mse", "--micro-batches", 4, "--stages", 2]),
    "experts, routed in a micro-batch": ("shared/tiny_moe_gather", ["--optimizer", "adamw", "--loss", "mse", "--batch", 8, "--micro-batches", 2, "--stages", 2]),
    "inputs that nobody reads": ("shared/tiny_dlrm", ["--optimizer", "adamw", "--loss", "mse", "--batch", 8, "--micro-batches", 2, "--stages", 2]),
    "convolutions": ("shared/tiny_unet3d", ["--optimizer", "sgd", "--loss", "mse", "--batch", 8, "--micro-batches", 4, "--stages", 4]),
    "statistics": ("shared/tiny_resnet", ["--optimizer", "momentum", "--loss", "mse", "--batch", 8, "--micro-batches", 2, "--stages", 2]),
    "gradients": ("llama_tiny", [*ADAM[2:], "--optimizer", "none", "--micro-batches", 4, "--stages", 2]),
}


def called(command, *arguments, code=0):
    done = subprocess.run([AUTOPAR, command, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command} {arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def model_of(folder, name):
    if name.startswith("shared/"):
        return SHARED / "data" / "models" / f"{name.removeprefix('shared/')}.onnx"
    if name != "deep":
        return MODELS / f"{name}.onnx"
    path = folder / "deep.onnx"
    if not path.exists():
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "8", "--hidden", "32", "--heads", "4",
                        "--feed-forward", "64", "--vocabulary", "64", "--sequence", "8", "-o", path], check=True, stdout=subprocess.DEVNULL)
    return path


def independent(folder, count):
    if not CHECK.exists():
        return "skipped: step_check.py is not here"
    random, arrays = np.random.default_rng(5), {}
    for value in onnx.load(folder / "train.onnx").graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(kind, np.integer):
            arrays["in." + value.name] = random.integers(0, 60, shape).astype(kind)
        elif ".v." in value.name or not shape:
            arrays["in." + value.name] = np.abs(random.standard_normal(shape) * 0.01 + 0.1).astype(kind)
        else:
            arrays["in." + value.name] = (random.standard_normal(shape) * 0.1).astype(kind)
    np.savez(folder / "io.npz", **arrays)
    done = subprocess.run([sys.executable, CHECK, folder, "--model", folder / "train.onnx", "--data", folder / "io.npz", "--steps", str(count), "--share", "5e-3"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{folder.name}: step_check.py: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return "step_check.py agrees"


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
    assert step["world_size"] == 8 and len(report["pipeline"]["chunks"]) == stages
    assert report["cost"]["seconds"] >= max(c["forward_seconds"] + c["backward_seconds"] for c in report["pipeline"]["chunks"]) * step["micro_batches"]
    if "--cuts" in CASES[name][1]:
        assert report["pipeline"]["chunks"][1]["first_op"] == CASES[name][1][-1], report["pipeline"]["chunks"]
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
    assert "no forward op 'here'" in said(*two, "here", code=4)
    assert "2 chunks have 1 cuts" in said(*two, "layers.0.mlp.residual,layers.1.mlp.residual", code=4)
    assert "does not come behind" in said(*two, "layers.1.mlp.residual,layers.0.mlp.residual", code=4)
    assert "--stages" in said("--stages", "auto", *two[2:], "layers.1.mlp.residual")
    assert "--timeline" in said("--stages", 2, "--micro-batches", 2, "--timeline", folder / "t.json")
    fit = said("--stages", 2, "--micro-batches", 2, "--memory", "64KiB", code=3)
    assert "stage 0 of 2" in fit, fit
    assert not (folder / "refused").exists()
    place = planned(folder, "two stages")
    back = called("apply", place / "train.onnx", "--cluster", "dgx-a100-1x8", "--strategy", place / "strategy.json", "-o", folder / "refused", code=4).stderr
    assert "step.stages" in back and str(place) in back, back
    again = called("price", place, "--cluster", "dgx-a100-1x8", code=4).stderr
    assert "step.json" in again, again


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in CASES:
            check(folder, name)
        by_processes(folder)
        refused(folder)


if __name__ == "__main__":
    main()
