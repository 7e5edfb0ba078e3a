"""Training steps against torch's own: the forward part of a step that torch has written is differentiated again.

A file tiny_train_*.onnx below AUTOPAR_SHARED/data/models is a whole step with stored inputs and outputs. Its outputs but for the
loss are dropped, which leaves the forward graph; `autopar grad` makes a step of it, ONNX Runtime runs that on the stored
inputs, and what it changes in every weight and state is compared with what torch changed."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

AUTOPAR = os.environ["AUTOPAR"]
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / ".." / "shared")
ADAM = ["--betas", "0.9,0.999", "--eps", "1e-8"]
# The file, the learning rate, the other options.
STEPS = [
    ("tiny_train_llama_adamw", 1e-3, ["--optimizer", "adamw", *ADAM, "--weight-decay", "0.01"]),
    ("tiny_train_resnet_sgd", 0.1, ["--optimizer", "momentum", "--momentum", "0.9", "--weight-decay", "1e-4"]),
]
RELATIVE, SHARE = 1e-3, 1e-3  # of a change, and of the largest change of the tensor


def forward_of(step):
    """The part of a step that gives the loss, as a model."""
    needed, nodes = {"loss"}, []
    for node in reversed(step.graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    model = onnx.ModelProto()
    model.CopyFrom(step)
    graph = model.graph
    del graph.node[:], graph.output[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.output.extend(o for o in step.graph.output if o.name == "loss")
    for items in (graph.input, graph.initializer):
        keep = [i for i in items if i.name in needed]
        del items[:]
        items.extend(keep)
    return model


def check(name, rate, options):
    folder = SHARED / "data" / "models"
    stored = np.load(folder / f"{name}.npz")
    step = onnx.load(folder / f"{name}.onnx")
    inputs = {k[3:]: stored[k] for k in stored.files if k.startswith("in.")}
    # Running statistics are not in the forward part that leads to the loss.
    expected = {k[4:]: stored[k] for k in stored.files
                if k.startswith("out.") and not k.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    with tempfile.TemporaryDirectory() as temporary:
        forward, made = os.path.join(temporary, "forward.onnx"), os.path.join(temporary, "step.onnx")
        onnx.save(forward_of(step), forward)
        # Constants that the exporter has left as initializers are not what torch trains.
        trained = [k[4:] for k in expected if k.startswith("new.") and not k.startswith(("new.adam.", "new.sgd."))]
        subprocess.run([AUTOPAR, "grad", forward, "-q", "-o", made, "--parameters", ",".join(trained), *options], check=True)
        session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    feeds = {}
    for given in session.get_inputs():
        if given.name == "learning_rate":
            feeds[given.name] = np.array(rate, np.float32)
        else:
            feeds[given.name] = inputs[given.name]
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    worst, missing = 0.0, [k for k in expected if k not in found]
    for key, want in expected.items():
        if key not in found:
            continue
        have = np.asarray(found[key], np.float64)
        want = want.astype(np.float64)
        before = inputs[key[4:]].astype(np.float64) if key.startswith("new.") else 0.0
        scale = np.max(np.abs(want - before)) if want.size else 0.0
        allowed = RELATIVE * np.abs(want - before) + SHARE * scale + 4e-7 * np.abs(want) + 1e-12
        share = float(np.max(np.abs(have - want) / allowed))
        worst = max(worst, share)
        if not share <= 1:
            return f"{name}: {key} is off by {share:.3g} times what is allowed"
    if missing:
        return f"{name}: the step lacks {missing[:5]}"
    print(f"{name}: {len(expected)} outputs agree, the worst at {worst:.2g} of what is allowed")
    return ""


def main():
    present = [s for s in STEPS if (SHARED / "data" / "models" / f"{s[0]}.onnx").exists()]
    if not present:
        print(f"skipped: no tiny_train_*.onnx in {SHARED}/data/models")
        return 77
    wrong = [w for w in (check(*s) for s in present) if w]
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
