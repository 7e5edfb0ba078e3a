"""What an op needs in memory beside its inputs and outputs, where a rank does it in several ops: the plan's account knows what the file's has."""
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.program import cluster, run

ROWS, COLUMNS, WIDTH = 128, 2048, 16
INFO = helper.make_tensor_value_info


def model(folder, name, op, output, dtype=TensorProto.FLOAT, opset=20, more=None, **attributes):
    """op(x @ w), along the columns, which the pin splits."""
    weights = {"w": np.random.default_rng(1).standard_normal((WIDTH, COLUMNS)).astype(np.float32), **(more or {})}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["l"], "fc"), helper.make_node(op, ["l", *(more or {})], ["y"], "op", **attributes)]
    graph = helper.make_graph(nodes, name, [INFO("x", TensorProto.FLOAT, [ROWS, WIDTH])], [INFO("y", dtype, output)],
                              [numpy_helper.from_array(array, key) for key, array in weights.items()])
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path, {"fc": {"in_strategy": [[1, 1], [1, 4]]}, "op": {"in_strategy": [[1, 4]]}}


def attention(folder):
    """A mask of the rank's queries and all keys."""
    shape = [1, 2, 512, 8]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], "attention", is_causal=1)
    graph = helper.make_graph([node], "attention", [INFO(name, TensorProto.FLOAT, shape) for name in "qkv"], [INFO("y", TensorProto.FLOAT, shape)])
    path = folder / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path, {"attention": {"in_strategy": [[1, 1, 4, 1], [1, 1, 1, 1], [1, 1, 1, 1]]}}


def loss(folder):
    """Of a step, with the vocabulary split: no exponential lies where the difference lay that it is of."""
    weights = numpy_helper.from_array(np.random.default_rng(1).standard_normal((WIDTH, COLUMNS)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["l"], "fc")]
    graph = helper.make_graph(nodes, "loss", [INFO("x", TensorProto.FLOAT, [ROWS, WIDTH])], [INFO("l", TensorProto.FLOAT, [ROWS, COLUMNS])], [weights])
    path = folder / "loss.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path, {"fc": {"in_strategy": [[1, 1], [1, 4]]}, "loss/ReduceLogSumExp": {"in_strategy": [[1, 4]]}}


def models(folder):
    yield model(folder, "arg_max", "ArgMax", [ROWS, 1], TensorProto.INT64, axis=1)
    yield model(folder, "arg_min", "ArgMin", [ROWS, 1], TensorProto.INT64, axis=1)
    yield model(folder, "log_sum_exp", "ReduceLogSumExp", [ROWS, 1], more={"axes": np.array([1])})
    yield model(folder, "cumulated", "CumSum", [ROWS, COLUMNS], more={"axis": np.array(1)})
    yield model(folder, "softmax", "Softmax", [ROWS, COLUMNS], axis=1)
    yield attention(folder)
    yield loss(folder)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        machine, out, ratios = cluster(folder, 4), folder / "out", {}
        for path, pins in models(folder):
            (folder / "pins.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": pins}))
            step = ("--train", "--loss", "cross_entropy") if path.stem == "loss" else ()
            run("search", path, "--cluster", machine, "--pin", folder / "pins.json", "--weights", "sharded", "-o", out, *step)
            claimed = json.loads((out / "report.json").read_text())["memory"]["peak_bytes"]
            priced = json.loads(run("price", out, "--cluster", machine, "--json").stdout)["programs"][0]["memory_bytes"]
            ratios[path.stem] = priced / claimed
            # No account has the numbers of rows that masks are made of.
            assert 0.98 <= priced / claimed <= 1.05, (path.stem, claimed, priced)
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", path.stem
    print("ok, the file's account by the plan's:", ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
