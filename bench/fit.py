#!/usr/bin/env python3
"""Fits the kernel parameters of a profile, and a node's link, to measured times, and says the error on rows that were kept apart.

  bench/fit.py FOLDER      (.deps/venv/bin/python after scripts/setup; FOLDER: vidur_op_times.csv.gz, vidur_collectives.csv.gz, llmservingsim_h100.csv.gz)

Matrix products and kernels bound by memory (fp16, one device), and AllReduces of 16 to 67 MB over 2, 4 and 8 devices of a node, of A100 and H100. Every tenth row, by a hash of the row, is not fitted.
The formulas are those of include/autopar/profile.hpp. Coordinate descent on the mean of the absolute logarithm of predicted over
measured time, from fixed starts: the same files give the same numbers. Prints a JSON object per device, and then one for each of PROFILES,
which says how far rows of each op are from the numbers as they stand in that profile, by table: of vidur also of ops that nothing is
fitted to, of LLMServingSim (bfloat16, H100) products, and the share of the peak that its attention reaches. Nothing was set to the latter table.
"""
import argparse
import csv
import gzip
import hashlib
import json
import pathlib
import statistics

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = {"a100": {"peak": 3.12e14, "bandwidth": 2.039e12, "multiprocessors": 108},
           "h100": {"peak": 9.894e14, "bandwidth": 3.35e12, "multiprocessors": 132}}
PROFILES = {"a100-eager": "a100", "a100-megatron": "a100", "h100-eager": "h100", "h100-nanotron": "h100"}
# Bytes that an element of the width of a row moves: read and written, in 16 bits.
STREAMS = {"add": 6, "mlp_act": 6}
# The same where it is not certain what the width means, and how many kernels an op is: not fitted.
OTHER_STREAMS = {"attn_rope": 4, "emb": 4, "input_layernorm": 4, "post_attention_layernorm": 4}
# Of LLMServingSim's models: width, heads, heads of keys and values, inner width of a dense model, vocabulary. A head is 128 wide.
MODELS = {"meta-llama/Llama-3.1-70B": (8192, 64, 8, 28672, 128256), "meta-llama/Llama-3.1-8B": (4096, 32, 8, 14336, 128256),
          "mistralai/Mixtral-8x7B-v0.1": (4096, 32, 8, None, 32000)}
LONG = (256, 512, 1024, 1536)  # an attention of at least so many tokens, and less than the next
LEAST_BYTES = 1.6e7  # of an AllReduce; training has such of activations


def is_held_out(row):
    return hashlib.sha256(repr(sorted(row.items())).encode()).digest()[0] % 10 == 0


def read(folder, name="vidur_op_times.csv.gz"):
    with gzip.open(pathlib.Path(folder) / name, "rt") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in rows:
        row["held_out"] = is_held_out(row)
        row["seconds"] = float(row["median_ms"]) * 1e-3
    return [r for r in rows if r["seconds"] > 0]


def products(rows, gpu):
    found = [r for r in rows if r["gpu"] == gpu and r["n"] and r["k"]]
    return np.array([[float(r["m"]), float(r["n"]), float(r["k"]), r["seconds"], r["held_out"]] for r in found])


def product_seconds(p, device, data):
    m, n, k = data[:, 0], data[:, 1], data[:, 2]
    reached = p["fraction"] * k / (k + p["half_k"])
    tiles = np.ceil(m / p["tile_m"]) * np.ceil(n / p["tile_n"])
    waves = np.ceil(tiles / device["multiprocessors"])
    reached = reached * (m * n / (p["tile_m"] * p["tile_n"])) / (waves * device["multiprocessors"])
    moved = 2 * (m * k + k * n + m * n)
    return p["launch_s"] + np.maximum(2 * m * n * k / (device["peak"] * reached), moved / (device["bandwidth"] * p["memory"]))


def streams(rows, gpu):
    found = [r for r in rows if r["gpu"] == gpu and r["op"] in STREAMS and r["width"]]
    return np.array([[float(r["m"]) * float(r["width"]) * STREAMS[r["op"]], 0, 0, r["seconds"], r["held_out"]] for r in found])


def stream_seconds(p, device, data):
    return p["launch_s"] + (data[:, 0] + p["half_bytes"]) / (device["bandwidth"] * p["fraction"])


def all_reduces(rows, gpu):
    found = [r for r in rows if r["network"] == f"{gpu}_dgx" and r["collective"] == "all_reduce" and r["devices_per_node"] == r["num_workers"]]
    return np.array([[float(r["num_workers"]), float(r["size"]), 0, r["seconds"], r["held_out"]] for r in found if float(r["size"]) >= LEAST_BYTES])


def all_reduce_seconds(p, device, data):
    ranks = data[:, 0]
    return 2 * ((ranks - 1) / ranks * data[:, 1] / p["bandwidth_bytes_per_s"] + np.log2(ranks) * p["latency_s"])


def error(seconds, data):
    return np.abs(np.log(seconds / data[:, 3]))


def descend(start, choices, seconds, device, data):
    fitted = data[data[:, 4] == 0]
    best = dict(start)
    least = error(seconds(best, device, fitted), fitted).mean()
    for _ in range(20):
        before = least
        for name, values in choices.items():
            tried = values if isinstance(values, tuple) else [best[name] * f for f in (0.5, 0.7, 0.85, 0.93, 0.97, 1.03, 1.07, 1.15, 1.4, 2)]
            for value in tried:
                if name in ("fraction", "memory") and value > 1:
                    continue
                other = {**best, name: value}
                now = error(seconds(other, device, fitted), fitted).mean()
                if now < least:
                    best, least = other, now
        if before - least < 1e-5:
            break
    return best


