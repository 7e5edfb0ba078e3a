"""--zero: how parameters, accumulators and optimizer states of a training step are stored; that the steps are right, and take the memory that they
should beside each other."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tools.program import AUTOPAR, cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
RANKS = 4
MACHINE = {"flops": 1e11, "memory_bandwidth": 1e10, "link": 1e9}


def parts(spec):
    """Into how many parts a spec such as "[{t0},{}]+{}" cuts, on a mesh of one axis or of two halves."""
    return spec.split("+")[0].split("]")[0].count("t0") * 2 + spec.split("+")[0].split("]")[0].count("t1") * 2


def dims(spec):
    return spec[: spec.index("]") + 1]


def plan(folder, level, precision, micro_batches, searcher, name):
    out = folder / name
    run("search", SOURCE / "models" / "llama_tiny.onnx", "--cluster", cluster(folder, 2, 2, **MACHINE), "--mesh", "2x2", "--train",
        "--loss", "cross_entropy", "--optimizer", "adamw", "--precision", precision, "--batch", "4", "--micro-batches", micro_batches,
        "--searcher", searcher, *(["--zero", level] if level else []), "--recompute", "none", "-o", out, "-q")
    stored = {name: tensor["spec"] for name, tensor in json.loads((out / "strategy.json").read_text())["tensors"].items() if "spec" in tensor}
    return out, stored, json.loads((out / "report.json").read_text())


def check_layouts(level, stored, copy):
    """What --zero says of every parameter and of what belongs to it."""
    masters = [n for n in stored if f"adam.m.{n}" in stored]
    assert len(masters) > 5
    for name in masters:
        has_copy = copy and copy + name in stored
        read = stored[copy + name if has_copy else name]
        states = [stored[f"adam.m.{name}"], stored[f"adam.v.{name}"]] + ([stored[name]] if has_copy else [])
        sums = [stored[f"acc.{name}"]] if f"acc.{name}" in stored else []
        if level == "off":
            assert all(dims(s) == dims(read) for s in states + sums), (name, read, states, sums)
        else:
            assert all(parts(s) == RANKS for s in states), (name, states)
        if level == "1":
            assert all(dims(s) == dims(read) for s in sums), (name, read, sums)
        if level in "23":
            assert all(parts(s) == RANKS for s in sums), (name, sums)
        if level == "3":
            assert parts(read) == RANKS, (name, read)


def test_layouts_and_results(folder):
    peaks = {}
    for precision, copy in ("fp32", ""), ("mixed-fp16", "fp16."):
        for micro_batches in "1", "2":
            for level in "off", "1", "2", "3":
                out, stored, report = plan(folder, level, precision, micro_batches, "data_parallel", f"{precision}{micro_batches}{level}")
                check_layouts(level, stored, copy)
                assert report["training"]["zero"] == level
                peaks[precision, micro_batches, level] = report["memory"]["parts"]
                assert run("run", out).stdout.splitlines()[-1] == "PASSED"
                if level in ("off", "1", "2"):
                    # Data parallel passes read whole parameters.
                    assert all(parts(stored.get(copy + n, stored[n])) == 0 for n in stored if f"adam.m.{n}" in stored)
            of = {level: peaks[precision, micro_batches, level] for level in ("off", "1", "2", "3")}
            assert all(of["off"]["states_bytes"] > 3 * of[level]["states_bytes"] for level in "123"), of
            if micro_batches == "2":
                assert of["1"]["accumulators_bytes"] > 3.5 * of["2"]["accumulators_bytes"], of


def test_searched(folder):
    """Any searcher keeps it, and what asks for less costs no more."""
    for searcher in "dp", "rec":
        costs = {}
        for level in "", "off", "1", "2", "3":
            out, stored, report = plan(folder, level, "fp32", "2", searcher, f"{searcher}{level}")
            costs[level] = report["cost"]["seconds"]
            if not level:
                continue
            check_layouts(level, stored, "")
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", (searcher, level)
        if searcher == "dp":
            assert all(costs[""] <= cost * (1 + 1e-9) for cost in costs.values()), costs


def test_refused(folder):
    machine = cluster(folder, 2, **MACHINE)
    done = subprocess.run([AUTOPAR, "search", SOURCE / "models" / "mlp.onnx", "--cluster", machine, "--zero", "1", "-o", folder / "none"],
                          capture_output=True, text=True)
    assert done.returncode == 4 and "--zero" in done.stderr and "--train" in done.stderr, (done.returncode, done.stderr)
    assert not (folder / "none").exists()
    done = subprocess.run([AUTOPAR, "search", SOURCE / "models" / "mlp.onnx", "--cluster", machine, "--train", "--loss", "mse", "--zero", "4"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "--zero" in done.stderr, (done.returncode, done.stderr)


def main():
    for test in (test_layouts_and_results, test_searched, test_refused):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
