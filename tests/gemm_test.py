"""Gemm as its user knows it: it costs what the same MatMul costs, its pins count in the stored order of A, B and C, and plans
of it are right."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

AUTOPAR = os.environ["AUTOPAR"]
FLOAT = onnx.TensorProto.FLOAT


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, *tiers):
    """Slow devices, fast links: plans communicate."""
    path = folder / ("cluster_" + "x".join(map(str, tiers)) + ".json")
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "test", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e9, "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": 1e11, "latency_s": 1e-9} for i, n in enumerate(tiers)]}))
    return path


def model(folder, name, nodes, x, y, weights):
    """`weights`: name -> shape."""
    rng = np.random.default_rng(1)
    tensors = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), key) for key, shape in weights.items()]
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", FLOAT, x)], [helper.make_tensor_value_info("y", FLOAT, y)], tensors)
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def gemm(inputs, output, name, **attributes):
    return helper.make_node("Gemm", inputs, [output], name=name, **attributes)


def matmul(inputs, output, name):
    return helper.make_node("MatMul", inputs, [output], name=name)


def pins(folder, ops, **more):
    path = folder / "pins.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops, **more}))
    return path


def written(out):
    return json.loads((out / "strategy.json").read_text())


def report(out):
    return json.loads((out / "report.json").read_text())


def collectives(out):
    return [node.op_type for node in onnx.load(out / "plan.onnx").graph.node if node.domain == "ai.autopar"]


def passes(out):
    assert run("run", out).stdout.splitlines()[-1] == "PASSED", out


def linear_pair(folder, name, bias):
    """Two layers as PyTorch exports them, weights [N, K]; and the same with MatMul, weights [K, N]."""
    w, b = {"w1": (64, 32), "w2": (32, 64)}, {"b1": (64,), "b2": (32,)} if bias else {}
    with_gemm = [gemm(["x", "w1"] + ["b1"] * bias, "h", "up", transB=1), helper.make_node("Relu", ["h"], ["r"], name="relu"),
                 gemm(["r", "w2"] + ["b2"] * bias, "y", "down", transB=1)]
    with_matmul = [matmul(["x", "w1"], "p" if bias else "h", "up"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
                   matmul(["r", "w2"], "q" if bias else "y", "down")]
    if bias:
        with_matmul.insert(1, helper.make_node("Add", ["p", "b1"], ["h"], name="up/add"))
        with_matmul.append(helper.make_node("Add", ["q", "b2"], ["y"], name="down/add"))
    turned = {key: shape[::-1] for key, shape in w.items()}
    return (model(folder, name + "_gemm", with_gemm, [16, 32], [16, 32], {**w, **b}),
            model(folder, name + "_matmul", with_matmul, [16, 32], [16, 32], {**turned, **b}))


def test_costs_what_matmul_costs(folder):
    machine = cluster(folder, 2, 4)
    for bias in (False, True):
        pair = linear_pair(folder, f"pair{bias:d}", bias)
        for cost_model in ("roofline", "mindspore", "mindspore_any", "mindspore_all", "mindspore_follow", "symbolic"):
            costs = []
            for path in pair:
                out = folder / path.stem
                run("search", path, "--cluster", machine, "--cost-model", cost_model, "--searcher", "rec" if cost_model == "symbolic" else "dp", "-o", out)
                cost = report(out)["cost"]
                costs.append(cost["seconds"] if cost_model == "roofline" else cost["cost"])
            assert costs[0] == costs[1], (bias, cost_model, costs)


def test_pins_in_stored_order(folder):
    """[[A], [B], [C]] as the model stores them, for all four ways to store A and B; written as they were asked for."""
    machine, out, m, k, n = cluster(folder, 4), folder / "out", 8, 16, 12
    for a in (0, 1):
        for b in (0, 1):
            shapes = {"w": (n, k) if b else (k, n), "c": (n,)}
            x = [k, m] if a else [m, k]
            for with_c in (False, True):
                node = gemm(["x", "w"] + ["c"] * with_c, "y", "fc", transA=a, transB=b, alpha=0.5, beta=1.5 if with_c else 1.0)
                path = model(folder, f"gemm{a}{b}{with_c:d}", [node], x, [m, n], shapes if with_c else {"w": shapes["w"]})
                for rows, summed, columns in ((4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)):
                    counts = [[summed, rows] if a else [rows, summed], [columns, summed] if b else [summed, columns]] + [[columns]] * with_c
                    file = pins(folder, {"fc": {"type": "Gemm", "in_strategy": counts}})
                    for command in (("search", "--pin"), ("apply", "--strategy")):
                        run(command[0], path, "--cluster", machine, command[1], file, "-o", out)
                        assert written(out)["ops"]["fc"]["in_strategy"] == counts[:2], (a, b, counts, written(out)["ops"])
                        assert "AllToAll" not in collectives(out), (a, b, counts)
                        passes(out)
                    price = json.loads(run("price", path, "--cluster", machine, "--strategy", file, "--json").stdout)
                    assert price
                # Not as the MatMul would have it that this Gemm is not.
                if b:
                    wrong = [[4, 1] if a else [1, 4], [4, 1]]
                    assert "'fc'" in run("search", path, "--cluster", machine, "--pin", pins(folder, {"fc": {"in_strategy": wrong}}), "-o", out, code=4).stderr


def test_what_is_added(folder):
    """C of every shape that is broadcast, once in the result also where the product is a sum over devices."""
    machine, out = cluster(folder, 4), folder / "out"
    for shape, cut in (((12,), [4]), ((1, 12), [1, 4]), ((8, 1), [1, 1]), ((8, 12), [1, 4]), ((1,), [1]), ((), [])):
        path = model(folder, "added", [gemm(["x", "w", "c"], "y", "fc", transB=1, alpha=2.0, beta=0.25)], [8, 16], [8, 12], {"w": (12, 16), "c": shape})
        run("search", path, "--cluster", machine, "-o", out)
        passes(out)
        run("apply", path, "--cluster", machine, "--strategy", pins(folder, {"fc": {"in_strategy": [[1, 1], [4, 1], cut]}}), "-o", out)
        passes(out)
        run("apply", path, "--cluster", machine, "--strategy", pins(folder, {"fc": {"in_strategy": [[1, 4], [1, 4]]}}), "-o", out)
        passes(out)
        # Where the sum is scattered is the result's business, not the product's.
        scattered = {"fc": {"in_strategy": [[1, 4], [1, 4]], "out_strategy": [[4, 1]]}}
        run("search", path, "--cluster", machine, "--pin", pins(folder, scattered), "-o", out)
        assert written(out)["tensors"]["y"]["local_shape"] == [2, 12], written(out)["tensors"]["y"]
        passes(out)
    path = model(folder, "added", [gemm(["x", "w", "c"], "y", "fc", transB=1)], [8, 16], [8, 12], {"w": (12, 16), "c": (12,)})
    for counts in ([[1, 1], [4, 1], [2]], [[1, 4], [1, 4], [4]], [[1, 1], [4, 1], [1, 4]]):
        refused = run("search", path, "--cluster", machine, "--pin", pins(folder, {"fc": {"in_strategy": counts}}), "-o", out, code=4)
        assert "'fc'" in refused.stderr and "C" in refused.stderr, refused.stderr
        assert len(refused.stderr) < 400, refused.stderr


def test_column_and_row(folder):
    """Megatron's pair between pins: one AllReduce, whatever is left to `apply`."""
    machine, out = cluster(folder, 4), folder / "out"
    for bias in (False, True):
        path = linear_pair(folder, f"megatron{bias:d}", bias)[0]
        ops = {"up": {"in_strategy": [[1, 1], [4, 1]] + [[4]] * bias}, "relu": {"in_strategy": [[1, 4]]},
               "down": {"in_strategy": [[1, 4], [1, 4]] + [[1]] * bias}}
        run("apply", path, "--cluster", machine, "--strategy", pins(folder, ops), "--io", "full", "-o", out)
        assert sorted(set(collectives(out)) - {"ShardSlice"}) == ["AllReduce"], collectives(out)
        passes(out)
        # By axes as well; what comes out is the whole strategy, which is applied to the same bytes.
        ops = {"up": {"assignment": {"t0": "n"}}, "relu": {"in_strategy": [[1, 4]]}, "down": {"assignment": {"t0": "k"}}}
        run("apply", path, "--cluster", machine, "--strategy", pins(folder, ops), "-o", out)
        assert "AllToAll" not in collectives(out), collectives(out)
        passes(out)
        again = folder / "again"
        run("apply", path, "--cluster", machine, "--strategy", out / "strategy.json", "-o", again)
        assert (out / "plan.onnx").read_bytes() == (again / "plan.onnx").read_bytes()


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print(name, "ok", flush=True)


main()
