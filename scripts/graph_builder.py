"""Writes ONNX graphs whose weights are inputs without data, so that the files are small."""
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


class Builder:
    """Collects nodes and inputs; every method returns the name of what it made."""

    def __init__(self, name, opset=18):
        self.name, self.opset = name, opset
        self.nodes, self.inputs, self.initializers, self.data = [], [], [], []
        self.scope = ""

    def input(self, name, shape, dtype=F32):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        self.data.append(name)
        return name

    def parameter(self, name, shape):
        self.inputs.append(helper.make_tensor_value_info(self.scope + name, F32, shape))
        return self.scope + name

    def constant(self, array):
        array = np.asarray(array)
        name = f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op_type, inputs, name, outputs=1, **attributes):
        name = self.scope + name
        outs = [f"{name}_out"] if outputs == 1 else [f"{name}_out{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, outs, name=name, **attributes))
        return outs[0] if outputs == 1 else outs

    def ints(self, values):
        return self.constant(np.array(values, dtype=np.int64))

    def scalar(self, value):
        return self.constant(np.array(value, dtype=np.float32))

    def linear(self, x, name, fan_in, fan_out, bias=True):
        y = self.op("MatMul", [x, self.parameter(f"{name}.weight", [fan_in, fan_out])], name)
        return self.op("Add", [y, self.parameter(f"{name}.bias", [fan_out])], f"{name}.add") if bias else y

    def heads(self, x, name, batch, seq, count, dim):
        y = self.op("Reshape", [x, self.ints([batch, seq, count, dim])], f"{name}.split")
        return self.op("Transpose", [y], f"{name}.heads", perm=[0, 2, 1, 3])

    def attention(self, q, k, v, mask, batch, seq, heads, dim):
        kt = self.op("Transpose", [k], "attn.k_t", perm=[0, 1, 3, 2])
        scores = self.op("MatMul", [q, kt], "attn.scores")
        scaled = self.op("Mul", [scores, self.scalar(dim ** -0.5)], "attn.scale")
        masked = self.op("Where", [mask, scaled, self.scalar(-1e9)], "attn.mask")
        probabilities = self.op("Softmax", [masked], "attn.softmax", axis=-1)
        mixed = self.op("MatMul", [probabilities, v], "attn.mix")
        merged = self.op("Transpose", [mixed], "attn.merge", perm=[0, 2, 1, 3])
        return self.op("Reshape", [merged, self.ints([batch, seq, heads * dim])], "attn.join")

    def causal_mask(self, seq):
        rows, columns = np.arange(seq)[:, None], np.arange(seq)[None, :]
        return self.op("GreaterOrEqual", [self.constant(rows), self.constant(columns)], "causal_mask")

    def rotary_tables(self, seq, dim, base):
        frequencies = self.constant((base ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)[None, :])
        positions = self.constant(np.arange(seq, dtype=np.float32)[:, None])
        half = self.op("MatMul", [positions, frequencies], "rotary.angle")
        angle = self.op("Concat", [half, half], "rotary.angles", axis=1)
        return self.op("Cos", [angle], "rotary.cos"), self.op("Sin", [angle], "rotary.sin")

    def model(self, outputs):
        self.nodes += [helper.make_node("Identity", [value], [name]) for name, value, _ in outputs]
        return self.pack([helper.make_tensor_value_info(name, F32, shape) for name, _, shape in outputs])

    def pack(self, outputs, ir_version=9, **properties):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir_version)
        helper.set_model_props(model, {"data_inputs": ",".join(self.data), **properties})
        checker.check_model(model, full_check=True)
        return model
