#!/usr/bin/env python3
"""Bare problems in the form of the IOPDDL contest: what `autopar solve` finds, and what toulbar2 and CBC find on the same
files in the same time, as a table.

  bench/iopddl.py FOLDER-or-FILE... [--time-limit 60] [--others] [--threads 1] [--json]     (AUTOPAR names the program)

Files may be gzipped. `--others` runs toulbar2 and cbc (Debian: toulbar2, coinor-cbc) too where they are installed; each
gets the time limit for itself, what it takes to write its input is not counted. CBC gets the 0-1 program of
XLA's auto-sharding: a variable per choice and per pair of choices that is possible, pairs tied to choices by flow
constraints (Wainwright, Jordan, "Graphical models, exponential families, and variational inference", 2008, section 8.4),
a row per maximal set of what is live. Debian's toulbar2 1.1.1 knows no linear constraints over large numbers: it gets the
problem without its memory limit, so that its optimum is a bound, and an answer only where it happens to fit.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

FORBIDDEN = 10 ** 18
LARGEST_PROGRAM = 12_000_000  # numbers in CBC's matrix; beyond, it is not asked
# The best published or measured before, by the name in the file. Source of A, G, M, S: google/iopddl, results of the
# ASPLOS 2025 contest, and longer runs; of the others: CBC without a time limit.
BEST_KNOWN = {
    "asplos-2025-iopddl-A": 6548553650, "asplos-2025-iopddl-G": 217039, "asplos-2025-iopddl-M": 49928157537,
    "asplos-2025-iopddl-S": 1511377982, "llama8b_2layers_mesh8x8": 53125340, "llama8b_8layers_mesh8x8": 153376864,
    "llama8b_32layers_mesh8": 2337294090}


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(command, limit):
    """(standard output, CPU seconds); the output of a program that had to be stopped is what it wrote until then."""
    before = cpu_of_children()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        text = done.stdout
    except subprocess.TimeoutExpired as stopped:
        text = (stopped.stdout or b"").decode()
    return text, cpu_of_children() - before


def evaluate(problem, choices):
    """(cost, peak use), plainly."""
    nodes, edges = problem["nodes"], problem["edges"]
    cost = sum(c[k] for c, k in zip(nodes["costs"], choices))
    for (a, b), table in zip(edges["nodes"], edges["costs"]):
        cost += table[choices[a] * len(nodes["costs"][b]) + choices[b]]
    change = {}
    for (begin, end), use, k in zip(nodes["intervals"], nodes["usages"], choices):
        if begin < end:
            change[begin] = change.get(begin, 0) + use[k]
            change[end] = change.get(end, 0) - use[k]
    peak = now = 0
    for time in sorted(change):
        now += change[time]
        peak = max(peak, now)
    return cost, peak


def row(problem, choices, bound, seconds, note=""):
    """What a solver is credited with: its choices' cost, recomputed, if they are within the limit."""
    result = {"cost": None, "bound": bound, "cpu_s": round(seconds, 2), "note": note}
    if choices:
        cost, peak = evaluate(problem, choices)
        if cost < FORBIDDEN and peak <= problem.get("usage_limit", peak):
            result["cost"] = cost
        else:
            result["note"] = (note + "; " if note else "") + f"its answer of {cost} does not fit"
    return result


def run_autopar(path, problem, options, folder):
    program = os.environ.get("AUTOPAR", "autopar")
    command = [program, "solve", str(path), "--json", "--time-limit", str(options.time_limit), "--threads", str(options.threads)]
    text, seconds = timed(command, 3 * options.time_limit + 60)
    if not text:
        return row(problem, None, None, seconds, "no answer")
    found = json.loads(text)
    result = row(problem, found["choices"], found["lower_bound"], seconds)
    result.update(wall_s=round(found["seconds"], 2), first_answer_s=round(found["first_answer_seconds"] or 0, 2))
    assert result["cost"] == found["cost"], f"{path}: claims {found['cost']}, its choices cost {result['cost']}"
    return result


