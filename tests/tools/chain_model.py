"""A model of layers that are alike, with its weights."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def chain(path, layers=5, width=8, batch=12):
    """Products with biases, alike."""
    weights, nodes, at = [], [], "x"
    for i in range(layers):
        weights += [numpy_helper.from_array(np.full((width, width), 0.1, np.float32), f"w{i}"), numpy_helper.from_array(np.zeros(width, np.float32), f"b{i}")]
        nodes += [helper.make_node("MatMul", [at, f"w{i}"], [f"m{i}"], f"mul{i}"), helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"add{i}"),
                  helper.make_node("Tanh", [f"a{i}"], [f"t{i}"], f"tanh{i}")]
        at = f"t{i}"
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
    onnx.save(helper.make_model(helper.make_graph(nodes, "chain", [value("x")], [value(at)], weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
