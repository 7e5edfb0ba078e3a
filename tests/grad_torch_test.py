"""Training steps against torch's gradients: whole models, from the folder AUTOPAR_SHARED/data/grad.

Of each case `autopar grad` makes a step without an optimizer, with plain SGD and with AdamW; ONNX Runtime executes it
with the case's inputs, states zero, and the folder's own check.py compares loss, gradients and new parameters. Skipped
where the folder is absent. Arguments: names of cases (default: all)."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime


AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
FOLDER = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "data" / "grad"
OPTIMIZERS = {"none": [], "sgd": ["--lr", "0.1"], "adamw": []}
KINDS = {"none": "grad", "sgd": "new.sgd", "adamw": "new.adamw"}


def checker():
    spec = importlib.util.spec_from_file_location("check", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.check


def step_of(model, data, parameters, optimizer, folder):
    """The path of the training step, or what went wrong."""
    path = os.path.join(folder, optimizer + ".onnx")
    command = [AUTOPAR, "grad", str(model), "--data-inputs", ",".join(data), "--parameters", ",".join(parameters),
               "--optimizer", optimizer, *OPTIMIZERS[optimizer], "-o", path]
    made = subprocess.run(command, capture_output=True, text=True)
    return path, f"exit code {made.returncode}: {made.stderr.strip()}" if made.returncode != 0 else ""


def execute(path, case):
    """The outputs by their names."""
    model = onnx.load(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    training = next(json.loads(p.value) for p in model.metadata_props if p.key == "autopar.training")
    feeds = {"learning_rate": np.array(training["optimizer"].get("learning_rate", 0), np.float32)}
    feeds = {name: x for name, x in feeds.items() if name in [i.name for i in model.graph.input]}
    for value in model.graph.input:
        if "in." + value.name in case.files:
            feeds[value.name] = case["in." + value.name]
            continue
        if value.name in feeds:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        feeds[value.name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def check_case(name, check):
    """What is wrong, line by line."""
    case = np.load(FOLDER / (name + ".npz"))
    parameters = [k[len("grad."):] for k in case.files if k.startswith("grad.")]
    data = [k[len("in."):] for k in case.files if k.startswith("in.") and k[len("in."):] not in parameters]
    wrong, done = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for optimizer, kind in KINDS.items():
            path, error = step_of(FOLDER / (name + ".fwd.onnx"), data, parameters, optimizer, folder)
            if error:
                wrong.append(f"{optimizer}: {error}")
                continue
            outputs = execute(path, case)
            results = {"loss": outputs["loss"]}
            prefix = "grad." if optimizer == "none" else "new."
            for parameter in parameters:
                if prefix + parameter in outputs:
                    results[f"{kind}.{parameter}"] = outputs[prefix + parameter]
            if len(results) != 1 + len(parameters):
                wrong.append(f"{optimizer}: {1 + len(parameters) - len(results)} parameters have no result")
            bad, compared, _, worst = check(case, results, lambda line: wrong.append(f"{optimizer}: {line}"))
            done += compared
            print(f"{name}, {optimizer}: {compared - bad} of {compared} agree; largest share of what is allowed: " +
                  ", ".join(f"{k} {v:.2g}" for k, v in worst.items()))
    return wrong, done


def main():
    if not (FOLDER / "check.py").exists():
        print(f"skipped: {FOLDER} is not there")
        return 77
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    names = names or sorted(p.name[:-len(".fwd.onnx")] for p in FOLDER.glob("*.fwd.onnx"))
    check = checker()
    failed = 0
    for name in names:
        wrong, done = check_case(name, check)
        failed += bool(wrong) or done == 0
        for line in wrong[:20]:
            print(f"{name}: {line}")
    print(f"{len(names) - failed} of {len(names)} cases agree with torch")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
