#!/usr/bin/env python3
"""Bytes that a layer of Llama-3-8B moves from and to memory, per token, forward and backward, as docs/profiles.md shows them.

  bench/bytes.py [--sequence N] [--profile NAME]... [--json]

(.deps/venv/bin/python after scripts/setup; AUTOPAR names the program.) The training step of three layers is priced on one device whose
memory moves a byte in a nanosecond and whose arithmetic costs nothing, so that the time of an op is its bytes: with every op a kernel
of its own, then with the kernels of each profile. The middle layer is shown. `by hand` is what fused kernels move at the least, each
tensor once (by_hand() below says of which kernels).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import inputs

ROOT = inputs.ROOT
PROGRAM = os.environ.get("AUTOPAR", str(ROOT / "build" / "src" / "autopar"))
BYTES_PER_SECOND = 1e9
LAYERS, SHOWN = 3, 1
HIDDEN, HEADS, KV_HEADS, INNER, HEAD = 4096, 32, 8, 14336, 128
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PARTS = ("products with weights", "attention", "rotary", "normalisation and residual", "SwiGLU")
PHASES = ("forward", "backward")


def by_hand(tokens):
    """Of each part, forward and backward, per token; bfloat16, statistics of rows in float32.

    Products: Q, K, V as one, gate and up as one. Backward: the gradient of the input (reads that of the output and the weight), and
    that of the weight (reads input and gradient of the output). Attention: FlashAttention-2 (Dao 2023), algorithm 1: Q, K, V, O and a
    log-sum per row and head; algorithm 2: D from dO and O, then Q, K, V, dO, the log-sum and D to dQ, dK, dV. Rotary: Q and K in
    place. Normalisation: one kernel with the addition before it (Liger Kernel, Hsu et al. 2024; Apex): branch and residual in, their sum
    and its normalised rows out; backward the gradients of both and the sum in, one gradient out. SwiGLU (Liger Kernel): gate and up in,
    their product out; backward gate, up and its gradient in, both gradients out.
    """
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    products = [(HIDDEN, q + 2 * kv), (q, HIDDEN), (HIDDEN, 2 * INNER), (INNER, HIDDEN)]
    weights = sum(i * o for i, o in products) / tokens
    ends = sum(i + o for i, o in products)
    return {
        "products with weights": (2 * (ends + weights), 2 * (2 * ends + 2 * weights)),
        "attention": (2 * (2 * q + 2 * kv) + 4 * HEADS, 2 * (5 * q + 4 * kv) + 12 * HEADS),
        "rotary": (2 * 2 * (q + kv), 2 * 2 * (q + kv)),
        "normalisation and residual": (2 * (2 * 4 * HIDDEN) + 2 * 4, 2 * (2 * 4 * HIDDEN) + 2 * 4),
        "SwiGLU": (2 * 3 * INNER, 2 * 5 * INNER),
    }


def part_of(name, kind):
    """Of an op by its name; sums of gradients are of the residual."""
    if any(p in name for p in PROJECTIONS) and kind != "Add":
        return "products with weights"
    if "rotary" in name:
        return "rotary"
    if "layernorm" in name or "residual" in name or any(p in name for p in PROJECTIONS):
        return "normalisation and residual"
    return "SwiGLU" if ".mlp." in name else "attention"


def bytes_of(folder, model, forward, profile, tokens):
    """{(part, phase): bytes per token} of the shown layer."""
    cluster = folder / "cluster.json"
    peaks = {dtype: 1e30 for dtype in ("float32", "bfloat16")}
    cluster.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": "bytes",
        "device": {"name": "bytes", "memory_bytes": 1 << 50, "memory_bandwidth_bytes_per_s": BYTES_PER_SECOND, "peak_flops_per_s": peaks},
        "tiers": [{"name": "none", "size": 1, "bandwidth_bytes_per_s": 1e12, "latency_s": 0}]}))
    options = []
    if profile:
        known = json.loads((ROOT / "models" / "profiles" / f"{profile}.json").read_text())
        kernels = {key: known[key] for key in ("format", "version", "name", "fuses", "strided_operands") if key in known}
        (folder / "profile.json").write_text(json.dumps(kernels))
        options = ["--profile", folder / "profile.json"]
    text = subprocess.run([PROGRAM, "search", model, "--train", "--loss", "cross_entropy", "--optimizer", "none", "--batch", "1", "--recompute",
                           "none", "--cluster", cluster, "-o", folder / "plan", "--rows", "0", "--json", "-q", *options], check=True, capture_output=True, text=True).stdout
    sums = {(part, phase): 0.0 for part in PARTS for phase in PHASES}
    for op in json.loads(text)["ops"]:
        # What becomes of gradients afterwards is no part of a layer.
        if not op["name"].startswith(f"layers.{SHOWN}.") or ".update" in op["name"]:
            continue
        phase = "forward" if op["name"] in forward else "backward"
        sums[part_of(op["name"], op["type"]), phase] += op["compute_seconds"] * BYTES_PER_SECOND / tokens
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequence", type=int, default=4096, help="tokens of the one sample (default 4096)")
    parser.add_argument("--profile", action="append", help="whose kernels are counted (default: h100-nanotron and h100-megatron)")
    parser.add_argument("--json", action="store_true", help="an object by column, part and phase instead of the table")
    options = parser.parse_args()
    from make_models import transformer  # needs scripts/setup's packages
    from onnx import save
    from transformer import PRESETS, Config

    tokens = options.sequence
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "llama.onnx"
        made = transformer(Config(**{**PRESETS["llama3-8b"], "layers": LAYERS, "vocabulary": 1024, "sequence": tokens, "dtype": "bfloat16"}))
        save(made, model)
        forward = {node.name for node in made.graph.node}
        columns = {"every op": bytes_of(folder, model, forward, None, tokens)}
        for profile in options.profile or ["h100-nanotron", "h100-megatron"]:
            columns[profile] = bytes_of(folder, model, forward, profile, tokens)
    columns["by hand"] = {(part, phase): value for part, values in by_hand(tokens).items() for phase, value in zip(PHASES, values)}
    if options.json:
        print(json.dumps({c: {f"{part}, {phase}": round(v) for (part, phase), v in sums.items()} for c, sums in columns.items()}, indent=1))
        return 0
    print("| kB per token | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for phase in PHASES:
        for part in PARTS:
            print(f"| {part}, {phase} | " + " | ".join(f"{sums[part, phase] / 1e3:.0f}" for sums in columns.values()) + " |")
        print(f"| all, {phase} | " + " | ".join(f"{sum(sums[part, phase] for part in PARTS) / 1e3:.0f}" for sums in columns.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
