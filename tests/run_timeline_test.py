"""The timeline that run --timeline writes, --repeat, and predicted against measured time: on threads, and on each MPI that is here."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
RANKS = 4
STEPS, REPEAT = 2, 2
COLLECTIVES = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast"}
FACTOR = {"AllReduce": lambda n: 2 * (n - 1) / n, "AllGather": lambda n: (n - 1) / n, "ReduceScatter": lambda n: (n - 1) / n,
          "AllToAll": lambda n: (n - 1) / n, "Broadcast": lambda n: 1}
CLUSTER = {"format": "autopar-cluster", "version": 1, "name": "slow four",
           "device": {"name": "d", "memory_bytes": 1 << 34, "memory_bandwidth_bytes_per_s": 2e9, "peak_flops_per_s": {"float32": 2e9}},
           "tiers": [{"name": "t", "size": RANKS, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}]}
# What a rank that is a process needs besides mpirun: Open MPI refuses to run for root or on fewer cores than ranks.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(*command, expect=0):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == expect, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def launchers():
    """Command prefixes: threads, then each MPI that this build and machine have."""
    yield "threads", []
    build = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src"
    for name in ("openmpi", "mpich"):
        mpirun = shutil.which(f"mpirun.{name}")
        if mpirun is None or not (build / f"libautopar_{name}.so").exists():
            print(f"{name}: not here, skipped")
            continue
        yield "mpi", [mpirun, "-n", str(RANKS)]


def collectives_of(plan):
    """(name, type, group size, whole bytes) of the plan's collectives, from the file itself."""
    model = onnx.shape_inference.infer_shapes(onnx.load(plan))
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in [*model.graph.input, *model.graph.value_info, *model.graph.output]}
    shapes.update({t.name: list(t.dims) for t in model.graph.initializer})
    found = []
    for node in model.graph.node:
        if node.op_type not in COLLECTIVES:
            continue
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        elements = 1
        for extent in shapes[node.input[0]]:
            elements *= extent
        n = attributes["group_size"]
        found.append((node.name, node.op_type, n, 4 * elements * (n if node.op_type == "AllGather" else 1)))
    return found


def check_nesting(events):
    """Of one row: sorted by begin, the outer first, every event lies within the open one or after it. Times are in nanoseconds there."""
    def span(event):
        return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)

    open_ends = []
    for event in sorted(events, key=lambda e: (span(e)[0], -span(e)[1])):
        begin, end = span(event)
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 1, f"{event} overlaps the event before it"
        open_ends.append(end)


def check_timeline(path, plan, what):
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} <= {"M", "X", "s", "f"}, what
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {r: f"rank {r} ({what})" for r in range(RANKS)}, names
    expected = collectives_of(plan)
    assert expected, "the plan has no collectives: the test shows nothing"
    for rank in range(RANKS):
        mine = [e for e in events if e["ph"] == "X" and e["pid"] == rank]
        check_nesting(mine)
        runs = [e for e in mine if e["cat"] == "run"]
        assert len(runs) == 1 + REPEAT, runs
        assert all(e["ts"] >= 0 for e in mine)
        last = max(e["ts"] + e["dur"] for e in runs)
        assert all(e["ts"] + e["dur"] <= last + 0.01 for e in mine), "an event after the end of the last run"
        assert all(any(r["ts"] - 0.01 <= e["ts"] <= r["ts"] + r["dur"] + 0.01 for r in runs) for e in mine), "an event outside all runs"
        ops = [e for e in mine if e["cat"] == "op"]
        for op_type in ("MatMul",):
            assert any(e["args"]["op_type"] == op_type for e in ops), f"no {op_type} in {what}"
        assert not any(e["args"]["op_type"] in COLLECTIVES for e in ops), "a collective is listed as a local op too"
        collectives = [e for e in mine if e["cat"] == "collective" and "args" in e]
        for run_number in range(1 + REPEAT):
            for step in range(STEPS):
                of_step = [e for e in collectives if e["args"]["run"] == run_number and e["args"]["step"] == step]
                found = [(e["name"], e["args"]["op_type"], e["args"]["group_size"], e["args"]["bytes"]) for e in of_step]
                assert sorted(found) == sorted(expected), f"{what}, rank {rank}: {found}, the plan has {expected}"
                assert [e["args"]["seq"] for e in of_step] == sorted(e["args"]["seq"] for e in of_step)
        for e in collectives:
            args = e["args"]
            factor = FACTOR[args["op_type"]](args["group_size"])
            assert abs(args["bus_bandwidth_bytes_per_s"] - factor * args["algorithm_bandwidth_bytes_per_s"]) <= 1e-9 * args["bus_bandwidth_bytes_per_s"]
            seconds = e["dur"] * 1e-6
            assert abs(args["algorithm_bandwidth_bytes_per_s"] * seconds - args["bytes"]) <= 0.02 * args["bytes"], e
            assert abs(args["waiting_us"] + args["moving_us"] - e["dur"]) < 0.01, e
    parts = [e["name"] for e in events if e.get("cat") == "collective" and "args" not in e]
    assert parts.count("waiting") == parts.count("moving") == RANKS * len(expected) * STEPS * (1 + REPEAT)


