#!/usr/bin/env python3
"""Writes model files whose weights are graph inputs, so that the files are small.

  scripts/make_models.py [FOLDER]                    the files in models/, or in FOLDER
  scripts/make_models.py --preset NAME -o FILE       a published transformer; its numbers can be changed by options
  scripts/make_models.py --family llama|gpt --layers N --hidden N ... -o FILE
                                                     another one
  scripts/make_models.py --list                      the presets

Needs the onnx package: .deps/venv/bin/python after scripts/setup. metadata_props.data_inputs names the inputs that are data;
the others are parameters. What the options make is in scripts/transformer.py: the batch is the symbolic dimension `batch`.
"""
import argparse
import dataclasses
import pathlib
import sys

import numpy as np
from onnx import save

from graph_builder import I64, Builder
from transformer import FAMILIES, PRESETS, Config, Unsuitable, option, transformer


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


def files_of_models(root):
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="where to write the files of models/")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", help="the one model to write")
    parser.add_argument("--preset", choices=PRESETS, metavar="NAME", help=", ".join(PRESETS))
    parser.add_argument("--list", action="store_true", help="say what the presets are")
    numbers = parser.add_argument_group("configuration (in place of the preset's)")
    for f in dataclasses.fields(Config):
        if f.type is bool:
            numbers.add_argument(option(f.name), action=argparse.BooleanOptionalAction, help=f.metadata["help"])
        else:
            numbers.add_argument(option(f.name), type=f.type, choices=f.metadata.get("choices"), help=f.metadata["help"],
                                 metavar=None if "choices" in f.metadata else "N")
    return parser


def listed():
    for name, preset in PRESETS.items():
        c = Config(**preset).completed()
        experts = f", {c.experts} experts, top {c.top_k}" if c.experts else ""
        print(f"{name:13} {c.layers:3} layers, hidden {c.hidden:5}, {c.heads:3} heads, {c.kv_heads:2} key/value heads, "
              f"feed-forward {c.feed_forward:5}, vocabulary {c.vocabulary:6}, sequence {c.sequence}{experts}")


def main():
    parser = arguments()
    options = parser.parse_args()
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(Config) if getattr(options, f.name) is not None}
    if options.list:
        return listed()
    if not (options.preset or options.output or given):
        return files_of_models(options.folder or pathlib.Path(__file__).parent.parent / "models")
    if options.folder:
        parser.error("a folder is for the files of models/; --output FILE is for the model that options describe")
    if not (options.preset or "family" in given):
        parser.error("--preset NAME or --family llama|gpt is missing")
    if not options.output:
        parser.error("--output FILE is missing")
    base = PRESETS[options.preset] if options.preset else FAMILIES[given["family"]]
    try:
        model = transformer(Config(**{**base, **given}))
    except Unsuitable as error:
        parser.error(str(error))
    save(model, options.output)
    count = next(int(p.value) for p in model.metadata_props if p.key == "parameters")
    print(f"{options.output}: {count:,} parameters, {len(model.graph.node):,} ops, {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
