"""The main job as a user does it: search, files, run, the same bytes again, and worked examples of redistribution."""
import collections
import json
import os
import pathlib
import sys
import tempfile

import onnx

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
FILES = ("strategy.json", "plan.onnx", "report.json")


def collectives(plan):
    model = onnx.load(plan)
    return collections.Counter(n.op_type for n in model.graph.node if n.domain == "ai.autopar" and n.op_type != "ShardSlice")


def two_matmuls(folder, size=64):
    path = folder / "two_matmuls.json"
    path.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "two_matmuls",
        "inputs": [{"name": "X", "dtype": "float32", "shape": [size, size]}],
        "parameters": [{"name": w, "dtype": "float32", "shape": [size, size]} for w in "WV"],
        "ops": [{"name": "first", "type": "MatMul", "inputs": ["X", "W"], "outputs": ["Y"], "attributes": {}},
                {"name": "second", "type": "MatMul", "inputs": ["Y", "V"], "outputs": ["Z"], "attributes": {}}],
        "outputs": ["Z"]}))
    return path


def strategy(folder, name, **ops):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                                "ops": {op: {"in_strategy": counts} for op, counts in ops.items()}}))
    return path


def test_search_run_and_same_bytes(folder):
    for model in ("mlp", "gpt2_tiny", "llama_tiny"):
        for tiers in ((2,), (2, 2), (2, 3)):
            machine, out = cluster(folder, *tiers), folder / f"{model}_{'x'.join(map(str, tiers))}"
            again = folder / "again"
            run("search", SOURCE / "models" / f"{model}.onnx", "--cluster", machine, "-o", out)
            done = run("run", out)
            assert done.stdout.splitlines()[-1] == "PASSED", done.stdout
            run("search", SOURCE / "models" / f"{model}.onnx", "--cluster", machine, "-o", again, "--threads", 2)
            for name in FILES[:2]:
                assert (out / name).read_bytes() == (again / name).read_bytes(), f"{model} {tiers}: {name} differs"
            given = folder / "given"
            run("apply", SOURCE / "models" / f"{model}.onnx", "--cluster", machine, "-o", given, "--strategy", out / "strategy.json")
            assert (out / "plan.onnx").read_bytes() == (given / "plan.onnx").read_bytes(), f"{model} {tiers}: apply differs"
            priced = json.loads(run("price", SOURCE / "models" / f"{model}.onnx", "--cluster", machine, "--json",
                                    "--strategy", out / "strategy.json").stdout)
            claimed = json.loads((out / "strategy.json").read_text())["cost"]
            assert priced["seconds"] == claimed["seconds"], (priced["seconds"], claimed)
            assert priced["memory_bytes"] == claimed["memory_bytes"]
            assert abs(sum(t["seconds"] for t in priced["terms"]) - priced["seconds"]) <= 1e-12 * priced["seconds"]
            assert claimed["lower_bound_seconds"] <= claimed["seconds"]


def test_redistribution_examples(folder):
    model, machine = two_matmuls(folder), cluster(folder, 4)
    examples = [
        ("gather", [[4, 1], [1, 1]], [[1, 1], [1, 4]], {"AllGather": 1}),
        ("exchange", [[1, 1], [1, 4]], [[4, 1], [1, 1]], {"AllToAll": 1}),
        ("reduce", [[2, 1], [1, 2]], [[2, 2], [2, 1]], {"AllReduce": 1}),
    ]
    for name, first, second, expected in examples:
        out = folder / name
        run("apply", model, "--cluster", machine, "-o", out, "--strategy", strategy(folder, name + "_s", first=first, second=second))
        found = collectives(out / "plan.onnx")
        assert found == collections.Counter(expected), f"{name}: {found}"
        assert run("run", out, "--model", model).stdout.splitlines()[-1] == "PASSED"


def test_mindspore_notation(folder):
    model, machine, out = two_matmuls(folder), cluster(folder, 8), folder / "notation"
    run("apply", model, "--cluster", machine, "-o", out, "--strategy", strategy(folder, "n", first=[[2, 1], [1, 4]]))
    written = json.loads((out / "strategy.json").read_text())
    assert written["ops"]["first"]["in_strategy"] == [[2, 1], [1, 4]]
    assert written["ops"]["first"]["out_strategy"] == [[2, 4]]
    tensors = written["tensors"]
    assert tensors["X"]["device_matrix"] == [2, 4] and tensors["X"]["tensor_map"] == [1, -1], tensors["X"]
    assert tensors["W"]["tensor_map"] == [-1, 0] and tensors["Y"]["tensor_map"] == [1, 0]
    assert tensors["X"]["local_shape"] == [32, 64] and tensors["W"]["local_shape"] == [64, 16]


def test_bad_input(folder):
    machine, out = cluster(folder, 4), folder / "bad"
    model = SOURCE / "models" / "mlp.onnx"

    def refused(code, text, *args):
        done = run(*args, code=code)
        assert text in done.stderr, f"{args}: {done.stderr}"
        assert not out.exists(), "a failed command left files"

    refused(4, "missing.onnx", "search", folder / "missing.onnx", "--cluster", machine, "-o", out)
    whole = model.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        (folder / "cut.onnx").write_bytes(whole[:length])
        refused(4, "cut.onnx", "search", folder / "cut.onnx", "--cluster", machine, "-o", out)
    refused(2, "did you mean", "search", model, "--cluster", machine, "-o", out, "--searcher", "dpp")
    refused(2, "MODEL", "search")
    refused(4, "fc1", "search", model, "--cluster", machine, "-o", out, "--pin", strategy(folder, "p", fc1=[[3, 1], [1, 1]]))
    refused(4, "did you mean 'fc1'", "search", model, "--cluster", machine, "-o", out, "--pin", strategy(folder, "q", fc11=[[2, 1], [1, 1]]))
    refused(3, "no plan fits", "search", model, "--cluster", machine, "-o", out, "--memory", "10KiB")
    refused(4, "mesh", "search", model, "--cluster", machine, "-o", out, "--mesh", "3x2")
    none = json.loads(machine.read_text())
    none["tiers"][0]["size"] = 0
    (folder / "none.json").write_text(json.dumps(none))
    refused(4, "size", "search", model, "--cluster", folder / "none.json", "-o", out)
    none["version"] = 99
    (folder / "none.json").write_text(json.dumps(none))
    refused(4, "version", "search", model, "--cluster", folder / "none.json", "-o", out)


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
