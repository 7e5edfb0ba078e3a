#!/usr/bin/env python3
"""Fits the links of a cluster to measured collectives, by kind and by shape of the group, and says the error on rows that were kept apart.

  bench/fit_collectives.py FOLDER      (.deps/venv/bin/python after scripts/setup; FOLDER: vidur_collectives.csv.gz, nccl_points.csv)

AllReduces and messages, inside a tier and across two, by the formulas of src/comm/timing.cpp: an AllReduce is a ReduceScatter and an AllGather in the
inner tier, and the same of what a device has left across the outer one. Of each tier what cluster.json may say is fitted: bandwidth, latency, and
`efficiency`, the part of the bandwidth by bytes that a device sends, one set of numbers for all groups and sizes; what crosses the outer tier with the numbers of the inner one
fitted before. Every tenth row, by a hash of the row, is not fitted. Prints a JSON object for each machine and kind; `plain` is the error without `efficiency`,
of at least 1e6 bytes, `by_shape` that of groups of so many members of the inner tier x ranks in each.
"""
import argparse
import json
import pathlib

import numpy as np

from fitting import as_shown, descend, mape, read_rows

SIZES = (3e4, 2.5e5, 1e6, 4e6, 1.6e7, 6.4e7)  # of `efficiency`, whose last part is 1
PARTS = (0.01, 0.05, 0.2, 0.5, 0.8)
PLAIN_BYTES = 1e6
INNER_RANKS = {"pairwise_nvlink": 2}  # in one member of the inner tier; others have all of a node in it


def tier(name, bandwidth, latency):
    return {f"{name}_bandwidth": bandwidth, f"{name}_latency": latency, **{f"{name}_part{i}": part for i, part in enumerate(PARTS)}}


START = {**tier("inner", 2e11, 4e-6), **tier("outer", 2e10, 2e-5)}


def transfer_seconds(p, name, sent):
    parts = np.minimum(1, np.maximum.accumulate([p[f"{name}_part{i}"] for i in range(len(PARTS))] + [1]))
    return sent / np.interp(np.log(np.maximum(sent, 1)), np.log(SIZES), parts) / p[f"{name}_bandwidth"]


def phase_seconds(p, name, sent, waits):
    """Of one tier; what goes across the outer one goes across the inner one as well."""
    inner = transfer_seconds(p, "inner", sent)
    if name == "inner":
        return inner + waits * p["inner_latency"]
    return np.maximum(inner, transfer_seconds(p, "outer", sent)) + waits * max(p["inner_latency"], p["outer_latency"])


def all_reduce_seconds(p, data):
    members, ranks, size = data[:, 0], data[:, 1], data[:, 2]
    inner = phase_seconds(p, "inner", (ranks - 1) / ranks * size, np.ceil(np.log2(ranks)))
    outer = phase_seconds(p, "outer", (members - 1) / members * size / ranks, np.ceil(np.log2(members)))
    return 2 * (np.where(ranks > 1, inner, 0) + np.where(members > 1, outer, 0))


def message_seconds(p, data):
    return np.where(data[:, 0] > 1, phase_seconds(p, "outer", data[:, 2], 1), phase_seconds(p, "inner", data[:, 2], 1))


KINDS = {"all_reduce": all_reduce_seconds, "send_recv": message_seconds}


def of_vidur(folder):
    """Per machine and kind: members of the inner tier, ranks of the group in each, bytes. Messages of machines with pairs go between nodes or in a pair."""
    found = {}
    for row in read_rows(folder / "vidur_collectives.csv.gz", "median_ms", 1e-3):
        ranks, in_node = int(row["num_workers"]), int(row["devices_per_node"])
        inner = min(ranks, in_node, *(size for name, size in INNER_RANKS.items() if name in row["network"]))
        found.setdefault((row["network"], row["collective"]), []).append([ranks / inner, inner, float(row["size"]), row["seconds"], row["held_out"]])
    return found


def of_nccl(folder):
    """The same, with the place where the numbers were published. Two nodes are left out: a tree of two is faster than their links."""
    rows = [r for r in read_rows(folder / "nccl_points.csv", "time_us", 1e-6) if r["nodes"] != "2"]
    line = lambda r: [float(r["nodes"]), float(r["gpus_per_node"]), float(r["size_bytes"]), r["seconds"], r["held_out"]]
    one_node = [line(r) for r in rows if r["nodes"] == "1"]
    found = {}
    for row in (r for r in rows if r["nodes"] != "1"):
        found.setdefault((f"H100, {row['source']}, {row['setting']}", row["collective"]), list(one_node)).append(line(row))
    return found


def fit(kind, data, parts):
    """With or without `efficiency`; also the numbers of which tiers are fitted."""
    seconds = KINDS[kind]
    fixed = {} if parts else {n: 1 for n in START if "part" in n}
    best, names = {**START, **fixed}, []
    for name, rows in (("inner", data[data[:, 0] == 1]), ("outer", data[data[:, 0] > 1])):
        if not len(rows):
            continue
        fitted = [n for n in START if n.startswith(name) and n not in fixed]
        found = [descend({**best, f"{name}_latency": START[f"{name}_latency"] * factor}, dict.fromkeys(fitted), seconds, rows) for factor in (0.3, 1, 3)]
        best, names = min(found, key=lambda f: f[1])[0], names + fitted
    return best, names


def error_by_shape(parameters, seconds, data):
    found = {}
    for members, ranks in sorted({(m, r) for m, r in data[:, :2]}):
        part = data[(data[:, 0] == members) & (data[:, 1] == ranks)]
        held = part[:, 4] == 1
        found[f"{members:g}x{ranks:g}"] = {"rows": len(part), "mape_fitted": mape(parameters, seconds, part[~held]),
                                           "mape_held_out": mape(parameters, seconds, part[held])}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    for (machine, kind), lines in sorted({**of_vidur(options.folder), **of_nccl(options.folder)}.items()):
        data, seconds = np.array(lines), KINDS[kind]
        large = data[data[:, 2] >= PLAIN_BYTES]
        plain, _ = fit(kind, large, False)
        fitted, names = fit(kind, data, True)
        shown = as_shown(fitted, seconds, data)
        print(json.dumps({"machine": machine, "kind": kind, **{k: v for k, v in shown.items() if k not in START or k in names},
                          "plain": as_shown(plain, seconds, large)["mape_held_out"], "by_shape": error_by_shape(fitted, seconds, data)}))


if __name__ == "__main__":
    main()
