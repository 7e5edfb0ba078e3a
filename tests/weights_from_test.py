"""--weights-from: weights and optimizer states for a training step, by the names of its inputs, and what does not fit.

What the step makes of them is compared with the step that ONNX Runtime runs on the same arrays.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from safetensors.numpy import load_file, save_file

AUTOPAR = os.environ["AUTOPAR"]
MODEL = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models" / "mlp.onnx"
LOSS = ("--loss", "mse")


def run(*arguments, code=0):
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def roles_of(plan):
    """From the step and from the plan, which must say the same."""
    texts = [{e.key: e.value for e in onnx.load(plan / name, load_external_data=False).metadata_props}["autopar.training"]
             for name in ("train.onnx", "plan.onnx")]
    assert texts[0] == texts[1], texts
    return json.loads(texts[0])


def plan_of(folder, name, *options):
    plan = folder / name
    run("search", MODEL, "--cluster", "dgx-a100-1x8", "--train", *LOSS, *options, "-o", plan, "-q")
    return plan


def arrays_for(plan, wanted):
    """Small numbers for these inputs; second moments above 0."""
    generator = np.random.default_rng(7)
    arrays = {}
    for value in onnx.load(plan / "train.onnx").graph.input:
        if value.name not in wanted:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        arrays[value.name] = np.asarray(np.abs(generator.normal(scale=0.1, size=shape)), dtype)
    assert arrays.keys() == set(wanted), set(wanted) - arrays.keys()
    return arrays


def as_the_step_says(plan, given, data, saved, rate):
    """The saved outputs are those of the unsharded step on the same arrays."""
    session = ort.InferenceSession(plan / "train.onnx")
    feeds = dict(given) | dict(np.load(data))
    feeds.setdefault("learning_rate", np.array(rate, np.float32))
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    found = np.load(saved)
    for name, value in outputs.items():
        expected = value.astype(np.float64)
        assert np.allclose(found["out." + name].astype(np.float64), expected, rtol=1e-3, atol=1e-4), name


def fed(folder, precision):
    plan = plan_of(folder, precision, "--optimizer", "adamw", "--precision", precision, "--lr", "0.01")
    roles = roles_of(plan)
    copies = [s for s in roles["states"] if s.startswith("fp16.")]
    assert bool(copies) == (precision == "mixed-fp16")
    wanted = [n for n in roles["parameters"] + roles["states"] if n not in copies and n != "learning_rate"]
    given = arrays_for(plan, wanted)
    data = folder / "data.npz"
    np.savez(data, **arrays_for(plan, roles["data"]))
    np.savez(folder / "w.npz", **{"in." + n: a for n, a in given.items()})
    save_file(given, folder / "w.safetensors")
    whole = dict(given) | {c: given[c.removeprefix("fp16.")].astype(np.float16) for c in copies}
    files = []
    for file in ("w.npz", "w.safetensors"):
        saved = folder / f"{file}.out.npz"
        done = run("run", plan, "--weights-from", folder / file, "--data", data, "--save", saved)
        assert "seed" not in done.stderr, done.stderr
        as_the_step_says(plan, whole, data, saved, rate=0.01)
        files.append(saved)
    first, second = (np.load(f) for f in files)
    assert all(np.array_equal(first[n], second[n]) for n in first.files)
    # The next step begins where the first one ended: two runs are --steps 2.
    after, twice = folder / "after.npz", folder / "twice.npz"
    run("run", plan, "--weights-from", files[0], "--data", data, "--save", after)
    run("run", plan, "--weights-from", folder / "w.npz", "--data", data, "--steps", "2", "--save", twice)
    assert all(np.array_equal(np.load(after)[n], np.load(twice)[n]) for n in np.load(twice).files)
    print(f"{precision}: {len(given)} tensors fed from .npz and .safetensors, {len(copies)} copies follow")
    return plan, given


def without_states(folder, plan, given):
    """Parameters alone, here those of a model's file: the states come from the seed, which is told."""
    weights = {n: a for n, a in given.items() if not n.startswith(("adam.", "scaler."))}
    model = onnx.load(MODEL)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64([2, 3]), "some.shape"))
    onnx.save(model, folder / "w.onnx")
    done = run("run", plan, "--weights-from", folder / "w.onnx")
    assert "has no optimizer states" in done.stderr, done.stderr
    np.savez(folder / "some.npz", **weights, **{"adam.step": given["adam.step"]})
    done = run("run", plan, "--weights-from", folder / "some.npz", code=4)
    assert "the file lacks 'adam.m." in done.stderr, done.stderr
    print("weights without states: told; some states: refused")


