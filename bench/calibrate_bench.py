"""Measured over predicted time of a step on this machine, with profiles that `autopar calibrate` makes.

    .deps/venv/bin/python bench/calibrate_bench.py [--times 5] [--ranks 2] [--on MODEL]

Prints a Markdown table: for each small model, forward and as a training step, as threads and by each MPI that is here, the median
and the range of --times calibrations, each with a search and the median of 15 runs. Every model is calibrated on itself, or all on
--on, training steps on training steps. What else the machine does at that time is in the figures.
"""
import argparse
import json
import os
import pathlib
import statistics
import tempfile

from run_bench import ROOT, launchers, run

MODELS = ("llama_tiny", "gpt2_tiny", "mlp")
TRAINED = ("llama_tiny", "gpt2_tiny")
TRAINING = ("--train", "--loss", "cross_entropy", "--optimizer", "adamw")


def ratio(program, model, on, ranks_by, prefix, ranks, more, folder):
    """Of one calibration."""
    cluster, plan = folder / "here.json", folder / "plan"
    here = () if prefix else ("--ranks", ranks)
    run(*prefix, program, "calibrate", "--ranks-by", ranks_by, *here, "--quick", "--model", on, *more, "-o", cluster, "-q")
    run(program, "search", model, "--cluster", cluster, *more, "-o", plan, "-q")
    report = json.loads(run(*prefix, program, "run", plan, "--ranks-by", ranks_by, "--repeat", 15, "--json"))
    assert report["passed"]
    return report["prediction"]["kinds"][0]["ratio"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--on", type=pathlib.Path)
    options = parser.parse_args()
    program = pathlib.Path(os.environ.get("AUTOPAR", ROOT / "build" / "src" / "autopar"))
    print("| model | ranks | as | measured over predicted |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for stem, more in [(m, ()) for m in MODELS] + [(m, TRAINING) for m in TRAINED]:
            model = ROOT / "models" / f"{stem}.onnx"
            for shown, ranks_by, prefix in launchers(program, options.ranks):
                found = [ratio(program, model, options.on or model, ranks_by, prefix, options.ranks, more, folder) for _ in range(options.times)]
                print(f"| `{stem}`{' trained' * bool(more)} | {options.ranks} | {shown} | {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f}) |", flush=True)


if __name__ == "__main__":
    main()
