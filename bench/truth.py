#!/usr/bin/env python3
"""Predicted and measured time of published training runs, row by row.

  bench/truth.py FILE.csv... [--profile NAME|FILE] [--only TEXT] [--status failed|worked] [--every N] [--jobs N] [--json]

(.deps/venv/bin/python after scripts/setup; AUTOPAR names the program.) A table is known by its header. For each row the model is
rebuilt (scripts/make_models.py), its configuration becomes pins on the training step, and the step, or the pipeline of its stages, is
priced as `autopar search` prices it; all that the configuration leaves open is searched. Prints CSV: predicted and measured seconds,
their ratio, memory. Rows that cannot be said (experts, ...) or are no runs are counted by their reason on stderr, with their lines. --json adds, as the last line, one object with a summary
for each file: number of rows, MAPE, median and worst error, the rank correlation of each group of rows that differ in configuration
alone, regret (the measured time of the row that is predicted fastest and to fit over that of the fastest; where the second is 1.3 times
as slow as the best, of the best of the first three; also of the first alone, and over runs however slow), the error of memory, and how many of the runs that failed, and of those that
worked, are said not to fit, and how many that failed are among the five of a group that are predicted fastest and to fit. What failed
though a run of the table worked that holds at least as much did not fail for memory, and is counted apart. A file that is no table of runs is
named, and `reason` says why; the exit code is 1 where no file can be read. Tables may be packed by gzip.
"""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import inputs
import training
from runs import Unknown, Unreadable, Unsaid, rows_of, run_of

ROOT = inputs.ROOT
PROGRAM = os.environ.get("AUTOPAR", str(ROOT / "build" / "src" / "autopar"))
ALL_MEMORY = "1000TiB"
FAR = 2.5
CLEAR = 1.3
ODD = 0.8
LINES_SHOWN = 8
LAYERS_WAITING = 16  # of which the allocator keeps what collectives have read and written (nanotron_waiting)
MEMORY_ERROR = 0.05  # of predictions: what is so near to the limit may have run as it is said
# Where a plan and what waits take more than so many times the room, memory is given back and taken again in every pass, in seconds for
# each byte beyond. Set by hand to six of seven such runs of the playbook, which take 1.9 to 4.4 times as long as without.
FULL, FREEING_S = 1.1, 2e-10
OF_MEMORY = ("chunks", "stage_bytes", "outside_bytes", "memory")


def cluster_of(run, folder):
    found = json.loads((ROOT / "bench" / "clusters" / f"{run.cluster}.json").read_text())
    found["tiers"][0]["size"], found["tiers"][1]["size"] = run.per_node, run.nodes
    if run.nodes == 1:
        found["tiers"].pop()
    path = folder / f"{run.cluster}-{run.nodes}x{run.per_node}.json"
    path.write_text(json.dumps(found))
    return path, found["tiers"]


def profile_path(profile):
    return pathlib.Path(profile) if os.sep in profile or profile.endswith(".json") else ROOT / "models" / "profiles" / f"{profile}.json"


def held(plan_bytes, profile):
    """Of a plan's bytes what the runtime's allocator says that it holds: what it wastes is in that, what lies outside of it
    (reserved_bytes of a profile) is not."""
    if profile == "ideal":
        return plan_bytes
    return plan_bytes * (1 + json.loads(profile_path(profile).read_text()).get("fragmentation", 0))


class Models:
    """Models and their steps, each made once."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, run):
        key = (run.model, run.batch, run.precision, run.reduce)
        if key not in self.made:
            name = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
            model, step = self.folder / f"{name}.onnx", self.folder / f"{name}.step.onnx"
            if not step.exists():
                try:
                    called([sys.executable, ROOT / "scripts" / "make_models.py", *run.model, "-o", model])
                    called([PROGRAM, "grad", model, *options_of(run), "-q", "-o", step])
                except Unsaid as why:
                    self.made[key] = why
            if key not in self.made:
                self.made[key] = (model, training.Step(step))
        if isinstance(self.made[key], Unsaid):
            raise self.made[key]
        return self.made[key]


def called(command):
    """Raises Unsaid with the last line that it says, where it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise Unsaid(last_line(done))


