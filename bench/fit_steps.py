#!/usr/bin/env python3
"""Fits the parameters of a runtime to published training runs, and says the error on runs that were kept apart.

  bench/fit_steps.py MACHINE FILE.csv... --plans FOLDER [--only TEXT,...] [--rows N] [--rounds N] [--write]

(.deps/venv/bin/python after scripts/setup and `scripts/build src/autopar bench/reprice`.) MACHINE: a100 or h100. The tables are those
of bench/truth.py, whose plans are taken from FOLDER or made there, with the profiles as they are; bench/reprice then prices these plans
with other profiles. Runs with a remark, or that take more than 2.5 times the best of their group, are left out; of the others about
half, by a hash of all that they are but for ZeRO, are not fitted, nor are more than N of those of one profile. What belongs to the
machine (products, memory, launch) is one number for all its profiles, what belongs to a runtime or to links is fitted on its own rows.
Coordinate descent on the mean of the absolute logarithm of predicted over measured time, from the profiles as they are: the same files
give the same numbers. Prints a JSON object: the parameters, and the errors on fitted rows and on those kept apart. --write puts the
parameters into models/profiles and bench/clusters.
"""
import argparse
import copy
import hashlib
import json
import math
import pathlib
import subprocess
import sys

import inputs
import truth
from runs import Unknown, Unsaid, rows_of, run_of

ROOT = inputs.ROOT
REPRICE = ROOT / "build" / "bench" / "reprice"
# Of a profile: those that all runtimes of a machine share, and those of one.
SHARED = ["matrix.fraction", "memory.fraction", "launch_s"]
OWN = ["host_s", "bucket_bytes", "slowdown"]
LINKS = ["latency_s", "bandwidth_bytes_per_s", "ring_step_s"]
# Latencies and efficiencies that no machine has are not tried.
LIMITS = {"matrix.fraction": (0.3, 0.9), "memory.fraction": (0.5, 0.95), "launch_s": (1e-6, 1e-5), "host_s": (2e-6, 1e-4),
          "bucket_bytes": (2.5e7, 1e9), "slowdown": (0, 0.6), "latency_s": (4e-6, 1e-4), "bandwidth_bytes_per_s": (0, math.inf), "ring_step_s": (0, 1e-4)}
STEPS = (0.6, 0.8, 0.92, 1.08, 1.25, 1.6)


def read(path, machine, plans, only):
    """(run, its plan), of those that can be priced."""
    try:
        reader, rows = rows_of(path)
    except Unknown as why:
        sys.exit(f"{path}: {why}")
    models, found = truth.Models(plans), []
    for row in rows:
        try:
            run = run_of(reader, row)
        except Unsaid:
            continue
        if run.failed or not run.profile.startswith(machine) or not any(text in run.group for text in only):
            continue
        found.append(run)
    best = {}
    for run in found:
        best[run.group] = min(best.get(run.group, run.seconds), run.seconds)
    for run in found:
        if run.seconds > truth.FAR * best[run.group]:
            continue
        plan = truth.priced(run, *models.get(run), run.profile, plans, plans)
        if "error" in plan:
            print(f"{run.group} {run.label}: left out: {plan['error']}", file=sys.stderr)
            continue
        yield run, plan


def hash_of(run):
    return hashlib.sha256(repr((run.group, run.data, run.tensor, run.micro_batches)).encode()).digest()


