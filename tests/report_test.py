"""What a report counts and says: caches are data, approximations are told, steps that send nothing are explained."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, *tiers, peaks=None, memory=1 << 30):
    path = folder / ("cluster_" + "x".join(map(str, tiers)) + ".json")
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "test", "memory_bytes": memory, "memory_bandwidth_bytes_per_s": 1e9, "peak_flops_per_s": peaks or {"float32": 1e9}},
        "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": 1e11, "latency_s": 1e-9} for i, n in enumerate(tiers)]}))
    return path


def save(folder, name, nodes, inputs, outputs, weights, dtype=FLOAT, metadata=None):
    value = lambda key, shape: helper.make_tensor_value_info(key, dtype, shape)
    tensors = [numpy_helper.from_array(np.full(shape, 0.01, helper.tensor_dtype_to_np_dtype(dtype)), key) if isinstance(shape, tuple)
               else numpy_helper.from_array(np.array(shape, np.int64), key) for key, shape in weights.items()]
    graph = helper.make_graph(nodes, name, [value(*i) for i in inputs.items()], [value(*o) for o in outputs.items()], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, metadata or {})
    onnx.save(made, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def report(out):
    return json.loads((out / "report.json").read_text())


def test_caches_are_data(folder):
    """A decoding step: its cache goes with the batch, so data parallelism splits it; a training step's weights do not."""
    batch, length, width = 8, 64, 16
    nodes = [helper.make_node("MatMul", ["x", "w"], ["k"], name="k"),
             helper.make_node("Concat", ["cache", "k"], ["longer"], name="append", axis=1),
             helper.make_node("Slice", ["longer", "one", "end", "one"], ["next"], name="shift"),
             helper.make_node("Identity", ["next"], ["present.cache"], name="keep"),
             helper.make_node("ReduceSum", ["next", "one"], ["y"], name="sum", keepdims=0)]
    out, machine = folder / "out", cluster(folder, 4)
    shapes = ({"x": [batch, 1, width], "cache": [batch, length, width]}, {"y": [batch, width], "present.cache": [batch, length, width]},
              {"w": (width, width), "one": [1], "end": [length + 1]})
    for name, metadata in (("untold", {}), ("told", {"data_inputs": "x,cache"})):
        path = save(folder, name, nodes, *shapes, metadata=metadata)
        run("search", path, "--cluster", machine, "--updates", "present.*", "-o", out)
        found = report(out)
        assert found["model"]["parameters"] == width * width, (name, found["model"])
        baseline = {b["name"]: b for b in found["baselines"]}["data_parallel"]
        whole = 4 * batch * length * width
        assert baseline["memory_bytes"] < whole, (name, baseline, whole)
    # Told otherwise, it is a parameter.
    path = save(folder, "weight", nodes, *shapes, metadata={"data_inputs": "x"})
    run("search", path, "--cluster", machine, "--updates", "present.*", "-o", out)
    assert report(out)["model"]["parameters"] == width * width + batch * length * width
    # x @ w, and w - x^T x: what is summed over the batch does not run along it.
    step = [helper.make_node("MatMul", ["x", "w"], ["y"], name="y"), helper.make_node("Transpose", ["x"], ["xt"], name="xt", perm=[1, 0]),
            helper.make_node("MatMul", ["xt", "x"], ["dw"], name="dw"), helper.make_node("Sub", ["w", "dw"], ["new.w"], name="update")]
    path = save(folder, "step", step, {"x": [batch, width], "w": [width, width]}, {"y": [batch, width], "new.w": [width, width]}, {})
    run("search", path, "--cluster", machine, "-o", out)
    assert report(out)["model"]["parameters"] == width * width, report(out)["model"]


def chain(folder, layers, width=64, dtype=FLOAT):
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], ["y" if i == layers - 1 else f"h{i + 1}"], name=f"fc{i}") for i in range(layers)]
    return save(folder, f"chain{layers}_{dtype}", nodes, {"x": [width, width]}, {"y": [width, width]}, {f"w{i}": (width, width) for i in range(layers)}, dtype)


def test_borrowed_peak(folder):
    out = folder / "out"
    machine = cluster(folder, 2, peaks={"float16": 4e9, "float32": 1e9})
    path = chain(folder, 3, dtype=DOUBLE)
    said = run("search", path, "--cluster", machine, "-o", out).stderr
    lines = [line for line in said.splitlines() if "peak_flops_per_s" in line]
    assert len(lines) == 1 and "float64" in lines[0] and str(machine) in lines[0] and "float32" in lines[0], said
    assert any("float64" in warning for warning in report(out)["warnings"])
    # Nothing to say of what is there, or of integers that only say where something is.
    said = run("search", chain(folder, 3), "--cluster", machine, "-o", out).stderr
    assert "peak_flops_per_s" not in said, said
    said = run("search", SOURCE / "models" / "gpt2_tiny.onnx", "--cluster", machine, "-o", out).stderr
    assert "peak_flops_per_s" not in said, said


def test_what_was_left_undone(folder):
    out = folder / "out"
    # Ties: one search per earlier choice, up to 500.
    for layers, told in ((2, False), (120, True)):
        done = run("search", chain(folder, layers), "--cluster", cluster(folder, 2, 2, 2), "--cost-model", "mindspore", "--searcher", "dp", "-o", out)
        assert ("500 searches" in done.stderr) == told, done.stderr
        assert any("500 searches" in warning for warning in report(out)["warnings"]) == told
    # Pins pick from a part of the assignments where there are too many.
    file = folder / "pins.json"
    for tiers, told in (((2, 4), False), ((16, 8), True)):
        parts = int(np.prod(tiers))
        path = chain(folder, 1, width=2 * parts)
        file.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"fc0": {"in_strategy": [[parts, 1], [1, 1]]}}}))
        done = run("search", path, "--cluster", cluster(folder, *tiers), "--cost-model", "mindspore", "--searcher", "dp", "--pin", file, "-o", out)
        assert ("too many assignments" in done.stderr) == told, (tiers, done.stderr)


def test_local_steps_are_explained(folder):
    out, file = folder / "out", folder / "pins.json"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Add", ["p", "c"], ["y"], name="sum")]
    path = save(folder, "partial", nodes, {"x": [64, 64], "c": [64, 64]}, {"y": [64, 64]}, {"w": (64, 64)})
    file.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                                "ops": {"product": {"assignment": {"t0": "k"}}, "sum": {"assignment": {"t0": "partial0"}}}}))
    table = run("apply", path, "--cluster", cluster(folder, 4), "--strategy", file, "--io", "full", "-o", out).stdout
    row = [line for line in table.splitlines() if line.strip().startswith("MakePartial")]
    assert len(row) == 1 and "starts a partial sum" in row[0], table
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print(name, "ok", flush=True)


main()