def last_line(done):
    """Why a command failed, without the folders that it was told of and the names that models have there, so that equal reasons are equal."""
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return re.sub(r"\b[0-9a-f]{12}(\.step)?\.onnx", "model.onnx", re.sub(r"(?<![\w.])/[^\s:'\"]*/", "", said))


def options_of(run):
    return ["--optimizer", "adamw", "--precision", run.precision, "--reduce-precision", run.reduce, "--loss", "cross_entropy", "--batch", str(run.batch)]


def pinned(run, step, tiers, gathers_again, recompute):
    # One axis for each kind of parallelism, whatever it spans: that is what the runtimes' process groups are. A stage has ranks that
    # follow each other.
    inner, outer = tiers[0]["size"], tiers[-1]["name"]
    mesh, spans = [], 1
    for name, size in (("tensor", run.tensor), ("context", run.context), ("data", run.data)):
        spans *= size
        if size > 1 or (name == "data" and not mesh):
            mesh.insert(0, (name, size, tiers[0]["name"] if spans <= inner else outer))
    has = lambda name: [name] if any(axis[0] == name and axis[1] > 1 for axis in mesh) else []
    stored, copies = run.stored, []
    if stored == "hybrid":  # ZeRO-3 inside a machine; there is no other axis
        stored = "ZeRO-3"
        if run.data > inner:
            copies = ["copies"]
            mesh = [("copies", run.data // inner, outer), ("data", inner, tiers[0]["name"])]
    # What does not divide into as many parts as there are replicas is split over the inner ones. The runtimes pad it.
    inner_parts = run.data & -run.data
    data = has("data")
    if stored != "plain" and data and not copies and inner_parts < run.data and not step.divides_into(run.data):
        spans = run.tensor * run.context * inner_parts  # of whole nodes, or a part of one
        if inner_parts == 1 or (inner % spans and spans % inner):
            raise Unsaid(f"no weight divides into the parts of {run.data} replicas")
        at = next(i for i, axis in enumerate(mesh) if axis[0] == "data")
        name, _, tier = mesh[at]
        mesh[at:at + 1] = [("data_outer", run.data // inner_parts, tier), (name, inner_parts, tier if spans > inner else tiers[0]["name"])]
        data = ["data_outer", "data"]
    template = training.Template(run.tensor, run.data, stored, run.sequence, mesh, has("tensor"), copies + data, has("context"), copies)
    found = training.pins(step, template, run.micro_batches, gathers_again, recompute != "none")
    if recompute == "full":  # all of a layer is repeated from what enters it
        found["checkpoints"] = step.layer_ends
    if "loss" in run.cuts:  # whose stage gets what another has cast
        found["tensors"].update({name: {"spec": found["tensors"][name]["spec"]} for name in step.logits if name in found["tensors"]})
    return found


def padded_bytes(run, step, mesh):
    """What the plan's copies hold beside a rank's part of what is split over all replicas, as the runtimes pad it: of each stage alike much."""
    copies = next((axis["size"] for axis in mesh if axis["name"] == "data_outer"), 1)
    if copies == 1:
        return 0
    parts = run.data // copies
    bytes_of = lambda name: math.prod(step.shapes[name]) * (2 if name.startswith(("bf16.", "fp16.")) else 4)
    stored = sum(bytes_of(name) / (run.tensor if step.role(weight) is not None else 1) for name, weight, is_read in step.stored()
                 if (run.stored == "ZeRO-3" or not is_read) and not any(size % run.data == 0 for size in step.shapes[name]))
    return stored * (1 / parts - 1 / run.data) / run.stages


def priced(run, model, step, profile, folder, kept=None):
    """As it is said to be run. What would not fit so by more than predictions are off, and is not recorded, is priced as what saves
    memory; it is not said to fit.
    What the runtime cannot run at all counts as not to fit; where that failed it is not priced. `kept`: a folder for the plan of each
    run, whose price is not asked for again as long as the folder is there."""
    if run.impossible and run.failed:
        return {"impossible": run.impossible, "fits": False, "seconds": math.inf}
    recompute = "none" if run.recompute == "unrecorded" else run.recompute
    found = priced_as(run, model, step, profile, folder, kept, recompute, False)
    if run.sequence and recompute == "none" and "error" not in found:
        # Gathered again beside a product, which is not seen in the time.
        again = priced_as(run, model, step, profile, folder, kept, recompute, True)
        found = again if "error" in again else {**found, **{name: again[name] for name in OF_MEMORY}}
    if "error" in found:
        return {**found, "fits": not run.impossible}
    found = with_memory(found, run, profile)
    is_said_to_fit = fits(found) and not run.impossible
    if run.recompute == "unrecorded" and found["upper_bytes"] > (1 + MEMORY_ERROR) * found["device_bytes"] and not run.failed:
        found = priced_as(run, model, step, profile, folder, kept, "full", True)
        if "error" not in found:
            found = with_memory(found, run, profile)
    return {**found, "fits": is_said_to_fit}


def with_memory(found, run, profile):
    """The price with what is said of a run's memory by the bytes of the plans of its stages: what the runtime's allocator holds, of the stage that was
    measured; and what has to fit in a device, of the fullest one. The allocator gives back what it only keeps where something else would
    not fit (PyTorch's does, before it says that memory is out), all but what collectives under way read and write: those of one layer."""
    plans = [held(of_plan, profile) + run.logits_bytes * (s == len(found["stage_bytes"]) - 1) for s, of_plan in enumerate(found["stage_bytes"])]
    needed = [of_plan + run.waiting_bytes / LAYERS_WAITING for of_plan in plans]
    room = found["device_bytes"] - found["outside_bytes"]
    holds = [max(least, min(of_plan + run.waiting_bytes, room)) for least, of_plan in zip(needed, plans)]
    shown = 0 if run.first_stage else holds.index(max(holds))
    beyond = max(0, max(plans) + run.waiting_bytes - FULL * room) if run.profile == "h100-nanotron" else 0  # known of it alone
    return {**found, "seconds": found["seconds"] + FREEING_S * run.micro_batches * beyond, "memory_bytes": holds[shown], "plan_bytes": found["stage_bytes"][shown], "upper_bytes": found["outside_bytes"] + max(needed)}


def fits(found):
    return found["upper_bytes"] <= found["device_bytes"]


def priced_as(run, model, step, profile, folder, kept, recompute, gathers_again):
    if kept:
        own = kept / hashlib.sha256(repr((run, profile, recompute, gathers_again)).encode()).hexdigest()[:16]
        if (own / "price.json").exists():
            return json.loads((own / "price.json").read_text())
        own.mkdir(exist_ok=True)
        found = searched(run, model, step, profile, own, recompute, gathers_again)
        (own / "price.json").write_text(json.dumps(found))
        return found
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return searched(run, model, step, profile, pathlib.Path(own), recompute, gathers_again)


def searched(run, model, step, profile, own, recompute, gathers_again):
    cluster, tiers = cluster_of(run, own)
    try:
        pins = pinned(run, step, tiers, gathers_again, recompute)
    except Unsaid as why:
        return {"error": str(why)}
    (own / "pins.json").write_text(json.dumps(pins))
    command = [PROGRAM, "search", model, "--cluster", cluster, "--profile", profile, "--train", *options_of(run), "--pin", own / "pins.json",
               "--micro-batches", run.micro_batches, "--memory", ALL_MEMORY, "--recompute", recompute, "--searcher", "dp", "--threads", 1,
               "-q", "--json", "-o", own / "plan"]
    if run.stages > 1:
        command += ["--stages", run.stages, "--schedule", *(["interleaved", "--chunks", run.chunks] if run.chunks > 1 else ["1f1b"])]
    if run.cuts:
        command += ["--cuts", ",".join(step.begin_of(block) for block in run.cuts)]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        return {"error": last_line(done)}
    report = json.loads(done.stdout)
    # Of the plan, what it takes to price it again.
    (own / "plan" / "strategy.json").replace(own / "strategy.json")
    shutil.rmtree(own / "plan")
    memory = report["memory"]
    chunks = report.get("pipeline", {}).get("chunks", [])
    # Chunks of one stage are not at their peaks at the same time.
    padded = padded_bytes(run, step, pins["mesh"])
    stages = [c["memory_bytes"] for c in chunks] if chunks and run.chunks == 1 else [memory["peak_bytes"]]
    stages = [max(0, bytes_held - padded) for bytes_held in stages]
    return {"seconds": report["cost"]["seconds"], "stage_bytes": stages, "chunks": chunks,
            "outside_bytes": memory.get("upper_bytes", memory["peak_bytes"]) - held(memory["peak_bytes"], profile),
            "device_bytes": json.loads(cluster.read_text())["device"]["memory_bytes"], "memory": memory.get("parts", {}), "gap": report["cost"]["gap"],
            "model": str(model), "cluster": str(cluster), "strategy": str(own / "strategy.json"), **report.get("streams", {})}


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            found[order[k]] = (i + j) / 2
        i = j + 1
    return found


def rank_correlation(a, b):
    """Spearman's."""
    return statistics.correlation(ranks(a), ranks(b)) if len(a) > 2 and len(set(a)) > 1 and len(set(b)) > 1 else None


def holds_no_more(run, other):
    """Whether each rank of `run` holds no more than the same of `other`: another number of replicas or passes, or states that are split
    where those are not."""
    ranks = lambda r: (r.model, r.profile, r.tensor, r.context, r.stages, r.chunks, r.sequence, r.recompute, r.precision, r.batch / (r.data * r.micro_batches))
    if ranks(run) != ranks(other) or run.micro_batches > other.micro_batches:
        return False
    return other.stored == "plain" or (other.stored == run.stored and other.data <= run.data)


def refusals(results, runs):
    """Of runs that failed how many are said not to fit, and of those that worked. `runs`: of the table."""
    of_memory = [(r, p) for r, p in results if r.failed and not any(holds_no_more(r, other) for other in runs if not other.failed)]
    counted = lambda found: (len(found), sum(not p["fits"] for _, p in found))
    failed, failed_refused = counted([(r, p) for r, p in results if r.failed])
    worked, worked_refused = counted([(r, p) for r, p in results if not r.failed])
    open_, open_refused = counted(of_memory)
    return {"failed": failed, "failed_refused": failed_refused, "failed_of_memory_or_unknown": open_, "failed_of_memory_or_unknown_refused": open_refused,
            "worked": worked, "worked_refused": worked_refused}


def failed_in_first(results, first):
    """Of the runs that are predicted fastest and to fit, so many of each group: how many failed."""
    groups = {}
    for run, found in results:
        if found["fits"]:
            groups.setdefault(run.group, []).append((per_token(run, found), run.failed))
    return sum(failed for rows in groups.values() for _, failed in sorted(rows)[:first])


def per_token(run, found=None):
    """Measured, or as it was predicted: the steps of one group may be of other batches. Of a model whose samples have the length that it has by
    itself a sample counts as one."""
    length = int(run.model[run.model.index("--sequence") + 1]) if "--sequence" in run.model else 1
    return (found["seconds"] if found else run.seconds) / (run.batch * length)


def chosen(rows, first):
    """The measured time of the best of those that are predicted fastest and to fit, over that of the fastest."""
    ranked = sorted(rows, key=lambda row: (not row[1]["fits"], per_token(*row), row[0].label, row[0].seconds))
    return min(per_token(r) for r, _ in ranked[:first]) / min(per_token(r) for r, _ in rows)


def has_one_best(rows):
    """Whether the second fastest is more than CLEAR times the fastest, so that one stray run decides."""
    fastest, second = sorted(per_token(r) for r, _ in rows)[:2]
    return second > CLEAR * fastest


def errors_of(results):
    if not results:
        return {"n": 0, "mape": None, "median": None, "worst": None, "bias": None}
    errors = sorted(abs(p["seconds"] / r.seconds - 1) for r, p in results)
    return {"n": len(results), "mape": percent(statistics.mean(errors)), "median": percent(statistics.median(errors)), "worst": percent(errors[-1]),
            "bias": percent(statistics.mean(p["seconds"] / r.seconds - 1 for r, p in results))}


def percent(x):
    return round(100 * x, 2)


def summary(results, runs):
    """`results`: (run, what was predicted). Configurations that nobody would take are not judged by their errors: those that take
    more than FAR times the best of their group. What is said not to fit is not ranked first. Runs of which less memory was measured
    than ODD times what the configuration needs did not run that configuration, whatever they ran: they are in all figures, and
    `without_odd_memory` are those without them."""
    refused = {**refusals(results, runs), "failed_in_first_five": failed_in_first(results, 5)}
    results = [(r, p) for r, p in results if not r.failed]
    best, every = {}, {}
    for run, found in results:
        best[run.group] = min(best.get(run.group, per_token(run)), per_token(run))
        every.setdefault(run.group, []).append((run, found))
    of_all = [chosen(rows, 1) for rows in every.values() if len(rows) > 2]
    is_near = lambda r: per_token(r) <= FAR * best[r.group]
    far = sum(not is_near(r) for r, _ in results)
    results = [(r, p) for r, p in results if is_near(r)]
    groups = {}
    for run, found in results:
        groups.setdefault(run.group, []).append((run, found))
    small = sum(len(rows) < 3 for rows in groups.values())
    groups = {name: rows for name, rows in groups.items() if len(rows) > 2}
    regrets = {name: chosen(rows, 3 if has_one_best(rows) else 1) for name, rows in groups.items()}
    of_first = {name: chosen(rows, 1) for name, rows in groups.items()}
    correlations = {name: rank_correlation([per_token(*row) for row in rows], [per_token(r) for r, _ in rows]) for name, rows in groups.items()}
    memory = [abs(p["memory_bytes"] / r.memory_bytes - 1) for r, p in results if r.memory_bytes]
    as_told = [(r, p) for r, p in results if not (r.memory_bytes and r.memory_bytes < ODD * p["memory_bytes"])]
    mean = lambda values: round(statistics.mean(values), 3) if values else None
    return {**errors_of(results), "far_from_best": far, "groups": len(groups), "groups_below_3_rows": small,
            "rank_correlation": {k: round(v, 3) for k, v in correlations.items() if v is not None},
            "regret_mean": mean(regrets.values()), "regret_worst": round(max(regrets.values()), 3) if regrets else None,
            "regret": {k: round(v, 3) for k, v in regrets.items()},
            "regret_of_first_mean": mean(of_first.values()), "regret_of_first_worst": round(max(of_first.values()), 3) if of_first else None,
            "regret_of_first_over_all_mean": mean(of_all), "regret_of_first_over_all_worst": round(max(of_all), 3) if of_all else None,
            "memory_mape": percent(statistics.mean(memory)) if memory else None,
            "without_odd_memory": errors_of(as_told) if 0 < len(as_told) < len(results) else None, "refusals": refused}


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number from 1 on")
    return int(text)


def summary_of_file(results, runs, left_out, why=None, rows=0):
    """`why`: why the file is no table of runs; it has so many rows."""
    counted = {why: rows} if rows else left_out.counts()
    return {**summary(results, runs), "reason": why, "left_out": counted, "left_out_lines": left_out.lines}


def shown(value):
    return "" if value is None else f"{value:.4g}"


def not_priced(name, run, why):
    return [name, run.group, run.label, run.seconds, "", "", "", "", "", "", run.memory_bytes, "", "", "", "", why]


class LeftOut:
    """Rows that are not priced: their lines by the reason."""

    def __init__(self):
        self.lines = {}

    def add(self, why, line):
        self.lines.setdefault(str(why), []).append(line)

    def tell(self, path):
        for why, lines in sorted(self.lines.items()):
            shown = ", ".join(map(str, lines[:LINES_SHOWN])) + (f" and {len(lines) - LINES_SHOWN} more" if len(lines) > LINES_SHOWN else "")
            print(f"{path}: {len(lines)} rows left out: {why} (lines {shown})", file=sys.stderr)

    def counts(self):
        return {why: len(lines) for why, lines in self.lines.items()}


def read_table(path, left_out):
    """The runs of a file, each with its line."""
    read, rows = rows_of(path)
    runs = []
    for row in rows:
        try:
            runs.append((row.line, run_of(read, row)))
        except Unsaid as why:
            left_out.add(why, row.line)
    return runs


def check_setting(options):
    """What would be wrong with every row."""
    if shutil.which(PROGRAM) is None:
        sys.exit(f"{PROGRAM}: no such program; scripts/build makes it, or AUTOPAR names another one")
    if options.profile and options.profile != "ideal" and not profile_path(options.profile).exists():
        known = ", ".join(sorted(path.stem for path in (ROOT / "models" / "profiles").glob("*.json")))
        sys.exit(f"--profile {options.profile}: no such file, and no ready-made profile of that name: ideal, {known}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("--profile", help="in place of the table's own")
    parser.add_argument("--only", default="", metavar="TEXT", help="groups with that in their name")
    parser.add_argument("--status", default="", choices=("failed", "worked"), help="runs that failed, or that worked, alone")
    parser.add_argument("--every", type=count, default=1, metavar="N", help="only every N-th row")
    parser.add_argument("--plans", metavar="FOLDER", help="where models, plans and prices are kept and, if they are there, not made again")
    parser.add_argument("--jobs", type=count, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    check_setting(options)
    # All files before the first is priced, which may take hours.
    tables, summaries, unreadable = {}, {}, 0
    for path in dict.fromkeys(options.files):
        left_out = LeftOut()
        try:
            tables[path] = read_table(path, left_out), left_out
        except Unknown as why:
            print(f"{path}: left out: {why}", file=sys.stderr)
            summaries[path] = summary_of_file([], [], left_out, str(why), why.rows)
            unreadable += isinstance(why, Unreadable)
    out = csv.writer(sys.stdout)
    out.writerow(["file", "group", "configuration", "measured_s", "predicted_s", "ratio", "compute_s", "communication_s", "exposed_s", "host_s", "measured_bytes", "predicted_bytes", "upper_bytes", "fits", "gap", "error"])
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        folder = pathlib.Path(folder)
        kept = pathlib.Path(options.plans).resolve() if options.plans else None
        if kept:
            kept.mkdir(parents=True, exist_ok=True)
        models = Models(kept or folder)
        for path, (table, left_out) in tables.items():
            name = pathlib.Path(path).name
            asked = [(line, r) for line, r in table if options.only in r.group and options.status in ("", "failed" if r.failed else "worked")][::options.every]
            tasks = []
            for line, run in asked:
                try:
                    tasks.append((line, run, pool.submit(priced, run, *models.get(run), options.profile or run.profile, folder, kept)))
                except Unsaid as why:
                    left_out.add(why, line)
                    out.writerow(not_priced(name, run, why))
            results = []
            for line, run, task in tasks:
                found = task.result()
                if "error" in found:
                    left_out.add(found["error"], line)
                    out.writerow(not_priced(name, run, found["error"]))
                    continue
                results.append((run, found))
                if "impossible" in found:
                    out.writerow([name, run.group, run.label, "", "", "", "", "", "", "", "", "", "", 0, "", found["impossible"]])
                    continue
                out.writerow([name, run.group, run.label, run.seconds or "", f"{found['seconds']:.5g}", f"{found['seconds'] / run.seconds:.3f}" if run.seconds else "",
                              *(shown(found.get(k)) for k in ("compute_seconds", "communication_seconds", "exposed_communication_seconds", "host_seconds")), f"{run.memory_bytes:.4g}", f"{found['memory_bytes']:.4g}", f"{found['upper_bytes']:.4g}", int(found["fits"]), f"{found['gap']:.2g}", ""])
                sys.stdout.flush()
            left_out.tell(path)
            if table and not asked:
                print(f"{path}: none of its {len(table)} runs is of --only and --status", file=sys.stderr)
            summaries[path] = summary_of_file(results, [r for _, r in table], left_out)
    if options.json:
        print(json.dumps({path: summaries[path] for path in dict.fromkeys(options.files)}))
    return 1 if unreadable == len(set(options.files)) else 0


if __name__ == "__main__":
    sys.exit(main())
