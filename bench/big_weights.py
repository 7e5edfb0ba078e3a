#!/usr/bin/env python3
"""A model of many GiB of random weights, split on ranks and put together again: time, peak memory, and whether every byte comes back.

  big_weights.py FOLDER [--gib 6] [--ranks 8] [--mesh 2x4] [--reshard 6] [--run] [--keep]

FOLDER needs four times the size (five with --reshard, which moves the weights to another number of ranks). Prints a JSON line per command.
Needs numpy; AUTOPAR names the program (default: autopar).
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

AUTOPAR = os.environ.get("AUTOPAR", "autopar")
WIDTH = 8192  # a layer has WIDTH x WIDTH float32 weights: 256 MiB


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            digest.update(block)
    return digest.hexdigest()


def write_weights(path, layers):
    """A safetensors file, which is ONNX external data too, in the order of the names; written in blocks. Returns offsets by name."""
    names = [f"w{i:03}" for i in range(layers)]
    size = WIDTH * WIDTH * 4
    header = json.dumps({n: {"dtype": "F32", "shape": [WIDTH, WIDTH], "data_offsets": [i * size, (i + 1) * size]} for i, n in enumerate(names)},
                        separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(layers * WIDTH // 256):
            file.write((random.standard_normal((256, WIDTH), np.float32) / np.float32(WIDTH ** 0.5)).tobytes())
    return {n: 8 + len(header) + i * size for i, n in enumerate(names)}, size


def write_model(folder, layers):
    offsets, size = write_weights(folder / "big.safetensors", layers)
    nodes, initializers, value = [], [], "x"
    for i, (name, offset) in enumerate(offsets.items()):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH], data_location=TensorProto.EXTERNAL)
        for key, text in (("location", "big.safetensors"), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(text))
        initializers.append(tensor)
        nodes.append(helper.make_node("MatMul", [value, name], [f"h{i}"], f"fc{i}"))
        value = f"a{i}" if i + 1 < layers else "y"
        nodes.append(helper.make_node("Relu", [f"h{i}"], [value], f"relu{i}"))
    shape = [16, WIDTH]
    graph = helper.make_graph(nodes, "big", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "big.onnx")


def write_cluster(path, ranks, memory):
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "device", "memory_bytes": memory, "memory_bandwidth_bytes_per_s": 1e12, "peak_flops_per_s": {"float32": 1e13}},
        "tiers": [{"name": "link", "size": ranks, "bandwidth_bytes_per_s": 1e11, "latency_s": 1e-6}],
        "host_link": {"bandwidth_bytes_per_s": 1e10}}))
    return path


def command(*args):
    """Runs the program; wall and CPU seconds and the peak of its resident memory."""
    begin = time.time()
    process = subprocess.Popen([AUTOPAR, *map(str, args)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{args}: status {status}"
    print(json.dumps({"command": " ".join(map(str, args[:1])), "seconds": round(time.time() - begin, 1),
                      "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1), "peak_mib": round(usage.ru_maxrss / 1024)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gib", type=float, default=6)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mesh", default="2x4")
    parser.add_argument("--reshard", type=int, default=0)
    parser.add_argument("--run", action="store_true", help="execute the sharded plan as well")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    layers = max(2, round(options.gib * (1 << 30) / (WIDTH * WIDTH * 4)))
    begin = time.time()
    write_model(folder, layers)
    source = sha256(folder / "big.safetensors")
    size = (folder / "big.safetensors").stat().st_size
    print(json.dumps({"model_bytes": size, "weights": layers, "sha256": source, "seconds": round(time.time() - begin, 1)}), flush=True)

    memory = size // options.ranks * 3 // 2 + (256 << 20)
    cluster = write_cluster(folder / "cluster.json", options.ranks, memory)
    command("search", folder / "big.onnx", "--cluster", cluster, "-o", folder / "plan", "--weights", "sharded", "--mesh", options.mesh, "--searcher", "rec")
    command("merge", folder / "plan", "-o", folder / "merged.safetensors")
    same = sha256(folder / "merged.safetensors") == source
    print(json.dumps({"merged_is_the_source": same}), flush=True)
    if options.reshard:
        other = write_cluster(folder / "other.json", options.reshard, 2 * size)
        (folder / "merged.safetensors").unlink()
        # To be resharded to, a plan needs no weights of its own: only how they lie.
        command("search", folder / "big.onnx", "--cluster", other, "-o", folder / "other", "--searcher", "rec", "--weights", "sharded")
        shutil.rmtree(folder / "other" / "rank00001")
        command("reshard-weights", "--from", folder / "plan", "--to", folder / "other")
        command("merge", folder / "other", "-o", folder / "merged.safetensors")
        same = same and sha256(folder / "merged.safetensors") == source
        print(json.dumps({"merged_is_the_source": same}), flush=True)
    if options.run:
        command("run", folder / "plan")
    if not options.keep:
        shutil.rmtree(folder)
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
