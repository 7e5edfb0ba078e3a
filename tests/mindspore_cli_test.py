"""--cost-model mindspore as a user has it: search, units in table and JSON, the plan runs, price agrees."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE.parent / "shared"))
UNIT = "bytes of computation"
FILES = ("strategy.json", "plan.onnx", "report.json")


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def check_units(text):
    """Prices in the model's own unit: only the line of the program's own times has seconds."""
    for line in text.splitlines():
        if not line.startswith("  took "):
            assert not re.search(r"\d (s|ms|us)\b", line), line
            assert "time" not in line, line


def check_tables(model, folder):
    pins = folder.parent / "pins.json"
    pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {
        "fc1": {"in_strategy": [[8, 1], [1, 1]]}, "fc2": {"in_strategy": [[1, 8], [8, 1]]}}}))
    for cost_model, unit in (("mindspore", UNIT), ("mindspore_any", UNIT), ("mindspore_all", UNIT), ("symbolic", "elements")):
        for searcher in (["auto"], ["rec"], ["propagate", "--pin", pins], ["propagate", "--propagate-exact", "--pin", pins]):
            out = run("search", model, "--cluster", "dgx-a100-1x8", "--cost-model", cost_model, "-o", folder,
                      "--searcher", *searcher)
            assert f"costs are in {unit}" in out.stdout, out.stdout
            check_units(out.stdout)
            assert json.loads((folder / "report.json").read_text())["cost_unit"] == unit
        problem = folder / "problem.json"
        out = run("search", model, "--cluster", "dgx-a100-1x8", "--cost-model", cost_model, "-o", folder,
                  "--searcher", "dp", "--dump-problem", problem, "--mesh", "2x2x2", "--memory", "1TiB")
        assert f"costs in thousandths of {unit}" in out.stderr, out.stderr
        best = json.loads(run("solve", problem, "--json").stdout)["cost"]
        found = json.loads((folder / "report.json").read_text())["cost"]["cost"]
        assert abs(best / 1000 - found) <= 1e-3 * found, (cost_model, best, found)


def check_no_split(folder):
    """An op that no devices can share, under a model by which all do: `rec` has no plan, the others do."""
    model = folder / "tile.onnx"
    graph = helper.make_graph([helper.make_node("Tile", ["x", "repeats"], ["y"], "tile")], "tile", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [12])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [24])], [numpy_helper.from_array(np.array([2], np.int64), "repeats")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), model)
    for searcher, code in (("auto", 0), ("dp", 0), ("rec", 3)):
        run("search", model, "--cluster", "dgx-a100-1x8", "--cost-model", "mindspore_all", "--searcher", searcher, "-o", folder / "tiled", "-q", code=code)


def check_restricted(folder):
    """Readers that need an input in different ways: no layout that is asked for is below what is proven where all are free."""
    folder.mkdir()
    graph = {"format": "autopar-graph", "version": 1, "name": "ways", "inputs": [{"name": "X", "dtype": "float32", "shape": [8, 16]}], "parameters": [],
             "ops": [{"name": "rows", "type": "Softmax", "inputs": ["X"], "outputs": ["Y"], "attributes": {"axis": 1}},
                     {"name": "columns", "type": "Softmax", "inputs": ["X"], "outputs": ["Z"], "attributes": {"axis": 0}}], "outputs": ["Y", "Z"]}
    model, out = folder / "ways.json", folder / "plan"
    model.write_text(json.dumps(graph))

    def cost(cost_model, *more):
        run("search", model, "--cluster", "dgx-a100-1x8", "--cost-model", cost_model, "-q", "-o", out, *more)
        return json.loads((out / "strategy.json").read_text())["cost"]

    def pin(spec):
        mesh = json.loads((out / "strategy.json").read_text())["mesh"]
        axes = [axis["name"] for axis in mesh]
        path = folder / "pins.json"
        path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": mesh, "tensors": {"X": {"spec": spec.format(*axes)}}}))
        return ("--pin", path)

    for cost_model in ("mindspore", "mindspore_all", "mindspore_follow"):
        free = cost(cost_model, "--searcher", "dp")
        assert free["gap"] == 0, free
        for more in (("--searcher", "exhaustive"), ("--searcher", "rec"), ("--inputs", "full"), ("--inputs", "data_parallel"), ("--outputs", "full"), ("--io", "full")):
            found = cost(cost_model, *more)["cost"]
            assert found >= free["cost"] * (1 - 1e-9), (cost_model, more, found, free)
            assert more[1] != "exhaustive" or found <= free["cost"] * (1 + 1e-9), (cost_model, found, free)
        for rows in ("{{}}", "{{{0}}}"):
            for columns in ("{{}}", "{{{1}}}", "{{{1},{2}}}"):
                found = cost(cost_model, *pin(f"[{rows},{columns}]"))["cost"]
                assert found >= free["cost"] * (1 - 1e-9), (cost_model, rows, columns, found, free)


def check(model, cluster, folder):
    common = ["--cluster", cluster, "--cost-model", "mindspore"]
    searcher = ["--searcher", "dp"]
    table = run("search", model, *common, *searcher, "-o", folder).stdout
    assert f"costs are in {UNIT}" in table, table
    check_units(table)
    again = folder.parent / (folder.name + "_again")
    run("search", model, *common, *searcher, "-o", again, "-q")
    for name in FILES:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name
    report = json.loads((folder / "report.json").read_text())
    assert report["cost_model"] == "mindspore" and report["cost_unit"] == UNIT
    assert report["cost"]["proven_optimal"] is True
    for baseline in report["baselines"]:
        assert not baseline["found"] or baseline["cost"] >= report["cost"]["cost"] * (1 - 1e-9), baseline
    price = json.loads(run("price", model, *common, "--strategy", folder / "strategy.json", "--json").stdout)
    assert price["cost_unit"] == UNIT
    assert price["cost"] == report["cost"]["cost"], (price["cost"], report["cost"])
    assert abs(sum(t["cost"] for t in price["terms"]) - price["cost"]) <= 1e-9 * price["cost"]
    for document in (price, report):
        assert not list(keys_with_seconds(document)), list(keys_with_seconds(document))
    json.loads(run("show", folder / "report.json", "--json").stdout)
    check_strategy(model, cluster, folder, report)
    text = run("price", model, *common, "--strategy", folder / "strategy.json").stdout
    assert " us" not in text and " ms" not in text, text
    assert run("run", folder).stdout.splitlines()[-1].startswith("PASSED")
    print(f"{pathlib.Path(model).name}: {report['cost']['cost']:.10g} {UNIT}, mesh {report['mesh']}")


def check_strategy(model, cluster, folder, report):
    """strategy.json has the proven price in its unit, beside the seconds of the roofline model, and every reader takes it."""
    strategy = folder / "strategy.json"
    cost = json.loads(strategy.read_text())["cost"]
    assert cost["cost_model"] == "mindspore" and cost["cost_unit"] == UNIT, cost
    assert cost["cost"] == cost["lower_bound_cost"] == report["cost"]["cost"] and cost["gap"] == 0, (cost, report["cost"])
    price = json.loads(run("price", model, "--cluster", cluster, "--strategy", strategy, "--json").stdout)
    assert cost["seconds"] == price["seconds"] and "lower_bound_seconds" not in cost, (cost, price["seconds"])
    shown = run("show", strategy).stdout
    assert f"{cost['cost']:.10g} {UNIT} (mindspore), lower bound {cost['cost']:.10g}; " in shown, shown
    again = folder.parent / (folder.name + "_applied")
    run("apply", model, "--cluster", cluster, "--cost-model", "mindspore", "--strategy", strategy, "-o", again)
    for name in FILES[:2]:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name
    assert json.loads((again / "report.json").read_text())["cost"]["gap"] == 0
    # In seconds nothing is proven of it.
    run("apply", model, "--cluster", cluster, "--strategy", strategy, "-o", again)
    assert json.loads((again / "strategy.json").read_text())["cost"]["lower_bound_seconds"] == 0


def keys_with_seconds(document):
    """Prices are no seconds here: no key says so."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if "seconds" in str(key) and key != "phase_seconds":
            yield key
        if isinstance(value, (dict, list)):
            yield from keys_with_seconds(value)


