#!/usr/bin/env python3
"""Searches that are hard: where the memory limit binds, and training steps; the tables of docs/benchmarks.md.

  scripts/build && bench/steps.py [limit|train|irregular ...] [--only "NAME;..."] [--json]

(.deps/venv/bin/python after scripts/setup; some ten minutes.) Each row is one `autopar search --searcher dp --threads 1`, the program being
AUTOPAR or that of build/; CPU seconds and MiB are those of the whole command. Models outside this repository are taken from
AUTOPAR_SHARED where they are, else their rows are left out. --json prints a line for each run instead.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED", ROOT.parent / "shared")) / "data" / "models"
PROGRAM = os.environ.get("AUTOPAR", ROOT / "build" / "src" / "autopar")
A100, H100, H100_512, H100_16K = "dgx-a100-8x8", "dgx-h100-8x8", "dgx-h100-64x8", "dgx-h100-2048x8"


def ideal(optimizer, *options):
    return ("--train", "--loss", "sum", "--optimizer", optimizer, *options)


def profiled(profile, *options):
    return ("--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--precision", "mixed-bf16", "--profile", profile, *options)


def limit(memory):
    return ("--memory", memory)


# name -> (model, cluster, options); models that begin with "llama3-" are made by scripts/make_models.py at 8,192 tokens.
TABLES = {
    "limit": {
        "ViT-L, 100 MiB": ("vit_l_16", A100, limit("100MiB")),
        "ViT-L, 80 MiB": ("vit_l_16", A100, limit("80MiB")),
        "BERT-Large, 150 MiB": ("bert_large", A100, limit("150MiB")),
        "BERT-Large, 120 MiB": ("bert_large", A100, limit("120MiB")),
        "GPT-2 XL, 800 MiB": ("gpt2_xl", A100, limit("800MiB")),
        "DLRM, 8 A100 on PCIe, 56 GiB": ("dlrm", "pcie-8", limit("56GiB")),
        "DLRM, 8 A100, 40 GiB": ("dlrm", "dgx-a100-1x8", limit("40GiB")),
        "Mixtral, experts gathered, 256 H100 in pods, 3 GiB": ("mixtral_8x7b_gather", "superpod-4x8x8", limit("3GiB")),
        "Mixtral, 8 GiB": ("mixtral_8x7b_dense", A100, limit("8GiB")),
        "Mixtral, 5 GiB": ("mixtral_8x7b_dense", A100, limit("5GiB")),
        "Mixtral, 4 GiB": ("mixtral_8x7b_dense", A100, limit("4GiB")),
        "step of BERT-Large, 5.5 GiB": ("train_bert_large_adam", A100, limit("5.5GiB")),
        "step of 8B, 512 H100, 14 GiB": ("train_llama_8b_adamw", H100_512, limit("14GiB")),
        "step of 8B, 512 H100, 17 GiB": ("train_llama_8b_adamw", H100_512, limit("17GiB")),
        "step of 405B, 16,384 H100, 40 GiB": ("train_llama_405b_adamw", H100_16K, limit("40GiB")),
        "step of 405B, 16,384 H100, two axes": ("train_llama_405b_adamw", H100_16K, ("--max-axes", "2")),
        "U-Net 3D, AdamW, 364 MiB": ("unet3d", A100, ideal("adamw", *limit("364MiB"))),
        "U-Net 3D, AdamW, 273 MiB": ("unet3d", A100, ideal("adamw", *limit("273MiB"))),
        "U-Net 3D, momentum, 64 H100, 330 MiB": ("unet3d", H100, ideal("momentum", *limit("330MiB"))),
        "U-Net 3D, momentum, 64 H100, 250 MiB": ("unet3d", H100, ideal("momentum", *limit("250MiB"))),
        "ResNet-50, momentum, 64 H100, 200 MiB": ("resnet50", H100, ideal("momentum", *limit("200MiB"))),
        "ResNet-50, Adam, 64 H100, 300 MiB": ("resnet50", H100, ideal("adam", *limit("300MiB"))),
        "ViT-L, SGD, 64 H100, 1.6 GiB": ("vit_l_16", H100, ideal("sgd", *limit("1.6GiB"))),
    },
    "train": {
        "8B on 64, 128 samples, 24 GiB": ("llama3-8b", H100, profiled("h100-megatron", "--batch", "128", "--micro-batches", "auto", *limit("24GiB"))),
        "8B on 64, 256 samples, 24 GiB": ("llama3-8b", H100, profiled("h100-megatron", "--batch", "256", "--micro-batches", "auto", *limit("24GiB"))),
        "8B on 64, 256 samples, 80 GiB": ("llama3-8b", H100, profiled("h100-megatron", "--batch", "256", "--micro-batches", "auto")),
        "8B on 64, `h100-nanotron`, 128 samples, 80 GiB": ("llama3-8b", H100, profiled("h100-nanotron", "--batch", "128", "--micro-batches", "auto")),
        "70B on 512, 1,024 samples in 8 passes, 80 GiB": ("llama3-70b", H100_512, profiled("h100-megatron", "--batch", "1024", "--micro-batches", "8")),
    },
    "irregular": {
        "U-Net 3D, AdamW, 64 A100": ("unet3d", A100, ideal("adamw")),
        "U-Net 3D, momentum, 64 H100": ("unet3d", H100, ideal("momentum")),
        "ResNet-50, AdamW, 64 A100": ("resnet50", A100, ideal("adamw")),
        "ResNet-50, Adam, 512 H100": ("resnet50", H100_512, ideal("adam")),
        "face ResNet-50, SGD, 64 A100": ("face_resnet50_10m", A100, ideal("sgd")),
        "face ResNet-50, SGD, 512 H100": ("face_resnet50_10m", H100_512, ideal("sgd")),
        "ViT-L, AdamW, 64 A100": ("vit_l_16", A100, ideal("adamw")),
        "ViT-L, SGD, 64 A100": ("vit_l_16", A100, ideal("sgd")),
        "ViT-L, SGD, 512 H100": ("vit_l_16", H100_512, ideal("sgd")),
        "BERT-Large, AdamW, 64 A100": ("bert_large", A100, ideal("adamw")),
        "BERT-Large, AdamW, 512 H100": ("bert_large", H100_512, ideal("adamw")),
        "GPT-2 XL, AdamW, 64 H100": ("gpt2_xl", H100, ideal("adamw")),
        "GPT-2 XL, AdamW, 512 H100": ("gpt2_xl", H100_512, ideal("adamw")),
        "Mixtral, AdamW, 64 H100": ("mixtral_8x7b_dense", H100, ideal("adamw")),
        "Mixtral, AdamW, 512 H100": ("mixtral_8x7b_dense", H100_512, ideal("adamw")),
        "DLRM, Adam, 64 A100": ("dlrm", A100, ideal("adam")),
        "DLRM, Adam, 512 H100": ("dlrm", H100_512, ideal("adam")),
    },
}


def model_path(name, folder):
    if not name.startswith("llama3-"):
        return MODELS / f"{name}.onnx"
    path = folder / f"{name}.onnx"
    if not path.exists():
        subprocess.run([sys.executable, ROOT / "scripts" / "make_models.py", "--preset", name, "--sequence", "8192", "-o", path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def search(case, folder):
    """The report's cost, what was decided, CPU seconds and MiB; None where the model is absent."""
    model, cluster, options = case
    path = model_path(model, folder)
    if not path.exists():
        return None
    command = [PROGRAM, "search", path, "--cluster", ROOT / "models" / "clusters" / f"{cluster}.json", *options, "--searcher", "dp",
               "--threads", "1", "--json", "-o", folder / "plan"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        done = subprocess.Popen([str(c) for c in command], stdout=out, stderr=log)
        _, status, usage = os.wait4(done.pid, 0)
        done.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        log.seek(0)
        if done.returncode != 0:
            return {"error": log.read().decode().strip().splitlines()[-1]}
        report = json.load(out)
    training = report.get("training", {})
    decided = [f"{training['micro_batches']} passes"] if training.get("micro_batches", 1) > 1 else []
    if training.get("recompute", "none") not in ("none", ""):
        decided.append(f"`{training['recompute']}`")
    return {**report["cost"], "decided": ", ".join(decided), "cpu_seconds": usage.ru_utime, "mib": usage.ru_maxrss / 1024}


def shown(name, found):
    if "error" in found:
        return f"| {name} | {found['error']} | | | |"
    seconds, bound = found["seconds"], found["lower_bound_seconds"]
    gap = seconds / bound - 1 if bound > 0 else float("inf")
    plan = f"{seconds * 1e3:,.3f} ms" + (f": {found['decided']}" if found["decided"] else "")
    said = "proven" if gap < 1e-9 else f"{gap * 100:.2g} %"
    return f"| {name} | {plan} | {said} | {found['cpu_seconds']:.3g} | {found['mib']:,.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="; ".join(TABLES))
    parser.add_argument("--only", default="", help="parts of the names of rows, between semicolons")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.tables:
        if name not in TABLES:
            parser.error(f"unknown table '{name}'; there are: {', '.join(TABLES)}")
    only = [n.strip() for n in options.only.split(";") if n.strip()]
    with tempfile.TemporaryDirectory() as folder:
        for table in options.tables or TABLES:
            if not options.json:
                print("| case | plan | gap | CPU s | MiB |\n|---|---|---|---|---|")
            for name, case in TABLES[table].items():
                if only and not any(o in name for o in only):
                    continue
                found = search(case, pathlib.Path(folder))
                if found is None:
                    print(f"skipped: {name}: {case[0]} is not there", file=sys.stderr)
                elif options.json:
                    print(json.dumps({"table": table, "case": name, **found}), flush=True)
                else:
                    print(shown(name, found), flush=True)
            if not options.json:
                print()


if __name__ == "__main__":
    main()