def of_one_pass(folder, given):
    """Ranks have the parameters of a step of one pass, too, which it reads as inputs; what `merge` makes of them feeds it, and one of several passes."""
    weights = {n: a for n, a in given.items() if not n.startswith(("adam.", "scaler."))}
    search = ("search", folder / "w.onnx", "--cluster", "dgx-a100-1x8", "--train", *LOSS, "--optimizer", "adamw", "--weights", "sharded", "-q")
    for passes in 1, 2:
        run(*search, "--micro-batches", passes, "-o", folder / f"passes{passes}")
        merged = folder / f"passes{passes}.safetensors"
        run("merge", folder / f"passes{passes}", "-o", merged)
        held = load_file(merged)
        assert all(np.array_equal(held[n], a) for n, a in weights.items()), sorted(held)
    for passes in 1, 2:
        for source in (folder / "passes1.safetensors", folder / "passes2.safetensors", folder / f"passes{3 - passes}"):
            assert run("run", folder / f"passes{passes}", "--weights-from", source).stdout.splitlines()[-1] == "PASSED"
    done = run(*search[:1], MODEL, *search[2:], "-o", folder / "none", code=4)
    assert "lacks '" in done.stderr and "--weights-from FILE" in done.stderr and not (folder / "none").exists(), done.stderr
    print("weights of a step of one pass: cut, merged, fed")


def refused(folder, plan, given):
    def error(arrays, told, code=4, command=("run", plan), name="bad.npz"):
        np.savez(folder / name, **arrays)
        done = run(*command, "--weights-from", folder / name, code=code)
        assert all(t in done.stderr for t in told), (told, done.stderr)

    parameter = next(n for n in given if not n.startswith("adam."))
    momentum = {("sgd.m." + n.removeprefix("adam.m.") if n.startswith("adam.m.") else n): a
                for n, a in given.items() if not n.startswith(("adam.v.", "adam.step"))}
    other = ("does not fit the training step", "adamw, fp32", "the step has no 'sgd.m.", "is it the state of another optimizer")
    error(momentum, other)
    error({n: a for n, a in given.items() if n != parameter}, (f"the file lacks '{parameter}'",))
    error(given | {"head.weight": np.zeros(3, np.float32)}, ("the step has no 'head.weight'",))
    error(given | {parameter: given[parameter][:1]}, (f"'{parameter}' is float32[1,", "and not float32["))
    error(given | {parameter: given[parameter].astype(np.float64)}, (f"'{parameter}' is float64[",))
    grad = ("grad", MODEL, *LOSS, "--optimizer", "adamw", "-o", folder / "never.onnx")
    error(momentum, other, command=grad)
    search = ("search", MODEL, "--cluster", "dgx-a100-1x8", "--train", *LOSS, "--optimizer", "adamw", "-o", folder / "never")
    error(momentum, other, command=search)
    assert not (folder / "never.onnx").exists() and not (folder / "never").exists()
    run(*grad[:-1], folder / "fits.onnx", "--weights-from", folder / "w.npz")
    run(*search[:-1], folder / "fits", "--weights-from", folder / "w.npz", "-q")
    inference = folder / "inference"
    run("search", MODEL, "--cluster", "dgx-a100-1x8", "-o", inference, "-q")
    error(given, ("feeds a training step",), code=2, command=("run", inference))
    done = run("run", plan, "--weights-from", folder / "w.pickle", code=2)
    assert "expected a file .npz, .safetensors or .onnx" in done.stderr, done.stderr
    done = run("search", MODEL, "--cluster", "dgx-a100-1x8", "--weights-from", folder / "w.npz", code=2)
    assert "needs --train" in done.stderr, done.stderr
    print("another optimizer, missing, unknown, another shape or type, no step, no weights: refused")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fed(folder, "mixed-fp16")
        plan, given = fed(folder, "fp32")
        without_states(folder, plan, given)
        of_one_pass(folder, given)
        refused(folder, plan, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