def run_toulbar2(path, problem, options, folder):
    nodes, edges = problem["nodes"], problem["edges"]
    total = sum(max(v for v in c if v < FORBIDDEN) for c in nodes["costs"])
    total += sum(max((v for v in t if v < FORBIDDEN), default=0) for t in edges["costs"])
    top = total + 1
    lines = [f"p {len(nodes['costs'])} {max(map(len, nodes['costs']))} {len(nodes['costs']) + len(edges['costs'])} {top}",
             " ".join(str(len(c)) for c in nodes["costs"])]
    for n, costs in enumerate(nodes["costs"]):
        lines.append(f"1 {n} 0 {len(costs)}")
        lines += [f"{k} {min(v, top)}" for k, v in enumerate(costs)]
    for (a, b), table in zip(edges["nodes"], edges["costs"]):
        width = len(nodes["costs"][b])
        entries = [(k // width, k % width, min(v, top)) for k, v in enumerate(table) if v]
        lines.append(f"2 {a} {b} 0 {len(entries)}")
        lines += [f"{i} {j} {v}" for i, j, v in entries]
    file = folder / "problem.wcsp"
    file.write_text("\n".join(lines) + "\n")
    text, seconds = timed(["toulbar2", str(file), f"-timer={int(options.time_limit)}", "-s"], options.time_limit + 30)
    answers = re.findall(r"^ ?((?:\d+ )+\d+) *$", text, re.M)
    optimum = re.search(r"Optimum: (\d+)", text)
    bounds = [int(b) for b in re.findall(r"Initial lower and upper bounds: \[(\d+)", text)] + ([int(optimum[1])] if optimum else [])
    choices = [int(k) for k in answers[-1].split()] if answers else None
    note = "without the memory limit: " + ("optimum" if optimum else "not finished")
    return row(problem, choices if choices and len(choices) == len(nodes["costs"]) else None, max(bounds, default=None), seconds, note)


def maximal_live_sets(intervals):
    """Times at which something begins and before whose end nothing else begins."""
    begins, ends = {b for b, e in intervals if b < e}, {e for b, e in intervals if b < e}
    times, last = [], None
    for time in sorted(begins | ends):
        if time in ends and last is not None:
            times.append(last)
            last = None
        if time in begins:
            last = time
    return times


def write_program(problem, path):
    """The 0-1 program in CPLEX's LP form; its size, before anything is written if it is too large."""
    nodes, edges = problem["nodes"], problem["edges"]
    times = maximal_live_sets(nodes["intervals"]) if "usage_limit" in problem else []
    size = 3 * sum(v < FORBIDDEN for t in edges["costs"] for v in t)
    for time in times:
        size += sum(len(u) for (b, e), u in zip(nodes["intervals"], nodes["usages"]) if b <= time < e)
        if size > LARGEST_PROGRAM:
            return size
    with open(path, "w") as out:
        def write_sum(terms, end):
            for first in range(0, len(terms), 20):
                out.write(" " + " ".join(terms[first:first + 20]) + "\n")
            out.write(end)
        out.write("Minimize\n cost:\n")
        terms = [f"+ {v} x{n}_{k}" for n, c in enumerate(nodes["costs"]) for k, v in enumerate(c) if 0 < v < FORBIDDEN]
        for e, ((_, b), table) in enumerate(zip(edges["nodes"], edges["costs"])):
            width = len(nodes["costs"][b])
            terms += [f"+ {v} y{e}_{k // width}_{k % width}" for k, v in enumerate(table) if 0 < v < FORBIDDEN]
        write_sum(terms, "Subject To\n")
        for n, costs in enumerate(nodes["costs"]):
            write_sum([f"+ x{n}_{k}" for k in range(len(costs))], " = 1\n")
        for e, ((a, b), table) in enumerate(zip(edges["nodes"], edges["costs"])):
            width, height = len(nodes["costs"][b]), len(nodes["costs"][a])
            possible = [(k // width, k % width) for k, v in enumerate(table) if v < FORBIDDEN]
            for side, end, count in ((0, a, height), (1, b, width)):
                of = [[] for _ in range(count)]
                for pair in possible:
                    of[pair[side]].append(f"+ y{e}_{pair[0]}_{pair[1]}")
                for k in range(count):
                    write_sum(of[k] + [f"- x{end}_{k}"], " = 0\n")
        for time in times:
            live = [n for n, (b, e) in enumerate(nodes["intervals"]) if b <= time < e]
            terms = [f"+ {v} x{n}_{k}" for n in live for k, v in enumerate(nodes["usages"][n]) if v]
            if terms:
                write_sum(terms, f" <= {problem['usage_limit']}\n")
        out.write("Bounds\n")
        for n, costs in enumerate(nodes["costs"]):
            for k, value in enumerate(costs):
                if value >= FORBIDDEN:
                    out.write(f" x{n}_{k} = 0\n")
        out.write("Binaries\n")
        for n, costs in enumerate(nodes["costs"]):
            out.write(" " + " ".join(f"x{n}_{k}" for k in range(len(costs))) + "\n")
        out.write("End\n")
    return size


def run_cbc(path, problem, options, folder):
    size = write_program(problem, folder / "problem.lp")
    if size > LARGEST_PROGRAM:
        return row(problem, None, None, 0, f"program too large: more than {LARGEST_PROGRAM:,} entries")
    answer = folder / "answer.txt"
    text, seconds = timed(["cbc", str(folder / "problem.lp"), "ratio", "0", "sec", str(options.time_limit), "solve", "solution", str(answer)],
                          2 * options.time_limit + 60)
    choices = None
    lines = answer.read_text().splitlines() if answer.exists() else []
    if lines and "nfeasible" not in lines[0] and "no integer" not in lines[0]:
        choices = [0] * len(problem["nodes"]["costs"])
        for line in lines[1:]:
            found = re.match(r"\W*\d+\s+x(\d+)_(\d+)\s+(\S+)", line)
            if found and float(found[3]) > 0.5:
                choices[int(found[1])] = int(found[2])
    optimal = bool(lines) and lines[0].startswith("Optimal")
    bound = re.search(r"Lower bound: +(\S+)", text)
    value = re.search(r"objective value +(\S+)", lines[0]) if optimal else bound
    return row(problem, choices, float(value[1]) if value else None, seconds, "" if optimal else "not finished")


SOLVERS = {"autopar": run_autopar, "toulbar2": run_toulbar2, "cbc": run_cbc}


def files_of(paths):
    for path in map(pathlib.Path, paths):
        yield from sorted(p for p in path.iterdir() if p.name.endswith((".json", ".json.gz"))) if path.is_dir() else [path]


def show(name, solver, found):
    cost, bound, best = found["cost"], found["bound"], BEST_KNOWN.get(name)
    gap = f"{(cost - bound) / cost:.2%}" if cost and bound is not None else "-"
    if cost and bound is not None and bound >= cost:
        gap = "proven"
    number = lambda value: "-" if value is None else f"{value:,.0f}"
    return f"| {name} | {solver} | {number(cost)} | {number(bound)} | {gap} | {found['cpu_s']:.1f} | {number(best)} | {found['note']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="FOLDER-or-FILE")
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of the table")
    options = parser.parse_args()
    solvers = [s for s in SOLVERS if s == "autopar" or (options.others and shutil.which(s))]
    if options.others:
        for missing in set(SOLVERS) - set(solvers):
            print(f"{missing} is not installed", file=sys.stderr)
    if not options.json:
        print("| problem | solver | cost | lower bound | gap | CPU s | best known | |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    for path in files_of(options.paths):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            plain = folder / path.name.removesuffix(".gz")
            plain.write_bytes(gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes())
            problem = json.loads(plain.read_bytes())["problem"]
            key = plain.stem
            for solver in solvers:
                found = SOLVERS[solver](plain, problem, options, folder)
                line = json.dumps({"problem": key, "solver": solver, **found}) if options.json else show(key, solver, found)
                print(line, flush=True)


main()
