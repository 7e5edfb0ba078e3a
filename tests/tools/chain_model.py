"""A model of layers that are alike, with its weights."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def chain(path, layers=5, width=8, batch=12, widths=()):
    """Products with biases, alike, or from one of the widths to the next."""
    widths = widths or [width] * (layers + 1)
    weights, nodes, at = [], [], "x"
    for i, (rows, columns) in enumerate(zip(widths, widths[1:])):
        weights += [numpy_helper.from_array(np.full((rows, columns), 0.1, np.float32), f"w{i}"), numpy_helper.from_array(np.zeros(columns, np.float32), f"b{i}")]
        nodes += [helper.make_node("MatMul", [at, f"w{i}"], [f"m{i}"], f"mul{i}"), helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"add{i}"),
                  helper.make_node("Tanh", [f"a{i}"], [f"t{i}"], f"tanh{i}")]
        at = f"t{i}"
    value = lambda name, of: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, of])
    onnx.save(helper.make_model(helper.make_graph(nodes, "chain", [value("x", widths[0])], [value(at, widths[-1])], weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
