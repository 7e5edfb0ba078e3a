#!/usr/bin/env python3
"""What each stage of the exact search buys: every case with all stages, and with one of them left out, as a table.

  scripts/build bench/search_bench && bench/ablation.py

(.deps/venv/bin/python after scripts/setup; some minutes on an idle machine.) A row shows how much dearer the plan gets, the gap and
the CPU seconds of the search without that stage, beside those with all of them. --only NAME,... takes some cases, --without
STAGE,... some stages, --json prints a line for each run instead. Models outside this repository are taken from AUTOPAR_SHARED where
they are. Presolve is tried on bare problems, on the files in AUTOPAR_SHARED's `iopddl`, with --time-limit 60.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import inputs

ROOT = inputs.ROOT
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", ROOT.parent / "shared")) / "data"
CLUSTERS = ROOT / "models" / "clusters"
STAGES = ("fold", "columns", "mix", "windows")
BARE_STAGES = ("presolve", "windows")
# name -> (model, cluster, GiB per device or 0, further options)
CASES = {
    "llama3_8b": ("llama3_8b.onnx", "dgx-a100-8x8", 0, ()),
    "mixtral": ("mixtral_8x7b_dense.onnx", "dgx-a100-8x8", 0, ()),
    "mixtral, 8 GiB": ("mixtral_8x7b_dense.onnx", "dgx-a100-8x8", 8, ()),
    "mixtral, 4 GiB": ("mixtral_8x7b_dense.onnx", "dgx-a100-8x8", 4, ()),
    "vit_l_16, 100 MiB": ("vit_l_16.onnx", "dgx-a100-8x8", 100 / 1024, ()),
    "bert_large, 150 MiB": ("bert_large.onnx", "dgx-a100-8x8", 150 / 1024, ()),
    "gpt2_xl, 800 MiB": ("gpt2_xl.onnx", "dgx-a100-8x8", 800 / 1024, ()),
    "8B step": ("train_llama_8b_adamw.onnx", "dgx-h100-64x8", 0, ()),
    "405B step, 2 axes": ("train_llama_405b_adamw.onnx", "dgx-h100-2048x8", 0, ("--max-axes", "2")),
    "405B step, 40 GiB": ("train_llama_405b_adamw.onnx", "dgx-h100-2048x8", 40, ()),
    "CNN step": ("train_cnn_sgd.onnx", "dgx-a100-8x8", 0, ()),
    "llama, 126 layers, 80 GiB": (126, None, 80, ()),
}
BARE = ("asplos-2025-iopddl-A.json.gz", "asplos-2025-iopddl-G.json.gz", "asplos-2025-iopddl-M.json.gz")


def search(case, folder, without):
    """(cost, gap, CPU seconds), or None where nothing was found."""
    model, cluster, memory, options = CASES[case]
    path = inputs.llama(folder, model) if isinstance(model, int) else SHARED / "models" / model
    if not path.exists():
        return None
    topology = inputs.cluster(folder, 64) if cluster is None else CLUSTERS / f"{cluster}.json"
    command = [ROOT / "build" / "bench" / "search_bench", "--search-only", "--repeat", 1, *options]
    command += ["--memory", memory] if memory else []
    command += ["--without", without] if without else []
    done = subprocess.run([str(c) for c in (*command, topology, path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return None if "error" in found else (found["cost_seconds"], found["gap"], found["seconds"]["search_cpu"])


def solve(name, without):
    path = SHARED / "iopddl" / name
    if not path.exists():
        return None
    program = os.environ.get("AUTOPAR", ROOT / "build" / "src" / "autopar")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [program, "solve", path, "--time-limit", 60, "--threads", 1, "--json", *(["--without", without] if without else [])]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        return None
    found = json.loads(done.stdout)
    return found["cost"], found["gap"], resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def shown(all_stages, without):
    if without is None:
        return "nothing found"
    dearer = without[0] / all_stages[0] - 1
    return f"{'same' if abs(dearer) < 5e-7 else f'{dearer * 100:+.3f} %'}, gap {without[1] * 100:.3g} %, {without[2]:.2f} s"


def table(rows, stages, run, as_json):
    if not as_json:
        print("| case | all stages | " + " | ".join(f"without {s}" for s in stages) + " |")
        print("|" + "---|" * (2 + len(stages)))
    for name in rows:
        whole = run(name, "")
        if whole is None:
            print(f"skipped: {name}", file=sys.stderr)
            continue
        parts = {stage: run(name, stage) for stage in stages}
        if as_json:
            print(json.dumps({"case": name, "all": whole, "without": parts}), flush=True)
        else:
            print(f"| {name} | gap {whole[1] * 100:.3g} %, {whole[2]:.2f} s | " +
                  " | ".join(shown(whole, parts[s]) for s in stages) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    only = [n.strip() for n in options.only.split(",") if n.strip()]
    wanted = options.without.split(",") if options.without else None
    known = [*CASES, *BARE]
    if only and not any(any(o in name for o in only) for name in known):
        parser.error(f"--only names none of: {'; '.join(known)}")

    def chosen(names):
        return [n for n in names if not only or any(o in n for o in only)]

    def stages(all_of_them):
        return [s for s in all_of_them if wanted is None or s in wanted]

    with tempfile.TemporaryDirectory() as folder:
        table(chosen(CASES), stages(STAGES), lambda name, without: search(name, pathlib.Path(folder), without), options.json)
    if chosen(BARE):
        print()
        table(chosen(BARE), stages(BARE_STAGES), solve, options.json)


if __name__ == "__main__":
    main()