def shown(parameters, seconds, device, data):
    held = data[data[:, 4] == 1]
    mape = lambda part: round(100 * float(np.mean(np.abs(seconds(parameters, device, part) / part[:, 3] - 1))), 2)
    return {**{k: float(f"{v:.4g}") for k, v in parameters.items()}, "rows": len(data), "mape_fitted": mape(data[data[:, 4] == 0]),
            "held_out": len(held), "mape_held_out": mape(held)}


def named(errors):
    return {op: {"rows": len(found), "mape": round(100 * statistics.mean(map(abs, found)), 1), "bias": round(100 * statistics.mean(found), 1)}
            for op, found in sorted(errors.items())}


def of_vidur(profile, device, rows, gpu):
    """Predicted over measured time less 1 of each op's rows."""
    memory, errors = profile["memory"], {}
    for row in (r for r in rows if r["gpu"] == gpu):
        bytes_of = {**STREAMS, **OTHER_STREAMS}.get(row["op"])
        if row["n"] and row["k"]:
            found = product_seconds(as_fitted(profile), device, np.array([[float(row["m"]), float(row["n"]), float(row["k"])]]))[0]
            kind = "all products"
        elif bytes_of and row["width"]:
            moved = np.array([[float(row["m"]) * float(row["width"]) * bytes_of]])
            found = stream_seconds({**memory, "launch_s": profile["launch_s"]}, device, moved)[0]
            kind = "all fitted streams" if row["op"] in STREAMS else "all other streams"
        else:
            continue
        for name in (row["op"], kind):
            errors.setdefault(name, []).append(float(found / row["seconds"] - 1))
    return named(errors)


def as_fitted(profile):
    matrix = profile["matrix"]
    return {"fraction": matrix["fraction"], "half_k": matrix["half_k"], "tile_m": matrix["tile"][0], "tile_n": matrix["tile"][1],
            "memory": profile["memory"]["fraction"], "launch_s": profile["launch_s"]}


def read_serving(folder):
    with gzip.open(pathlib.Path(folder) / "llmservingsim_h100.csv.gz", "rt") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def of_serving(profile, device, rows):
    """The same of LLMServingSim's products, whose sizes follow from the model and its parts."""
    errors = {}
    for row in rows:
        hidden, heads, kept, inner, words = MODELS[row["model"]]
        parts, tokens, seconds = int(row["tp"]), float(row["tokens"]), float(row["latency_us"]) * 1e-6
        sizes = {"q_proj": (128 * heads / parts, hidden), "k_proj": (128 * kept / parts, hidden), "v_proj": (128 * kept / parts, hidden),
                 "o_proj": (hidden, 128 * heads / parts), "lm_head": (words / parts, hidden)}
        if inner:
            sizes.update({"gate_proj": (inner / parts, hidden), "up_proj": (inner / parts, hidden), "down_proj": (hidden, inner / parts)})
        if row["op"] in sizes:
            n, k = sizes[row["op"]]
            found = product_seconds(as_fitted(profile), device, np.array([[tokens, n, k]]))[0]
            errors.setdefault(row["op"], []).append(float(found / seconds - 1))
    return named(errors)


def attention_reached(device, rows):
    """The share of the peak of causal attention forwards, without a cache: the median by tokens."""
    found = {}
    for row in rows:
        tokens = float(row["tokens"])
        least = max((t for t in LONG if t <= tokens), default=None)
        if row["op"] == "attn" and least and row["kv_cache"] == "0":
            work = 4 * tokens**2 / 2 * 128 * MODELS[row["model"]][1] / int(row["tp"])
            found.setdefault(least, []).append(work / (device["peak"] * float(row["latency_us"]) * 1e-6))
    return {str(t): {"rows": len(shares), "median": float(f"{statistics.median(shares):.3g}"), "most": float(f"{max(shares):.3g}")} for t, shares in sorted(found.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    options = parser.parse_args()
    rows, collectives = read(options.folder), read(options.folder, "vidur_collectives.csv.gz")
    for gpu, device in DEVICES.items():
        data = products(rows, gpu)
        found = {}
        for tile in ((128, 128), (128, 256), (256, 128), (64, 128), (128, 64), (64, 256), (256, 256), (64, 64)):
            start = {"fraction": 0.8, "half_k": 100, "tile_m": tile[0], "tile_n": tile[1], "memory": 0.8, "launch_s": 3e-6}
            fitted = descend(start, {"fraction": None, "half_k": None, "memory": None, "launch_s": None}, product_seconds, device, data)
            part = data[data[:, 4] == 0]
            found[error(product_seconds(fitted, device, part), part).mean()] = fitted
        best = found[min(found)]
        other = streams(rows, gpu)
        memory = descend({"fraction": 0.8, "half_bytes": 1e6, "launch_s": 3e-6}, {"fraction": None, "half_bytes": None, "launch_s": None},
                         stream_seconds, device, other)
        messages = all_reduces(collectives, gpu)
        link = descend({"bandwidth_bytes_per_s": 2e11, "latency_s": 1e-5}, {"bandwidth_bytes_per_s": None, "latency_s": None},
                       all_reduce_seconds, device, messages)
        print(json.dumps({"device": gpu, "products": shown(best, product_seconds, device, data), "memory": shown(memory, stream_seconds, device, other),
                          "link": shown(link, all_reduce_seconds, device, messages)}))
    serving = read_serving(options.folder)
    for name, gpu in PROFILES.items():
        profile, device = json.loads((ROOT / "models" / "profiles" / f"{name}.json").read_text()), DEVICES[gpu]
        found = {"profile": name, "vidur": of_vidur(profile, device, rows, gpu)}
        if gpu == "h100":
            found.update(llmservingsim=of_serving(profile, device, serving), attention_reached=attention_reached(device, serving))
        print(json.dumps(found))


if __name__ == "__main__":
    main()
