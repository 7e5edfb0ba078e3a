"""Parts that move between the ranks during an op: products in tiles (SUMMA) and attention round a ring, pinned and found by
the search under a memory limit, executed by `autopar run` and by an executor that shares no code with it."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CHECK = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "tools" / "spmd_check.py"


def save(folder, name, nodes, inputs, outputs, weights=()):
    def infos(tensors):
        return [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n, shape in tensors.items()]

    graph = helper.make_graph(nodes, name, infos(inputs), infos(outputs), list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def products(folder, m, k, n, out):
    weights = [numpy_helper.from_array(np.random.default_rng(i).standard_normal(shape).astype(np.float32) / 8, name)
               for i, (name, shape) in enumerate([("w1", (k, n)), ("w2", (n, out))])]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("MatMul", ["r", "w2"], ["y"], name="fc2")]
    return save(folder, "products", nodes, {"x": [m, k]}, {"y": [m, out]}, weights)


def attention(folder):
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"], name="attention", is_causal=1, q_num_heads=4,
                              kv_num_heads=2)]
    return save(folder, "attention", nodes, {"q": [2, 24, 32], "k": [2, 24, 16], "v": [2, 24, 16]}, {"y": [2, 24, 32]})


def collectives(out):
    plan = onnx.load(out / "plan.onnx")
    onnx.checker.check_model(plan)
    return collections.Counter(node.op_type for node in plan.graph.node if node.domain == "ai.autopar")


def executed(out, model, ranks):
    """By both executors; the price of the written strategy is the one that was claimed."""
    report = json.loads((out / "report.json").read_text())
    machine = next(out.parent.glob(f"cluster_{out.name.split('-')[1]}_*.json"))
    dims = ["--dim", "batch=8"] if model.name.startswith("exact") else []
    priced = json.loads(run("price", model, "--cluster", machine, *dims, "--strategy", out / "strategy.json", "--json").stdout)
    assert priced["seconds"] == report["cost"]["seconds"], (priced["seconds"], report["cost"]["seconds"])
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"
    if CHECK.exists() and "train" not in model.name:  # it makes no numbers of rank 0
        done = subprocess.run([sys.executable, CHECK, out / "plan.onnx", str(ranks), "--model", model],
                              capture_output=True, text=True)
        assert done.returncode == 0 and "PASSED" in done.stdout, (out.name, done.stdout[-2000:], done.stderr[-2000:])
    print(out.name, dict(collectives(out)), report["memory"]["peak_bytes"], "bytes")
    return report


def pinned(folder, model, machine, mesh, name, ops, *options):
    pins = folder / "pins.json"
    pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                                "ops": {op: {"assignment": assignment} for op, assignment in ops.items()}}))
    out = folder / name
    run("search", model, "--cluster", machine, "--mesh", mesh, "--pin", pins, "-o", out, *options)
    return out


def check_products(folder):
    model = products(folder, 24, 36, 12, 24)
    machine = cluster(folder, 3, 3)
    tiles = {"t1": "row", "t0": "col"}
    out = pinned(folder, model, machine, "3x3", "tiles-3x3", {"fc1": tiles, "fc2": {"t1": "col", "t0": "row"}})
    assert collectives(out)["Broadcast"] == 12, collectives(out)
    executed(out, model, 9)
    for wrong in ({"t1": "row"}, {"t1": "row", "t0": "k"}):
        pins = folder / "wrong.json"
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"fc1": {"assignment": wrong}}}))
        error = run("search", model, "--cluster", machine, "--mesh", "3x3", "--pin", pins, code=4).stderr
        assert "row (moving), col (moving)" in error and "factors that move together" in error, error


def check_gemms(folder):
    """Operands that are stored transposed; what is added to the product is added behind it."""
    weights = [numpy_helper.from_array(np.random.default_rng(i).standard_normal(shape).astype(np.float32) / 8, name)
               for i, (name, shape) in enumerate([("w1", (12, 36)), ("b1", (12,)), ("w2", (24, 24))])]
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1", transB=1, alpha=0.5),
             helper.make_node("Gemm", ["h", "x"], ["g"], name="fc2", transA=1),
             helper.make_node("Gemm", ["g", "x"], ["f"], name="fc3", transB=1),
             helper.make_node("Gemm", ["f", "w2"], ["y"], name="fc4")]
    model = save(folder, "gemms", nodes, {"x": [24, 36]}, {"y": [12, 24]}, weights)
    machine = cluster(folder, 3, 3)
    there, across = {"t1": "row", "t0": "col"}, {"t1": "col", "t0": "row"}
    out = pinned(folder, model, machine, "3x3", "gemms-3x3", {"fc1": there, "fc2": across, "fc3": there, "fc4": across})
    assert collectives(out)["Broadcast"] == 24, collectives(out)
    executed(out, model, 9)


def check_training(folder):
    """The tiles of the forward pass, whatever the backward pass does with them."""
    model = products(folder, 24, 36, 12, 24)
    out = pinned(folder, model, cluster(folder, 2, 2), "2x2", "step-2x2", {"fc1": {"t1": "row", "t0": "col"}}, "--train",
                 "--loss", "mse", "--optimizer", "adam")
    assert collectives(out)["Broadcast"] == 4, collectives(out)
    executed(out, out / "train.onnx", 4)


def check_attention(folder):
    model = attention(folder)
    out = pinned(folder, model, cluster(folder, 4), "4", "ring-4", {"attention": {"t0": "ring"}})
    assert collectives(out)["Permute"] == 6, collectives(out)
    executed(out, model, 4)
    out = pinned(folder, model, cluster(folder, 2, 4), "4x2", "ring-2x4", {"attention": {"t1": "ring", "t0": "kv"}})
    assert collectives(out)["Permute"] == 6, collectives(out)
    executed(out, model, 8)


def check_experts(folder):
    """Experts on the devices that split the batch: tokens go to them and come back by AllToAll, in both passes. With room for
    top-k of 4 experts times all tokens nothing is left out: exact routing."""
    machine = cluster(folder, 4, memory_bandwidth=1e9, flops=1e10, link=1e13, latency=1e-9)
    apart, ops = {"in_strategy": [[4, 1, 1, 1], [4, 1, 1, 1]]}, {}
    for w in ("w1", "w2", "w3"):
        ops[f"layers.0.moe.experts.{w}"] = {"in_strategy": [[1, 4, 1, 1], [4, 1, 1]]}
    pins = folder / "experts.json"
    pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {**ops, "layers.0.moe.send": apart}}))
    for name, factor, options in (("exact-4", 2, []), ("capacity-4", 1, ["--train", "--loss", "cross_entropy"])):
        model, out = folder / f"{name}.onnx", folder / name
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "1", "--hidden",
                        "32", "--heads", "4", "--feed-forward", "48", "--vocabulary", "64", "--sequence", "8", "--experts", "4",
                        "--top-k", "2", "--routing", "capacity", "--capacity-factor", str(factor), "-o", model],
                       check=True, capture_output=True)
        run("search", model, "--cluster", machine, "--dim", "batch=8", "--pin", pins, "-o", out, *options)
        sent = [node.name for node in onnx.load(out / "plan.onnx").graph.node if node.op_type == "AllToAll" and
                any(part in node.name for part in ("moe.send", "moe.experts", "moe.slots"))]
        assert len(sent) == (4 if options else 2), sent
        executed(out, out / "train.onnx" if options else model, 4)


def check_search(folder):
    """Under a limit that only tiles keep, they are found, and not asked for nothing is said to fit."""
    model = products(folder, 288, 288, 288, 288)
    machine = cluster(folder, 3, 3)
    found = {}
    for moving in ("off", "auto", "on"):
        found[moving] = folder / f"{moving}-3x3"
        run("search", model, "--cluster", machine, "--moving", moving, "-o", found[moving])
    ample = [json.loads((out / "report.json").read_text()) for out in found.values()]
    assert len({report["cost"]["seconds"] for report in ample}) == 1
    assert all("Broadcast" not in collectives(out) for out in found.values())
    limit = "350KiB"
    error = run("search", model, "--cluster", machine, "--memory", limit, "--moving", "off", "-o", folder / "none", code=3)
    assert "no plan fits" in error.stderr, error.stderr
    for moving in ("auto", "on"):
        out = folder / f"{moving}-3x3-limited"
        text = run("search", model, "--cluster", machine, "--memory", limit, "--moving", moving, "-o", out).stdout
        assert collectives(out)["Broadcast"] > 0
        assert moving == "on" or "with moving parts: " in text, text
        report = executed(out, model, 9)
        assert report["cost"]["seconds"] > ample[0]["cost"]["seconds"]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for check in (check_products, check_gemms, check_training, check_attention, check_experts, check_search):
            check(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
