#!/usr/bin/env python3
"""Fits the kernel parameters of a profile to measured times, and says the error on rows that were kept apart.

  bench/fit.py FOLDER      (.deps/venv/bin/python after scripts/setup; FOLDER: vidur_op_times.csv.gz, llmservingsim_h100.csv.gz)

Matrix products and kernels bound by memory of A100 and H100 (vidur, fp16), and attention of H100 (LLMServingSim, bfloat16, forwards and causal, 16 to 2,048
tokens of one sequence). Every tenth row, by a hash of the row, is not fitted.
The formulas are those of include/autopar/profile.hpp. Coordinate descent on the mean of the absolute logarithm of predicted over
measured time, from fixed starts: the same files give the same numbers. Prints a JSON object per device, and then one for each of PROFILES,
which says how far rows of each op are from the numbers as they stand in that profile, by table: of vidur, and of LLMServingSim products and
embedding. To the latter table no product was set, but for the choice between two least_k.
"""
import argparse
import json
import pathlib
import statistics

import numpy as np

from fitting import as_shown, descend, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = {"a100": {"peak": 3.12e14, "bandwidth": 2.039e12, "multiprocessors": 108},
           "h100": {"peak": 9.894e14, "bandwidth": 3.35e12, "multiprocessors": 132}}
PROFILES = {"a100-eager": "a100", "a100-megatron": "a100", "h100-eager": "h100", "h100-nanotron": "h100"}
# Per kind of kernel the bytes that an element of the width of a row moves, read and written, in 16 bits. An op may be several kernels.
KINDS = {"addition": {"add": 6}, "activation": {"mlp_act": 6}, "rotary": {"attn_rope": 4}, "gather": {"emb": 4},
         "normalisation": {"input_layernorm": 4, "post_attention_layernorm": 4}}
BYTES = {op: bytes_of for kind in KINDS.values() for op, bytes_of in kind.items()}
HALF_BYTES = 1e6  # of all kinds: with a launch, what is fitted to few bytes
# Of LLMServingSim's models: width, heads, heads of keys and values, inner width of a dense model, vocabulary. A head is 128 wide.
MODELS = {"meta-llama/Llama-3.1-70B": (8192, 64, 8, 28672, 128256), "meta-llama/Llama-3.1-8B": (4096, 32, 8, 14336, 128256),
          "mistralai/Mixtral-8x7B-v0.1": (4096, 32, 8, None, 32000)}
LEAST_TOKENS = 16  # of an attention: the products of the others are done in one step


def products(rows, gpu):
    found = [r for r in rows if r["gpu"] == gpu and r["n"] and r["k"]]
    return np.array([[float(r["m"]), float(r["n"]), float(r["k"]), r["seconds"], r["held_out"]] for r in found])


def product_seconds(p, device, data):
    m, n, k = data[:, 0], data[:, 1], data[:, 2]
    reached = p["fraction"] * k / (k + p["half_k"])
    tiles = np.ceil(m / p["tile_m"]) * np.ceil(n / p["tile_n"])
    busy = np.zeros(len(data))
    shared = 1
    while shared == 1 or (p["least_k"] > 0 and shared * p["least_k"] <= k.max()):
        parts = np.where((shared == 1) | (k >= shared * p["least_k"]), tiles * shared, 0)
        busy = np.maximum(busy, parts / (np.maximum(1, np.ceil(parts / device["multiprocessors"])) * device["multiprocessors"]))
        shared *= 2
    reached = reached * (m * n / (p["tile_m"] * p["tile_n"])) / tiles * busy
    moved = 2 * (m * k + k * n + m * n)
    return p["launch_s"] + np.maximum(2 * m * n * k / (device["peak"] * reached), moved / (device["bandwidth"] * p["memory"]))


def streams(rows, gpu, kind):
    found = [r for r in rows if r["gpu"] == gpu and r["op"] in KINDS[kind] and r["width"]]
    return np.array([[float(r["m"]) * float(r["width"]) * BYTES[r["op"]], 0, 0, r["seconds"], r["held_out"]] for r in found])


def stream_seconds(p, device, data):
    return p["launch_s"] + (data[:, 0] + HALF_BYTES) / (device["bandwidth"] * p["fraction"])


def attentions(rows):
    """Tokens, heads and heads of keys of a rank; a head is 128 wide."""
    found = []
    for row in rows:
        if row["op"] == "attn" and row["kv_cache"] == "0" and int(row["tokens"]) >= LEAST_TOKENS:
            _, heads, kept, _, _ = MODELS[row["model"]]
            found.append([float(row["tokens"]), heads / int(row["tp"]), kept / int(row["tp"]), row["seconds"], row["held_out"]])
    return np.array(found)


def attention_seconds(p, device, data):
    length, heads, kept = data[:, 0], data[:, 1], data[:, 2]
    reached = p["forward"] * length / (length + p["half_length"]) * heads / (heads + p["half_heads"])
    work = 4 * length**2 / 2 * 128 * heads
    moved = 2 * 2 * length * 128 * (heads + kept)
    return p["launch_s"] + np.maximum(work / (device["peak"] * reached), moved / device["bandwidth"])


