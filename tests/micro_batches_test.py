"""--micro-batches auto takes the number of passes that is cheapest of all that divide the batch: also where some in a row are no better than
those before, since only with more of them is nothing repeated in the backward pass. And the sizes of a mesh come in every order."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tools.program import AUTOPAR, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
BATCH = 64


def llama(folder, name, **sizes):
    path = folder / f"{name}.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "-o", path,
                    *(str(word) for name, size in sizes.items() for word in (f"--{name.replace('_', '-')}", size))],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def planned(model, cluster, *options):
    done = run("search", model, "--cluster", SOURCE / "models" / "clusters" / f"{cluster}.json", "--train", "--loss", "cross_entropy",
               "--optimizer", "sgd", "-o", model.parent / "plan", "--json", "-q", *options)
    report = json.loads(done.stdout)
    strategy = json.loads((model.parent / "plan" / "strategy.json").read_text())
    return report["cost"]["seconds"], report["memory"]["recompute"], strategy.get("step", {}).get("micro_batches", 1), report["meshes"]


def test_more_passes_in_place_of_repeated_ops(folder):
    model = llama(folder, "deep", layers=24, hidden=64, heads=8, feed_forward=64, vocabulary=64, sequence=512)
    options = "dgx-a100-1x8", "--mesh", "8", "--batch", BATCH, "--memory", "455MiB"
    by_passes = {m: planned(model, *options, "--micro-batches", m)[:2] for m in (1, 2, 4, 8)}
    costs = [cost for cost, _ in by_passes.values()]
    # Or else one that stops early finds it too.
    assert costs[0] <= 1.0005 * min(costs[1:3]) and costs[3] < 0.95 * costs[0], by_passes
    assert by_passes[1][1] != "none" and by_passes[8][1] == "none", by_passes
    cost, recompute, passes, _ = planned(model, *options, "--micro-batches", "auto")
    assert (cost, recompute, passes) == (costs[3], "none", 8), (cost, recompute, passes, by_passes)
    # Where memory is no matter, one pass is the best and the only one that is tried.
    done = run("search", model, "--cluster", SOURCE / "models" / "clusters" / "dgx-a100-1x8.json", "--mesh", "8", "--train", "--loss",
               "cross_entropy", "--optimizer", "sgd", "--batch", BATCH, "--micro-batches", "auto", "-o", folder / "plan")
    assert json.loads((folder / "plan" / "strategy.json").read_text()).get("step", {}).get("micro_batches", 1) == 1, done.stderr


def test_sizes_in_every_order(folder):
    # Two samples for eight devices: the batch in two parts, the sequence in four. Gradients of weights flatten both, with the batch first.
    model = llama(folder, "wide", layers=1, hidden=256, heads=8, kv_heads=2, feed_forward=512, vocabulary=256, sequence=4096)
    options = "dgx-a100-1x8", "--batch", 2
    free, _, _, meshes = planned(model, *options)
    tried = {"x".join(str(a["size"]) for a in m["mesh"]) for m in meshes}
    assert {"2x4", "4x2"} <= tried, tried
    each = {mesh: planned(model, *options, "--mesh", mesh)[0] for mesh in ("2x4", "4x2")}
    assert free <= min(each.values()) * (1 + 1e-9) and each["2x4"] < 0.999 * each["4x2"], (free, each)


def test_stages_or_none_where_memory_binds(folder):
    """One pass without stages among the forms: it has no units; and units may begin with an op that each chunk makes for itself."""
    for name in "gpt2_tiny", "llama_tiny":
        options = ("search", SOURCE / "models" / f"{name}.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "cross_entropy", "--optimizer", "adamw",
                   "--batch", 4, "--profile", "h100-megatron", "-q", "-o", folder / "plan")
        run(*options)
        peak = json.loads((folder / "plan" / "report.json").read_text())["memory"]["peak_bytes"]
        for part in 0.3, 0.5, 0.7:
            run(*options, "--stages", "auto", "--micro-batches", 1, "--memory", f"{int(part * peak)}B")
            assert json.loads((folder / "plan" / "report.json").read_text())["memory"]["peak_bytes"] <= part * peak, (name, part)


def test_pipelines_hold_no_more_than_the_limit(folder):
    """Cuts of small steps are moved by what plans take; what is planned as if there was no limit has one, too."""
    options = ("search", SOURCE / "models" / "llama_tiny.onnx", "--cluster", "dgx-a100-1x8", "--train", "--loss", "cross_entropy", "--optimizer", "adamw",
               "--batch", 64, "--micro-batches", 4, "--schedule", "1f1b", "--profile", "h100-megatron", "-q", "-o", folder / "plan")
    for stages in 2, 8:
        run(*options, "--stages", stages)
        free = json.loads((folder / "plan" / "report.json").read_text())
        for part in 0.4, 0.6, 0.8, 0.95, 1:
            limit = int(part * free["memory"]["peak_bytes"])
            done = subprocess.run([AUTOPAR, *map(str, (*options, "--stages", stages, "--memory", f"{limit}B"))], capture_output=True, text=True)
            assert done.returncode in (0, 3), (stages, part, done.stderr)
            if done.returncode == 3:
                continue
            found = json.loads((folder / "plan" / "report.json").read_text())
            assert found["memory"]["peak_bytes"] <= limit, (stages, part, found["memory"])
            assert part < 1 or found["cost"]["seconds"] <= free["cost"]["seconds"] * (1 + 1e-9), (stages, free["cost"], found["cost"])


def main():
    for test in (test_more_passes_in_place_of_repeated_ops, test_sizes_in_every_order, test_stages_or_none_where_memory_binds,
                 test_pipelines_hold_no_more_than_the_limit):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))


if __name__ == "__main__":
    main()