class Rows:
    """Plans of one profile, which a process holds."""

    def __init__(self, name, rows, plans):
        self.rows = rows
        listed = plans / f"{name}.list"
        listed.write_text("".join(f"{p['model']}\t{p['cluster']}\t{p['strategy']}\n" for _, p in rows))
        self.process = subprocess.Popen([REPRICE, listed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.known = {}

    def errors(self, profile, tiers):
        """The logarithms of predicted over measured time."""
        asked = json.dumps({"profile": profile, "tiers": tiers})
        if asked not in self.known:
            self.process.stdin.write(asked + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            if not line:
                sys.exit("bench/reprice ended")
            self.known[asked] = [math.log(found["seconds"] / run.seconds) for found, (run, _) in zip(json.loads(line), self.rows)]
        return self.known[asked]


class Fit:
    def __init__(self, kept, plans, most):
        self.profiles = {name: json.loads((ROOT / "models" / "profiles" / f"{name}.json").read_text()) for name in kept}
        self.cluster_of = {name: rows[0][0].cluster for name, rows in kept.items()}
        self.tiers = {}
        for name in self.cluster_of.values():
            cluster = json.loads((ROOT / "bench" / "clusters" / f"{name}.json").read_text())
            self.tiers[name] = {t["name"]: {k: t[k] for k in LINKS if k in t} for t in cluster["tiers"]}
        fitted, apart = {}, {}
        for name, rows in kept.items():
            rows = sorted(rows, key=lambda row: hash_of(row[0]))
            fitted[name] = [row for row in rows if hash_of(row[0])[0] % 2 == 0][:most]
            apart[name] = [row for row in rows if hash_of(row[0])[0] % 2 == 1]
        self.fitted = {name: Rows(name + ".fitted", rows, plans) for name, rows in fitted.items() if rows}
        self.apart = {name: Rows(name + ".apart", rows, plans) for name, rows in apart.items() if rows}

    def loss(self, profiles, tiers):
        # Each profile counts as the root of its number of rows, so that a large table does not decide alone.
        total = weight = 0
        for name, rows in self.fitted.items():
            errors = rows.errors(profiles[name], tiers[self.cluster_of[name]])
            total += math.sqrt(len(errors)) * sum(map(abs, errors)) / len(errors)
            weight += math.sqrt(len(errors))
        return total / weight

    def parameters(self):
        for path in SHARED:
            yield path, list(self.fitted), None, None
        for name in self.fitted:
            for path in OWN:
                yield path, [name], None, None
        for cluster, tiers in self.tiers.items():
            for tier in tiers:
                for field in LINKS:
                    if tiers[tier].get(field):
                        yield field, [], cluster, tier

    def tried(self, parameter, factor):
        """Profiles and tiers with one parameter changed; nothing where that leaves its limits."""
        path, names, cluster, tier = parameter
        profiles, tiers = copy.deepcopy(self.profiles), copy.deepcopy(self.tiers)
        places = [tiers[cluster][tier]] if cluster else [profiles[name] for name in names]
        *folders, last = [path] if cluster else path.split(".")
        first = None
        for place in places:
            for folder in folders:
                place = place[folder]
            first = place[last] if first is None else first
            value = float(f"{first * factor:.3g}")
            low, high = LIMITS[path]
            if not low <= value <= high:
                return None
            place[last] = value
        return profiles, tiers

    def descend(self, rounds):
        # What is shared is one number from the start.
        for path in SHARED:
            self.profiles, self.tiers = self.tried((path, list(self.fitted), None, None), 1)
        least = self.loss(self.profiles, self.tiers)
        for turn in range(rounds):
            before = least
            for parameter in list(self.parameters()):
                best = None
                for factor in STEPS if turn == 0 else STEPS[2:-2]:
                    other = self.tried(parameter, factor)
                    now = self.loss(*other) if other else math.inf
                    if now < least - 1e-6:
                        best, least = other, now
                if best:
                    self.profiles, self.tiers = best
            print(f"round {turn + 1}: {100 * least:.2f} %", file=sys.stderr)
            if before - least < 1e-3:
                break

    def report(self):
        def shown(rows, name):
            errors = [math.exp(e) - 1 for e in rows.errors(self.profiles[name], self.tiers[self.cluster_of[name]])]
            ordered = sorted(map(abs, errors))
            percent = lambda x: round(100 * x, 2)
            return {"rows": len(errors), "mape": percent(sum(ordered) / len(ordered)), "median": percent(ordered[len(ordered) // 2]),
                    "worst": percent(ordered[-1]), "bias": percent(sum(errors) / len(errors))}
        return {"profiles": {name: {**{path: self.value(name, path) for path in SHARED + OWN},
                                    "fitted": shown(self.fitted[name], name) if name in self.fitted else None,
                                    "kept_apart": shown(self.apart[name], name) if name in self.apart else None} for name in self.profiles},
                "tiers": self.tiers}

    def value(self, name, path):
        place = self.profiles[name]
        for folder in path.split("."):
            place = place[folder]
        return place


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", choices=("a100", "h100"))
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("--plans", required=True, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT,...", help="groups with one of these in their name")
    parser.add_argument("--rows", type=int, default=40, metavar="N")
    parser.add_argument("--rounds", type=int, default=4, metavar="N")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    plans = pathlib.Path(options.plans).resolve()
    plans.mkdir(parents=True, exist_ok=True)
    kept = {}
    for path in options.files:
        for run, plan in read(path, options.machine, plans, options.only.split(",")):
            kept.setdefault(run.profile, []).append((run, plan))
    fit = Fit(kept, plans, options.rows)
    before = fit.report()
    fit.descend(options.rounds)
    after = fit.report()
    print(json.dumps({"before": before, "after": after}, indent=1))
    if options.write:
        written(fit)


def written(fit):
    for name, profile in fit.profiles.items():
        replaced(ROOT / "models" / "profiles" / f"{name}.json", profile, SHARED + OWN)
    for name, tiers in fit.tiers.items():
        path = ROOT / "bench" / "clusters" / f"{name}.json"
        text = path.read_text()
        for tier in json.loads(text)["tiers"]:
            line = next(line for line in text.splitlines() if f'"name": "{tier["name"]}"' in line)
            other = line
            for field, value in tiers[tier["name"]].items():
                other = other.replace(f'"{field}": {as_written(line, field)}', f'"{field}": {value:.4g}')
            text = text.replace(line, other)
        path.write_text(text)


def as_written(text, field):
    rest = text.split(f'"{field}": ', 1)[1]
    return rest[:min(i for i in (rest.find(c) for c in ",}\n") if i >= 0)]


def replaced(path, profile, fields):
    """The numbers alone: what people have written about them stays as it is."""
    text = path.read_text()
    for field in fields:
        owner, _, last = field.rpartition(".")
        value = (profile[owner] if owner else profile)[last]
        at = text.index(f'"{owner}": ') if owner else 0
        head, tail = text[:at], text[at:]
        text = head + tail.replace(f'"{last}": {as_written(tail, last)}', f'"{last}": {value:.4g}', 1)
    path.write_text(text)


if __name__ == "__main__":
    main()