def named(errors):
    return {op: {"rows": len(found), "mape": round(100 * statistics.mean(map(abs, found)), 1), "bias": round(100 * statistics.mean(found), 1)}
            for op, found in sorted(errors.items())}


def memory_part(memory, op):
    """The fraction of the bandwidth that a profile gives an op."""
    kind = next(k for k, ops in KINDS.items() if op in ops)
    return memory.get(kind, memory["fraction"])


def of_vidur(profile, device, rows, gpu):
    """Predicted over measured time less 1 of each op's rows."""
    memory, errors = profile["memory"], {}
    for row in (r for r in rows if r["gpu"] == gpu):
        if row["n"] and row["k"]:
            found = product_seconds(as_fitted(profile), device, np.array([[float(row["m"]), float(row["n"]), float(row["k"])]]))[0]
            names = (row["op"], "all products")
        elif row["op"] in BYTES and row["width"]:
            moved = np.array([[float(row["m"]) * float(row["width"]) * BYTES[row["op"]]]])
            found = stream_seconds({"fraction": memory_part(memory, row["op"]), "launch_s": profile["launch_s"]}, device, moved)[0]
            names = (row["op"],)
        else:
            continue
        for name in names:
            errors.setdefault(name, []).append(float(found / row["seconds"] - 1))
    return named(errors)


def as_fitted(profile):
    matrix = profile["matrix"]
    return {"fraction": matrix["fraction"], "half_k": matrix["half_k"], "tile_m": matrix["tile"][0], "tile_n": matrix["tile"][1],
            "least_k": matrix.get("least_k", 0),
            "memory": profile["memory"]["fraction"], "launch_s": profile["launch_s"]}


def of_serving(profile, device, rows):
    """The same of LLMServingSim's products, whose sizes follow from the model and its parts."""
    errors = {}
    for row in rows:
        hidden, heads, kept, inner, words = MODELS[row["model"]]
        parts, tokens = int(row["tp"]), float(row["tokens"])
        sizes = {"q_proj": (128 * heads / parts, hidden), "k_proj": (128 * kept / parts, hidden), "v_proj": (128 * kept / parts, hidden),
                 "o_proj": (hidden, 128 * heads / parts), "lm_head": (words / parts, hidden)}
        if inner:
            sizes.update({"gate_proj": (inner / parts, hidden), "up_proj": (inner / parts, hidden), "down_proj": (hidden, inner / parts)})
        if row["op"] in sizes:
            n, k = sizes[row["op"]]
            found = product_seconds(as_fitted(profile), device, np.array([[tokens, n, k]]))[0]
        elif row["op"] == "embedding":
            part = {"fraction": memory_part(profile["memory"], "emb"), "launch_s": profile["launch_s"]}
            found = stream_seconds(part, device, np.array([[4 * tokens * hidden]]))[0]
        else:
            continue
        errors.setdefault(row["op"], []).append(float(found / row["seconds"] - 1))
    return named(errors)


def fitted_products(data, device):
    found = {}
    for tile in ((128, 128), (128, 256), (256, 128), (64, 128), (128, 64), (64, 256), (256, 256), (64, 64)):
        start = {"fraction": 0.8, "half_k": 100, "tile_m": tile[0], "tile_n": tile[1], "least_k": 512, "memory": 0.8, "launch_s": 3e-6}
        choices = {"fraction": None, "half_k": None, "memory": None, "launch_s": None, "least_k": (0, 256, 512, 1024, 2048, 4096)}
        fitted, error = descend(start, choices, lambda p, part: product_seconds(p, device, part), data)
        found[error] = fitted
    return found[min(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    rows = read_rows(options.folder / "vidur_op_times.csv.gz", "median_ms", 1e-3)
    serving = read_rows(options.folder / "llmservingsim_h100.csv.gz", "latency_us", 1e-6)
    for gpu, device in DEVICES.items():
        data = products(rows, gpu)
        of_product = lambda p, part: product_seconds(p, device, part)
        found = {"device": gpu, "products": as_shown(fitted_products(data, device), of_product, data)}
        of_stream = lambda p, part: stream_seconds(p, device, part)
        for kind in KINDS:
            data = streams(rows, gpu, kind)
            fitted, _ = descend({"fraction": 0.5, "launch_s": 2e-6}, {"fraction": None, "launch_s": None}, of_stream, data)
            found[kind] = as_shown(fitted, of_stream, data)
        if gpu == "h100":
            of_attention = lambda p, part: attention_seconds(p, device, part)
            start = {"forward": 0.3, "half_length": 500, "half_heads": 4, "launch_s": 8e-6}
            data = attentions(serving)
            found["attention"] = as_shown(descend(start, dict.fromkeys(start), of_attention, data)[0], of_attention, data)
        print(json.dumps(found))
    for name, gpu in PROFILES.items():
        profile, device = json.loads((ROOT / "models" / "profiles" / f"{name}.json").read_text()), DEVICES[gpu]
        found = {"profile": name, "vidur": of_vidur(profile, device, rows, gpu)}
        if gpu == "h100":
            found["llmservingsim"] = of_serving(profile, device, serving)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
