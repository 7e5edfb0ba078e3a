"""Sharding propagation as a user does it: one or two pins, the rest follows, and the plan runs."""
import json
import os
import pathlib
import sys
import tempfile

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "data" / "models"


def pins(folder, name, ops):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                                "ops": {op: {"in_strategy": counts} for op, counts in ops.items()}}))
    return path


def propagated(folder, name, model, machine, ops, *options):
    out = folder / name
    run("search", model, "--cluster", machine, "-o", out, "--searcher", "propagate",
        "--pin", pins(folder, name + "_pins", ops), *options)
    report = json.loads((out / "report.json").read_text())
    strategy = json.loads((out / "strategy.json").read_text())
    assert report["searcher"] == strategy["searcher"] == "propagate"
    for op, counts in ops.items():
        assert strategy["ops"][op]["in_strategy"][:len(counts)] == counts, (name, op, strategy["ops"][op])
    return out, report, strategy


def test_models_run(folder):
    column4, batch_column = [[1, 1, 1], [1, 4]], [[2, 1, 1], [1, 4]]
    cases = [
        ("llama4", "tiny_llama", (4,), {"node_linear": column4}),
        ("llama8", "tiny_llama", (4, 2), {"node_linear": batch_column}),
        ("llama8two", "tiny_llama", (4, 2), {"node_linear": batch_column, "node_linear_4": batch_column}),
        ("bert4", "tiny_bert", (4,), {"node_MatMul_24": column4}),
        ("bert8two", "tiny_bert", (4, 2), {"node_MatMul_24": batch_column, "node_MatMul_94": [[2, 1, 4], [4, 1]]}),
        ("bert8apart", "tiny_bert", (8,), {"node_MatMul_24": [[1, 8, 1], [1, 1]], "node_MatMul_85": [[1, 1, 1], [1, 8]]}),
    ]
    if not MODELS.is_dir():
        print(f"skipped: no models in {MODELS}")
        return
    for name, model, tiers, ops in cases:
        out, report, _ = propagated(folder, name, MODELS / f"{model}.onnx", cluster(folder, *tiers), ops)
        done = run("run", out)
        assert done.stdout.splitlines()[-1] == "PASSED", (name, done.stdout)
        data = MODELS / f"{model}.npz"
        assert run("run", out, "--data", data).stdout.splitlines()[-1] == "PASSED", name
        assert report["propagation"]["reached"] > 0.9 * report["model"]["ops"], (name, report["propagation"])
        priced = json.loads(run("price", MODELS / f"{model}.onnx", "--cluster", cluster(folder, *tiers), "--json",
                                "--strategy", out / "strategy.json").stdout)
        assert priced["seconds"] == report["cost"]["seconds"], name


def test_conflicts_are_said(folder):
    out, report, _ = propagated(folder, "conflict", SOURCE / "models" / "mlp.onnx", cluster(folder, 4),
                                {"fc1": [[4, 1], [1, 1]], "fc2": [[1, 4], [4, 1]]}, "--propagate-exact")
    found = report["conflicts"]
    assert found and found[0]["kind"] in ("pins", "meeting"), found
    for conflict in found:
        assert conflict["seconds"] > 0 and conflict["steps"]
        assert {"where", "spec", "because"} <= set(conflict["from"]) & set(conflict["to"])
    shown = run("show", out / "report.json").stdout
    assert "conflicts:" in shown and "proven least" in shown, shown
    p = report["propagation"]
    assert p["breadth_first"]["seconds"] >= p["exact"]["seconds"] * (1 - 1e-9)


def test_nothing_pinned(folder):
    model, machine = SOURCE / "models" / "mlp.onnx", cluster(folder, 4)
    done = run("search", model, "--cluster", machine, "-o", folder / "none", "--searcher", "sharding_propagation", code=2)
    assert "--pin" in done.stderr and "--inputs" in done.stderr, done.stderr
    assert not (folder / "none").exists()
    run("search", model, "--cluster", machine, "-o", folder / "dp", "--searcher", "propagate", "--inputs", "data_parallel")
    assert run("run", folder / "dp").stdout.splitlines()[-1] == "PASSED"
    done = run("search", model, "--cluster", machine, "-o", folder / "x", "--propagate-exact", code=2)
    assert "--searcher propagate" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for test in (test_models_run, test_conflicts_are_said, test_nothing_pinned):
            test(folder)
            print(f"{test.__name__}: ok")


if __name__ == "__main__":
    sys.exit(main())
