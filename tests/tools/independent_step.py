"""The executor of steps that shares no code with this project, where it is there, asked about a folder of a plan."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx

SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or pathlib.Path(os.environ["AUTOPAR_SOURCE"]).parent / "shared")
CHECK = SHARED / "tools" / "step_check.py"


def independent(folder, steps, below=60, model=None):
    """Executes so many steps on random data, integers below that; says so. Fails where it finds other numbers. `model`: in place of the folder's train.onnx, with no
    symbolic input."""
    if not CHECK.exists():
        return "skipped: step_check.py is not here"
    model = model or folder / "train.onnx"
    random, arrays, graph = np.random.default_rng(5), {}, onnx.load(model).graph
    # What is not trained, where the programs read it as inputs.
    read = {v.name for file in folder.glob("plan.c*.onnx") for v in onnx.load(file, load_external_data=False).graph.input}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    arrays |= {"in." + name: onnx.numpy_helper.to_array(tensor) for name, tensor in weights.items() if name in read}
    for value in graph.input:
        if value.name in weights:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(kind, np.integer):
            arrays["in." + value.name] = random.integers(0, below, shape).astype(kind)
        elif ".v." in value.name or not shape:
            arrays["in." + value.name] = np.abs(random.standard_normal(shape) * 0.01 + 0.1).astype(kind)
        else:
            arrays["in." + value.name] = (random.standard_normal(shape) * 0.1).astype(kind)
    np.savez(folder / "io.npz", **arrays)
    done = subprocess.run([sys.executable, CHECK, folder, "--model", model, "--data", folder / "io.npz", "--steps", str(steps), "--share", "5e-3"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{folder.name}: step_check.py: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return "step_check.py agrees"
