#!/usr/bin/env python3
"""Predicted and measured time of published training runs, row by row.

  bench/truth.py FILE.csv... [--profile NAME|FILE] [--cluster FILE] [--only TEXT] [--every N] [--jobs N] [--json]

(.deps/venv/bin/python after scripts/setup; AUTOPAR names the program.) A table is known by its header. For each row the model is
rebuilt (scripts/make_models.py), its configuration becomes pins on the training step, and the step is priced as `autopar search`
prices it; all that the configuration leaves open is searched. Prints CSV: predicted and measured seconds, their ratio, memory. Rows
that cannot be said (pipelines, ...) are counted by their reason on stderr. --json adds, as the last line, one object with a summary
for each file: number of rows, MAPE, median and worst error, the rank correlation of each group of rows that differ in configuration
alone, regret (the measured time of the row that is predicted fastest over that of the fastest), the error of memory.
"""
import argparse
import concurrent.futures
import csv
import dataclasses
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import inputs
import training

ROOT = inputs.ROOT
PROGRAM = os.environ.get("AUTOPAR", str(ROOT / "build" / "src" / "autopar"))
ALL_MEMORY = "1000TiB"
FAR = 2.5


@dataclasses.dataclass
class Run:
    """A measured run. `model`: options of scripts/make_models.py."""
    group: str
    label: str
    model: tuple
    cluster: str
    profile: str
    nodes: int
    per_node: int
    data: int
    tensor: int
    batch: int
    micro_batches: int
    stored: str
    sequence: bool
    seconds: float
    memory_bytes: float = 0
    recompute: str = "none"
    precision: str = "mixed-bf16"


class Unsaid(Exception):
    """Why a row cannot be priced."""


def playbook(row):
    if row["note"]:
        raise Unsaid(f"note: {row['note']}")
    if row["status"] != "ok":
        raise Unsaid(f"status: {row['status']}")
    if int(row["pp"]) > 1:
        raise Unsaid("pipeline stages")
    model = ("--family", "llama", "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], "--kv-heads", row["heads"],
             "--feed-forward", row["ffn"], "--vocabulary", "131072", "--sequence", "4096",
             "--tied" if row["tied_embeddings"] == "tied" else "--no-tied")
    tensor = int(row["tp"])
    return Run(f"{row['model']} on {row['gpus']}", f"dp={row['dp']} tp={tensor} zero={row['zero']} mbs={row['mbs']} ga={row['grad_acc']}", model,
               "h100-efa", "h100-nanotron", int(row["nodes"]), int(row["gpus"]) // int(row["nodes"]), int(row["dp"]), tensor, int(row["gbs"]),
               int(row["grad_acc"]), "ZeRO-1" if row["zero"] == "1" else "plain", tensor > 1, float(row["iteration_s"]), float(row["memory_gb"]) * 1e9)


def vtrain(row):
    """Megatron-DeepSpeed on A100, full recomputation; the times are milliseconds."""
    if int(row["pipeline_parallel"]) > 1:
        raise Unsaid("pipeline stages")
    data, tensor, gpus = int(row["data_parallel"]), int(row["tensor_parallel"]), int(row["gpus"])
    if tensor > 1 and int(row["heads"]) % tensor:
        raise Unsaid("heads do not divide")
    passes = int(row["global_batch"]) // (data * int(row["micro_batch"]))
    model = ("--family", "gpt", "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], "--vocabulary", "51200",
             "--sequence", row["sequence"], "--no-fused-qkv")
    per_node = min(8, gpus)
    return Run(f"h{row['hidden']} l{row['layers']} b{row['global_batch']} on {gpus}", f"dp={data} tp={tensor} mbs={row['micro_batch']}", model,
               "a100-ib", "a100-megatron", gpus // per_node, per_node, data, tensor, int(row["global_batch"]), passes, "plain", False,
               float(row["iteration_ms"]) / 1e3, recompute="full", precision="mixed-fp16")


# llm-foundry's MPT: width, heads, layers. Source: mosaicml/llm-foundry, scripts/train/benchmarking.
MPT = {"125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24), "3b": (2560, 20, 32), "7b": (4096, 32, 32),
       "13b": (5120, 40, 40), "30b": (7168, 56, 48), "70b": (8192, 64, 80)}


