#!/usr/bin/env python3
"""The tables of docs/benchmarks.md and docs/mindspore.md from the JSON lines of bench/measure.py.

  bench/table.py bench.jsonl [MORE.jsonl...]

MindSpore's times were measured with MindSpore 2.10.0 on a CPU of two cores (one thread searches): what it logs as the time used for
"step auto parallel", for a forward GPT of batch 64, sequence 1024 (25 ops per layer), and an MLP of batch 1024, 4096 wide. Its sharding propagation
started from one seeded MatMul and a data parallel input; ours from the query-key-value product of the first layer, split by
columns over the devices of a machine, and a data parallel input.
"""
import collections
import json
import pathlib
import sys

# (searcher, width, layers) -> {devices: seconds}; a text says how it ended instead. Width 0: the MLP.
MINDSPORE = {
    ("rec", 1024, 2): {8: .017, 64: .020, 256: .032, 1024: .067},
    ("rec", 1024, 8): {8: .066, 64: .079, 256: .12, 1024: .26},
    ("rec", 1024, 24): {8: .26, 64: .33, 256: .51, 1024: 1.08},
    ("rec", 1024, 48): {8: .82, 64: 1.19, 256: 1.64, 1024: 2.60},
    ("rec", 4096, 48): {8: .85, 64: 1.08, 256: 1.52, 1024: 2.18},
    ("propagate", 1024, 2): {8: .19, 64: 3.4, 256: 15.3, 1024: "no result"},
    ("propagate", 1024, 8): {8: .39, 64: 5.6},
    ("propagate", 1024, 24): {8: .94},
    ("propagate", 1024, 48): {8: 1.78},
    ("dp", 1024, 2): {8: 7.0, 16: 107, 32: "stopped after 410"},
    ("dp", 1024, 8): {8: 31.0},
    ("dp", 1024, 24): {8: "99 with the memory capacity raised; else failed after 481"},
    ("rec", 0, 8): {8: .007, 64: .008},
    ("rec", 0, 48): {8: .034, 1024: .098},
    ("dp", 0, 8): {8: .33, 64: 14.0},
    ("dp", 0, 48): {8: 8.4},
}


def table(heads, rows):
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def milliseconds(seconds):
    return f"{seconds * 1e3:,.3f}" if seconds < 10 else f"{seconds * 1e3:,.0f}"


def seconds(value):
    return value if isinstance(value, str) else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def percent(share):
    return "0 %" if share == 0 else f"{share * 100:.2g} %"


def name(line):
    return line["model"].rsplit(".", 1)[0]


def searching(line):
    """CPU seconds of the search itself, without reading the model: the problems of all meshes built and solved."""
    return line["seconds"]["search_cpu"]


def failed(line):
    text = line["error"]
    return "nothing fits, proven" if "no plan fits" in text else text.split(":")[-1].strip()


def models(lines):
    table(["model", "ops", "wall s", "CPU s", "plan ms", "gap", "peak MiB"],
          [[name(n), f"{n['ops']:,}", f"{n['wall_seconds']:.2f}", f"{n['cpu_seconds']:.2f}", milliseconds(n["cost_seconds"]), percent(n["gap"]),
            f"{n['peak_rss_mib']:.0f}"] for n in lines if "error" not in n])


def training(lines):
    rows = []
    for n in lines:
        if "error" in n:
            rows.append([name(n), "", n["cluster"], "", failed(n)] + [""] * 6)
            continue
        rows.append([name(n), f"{n['ops']:,}", f"{n['devices']:,}", str(n["max_axes"]),
                     f"{n['mesh']} ({n['meshes_tried']} tried, {n['meshes_pruned']} pruned)", f"{n['seconds']['import']:.2f}", seconds(searching(n)),
                     milliseconds(n["cost_seconds"]), percent(n["gap"]), f"{n['plan_memory_bytes'] / 2**30:.1f}", f"{n['peak_rss_mib']:.0f}"])
    table(["training step", "ops", "devices", "axes", "mesh", "import s", "search CPU s", "plan ms", "gap", "plan GiB", "peak MiB"], rows)


def devices(lines):
    table(["model", "devices", "searcher", "mesh", "search CPU s", "plan ms", "gap", "peak MiB"],
          [[name(n), f"{n['devices']:,}", n["searcher"], n["mesh"], seconds(searching(n)), milliseconds(n["cost_seconds"]),
            percent(n["gap"]) if n["lower_bound_seconds"] > 0 else "-", f"{n['peak_rss_mib']:.0f}"] for n in lines if "error" not in n])


def depth(lines):
    lines = [n for n in lines if "error" not in n]
    if not lines:
        return
    first = searching(lines[0])
    table(["layers", "GiB per device", "ops", "import s", "search CPU s", "of the first", "plan ms", "gap", "peak MiB"],
          [[str(n["layers"]), str(n["memory_gib"]), f"{n['ops']:,}", f"{n['seconds']['import']:.2f}", seconds(searching(n)), f"{searching(n) / first:.2f} x",
            milliseconds(n["cost_seconds"]), percent(n["gap"]), f"{n['peak_rss_mib']:.0f}"] for n in lines])


def mindspore(lines):
    rows = []
    for n in lines:
        theirs = MINDSPORE.get((n.get("searcher"), n["width"], n["layers"]), {})
        if "error" in n:
            continue
        theirs = theirs.get(n["devices"])
        ours = searching(n)
        ratio = "" if theirs is None or isinstance(theirs, str) else f"{theirs / ours:,.0f} x" if theirs > 10 * ours else f"{theirs / ours:.1f} x"
        what = f"GPT, {n['layers']} layers of {n['width']}" if n["width"] else f"MLP, {n['layers']} layers"
        rows.append([what, f"{n['ops']:,}", f"{n['devices']:,}", n["searcher"], seconds(ours), "" if theirs is None else seconds(theirs), ratio])
    table(["model", "ops", "devices", "searcher", "autopar CPU s", "MindSpore CPU s", "ratio"], rows)


TITLES = {models: "Whole command: import, search, rewriting, writing; 64 A100, meshes of up to three axes",
          training: "Training steps; search over all meshes of up to so many axes, memory limit on",
          devices: "Growth with the number of devices",
          depth: "Growth with depth: forward Llama, 64 A100",
          mindspore: "The search itself (problems built and solved on all meshes), beside MindSpore's"}


def main():
    lines = collections.defaultdict(list)
    for path in sys.argv[1:] or sys.exit(__doc__):
        for text in pathlib.Path(path).read_text().splitlines():
            line = json.loads(text)
            lines[line["table"]].append(line)
    for make, title in TITLES.items():
        if lines[make.__name__]:
            print(f"{title}:\n")
            make(lines[make.__name__])


if __name__ == "__main__":
    main()
