#!/usr/bin/env python3
"""The plan that autopar finds beside uniform Megatron-style plans, all priced by the same model, as JSON lines.

  bench/megatron.py MODEL.onnx CLUSTER.json [--batch 8]     (.deps/venv/bin/python; AUTOPAR names the program)

A uniform plan (Shoeybi et al., "Megatron-LM", 2019) splits the weights of every layer over tp devices of a node: projections
into the layer by columns, those out of it by rows. The batch goes over the other devices as far as it divides; what is left
splits the sequence ("+seq") or does the same work twice. Only the matrix products with weights are fixed; all else is
chosen by the search, which can only help the uniform plan.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

import onnx

COLUMN = re.compile(r"q_proj|k_proj|v_proj|gate_proj|up_proj|lm_head|attn\.[qkv]|qkv|mlp\.(gate|up|fc)|mlp\.fc")
ROW = re.compile(r"o_proj|down_proj|attn\.o\b|attn\.o\.|mlp\.down|attn\.proj|mlp\.proj")


def weight_products(graph):
    """MatMul node -> name of the weight that it multiplies with, seen through a Transpose."""
    inputs = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    source = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Transpose"}
    names = ((n.name or f"MatMul_{n.output[0]}", source.get(n.input[1], n.input[1])) for n in graph.node if n.op_type == "MatMul")
    return {op: weight for op, weight in names if weight in inputs}


def search(program, model, cluster, *options):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "search", model, "--cluster", cluster, "-o", folder, "--json", *options], capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip()}
    report = json.loads(done.stdout)
    mesh = "x".join(str(a["size"]) for a in report["mesh"])
    return {"mesh": mesh, "seconds": report["cost"]["seconds"], "gap": report["cost"]["gap"], "memory_bytes": report["memory"]["peak_bytes"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("cluster")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    program = os.environ.get("AUTOPAR", str(root / "build" / "src" / "autopar"))
    tiers = [t["size"] for t in json.loads(pathlib.Path(options.cluster).read_text())["tiers"]]
    node, nodes = tiers[0], tiers[1] if len(tiers) > 1 else 1
    products = weight_products(onnx.load(options.model, load_external_data=False).graph)
    found = search(program, options.model, options.cluster)
    print(json.dumps({"plan": "autopar", **found}), flush=True)
    for tp in (t for t in (1, 2, 4, 8) if node % t == 0):
        dp = max(d for d in range(1, nodes * node // tp + 1) if (nodes * node // tp) % d == 0 and options.batch % d == 0)
        left = nodes * node // tp // dp
        for sequence in sorted({1, left}):
            pins = {}
            for op, weight in products.items():
                if COLUMN.search(weight):
                    pins[op] = {"in_strategy": [[dp, sequence, 1], [1, tp]]}
                elif ROW.search(weight):
                    pins[op] = {"in_strategy": [[dp, sequence, tp], [tp, 1]]}
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump({"format": "autopar-strategy", "version": 1, "ops": pins}, file)
                file.flush()
                mesh = "x".join(str(n) for n in (nodes, node // tp, tp) if n > 1)
                plan = search(program, options.model, options.cluster, "--mesh", mesh, "--pin", file.name)
            name = f"tp={tp} dp={dp}" + (f" +seq={sequence}" if sequence > 1 else f", {left} times the same" if left > 1 else "")
            ratio = {"vs_autopar": plan["seconds"] / found["seconds"]} if "seconds" in plan else {}
            print(json.dumps({"plan": name, "pinned": len(pins), **plan, **ratio}), flush=True)


if __name__ == "__main__":
    main()
