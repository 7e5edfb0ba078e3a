#!/usr/bin/env python3
"""Writes the model files in models/: real architectures whose weights are graph inputs, so that the files are small.

  scripts/make_models.py [FOLDER]        (needs the onnx package: .deps/venv/bin/python after scripts/setup)

metadata_props.data_inputs names the inputs that are data; the others are parameters.
"""
import pathlib
import sys

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

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
        outs = [helper.make_tensor_value_info(name, F32, shape) for name, _, shape in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, outs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        helper.set_model_props(model, {"data_inputs": ",".join(self.data)})
        checker.check_model(model, full_check=True)
        return model


def mlp(batch=64, width=128, hidden=256, classes=32):
    b = Builder("mlp")
    x = b.input("X", [batch, width])
    h = b.op("Relu", [b.linear(x, "fc1", width, hidden)], "relu")
    return b.model([("Y", b.linear(h, "fc2", hidden, classes), [batch, classes])])


def gpt2(layers=12, width=768, heads=12, vocabulary=50304, batch=8, seq=1024):
    """GPT-2 (Radford et al. 2019), 124 million parameters, tied embeddings; vocabulary padded to a multiple of 64."""
    b = Builder("gpt2")
    ids = b.input("input_ids", [batch, seq], I64)
    wte, wpe = b.parameter("wte.weight", [vocabulary, width]), b.parameter("wpe.weight", [seq, width])
    positions = b.constant(np.arange(seq, dtype=np.int64))
    x = b.op("Add", [b.op("Gather", [wte, ids], "wte"), b.op("Gather", [wpe, positions], "wpe")], "embed")
    mask = b.causal_mask(seq)
    norm = lambda x, name: b.op("LayerNormalization", [x, b.parameter(f"{name}.weight", [width]),
                                                       b.parameter(f"{name}.bias", [width])], name, axis=-1)
    for i in range(layers):
        b.scope = f"h.{i}."
        qkv = b.linear(norm(x, "ln_1"), "attn.qkv", width, 3 * width)
        parts = b.op("Split", [qkv, b.ints([width] * 3)], "attn.split", outputs=3, axis=-1)
        q, k, v = (b.heads(p, n, batch, seq, heads, width // heads) for p, n in zip(parts, ("attn.q", "attn.k", "attn.v")))
        y = b.linear(b.attention(q, k, v, mask, batch, seq, heads, width // heads), "attn.proj", width, width)
        x = b.op("Add", [x, y], "attn.residual")
        h = b.linear(norm(x, "ln_2"), "mlp.fc", width, 4 * width)
        cube = b.op("Mul", [b.op("Pow", [h, b.scalar(3)], "mlp.cube"), b.scalar(0.044715)], "mlp.cubed")
        inner = b.op("Mul", [b.op("Add", [h, cube], "mlp.inner"), b.scalar((2 / np.pi) ** 0.5)], "mlp.scaled")
        gate = b.op("Add", [b.op("Tanh", [inner], "mlp.tanh"), b.scalar(1)], "mlp.gate")
        h = b.op("Mul", [b.op("Mul", [h, b.scalar(0.5)], "mlp.half"), gate], "mlp.gelu")
        x = b.op("Add", [x, b.linear(h, "mlp.proj", 4 * width, width)], "mlp.residual")
    b.scope = ""
    head = b.op("Transpose", [wte], "lm_head.transpose", perm=[1, 0])
    return b.model([("logits", b.op("MatMul", [norm(x, "ln_f"), head], "lm_head"), [batch, seq, vocabulary])])


def llama(layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, vocabulary=128256, batch=8, seq=2048):
    """Llama 3 8B (Dubey et al. 2024): grouped-query attention, rotary embedding, gated MLP."""
    b = Builder("llama", 20)
    dim, repeat = width // heads, heads // kv_heads
    ids = b.input("input_ids", [batch, seq], I64)
    x = b.op("Gather", [b.parameter("embed.weight", [vocabulary, width]), ids], "embed")
    mask = b.causal_mask(seq)
    cos, sin = b.rotary_tables(seq, dim, 500000.0)

    def norm(x, name):
        square = b.op("Mul", [x, x], f"{name}.square")
        mean = b.op("ReduceMean", [square, b.ints([-1])], f"{name}.mean", keepdims=1)
        root = b.op("Sqrt", [b.op("Add", [mean, b.scalar(1e-5)], f"{name}.eps")], f"{name}.root")
        unit = b.op("Mul", [x, b.op("Reciprocal", [root], f"{name}.inverse")], f"{name}.unit")
        return b.op("Mul", [b.parameter(f"{name}.weight", [width]), unit], name)

    def rotary(x, name):
        low = b.op("Slice", [x, b.ints([0]), b.ints([dim // 2]), b.ints([3])], f"{name}.low")
        high = b.op("Slice", [x, b.ints([dim // 2]), b.ints([dim]), b.ints([3])], f"{name}.high")
        turned = b.op("Concat", [b.op("Neg", [high], f"{name}.neg"), low], f"{name}.turn", axis=3)
        return b.op("Add", [b.op("Mul", [x, cos], f"{name}.cos"), b.op("Mul", [turned, sin], f"{name}.sin")], name)

    def repeated(x, name):
        x = b.op("Unsqueeze", [x, b.ints([2])], f"{name}.unsqueeze")
        x = b.op("Expand", [x, b.ints([batch, kv_heads, repeat, seq, dim])], f"{name}.expand")
        return b.op("Reshape", [x, b.ints([batch, heads, seq, dim])], f"{name}.repeat")

    for i in range(layers):
        b.scope = f"layers.{i}."
        n = norm(x, "attn_norm")
        q = b.heads(b.linear(n, "attn.q", width, width, False), "attn.q", batch, seq, heads, dim)
        k = b.heads(b.linear(n, "attn.k", width, kv_heads * dim, False), "attn.k", batch, seq, kv_heads, dim)
        v = b.heads(b.linear(n, "attn.v", width, kv_heads * dim, False), "attn.v", batch, seq, kv_heads, dim)
        k, v = repeated(rotary(k, "attn.k_rotary"), "attn.k"), repeated(v, "attn.v")
        y = b.attention(rotary(q, "attn.q_rotary"), k, v, mask, batch, seq, heads, dim)
        x = b.op("Add", [x, b.linear(y, "attn.o", width, width, False)], "attn.residual")
        n = norm(x, "mlp_norm")
        gate = b.linear(n, "mlp.gate", width, hidden, False)
        gate = b.op("Mul", [gate, b.op("Sigmoid", [gate], "mlp.sigmoid")], "mlp.silu")
        h = b.op("Mul", [gate, b.linear(n, "mlp.up", width, hidden, False)], "mlp.mul")
        x = b.op("Add", [x, b.linear(h, "mlp.down", hidden, width, False)], "mlp.residual")
    b.scope = ""
    return b.model([("logits", b.linear(norm(x, "norm"), "lm_head", width, vocabulary, False), [batch, seq, vocabulary])])


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "models")
    made = {
        "mlp.onnx": mlp(),
        "gpt2.onnx": gpt2(),
        "gpt2_tiny.onnx": gpt2(layers=2, width=64, heads=4, vocabulary=128, batch=4, seq=16),
        "llama3_8b.onnx": llama(),
        "llama_tiny.onnx": llama(layers=2, width=64, hidden=192, heads=8, kv_heads=4, vocabulary=128, batch=4, seq=16),
    }
    for name, model in made.items():
        save(model, root / name)
        print(root / name, (root / name).stat().st_size)


if __name__ == "__main__":
    main()
