#!/usr/bin/env python3
"""What the executor adds to the local work: tiny models on 4 and 8 ranks, as threads and as processes of each MPI that is here.

  scripts/build && bench/run_bench.py

Prints a Markdown table, of the median of --repeat runs after a first one the rank that took longest: the run, its local ops
alone (from ONNX Runtime's own trace), its collectives (waiting for the last rank, moving data), and the run over its local ops. The
models are those of AUTOPAR_SHARED, else of this repository. With more ranks than cores local ops are stretched by each other.
--calibrated: `autopar calibrate` times this machine first, and plans are made for it; else for a made-up one on which computing is
slow, so that plans have collectives.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", ROOT.parent / "shared")) / "data" / "models"
MODELS = ("tiny_llama", "tiny_moe_gather", "tiny_resnet", "tiny_train_llama_adamw")
OWN_MODELS = ("llama_tiny", "gpt2_tiny")
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def launchers(program, ranks):
    yield "threads", "threads", []
    for name, shown in (("openmpi", "Open MPI"), ("mpich", "MPICH")):
        mpirun = shutil.which(f"mpirun.{name}")
        if mpirun is None or not (program.parent / f"libautopar_{name}.so").exists():
            print(f"{shown}: not here", file=sys.stderr)
            continue
        yield shown, "mpi", [mpirun, "-n", str(ranks)]


def cluster(program, folder, ranks, options):
    path = folder / f"cluster{ranks}.json"
    if options.calibrated:
        run(program, "calibrate", "--ranks", ranks, "-o", path)
        return path
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": f"made-up {ranks}",
        "device": {"name": "d", "memory_bytes": 1 << 34, "memory_bandwidth_bytes_per_s": 2e9, "peak_flops_per_s": {"float32": 2e9}},
        "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 3e11, "latency_s": 2e-6},
                  {"name": "outer", "size": ranks // 2, "bandwidth_bytes_per_s": 2.5e10, "latency_s": 5e-6}]}))
    return path


def milliseconds(seconds):
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--models", default="")
    parser.add_argument("--calibrated", action="store_true")
    options = parser.parse_args()
    program = pathlib.Path(os.environ.get("AUTOPAR", ROOT / "build" / "src" / "autopar"))
    models = [SHARED / f"{m}.onnx" for m in MODELS]
    if not all(m.exists() for m in models):
        models = [ROOT / "models" / f"{m}.onnx" for m in OWN_MODELS]
    if options.models:
        models = [pathlib.Path(m) for m in options.models.split(",")]
    print("| model | ranks | as | run, ms | local ops only | collectives | waiting | moving | run / local ops | predicted |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks in map(int, options.ranks.split(",")):
            path = cluster(program, folder, ranks, options)
            for model in models:
                plan = folder / f"{model.stem}.{ranks}"
                run(program, "search", model, "--cluster", path, "-o", plan)
                for shown, ranks_by, prefix in launchers(program, ranks):
                    report = json.loads(run(*prefix, program, "run", plan, "--ranks-by", ranks_by, "--repeat", options.repeat, "--json"))
                    assert report["passed"]
                    slowest = max(report["rank_times"], key=lambda r: r["wall_seconds"])
                    prediction = report["prediction"]["kinds"][0]["predicted_seconds"]
                    print(f"| {model.stem} | {ranks} | {shown} | {milliseconds(slowest['wall_seconds'])} | {milliseconds(slowest['local_seconds'])} | "
                          f"{milliseconds(slowest['collective_seconds'])} | {milliseconds(slowest['waiting_seconds'])} | "
                          f"{milliseconds(slowest['moving_seconds'])} | {slowest['wall_seconds'] / slowest['local_seconds']:.2f} | "
                          f"{milliseconds(prediction)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
