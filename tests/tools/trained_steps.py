"""Training steps of forward models, for tests: models in few words, and what holds for every planned step."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tools.program import AUTOPAR

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared")
CHECK = SHARED / "tools" / "step_check.py"
MACHINE = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e9, "slower": 4}
OWN = {"mlp": "mse", "gpt2_tiny": "cross_entropy", "llama_tiny": "cross_entropy"}


def failed(*arguments):
    """The message and exit code of a command that must fail."""
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stderr


def model_of(name):
    return SOURCE / "models" / f"{name}.onnx" if name in OWN else SHARED / "data" / "models" / f"{name}.onnx"


def inputs_of(out):
    """Values for all inputs of the unsharded step on the whole batch; some labels do not count."""
    random, arrays = np.random.default_rng(3), {}
    step = json.loads((out / "step.json").read_text())
    whole = (out / "train.onnx").exists()
    values = [v for name in (["train.onnx"] if whole else ["train.FB.onnx", "train.U.onnx"]) for v in onnx.load(out / name).graph.input]
    for value in values:
        if value.name.startswith("acc.") or value.name in arrays:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if not whole and value.name in step["micro_inputs"]:
            shape[step["micro_inputs"][value.name]] *= step["micro_batches"]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.int64:
            array = random.integers(0, 2, size=shape)
            if value.name == "labels":
                array[random.random(shape) < 0.2] = -100
        else:
            # Second moments that are not near 0.
            array = np.abs(random.normal(scale=0.1, size=shape)) + 0.01 if value.name.startswith("adam.v.") else random.normal(scale=0.1, size=shape)
        arrays[value.name] = np.asarray(array, dtype)
    arrays["learning_rate"] = np.array(0.01, np.float32)
    if "adam.step" in arrays:
        arrays["adam.step"] = np.array(5, np.float32)
    return arrays


def by_passes(out, arrays):
    """What the unsharded passes and their update give, for steps whose passes are not one over the whole batch."""
    step = json.loads((out / "step.json").read_text())
    count, sessions = step["micro_batches"], [ort.InferenceSession(out / f"train.{p}.onnx") for p in ("FB", "U")]
    now, losses = dict(arrays), []
    for value in sessions[0].get_inputs():
        if value.name.startswith("acc."):
            now[value.name] = np.zeros(value.shape, np.float32)
    for part in range(count):
        for name, axis in step["micro_inputs"].items():
            now[name] = np.split(arrays[name], count, axis)[part]
        made = dict(zip([o.name for o in sessions[0].get_outputs()], sessions[0].run(None, {i.name: now[i.name] for i in sessions[0].get_inputs()})))
        now.update({name.removeprefix("new."): array for name, array in made.items() if name.startswith("new.")})
        losses.append(made.get("loss"))
    outputs = {name: array for name, array in made.items() if name.startswith("new.") and not name.startswith("new.acc.")}
    outputs.update(zip([o.name for o in sessions[1].get_outputs()], sessions[1].run(None, {i.name: now[i.name] for i in sessions[1].get_inputs()})))
    return {"loss": np.mean(losses, 0), **outputs} if "loss" not in outputs else outputs


def check_independently(out):
    """By the executor that shares no code with autopar; False where it is not here."""
    if not CHECK.exists():
        return False
    arrays = inputs_of(out)
    data, reference = {"in." + n: a for n, a in arrays.items()}, ["--model", out / "train.onnx", "--steps", "3"]
    if json.loads((out / "step.json").read_text()).get("reference") == "passes":
        data.update({"out." + n: a for n, a in by_passes(out, arrays).items()})
        reference = []
    np.savez(out / "io.npz", **data)
    done = subprocess.run([sys.executable, CHECK, out, "--data", out / "io.npz", *reference], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("PASSED"), (out, done.stdout, done.stderr)
    return True


def same_files(out, given):
    """Programs, their order, and what was decided."""
    names = sorted(p.name for p in out.iterdir() if p.suffix in (".onnx", ".csv") or p.name in ("step.json", "strategy.json"))
    assert "strategy.json" in names and "train.onnx" in names or "train.FB.onnx" in names, names
    for name in names:
        assert (given / name).read_bytes() == (out / name).read_bytes(), (given, name)


def model(folder, nodes, inputs, outputs, initializers, name="model.onnx", opset=18, data=None):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                              [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
                              [numpy_helper.from_array(a, n) for n, a in initializers])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    if data is not None:
        entry = made.metadata_props.add()
        entry.key, entry.value = "data_inputs", data
    onnx.save(made, folder / name)
    return folder / name


def linear(folder, **options):
    weight = np.ones((3, 2), np.float32)
    return model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
                 [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2])], [("w", weight)], **options)
