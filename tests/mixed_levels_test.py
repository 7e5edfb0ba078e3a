"""Chunks of a pipeline whose layers do not all repeat the same: faster than with one level, written, applied, executed, and refused where they are said wrongly."""
import json
import pathlib
import shutil
import subprocess
import tempfile

from tools.independent_step import independent
from tools.small_steps import AUTOPAR, called, same_files, small_model, with_cluster

TRAIN = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 16, "--micro-batches", 4]
# Options, and the part of what a plan takes without a limit.
CASES = {"1f1b": (["--stages", 2], 0.6), "interleaved": (["--stages", 2, "--schedule", "interleaved", "--chunks", 2], 0.5), "there and back": (["--stages", 2, "--schedule", "zb-v"], 0.7)}


def searched(folder, model, *options):
    """Its report; nothing where nothing fits."""
    out = folder / "plan"
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run(list(map(str, [AUTOPAR, "search", model, "--cluster", folder / "cluster.json", *TRAIN, *options, "-q", "-o", out])), capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 3), f"{options}: exit {done.returncode}\n{done.stderr}"
    return json.loads((out / "report.json").read_text()) if done.returncode == 0 else None


def chunks_of(strategy):
    return [chunk for stage in strategy["step"]["stages"] for chunk in stage["chunks"]]


def planned_with_several(folder, model):
    for name, (options, share) in CASES.items():
        limit = int(share * searched(folder, model, *options)["memory"]["peak_bytes"])
        of_one = {}
        for level in ("none", "cheap", "products", "full"):
            report = searched(folder, model, *options, "--memory", limit, "--recompute", level)
            if report is not None:
                of_one[level] = report["cost"]["seconds"]
        report = searched(folder, model, *options, "--memory", limit)
        assert report["memory"]["peak_bytes"] <= limit
        assert of_one and report["cost"]["seconds"] < min(of_one.values()), (name, report["cost"], of_one)
        told = [chunk["recompute"] for chunk in report["pipeline"]["chunks"]]
        assert any(" from layers." in text for text in told), (name, told)

        plan, again = folder / "plan", folder / "again"
        strategy = json.loads((plan / "strategy.json").read_text())
        mixed = [chunk for chunk in chunks_of(strategy) if chunk["recompute"] == "mixed"]
        assert len(mixed) == sum(" from " in text for text in told), (told, mixed)
        for chunk in mixed:
            levels = [one["recompute"] for one in chunk["recompute_from"]]
            order = ["full", "products", "cheap", "none"]
            assert len(levels) == 2 and order.index(levels[0]) < order.index(levels[1]), chunk["recompute_from"]
        shown = called("show", plan / "strategy.json").stdout
        assert all(f"recompute {text}" in shown for text in told if text != "none"), (told, shown[:3000])
        shutil.rmtree(again, ignore_errors=True)
        called("apply", model, "--cluster", folder / "cluster.json", "--strategy", plan / "strategy.json", "-q", "-o", again)
        same_files(plan, again, name)
        price = json.loads(called("price", model, "--cluster", folder / "cluster.json", "--strategy", plan / "strategy.json", "--json").stdout)
        assert price["seconds"] == report["cost"]["seconds"] and price["memory_bytes"] == report["memory"]["peak_bytes"], (price["seconds"], report["cost"])
        called("verify", plan)
        assert json.loads(called("run", plan, "--steps", 2, "--json").stdout)["passed"]
        said = called("export", plan, "--as", "megatron").stdout
        assert f"repeats {next(text for text in told if ' from ' in text)} in its backward pass" in said, said
        print(f"{name}: {report['cost']['seconds'] * 1e3:.3f} ms, with one level {min(of_one.values()) * 1e3:.3f} ms; {told}; {independent(plan, 1)}")


