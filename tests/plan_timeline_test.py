"""search --timeline: the rows of what a rank is expected to do, whose last end is the predicted time."""
import json
import os
import pathlib
import subprocess
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
MODELS = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models"
ROWS = {0: "compute", 1: "collectives over nvlink", 2: "collectives over ib", 4: "host"}
LINKS = (1, 2)


def run(*args, expect=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def planned(folder, profile, passes):
    report = json.loads(run("search", MODELS / "llama_tiny.onnx", "--cluster", "dgx-h100-8x8", "--mesh", "8x8", "--train", "--batch", 4 * passes,
                            "--loss", "cross_entropy", "--micro-batches", passes, "--profile", profile, "--zero", "1", "-o", folder / "plan",
                            "--timeline", folder / "timeline.json", "--json").stdout)
    return report, json.loads((folder / "timeline.json").read_text())


def check(folder, profile, passes):
    report, trace = planned(folder, profile, passes)
    assert trace["otherData"] == {"format": "autopar-timeline", "version": "1"}
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert names == {row: ROWS[row] for row in names} and {0, *LINKS} <= set(names) and (4 in names) == (profile != "ideal")
    end = max(e["ts"] + e["dur"] for e in events)
    assert abs(end - report["cost"]["seconds"] * 1e6) <= 0.01, (end, report["cost"])
    for row in names:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == row)
        assert all(before[1] <= after[0] + 0.002 for before, after in zip(spans, spans[1:])), row
    kinds = {e["args"]["phase"] for e in events if "args" in e}
    assert kinds == {"forward", "backward", "update"}, kinds
    shown = {e["args"].get("micro_batch") for e in events if "args" in e} - {None}
    assert shown == (set() if passes == 1 else set(range(passes)) if passes <= 4 else {0, 1, passes - 1}), shown
    left_out = [e for e in events if e["cat"] == "micro-batches"]
    assert bool(left_out) == (passes > 4)
    if profile != "ideal" and passes <= 4:
        busy = sum(e["dur"] for e in events if e["tid"] in LINKS)
        assert abs(busy - report["streams"]["communication_seconds"] * 1e6) <= 1e-3 * busy + 1
    return len(events)


def check_pipeline(folder, model, *options):
    """Each action has its ops where its own time is, and only what is fetched ahead stands before it, never before the step."""
    path = folder / "pipeline.json"
    report = json.loads(run("search", MODELS / f"{model}.onnx", "--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--stages", 2, *options,
                            "-o", folder / "pipeline", "--timeline", path, "--json").stdout)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert min(e["ts"] for e in events) >= -0.002, min(e["ts"] for e in events)
    assert abs(max(e["ts"] + e["dur"] for e in events) - report["cost"]["seconds"] * 1e6) <= 0.01, report["cost"]
    actions = {(e["pid"], e["name"]): e for e in events if e["cat"] == "action"}
    for e in events:
        if e["cat"] != "op":
            continue
        action = actions[e["pid"], e["args"]["action"]]
        assert action["ts"] - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= action["ts"] + action["dur"] + 0.01, (e, action)
    # Both parts of a backward pass wait as passes do, for what the whole one waits for.
    def computes(phases):
        shown = [e for e in actions.values() if e["args"]["phase"] in phases and e["args"]["micro_batch"] == 1]
        keys = {(e["pid"], e["name"]) for e in shown}
        return sum(e["dur"] for e in events if e["cat"] == "op" and (e["pid"], e["args"]["action"]) in keys) / sum(e["dur"] for e in shown)
    if any(e["args"]["phase"] == "I" for e in actions.values()):
        assert computes("F") / 3 < computes("IW") < 3 * computes("F"), (computes("F"), computes("IW"))
    for stage in {e["pid"] for e in events}:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == stage and e["cat"] == "op")
        assert all(before[1] <= after[0] + 0.01 for before, after in zip(spans, spans[1:])), stage
    return len(events)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        counts = [check(folder, profile, passes) for profile in ("ideal", "h100-nanotron") for passes in (1, 2, 8)]
        print(f"six timelines, of {min(counts)} to {max(counts)} events")
        of_8, of_64 = ("--cluster", "dgx-a100-1x8", "--batch", 16), ("--cluster", "dgx-h100-8x8", "--batch", 64)
        counts = [check_pipeline(folder, "gpt2_tiny", *of_8, "--micro-batches", passes, "--schedule", schedule, *more)
                  for passes, schedule, more in ((2, "1f1b", ("--searcher", "uniform:dp=4 zero=3")), (4, "gpipe", ("--searcher", "uniform:dp=4 zero=3")),
                                                 (4, "interleaved", ("--profile", "a100-eager", "--zero", 3)))]
        counts += [check_pipeline(folder, "llama_tiny", *of_64, "--micro-batches", passes, "--schedule", schedule, "--profile", profile, "--zero", 3)
                   for passes, schedule, profile in ((2, "1f1b", "h100-eager"), (4, "1f1b", "h100-megatron"), (8, "zb-h1", "h100-nanotron"))]
        print(f"six of pipelines, of {min(counts)} to {max(counts)} events")
        refused = run("search", MODELS / "mlp.onnx", "--cluster", "dgx-h100-8x8", "--cost-model", "mindspore", "--timeline", folder / "none.json",
                      "-o", folder / "plan2", expect=2)
        assert "--timeline" in refused.stderr and "mindspore" in refused.stderr, refused.stderr
        assert not (folder / "none.json").exists()


main()