def check_limits(folder):
    """Memory counts also where a redistribution costs nothing, such as that of a partial sum by the relative costs."""
    folder.mkdir()
    graph = {"format": "autopar-graph", "version": 1, "name": "sums", "inputs": [{"name": "X", "dtype": "float32", "shape": [6, 4]}],
             "parameters": [{"name": "W", "dtype": "float32", "shape": [6, 4]}, {"name": "b", "dtype": "float32", "shape": [6]}],
             "ops": [{"name": "twice", "type": "Add", "inputs": ["X", "X"], "outputs": ["Y"], "attributes": {}},
                     {"name": "product", "type": "Gemm", "inputs": ["X", "W", "b"], "outputs": ["Z"], "attributes": {"transB": 1}}], "outputs": ["Y", "Z"]}
    four = {"format": "autopar-cluster", "version": 1, "name": "four",
            "device": {"name": "d", "memory_bytes": 2**30, "memory_bandwidth_bytes_per_s": 1e10, "peak_flops_per_s": {"float32": 1e10}},
            "tiers": [{"name": "t", "size": 4, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}]}
    (folder / "sums.json").write_text(json.dumps(graph))
    (folder / "four.json").write_text(json.dumps(four))
    found = set()
    for limit in (500, 614, 700, 744):
        run("search", folder / "sums.json", "--cluster", folder / "four.json", "--max-axes", 1, "--inputs", "data_parallel", "--cost-model", "symbolic", "--searcher", "dp",
            "--memory", f"{limit}B", "-q", "-o", folder / "plan")
        held = json.loads((folder / "plan" / "report.json").read_text())["memory"]["peak_bytes"]
        assert held <= limit, (held, limit)
        found.add(held)
    assert len(found) > 1, found


def main():
    models = [SOURCE / "models" / "mlp.onnx", SOURCE / "models" / "llama_tiny.onnx"]
    tiny_bert = SHARED / "data" / "models" / "tiny_bert.onnx"
    if tiny_bert.exists():
        models.append(tiny_bert)
    else:
        print("skipped: no data/models/tiny_bert.onnx below AUTOPAR_SHARED")
    with tempfile.TemporaryDirectory() as folder:
        check_tables(models[0], pathlib.Path(folder) / "tables")
        check_limits(pathlib.Path(folder) / "limits")
        check_no_split(pathlib.Path(folder))
        check_restricted(pathlib.Path(folder) / "restricted")
        for model in models:
            check(model, "dgx-a100-1x8", pathlib.Path(folder) / model.stem)


if __name__ == "__main__":
    sys.exit(main())