def foundry(row):
    """FSDP in eager mode; throughput is in tokens."""
    if row["Model"] not in MPT:
        raise Unsaid(f"model {row['Model']}")
    if "bf16" not in row["Precision"]:
        raise Unsaid(f"precision {row['Precision']}")
    if row["Activation CPUOffload"] == "True":
        raise Unsaid("activations offloaded to the host")
    gpu = row["GPU"].split("_")[0]
    gpus, width, = int(row["# GPUs"]), MPT[row["Model"]]
    hidden, heads, layers = width
    batch, passes = int(row["GlobalBatchSize"]), int(row["GradAccum"])
    if batch % passes or (batch // passes) % gpus:
        raise Unsaid("the batch is not what micro-batches and devices make")
    model = ("--family", "gpt", "--layers", str(layers), "--hidden", str(hidden), "--heads", str(heads), "--vocabulary", "50368",
             "--sequence", row["SeqLen (T)"], "--no-fused-qkv", "--bias", "none")
    per_node = min(8, gpus)
    return Run(f"{row['Model']} seq {row['SeqLen (T)']} on {gpus} {gpu}", f"{row['Sharding Strategy']} mbs={row['MicroBatchSize']} ga={passes}", model,
               "h100-efa" if gpu == "h100" else "a100-ib", f"{gpu}-eager", gpus // per_node, per_node, gpus, 1, batch, passes,
               "ZeRO-3" if row["Sharding Strategy"] == "FULL_SHARD" else "ZeRO-1", False, float(row["GlobalBatchSize (T)"]) / float(row["Throughput (T/s)"]),
               recompute="full" if row["Activation Checkpointing"] == "True" else "none")


# Of the titles. Sources: NVIDIA's Nemotron-4 15B technical report; Meta's Llama 3.
DGXC = {"nemotron4 15b": ("--family", "gpt", "--layers", "32", "--hidden", "6144", "--heads", "48", "--kv-heads", "8", "--feed-forward", "24576", "--vocabulary",
                          "256000", "--sequence", "4096", "--no-fused-qkv", "--bias", "none", "--position", "rotary", "--no-tied"),
        "llama 3.1 8b": ("--preset", "llama3-8b", "--sequence", "8192")}


def dgxc(row):
    """NeMo and Megatron on DGX H100, with a distributed optimizer."""
    model = next((options for name, options in DGXC.items() if row["title"].lower().startswith(name)), None)
    if model is None:
        raise Unsaid("another model: " + row["title"].split("(")[0].strip())
    if row["gpu"] != "H100" or row["precision"] != "BF16":
        raise Unsaid(f"{row['gpu']} {row['precision']}")
    number = lambda key: int(float(row[key] or 1))
    if number("pp") > 1 or number("cp") > 1 or number("ep") > 1:
        raise Unsaid("pipeline stages, context or expert parallelism")
    gpus, tensor, passes, batch = number("gpus"), number("tp"), number("ga"), number("gbs")
    data = gpus // tensor
    if data * number("mbs") * passes != batch:
        raise Unsaid("the batch is not what micro-batches and devices make")
    return Run(f"{row['title'].split('(')[0].strip()} on {gpus}", f"{row['tag']} tp={tensor} mbs={row['mbs']} ga={passes}", model, "h100-ib", "h100-megatron",
               gpus // 8, 8, data, tensor, batch, passes, "ZeRO-1", tensor > 1, float(row["step_s"]))


# Columns that only this table has -> how its rows are read.
TABLES = [({"tokens_per_s_per_gpu", "grad_acc", "zero", "memory_gb"}, playbook), ({"pipeline_parallel", "iteration_ms"}, vtrain),
          ({"Throughput (T/s)", "Sharding Strategy"}, foundry), ({"step_s", "config_from"}, dgxc)]


def rows_of(path):
    lines = [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    reader = csv.DictReader(lines)
    for columns, read in TABLES:
        if columns <= set(reader.fieldnames):
            return read, list(reader)
    print(f"{path}: left out: no known table of runs has the columns {', '.join(reader.fieldnames)}", file=sys.stderr)
    return None, []


def cluster_of(run, folder):
    found = json.loads((ROOT / "bench" / "clusters" / f"{run.cluster}.json").read_text())
    found["tiers"][0]["size"], found["tiers"][1]["size"] = run.per_node, run.nodes
    if run.nodes == 1:
        found["tiers"].pop()
    path = folder / f"{run.cluster}-{run.nodes}x{run.per_node}.json"
    path.write_text(json.dumps(found))
    return path, found["tiers"]


class Models:
    """Models and their steps, each made once."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, run):
        key = (run.model, run.batch, run.precision)
        if key not in self.made:
            name = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
            model, step = self.folder / f"{name}.onnx", self.folder / f"{name}.step.onnx"
            subprocess.run([sys.executable, ROOT / "scripts" / "make_models.py", *run.model, "-o", model], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([PROGRAM, "grad", model, *options_of(run), "-q", "-o", step], check=True)
            self.made[key] = (model, training.Step(step))
        return self.made[key]


def options_of(run):
    return ["--optimizer", "adamw", "--precision", run.precision, "--reduce-precision", "fp32", "--loss", "cross_entropy", "--batch", str(run.batch)]


def pinned(run, step, tiers):
    # One axis for each kind of parallelism, whatever it spans: that is what the runtimes' process groups are.
    inner = tiers[0]["size"]
    outer = tiers[-1]["name"]
    mesh = []
    if run.data > 1 or run.tensor == 1:
        mesh.append(("data", run.data, tiers[0]["name"] if run.data * run.tensor <= inner else outer))
    if run.tensor > 1:
        mesh.append(("tensor", run.tensor, tiers[0]["name"] if run.tensor <= inner else outer))
    template = training.Template(run.tensor, run.data, run.stored, run.sequence, mesh, ["tensor"] if run.tensor > 1 else [],
                                 ["data"] if mesh[0][0] == "data" else [])
    return training.pins(step, template)


def priced(run, model, step, profile, folder):
    with tempfile.TemporaryDirectory(dir=folder) as own:
        own = pathlib.Path(own)
        cluster, tiers = cluster_of(run, own)
        (own / "pins.json").write_text(json.dumps(pinned(run, step, tiers)))
        command = [PROGRAM, "search", model, "--cluster", cluster, "--profile", profile, "--train", *options_of(run), "--pin", own / "pins.json",
                   "--micro-batches", run.micro_batches, "--memory", ALL_MEMORY, "--recompute", run.recompute, "--searcher", "dp", "--threads", 1,
                   "-q", "--json", "-o", own / "plan"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"}
        report = json.loads(done.stdout)
        return {"seconds": report["cost"]["seconds"], "memory_bytes": report["memory"]["peak_bytes"], "gap": report["cost"]["gap"], **report.get("streams", {})}


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


def summary(results):
    """`results`: (run, what was predicted). Configurations that nobody would take are not judged by their errors: those that take
    more than FAR times the best of their group."""
    best = {}
    for run, _ in results:
        best[run.group] = min(best.get(run.group, run.seconds), run.seconds)
    far = sum(r.seconds > FAR * best[r.group] for r, _ in results)
    results = [(r, p) for r, p in results if r.seconds <= FAR * best[r.group]]
    errors = sorted(abs(p["seconds"] / r.seconds - 1) for r, p in results)
    groups = {}
    for run, found in results:
        groups.setdefault(run.group, []).append((run, found))
    regrets, correlations = {}, {}
    for name, rows in groups.items():
        if len(rows) < 3:
            continue
        best = min(r.seconds for r, _ in rows)
        regrets[name] = min(rows, key=lambda row: row[1]["seconds"])[0].seconds / best
        correlations[name] = rank_correlation([p["seconds"] for _, p in rows], [r.seconds for r, _ in rows])
    memory = [abs(p["memory_bytes"] / r.memory_bytes - 1) for r, p in results if r.memory_bytes]
    percent = lambda x: round(100 * x, 2)
    return {"n": len(results), "far_from_best": far, "mape": percent(statistics.mean(errors)), "median": percent(statistics.median(errors)), "worst": percent(errors[-1]),
            "bias": percent(statistics.mean(p["seconds"] / r.seconds - 1 for r, p in results)),
            "rank_correlation": {k: round(v, 3) for k, v in correlations.items() if v is not None},
            "regret_mean": round(statistics.mean(regrets.values()), 3) if regrets else None,
            "regret_worst": round(max(regrets.values()), 3) if regrets else None, "regret": {k: round(v, 3) for k, v in regrets.items()},
            "memory_mape": percent(statistics.mean(memory)) if memory else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("--profile", help="in place of the table's own")
    parser.add_argument("--only", default="", metavar="TEXT", help="groups with that in their name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    out = csv.writer(sys.stdout)
    out.writerow(["file", "group", "configuration", "measured_s", "predicted_s", "ratio", "compute_s", "communication_s", "exposed_s", "host_s", "measured_bytes", "predicted_bytes", "gap", "error"])
    summaries = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        folder = pathlib.Path(folder)
        models = Models(folder)
        for path in options.files:
            read, rows = rows_of(path)
            runs, left_out = [], {}
            for row in rows:
                try:
                    runs.append(read(row))
                except Unsaid as why:
                    left_out[str(why)] = left_out.get(str(why), 0) + 1
                except (KeyError, ValueError) as error:
                    why = f"not a row of this table: {error!r}"
                    left_out[why] = left_out.get(why, 0) + 1
            runs = [r for r in runs if options.only in r.group][::options.every]
            tasks = [(run, pool.submit(priced, run, *models.get(run), options.profile or run.profile, folder)) for run in runs]
            results = []
            for run, task in tasks:
                found = task.result()
                name = pathlib.Path(path).name
                if "error" in found:
                    left_out[found["error"]] = left_out.get(found["error"], 0) + 1
                    out.writerow([name, run.group, run.label, run.seconds, "", "", "", "", "", "", run.memory_bytes, "", "", found["error"]])
                    continue
                results.append((run, found))
                out.writerow([name, run.group, run.label, run.seconds, f"{found['seconds']:.5g}", f"{found['seconds'] / run.seconds:.3f}",
                              *(f"{found.get(k, 0):.4g}" for k in ("compute_seconds", "communication_seconds", "exposed_communication_seconds", "host_seconds")), f"{run.memory_bytes:.4g}", f"{found['memory_bytes']:.4g}", f"{found['gap']:.2g}", ""])
                sys.stdout.flush()
            for why, count in sorted(left_out.items()):
                print(f"{path}: {count} rows left out: {why}", file=sys.stderr)
            summaries[path] = {"n": 0, "left_out": left_out}
            if results:
                summaries[path] = {**summary(results), "left_out": left_out}
    if options.json:
        print(json.dumps(summaries))


if __name__ == "__main__":
    main()