def check_json(text, what):
    report = json.loads(text)
    assert report["passed"] and report["timed_runs"] == REPEAT, what
    assert len(report["rank_times"]) == RANKS
    for times in report["rank_times"]:
        assert 0 < times["local_seconds"] and 0 < times["collective_seconds"]
        assert abs(times["waiting_seconds"] + times["moving_seconds"] - times["collective_seconds"]) < 1e-9
        assert times["local_seconds"] + times["collective_seconds"] < times["wall_seconds"] * 1.01
    spread = report["wall_seconds_per_run"]
    assert 0 < spread["minimum"] <= spread["median"] == report["wall_seconds"]
    assert report["prediction"]["cluster"] == CLUSTER["name"]
    kinds = {k["kind"]: k for k in report["prediction"]["kinds"]}
    assert {"one step", "local ops"} <= set(kinds)
    whole = kinds["one step"]
    assert abs(whole["measured_seconds"] * STEPS - report["wall_seconds"]) < 1e-9
    assert abs(whole["ratio"] * whole["predicted_seconds"] - whole["measured_seconds"]) < 1e-9


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        plan = folder / "plan"
        run(AUTOPAR, "search", SOURCE / "models/mlp.onnx", "--cluster", folder / "cluster.json", "-o", plan, "--memory", "100KiB")
        predicted = json.loads((plan / "report.json").read_text())["cost"]["seconds"]
        for ranks_by, prefix in launchers():
            timeline = folder / f"{ranks_by}.json"
            arguments = [*prefix, AUTOPAR, "run", plan, "--ranks-by", ranks_by, "--steps", STEPS, "--repeat", REPEAT, "--timeline", timeline]
            done = run(*arguments, "--json")
            check_timeline(timeline, plan / "plan.onnx", "thread" if ranks_by == "threads" else "process")
            check_json(done.stdout, ranks_by)
            assert not list(folder.glob("*.tmp*")), "a temporary file is left"
        # Without --timeline no file, without --repeat one run; the table names the cluster.
        done = run(AUTOPAR, "run", plan)
        assert "predicted for 'slow four'" in done.stdout and "run / local" not in done.stdout, done.stdout
        assert "run / local" in run(AUTOPAR, "run", plan, "--repeat", 1).stdout
        single = json.loads(run(AUTOPAR, "run", plan, "--json").stdout)
        assert single["timed_runs"] == 1 and "wall_seconds_per_run" not in single
        assert single["prediction"]["kinds"][0]["predicted_seconds"] == predicted
        # A report that is not of this plan says nothing about it.
        strategy = plan / "strategy.json"
        strategy.write_text(strategy.read_text() + "\n")
        assert "predicted for" not in run(AUTOPAR, "run", plan).stdout
        # A folder that cannot be written.
        failed = run(AUTOPAR, "run", plan, "--timeline", "/dev/null/x.json", expect=4)
        assert "/dev/null" in failed.stderr, failed.stderr
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
