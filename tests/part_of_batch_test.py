"""Training in micro-batches: what tells a part of the batch from that part of it, so that `run` compares with the passes and not with the whole batch; and what does not."""
import json
import pathlib
import shutil
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.small_steps import SOURCE, called, with_cluster

MODELS = SOURCE / "models"


def model_of(folder, name, nodes, loss=None, weights=()):
    """y, of x times a weight; `nodes` go on from `y` to `told`, or to a loss that the model has itself."""
    first = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("Shape", ["x"], ["shape"], start=0, end=1, name="of_x"), *nodes]
    told = helper.make_tensor_value_info(loss or "told", TensorProto.FLOAT, [] if loss else ["samples", 4])
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["samples", 4])], [told], [first, *weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


COUNT = [helper.make_node("Squeeze", ["shape"], ["count"], name="count"), helper.make_node("Cast", ["count"], ["n"], to=TensorProto.FLOAT, name="as_real")]
DIVIDED = [*COUNT, helper.make_node("Div", ["y", "n"], ["told"], name="by_count")]
EXPANDED = [helper.make_node("ReduceSum", ["y", "outer"], ["all"], keepdims=1, name="all_samples"), helper.make_node("Concat", ["shape", "four"], ["target"], axis=0, name="target_of"),
            helper.make_node("Expand", ["all", "target"], ["told"], name="to_each")]
OUTER = [numpy_helper.from_array(np.array([0]), "outer"), numpy_helper.from_array(np.array([4]), "four")]
AVERAGED = [*COUNT, helper.make_node("Mul", ["y", "y"], ["squares"], name="squares_of"), helper.make_node("ReduceSum", ["squares"], ["sum"], keepdims=0, name="sum_of"),
            helper.make_node("Div", ["sum", "n"], ["loss"], name="by_count")]


ROOT = [helper.make_node("Mul", ["y", "y"], ["squares"], name="squares_of"), helper.make_node("ReduceMean", ["squares"], ["mean"], keepdims=0, name="mean_of"),
        helper.make_node("Sqrt", ["mean"], ["loss"], name="root")]
OF_WEIGHTS = [*COUNT, helper.make_node("Div", ["w", "n"], ["share"], name="share_of"), helper.make_node("MatMul", ["y", "share"], ["told"], name="by_share")]


def reference_of(folder, model, *options, micro_batches=2):
    out = folder / "plan"
    shutil.rmtree(out, ignore_errors=True)
    called("search", model, "--cluster", folder / "cluster.json", "--train", "--optimizer", "sgd", "--micro-batches", micro_batches, *options, "-q", "-o", out)
    run = json.loads(called("run", out, "--json").stdout)
    assert run["passed"], (model, run)
    return json.loads((out / "step.json").read_text()).get("reference", "whole")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with_cluster(folder)
        divided, expanded = model_of(folder, "divided", DIVIDED), model_of(folder, "expanded", EXPANDED, weights=OUTER)
        averaged, root, shares = model_of(folder, "averaged", AVERAGED, loss="loss"), model_of(folder, "root", ROOT, loss="loss"), model_of(folder, "shares", OF_WEIGHTS)
        cases = ((divided, "sum", "passes"), (divided, "mse", "passes"), (expanded, "sum", "passes"), (averaged, "loss", "whole"), (averaged, "sum:loss", "passes"), (root, "loss", "passes"),
                 (shares, "mse", "passes"))
        # Of micro-batches of one sample, what divides by their number is gone.
        for model, loss, expected in cases:
            for micro_batches in (2, 8):
                found = reference_of(folder, model, "--batch", 8, "--loss", loss, micro_batches=micro_batches)
                assert found == expected, (model, loss, micro_batches, found)
        # Losses of tokens add constants and accumulators of their own.
        for model in ("gpt2_tiny", "llama_tiny", "mlp"):
            for loss in ("cross_entropy", "mse"):
                found = reference_of(folder, MODELS / f"{model}.onnx", "--loss", loss)
                assert found == "whole", (model, loss, found)
    print("parts of batches passed")


main()
