#!/usr/bin/env python3
"""Every measurement that docs/benchmarks.md and docs/mindspore.md show, as JSON lines; bench/table.py makes its tables from them.

  scripts/build bench/search_bench && bench/measure.py > bench.jsonl && bench/table.py bench.jsonl

(.deps/venv/bin/python after scripts/setup; some minutes on an idle machine.) --only NAME,... measures some tables only: models,
training, devices, depth, mindspore. Models outside this repository are taken from AUTOPAR_SHARED where they are. Each line has the
table it belongs to and what search_bench prints.
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
MODELS = ("gpt2", "llama3_8b")
SHARED_MODELS = ("bert_large", "gpt2_xl", "llama3_8b", "mixtral_8x7b_dense", "resnet50", "vit_l_16", "unet3d", "dlrm", "face_resnet50_10m")
TRAINING = {"train_bert_large_adam": ("dgx-a100-8x8",), "train_llama_8b_adamw": ("dgx-h100-64x8", "dgx-h100-128x8", "dgx-h100-2048x8"),
            "train_llama_405b_adamw": ("dgx-h100-128x8", "dgx-h100-2048x8")}


def searchers(*wanted):
    """Those of them that the program has."""
    program = os.environ.get("AUTOPAR", str(ROOT / "build" / "src" / "autopar"))
    text = subprocess.run([program, "search", "m", "--cluster", "c", "--searcher", "?"], capture_output=True, text=True).stderr
    text += subprocess.run([program, "search", "--help"], capture_output=True, text=True).stdout
    return [name for name in wanted if name in text]


def models(measure, folder, shared):
    cluster = inputs.cluster(folder, 64)
    for path in [ROOT / "models" / f"{name}.onnx" for name in MODELS] + [shared / f"{name}.onnx" for name in SHARED_MODELS]:
        measure("models", cluster, path, repeat=3)


def training(measure, folder, shared):
    for name, clusters in TRAINING.items():
        for cluster in clusters:
            for axes in (2, 3):
                measure("training", ROOT / "models" / "clusters" / f"{cluster}.json", shared / f"{name}.onnx", "--search-only", "--max-axes", axes)


def devices(measure, folder, shared):
    for count in (8, 64, 256, 1024, 4096, 16384):
        for searcher in searchers("dp", "rec"):
            measure("devices", inputs.cluster(folder, count), ROOT / "models" / "llama3_8b.onnx", "--search-only", searcher=searcher)


def depth(measure, folder, shared):
    for layers, memory in ((8, 80), (16, 80), (32, 80), (64, 80), (126, 160), (126, 80)):
        measure("depth", inputs.cluster(folder, 64), inputs.llama(folder, layers), "--search-only", "--memory", memory, repeat=3,
                layers=layers, memory_gib=memory)


def mindspore(measure, folder, shared):
    """The models, device counts and searchers that MindSpore was measured on (table.py has its times)."""
    wide = [(48, 4096, d) for d in (8, 64, 256, 1024)]
    for layers, width, count in [(n, 1024, d) for n in (2, 8, 24, 48) for d in (8, 64, 256, 1024)] + wide:
        for searcher in searchers("dp", "rec", "propagate"):
            seeds = ["--pin", inputs.pins(folder, count), "--inputs", "data_parallel"] if searcher == "propagate" else []
            measure("mindspore", inputs.cluster(folder, count), inputs.gpt(folder, layers, width), "--search-only", *seeds,
                    searcher=searcher, repeat=2, layers=layers, width=width)
    for layers, count in ((8, 8), (48, 8), (8, 64), (48, 1024)):
        for searcher in searchers("dp", "rec"):
            measure("mindspore", inputs.cluster(folder, count), inputs.mlp(folder, layers), "--search-only", searcher=searcher, repeat=2,
                    layers=layers, width=0)


TABLES = {f.__name__: f for f in (models, training, devices, depth, mindspore)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES))
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(TABLES):
        parser.error(f"unknown tables {', '.join(sorted(unknown))}; known: {', '.join(TABLES)}")
    bench = ROOT / "build" / "bench" / "search_bench"
    if not bench.exists():
        sys.exit(f"{bench} is missing: scripts/build bench/search_bench")
    shared = pathlib.Path(os.environ.get("AUTOPAR_SHARED", ROOT.parent / "shared")) / "data" / "models"

    def measure(table, cluster, model, *arguments, searcher="dp", repeat=1, **labels):
        if not model.exists():
            print(f"skipped: {model} does not exist", file=sys.stderr)
            return
        command = [bench, *arguments, "--searcher", searcher, "--repeat", repeat, cluster, model]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
        print(json.dumps({"table": table, **labels, **json.loads(done.stdout)}), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            TABLES[name](measure, pathlib.Path(folder), shared)


if __name__ == "__main__":
    main()