def said_wrongly(folder, model):
    """Of the plan that is there, with a chunk of two levels."""
    strategy = json.loads((folder / "plan" / "strategy.json").read_text())
    number = next(i for i, chunk in enumerate(chunks_of(strategy)) if chunk["recompute"] == "mixed")

    def refused(change, *expected):
        changed = json.loads(json.dumps(strategy))
        change(chunks_of(changed)[number])
        (folder / "changed.json").write_text(json.dumps(changed))
        error = called("apply", model, "--cluster", folder / "cluster.json", "--strategy", folder / "changed.json", "-o", folder / "none", code=4).stderr
        assert all(text in error for text in (*expected, "changed.json")), error
        assert not (folder / "none").exists()

    refused(lambda chunk: chunk["recompute_from"][1].update({"from": "nothing"}), "recompute_from", "no op 'nothing'")
    refused(lambda chunk: chunk["recompute_from"][1].update({"recompute": "most"}), "none, cheap, products or full", "\"most\"")
    refused(lambda chunk: chunk["recompute_from"].pop(), "two levels or more, found 1")
    refused(lambda chunk: chunk.pop("recompute_from"), "two levels or more, found 0")
    refused(lambda chunk: chunk.update({"recompute": "full"}), "recompute_from: goes with recompute \"mixed\"")
    refused(lambda chunk: chunk["recompute_from"][1].pop("recompute"), "recompute_from")
    refused(lambda chunk: chunk["recompute_from"].append(chunk["recompute_from"][0]), "not behind the op of the level before")
    refused(lambda chunk: chunk["recompute_from"].reverse(), "the first level begins with op")


def of_one_stage(folder, model):
    """Where the limit holds a plan up: some layers keep more than others, whatever levels there are."""
    limit = int(0.6 * searched(folder, model)["memory"]["peak_bytes"])
    report = searched(folder, model, "--memory", limit)
    assert report["memory"]["peak_bytes"] <= limit and report["cost"]["lower_bound_seconds"] <= report["cost"]["seconds"], report["cost"]
    parts = [trial for trial in report["plans_tried"] if trial.get("of_parts")]
    assert len(parts) == 1 and parts[0]["seconds"] == report["cost"]["seconds"], report["plans_tried"]
    assert parts[0]["seconds"] < min(trial["seconds"] for trial in report["plans_tried"] if trial["seconds"] and not trial.get("of_parts")), report["plans_tried"]
    plan, again = folder / "plan", folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    called("apply", model, "--cluster", folder / "cluster.json", "--strategy", plan / "strategy.json", "-q", "-o", again)
    same_files(plan, again, "one stage")
    assert json.loads(called("run", plan, "--steps", 2, "--json").stdout)["passed"]
    assert "of like parts" in called("show", plan / "report.json").stdout
    print(f"one stage: {report['plans_tried']}; {independent(plan, 1)}")


def pinned(folder, model):
    """Plans of one stage: from which op on the backward pass repeats how much is said in a pin file."""
    pins = {"format": "autopar-strategy", "version": 1, "recompute": "mixed",
            "recompute_from": [{"from": "embed_tokens", "recompute": "full"}, {"from": "layers.4.input_layernorm.square", "recompute": "none"}]}
    (folder / "pins.json").write_text(json.dumps(pins))
    report = searched(folder, model, "--pin", folder / "pins.json")
    assert report["memory"]["recompute"] == "full, none from layers.4.input_layernorm.square", report["memory"]
    plan, again = folder / "plan", folder / "again"
    strategy = json.loads((plan / "strategy.json").read_text())
    layers = {int(name.split(".")[1]) for name, op in strategy["ops"].items() if op.get("recompute") and name.startswith("layers.")}
    assert layers == {0, 1, 2, 3}, layers
    shutil.rmtree(again, ignore_errors=True)
    called("apply", model, "--cluster", folder / "cluster.json", "--strategy", plan / "strategy.json", "-q", "-o", again)
    same_files(plan, again, "one stage")
    assert json.loads(called("run", plan, "--json").stdout)["passed"]
    error = called("search", model, "--cluster", folder / "cluster.json", *TRAIN, "--pin", folder / "pins.json", "--recompute", "full", "-o", folder / "none", code=2).stderr
    assert "recompute_from" in error and "--recompute full" in error, error
    error = called("search", model, "--cluster", folder / "cluster.json", *TRAIN, "--pin", folder / "pins.json", "--stages", 2, "-o", folder / "none", code=2).stderr
    assert "--stages 1" in error, error


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        with_cluster(folder)
        model = small_model(folder / "model.onnx", "--family", "llama", "--layers", "16", "--feed-forward", "64", "--vocabulary", "64", "--sequence", "32")
        planned_with_several(folder, model)
        said_wrongly(folder, model)
        pinned(folder, model)
        of_one_stage(folder, model)


main()
