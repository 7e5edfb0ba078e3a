#!/usr/bin/env python3
"""Bare problems at random, of thousands of nodes that have little in common but memory.

  bench/memory_only.py FOLDER && bench/iopddl.py FOLDER --time-limit 30

Each node is there for a while, and each of its choices uses so much memory meanwhile: what uses less costs more. The limit lies
between the least that can be used and what the cheapest choices use, at the fullest time.
"""

import argparse
import json
import os
import random
import re

# name, nodes, seed, edges per node, limit between least and most, mean time of a node, times, most choices
CASES = [
    ("5,000 nodes, 400 times", 5000, 2, 0.0, 0.2, 40, 400, 12),
    ("5,000 nodes, 400 times, some edges", 5000, 3, 0.3, 0.2, 40, 400, 12),
    ("20,000 nodes, 400 times, some edges", 20000, 4, 0.3, 0.1, 40, 400, 12),
    ("12,000 nodes, 12,000 times", 12000, 11, 0.0, 0.3, 150, 12000, 20),
    ("30,000 nodes, 30,000 times, edges", 30000, 12, 0.9, 0.2, 60, 30000, 10),
    ("8,000 nodes, 8,000 times, long", 8000, 13, 0.0, 0.05, 2000, 8000, 30),
]


def made(name, nodes, seed, edges, tightness, span, times, most_choices):
    draw = random.Random(seed)
    intervals, costs, usages = [], [], []
    for _ in range(nodes):
        begin = draw.randrange(times)
        intervals.append([begin, min(times, begin + 1 + int(draw.expovariate(1 / span)))])
        count = draw.randint(2, most_choices)
        size = 10 ** draw.uniform(4, 8)
        used = sorted(int(size * draw.uniform(0.01, 1)) for _ in range(count))
        cost = sorted((int(10 ** draw.uniform(3, 7) * draw.random()) for _ in range(count)), reverse=True)
        if draw.random() < 0.3:
            cost[-1] = 0
        order = list(range(count))
        draw.shuffle(order)
        usages.append([used[k] for k in order])
        costs.append([cost[k] for k in order])
    pairs, tables = [], []
    for _ in range(int(edges * nodes)):
        a = draw.randrange(nodes)
        b = min(nodes - 1, a + 1 + draw.randrange(5))
        if a == b:
            continue
        pairs.append([a, b])
        size = len(costs[a]) * len(costs[b])
        tables.append([0 if draw.random() < 0.3 else int(10 ** draw.uniform(3, 6)) for _ in range(size)])
    cheapest, least = [0] * times, [0] * times
    for (begin, end), cost, used in zip(intervals, costs, usages):
        first = cost.index(min(cost))
        for t in range(begin, end):
            cheapest[t] += used[first]
            least[t] += min(used)
    limit = int(max(least) + tightness * (max(cheapest) - max(least)))
    return {
        "problem": {
            "name": name,
            "nodes": {"intervals": intervals, "costs": costs, "usages": usages},
            "edges": {"nodes": pairs, "costs": tables},
            "usage_limit": limit,
        }
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    for case in CASES:
        name = re.sub(r"\W+", "_", case[0])
        with open(os.path.join(options.folder, name + ".json"), "w", encoding="utf-8") as out:
            json.dump(made(*case), out)


if __name__ == "__main__":
    main()
