"""Images split over ranks, which exchange halos: a convolutional net with pinned spatial splits runs on 2, 3 and 4 ranks, by
`autopar run` and by an executor that shares no code with it, and costs what the search says."""
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

MACHINE = {"flops": 1e11, "memory_bandwidth": 1e10, "link": 1e10, "slower": 1}
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CHECK = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "tools" / "spmd_check.py"


def net(folder):
    """Strides, dilations, asymmetric padding, groups, pools of all kinds, up and down again."""
    random = np.random.default_rng(3)
    nodes, weights = [], []

    def weight(name, *shape):
        weights.append(numpy_helper.from_array((random.standard_normal(shape) / 3).astype(np.float32), name))
        return name

    def op(name, kind, inputs, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name + ".out"], name=name, **attributes))
        return name + ".out"

    x = op("stem", "Conv", ["x", weight("stem.w", 4, 3, 5, 5), weight("stem.b", 4)], strides=[1, 1], pads=[2, 2, 2, 2])
    x = op("relu", "Relu", [x])
    x = op("max", "MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = op("wide", "Conv", [x, weight("wide.w", 4, 2, 3, 3)], dilations=[2, 2], pads=[2, 2, 2, 2], group=2)
    x = op("norm", "InstanceNormalization", [x, weight("norm.s", 4), weight("norm.b", 4)])
    x = op("mean", "AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = op("patch", "Conv", [x, weight("patch.w", 4, 4, 2, 2)], strides=[2, 2])
    x = op("up", "ConvTranspose", [x, weight("up.w", 4, 4, 4, 4)], strides=[2, 2], pads=[1, 1, 1, 1])
    x = op("skew", "Conv", [x, weight("skew.w", 4, 4, 2, 2)], auto_pad="SAME_UPPER")
    op("out", "GlobalAveragePool", [x])
    graph = helper.make_graph(
        nodes, "halo", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3, 48, 32])],
        [helper.make_tensor_value_info("skew.out", onnx.TensorProto.FLOAT, [2, 4, 24, 16]),
         helper.make_tensor_value_info("out.out", onnx.TensorProto.FLOAT, [2, 4, 1, 1])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    path = folder / "halo.onnx"
    onnx.save(model, path)
    return path


WITH_HALO = ("stem", "max", "wide", "mean", "up", "skew")
NO_HALO = ("relu", "norm", "patch")


def check(folder, model, tiers, counts):
    name = "x".join(map(str, tiers)) + "_" + "".join(map(str, counts))
    pin = folder / f"pin_{name}.json"
    pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                               "ops": {op: {"in_strategy": [counts]} for op in WITH_HALO + NO_HALO}}))
    out, machine, devices = folder / name, cluster(folder, *tiers, **MACHINE), int(np.prod(tiers))
    run("search", model, "--cluster", machine, "-o", out, "--pin", pin)
    report = json.loads((out / "report.json").read_text())
    strategy = out / "strategy.json"
    for op in WITH_HALO + NO_HALO:
        found = json.loads(strategy.read_text())["ops"][op]["in_strategy"][0]
        assert found == counts, (name, op, found)
    priced = json.loads(run("price", model, "--cluster", machine, "--strategy", strategy, "--json").stdout)
    assert priced["seconds"] == report["cost"]["seconds"], (name, priced["seconds"], report["cost"]["seconds"])
    plan = onnx.load(out / "plan.onnx")
    onnx.checker.check_model(plan)
    gathers = [node for node in plan.graph.node if node.op_type == "AllGather" and node.domain == "ai.autopar"]
    dims = sum(n > 1 for n in counts[2:])
    assert len(gathers) >= dims * len(WITH_HALO), (name, len(gathers))
    done = run("run", out)
    assert done.stdout.splitlines()[-1] == "PASSED", (name, done.stdout)
    checked = ""
    if CHECK.exists():
        done = subprocess.run([sys.executable, CHECK, out / "plan.onnx", str(devices), "--model", model],
                              capture_output=True, text=True)
        assert done.returncode == 0 and "PASSED" in done.stdout, (name, done.stdout[-2000:], done.stderr[-2000:])
        checked = ", also in the other executor"
    print(f"{name}: {len(gathers)} AllGathers, {report['memory']['peak_bytes']} bytes{checked}")


def check_thin(folder, model):
    """Windows of 5 reach 2 rows over a part's end: parts of 2 rows can be had, parts of 1 cannot."""
    for counts, code in (([1, 1, 24, 1], 0), ([1, 1, 1, 32], 4)):
        pin = folder / "thin.json"
        pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"stem": {"in_strategy": [counts]}}}))
        done = run("search", model, "--cluster", cluster(folder, max(counts), **MACHINE), "-o", folder / "thin", "--pin", pin, code=code)
        assert code == 0 or "stem" in done.stderr and "has 1 of 32 rows" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = net(folder)
        check(folder, model, (2,), [1, 1, 2, 1])
        check(folder, model, (3,), [1, 1, 3, 1])
        check(folder, model, (4,), [1, 1, 4, 1])
        check(folder, model, (4,), [1, 1, 1, 4])
        check(folder, model, (2, 2), [1, 1, 2, 2])
        check_thin(folder, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
