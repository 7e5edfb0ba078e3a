"""What `autopar run` lets pass: by output, with an excuse only behind an op that compares or rounds real numbers."""
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.program import AUTOPAR, cluster, run


def tensor(name, *shape, dtype="float32"):
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def op(name, kind, inputs, outputs):
    return {"name": name, "type": kind, "inputs": inputs, "outputs": outputs, "attributes": {}}


def planned(folder):
    """`plain` is a product; `behind` is one of what a comparison picks from it, as the gradient of a ReLU does."""
    model = folder / "picks.json"
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "picks",
        "inputs": [tensor("x", 32, 64), tensor("zero", 1)], "parameters": [tensor("w", 64, 64), tensor("v", 64, 64)],
        "ops": [op("first", "MatMul", ["x", "w"], ["h"]), op("plain", "MatMul", ["h", "v"], ["plain"]),
                op("picks", "Greater", ["h", "zero"], ["positive"]), op("mask", "Where", ["positive", "h", "zero"], ["masked"]),
                op("behind", "MatMul", ["masked", "v"], ["behind"])],
        "outputs": ["plain", "behind"]}))
    run("search", model, "--cluster", cluster(folder, 4), "-o", folder / "plan", "-q")
    run("run", folder / "plan", "--save", folder / "right.npz")
    return folder / "plan"


def with_outputs(folder, name, **changes):
    """The outputs of a right run, some of them changed: what a wrong plan looks like from the other side."""
    arrays = dict(np.load(folder / "right.npz"))
    for output, change in changes.items():
        arrays["out." + output] = change(arrays["out." + output])
    np.savez(folder / name, **arrays)
    return folder / name


def tail_scaled(array):
    """Half a percent too large in a sixth of the elements: far more than rounding, less than what is excused."""
    array = array.copy()
    array[-len(array) // 6:] *= 1.005
    return array


def test_one_output_does_not_excuse_another(folder):
    plan = planned(folder)
    assert run("run", plan, "--strict").stdout.splitlines()[-1] == "PASSED"
    wrong = with_outputs(folder, "plain.npz", plain=tail_scaled)
    for options in ([], ["--strict"]):
        done = run("run", plan, "--data", wrong, *options, code=1)
        assert done.stdout.splitlines()[-1] == "FAILED" and "differs from the data" in done.stdout, done.stdout
        assert "|difference| <= " in done.stdout, done.stdout


def test_what_is_excused_is_said(folder):
    plan = planned(folder)
    data = with_outputs(folder, "behind.npz", behind=tail_scaled)
    done = run("run", plan, "--data", data)
    lines = done.stdout.splitlines()
    assert lines[-1] == "PASSED" and "elements of 1 output are excused" in lines[-2], done.stdout
    assert "for 'behind': Greater 'picks'" in lines[-2] and "--strict" in lines[-2], lines[-2]
    told = {o["name"]: o for o in json.loads(run("run", plan, "--data", data, "--json").stdout)["outputs"]}
    assert told["behind"]["excused_elements"] > 0 and told["behind"]["jump"] == "Greater 'picks'", told
    assert told["plain"]["excused_elements"] == 0 and told["plain"]["jump"] == "", told
    assert run("run", plan, "--data", data, "--strict", code=1).stdout.splitlines()[-1] == "FAILED"
    # A right plan needs no excuse, and says nothing of one.
    assert "excused" not in run("run", plan).stdout


def test_nothing_needs_a_temporary_file(folder):
    """The reference of a graph.json and what calibrate times run from memory."""
    plan = planned(folder)
    nowhere = {**os.environ, "TMPDIR": str(folder / "nowhere")}
    for arguments in (["run", plan], ["calibrate", "--quick", "--ranks", "2", "-o", folder / "here.json"]):
        done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True, env=nowhere)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    assert not (folder / "nowhere").exists()


def test_outputs_that_are_inputs(folder):
    """An output that is an input or a weight, too, is called otherwise in the plan, and is compared with it."""
    model = folder / "through.json"
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "through", "inputs": [tensor("x", 8, 16)], "parameters": [tensor("w", 16, 16)],
        "ops": [op("fc", "MatMul", ["x", "w"], ["y"])], "outputs": ["y", "x", "w"]}))
    run("search", model, "--cluster", cluster(folder, 4), "-o", folder / "through", "-q")
    said = run("run", folder / "through", "--save", folder / "through.npz").stdout
    assert said.splitlines()[-1] == "PASSED" and "w/output" in said, said
    given = dict(np.load(folder / "through.npz"))
    given["out.w"] = given.pop("out.w/output") * 1.1
    np.savez(folder / "wrong.npz", **given)
    done = run("run", folder / "through", "--data", folder / "wrong.npz", code=1)
    assert "differs from the data" in done.stdout, done.stdout


def test_a_plan_of_another_batch(folder):
    """What it is compared with then has the plan's batch."""
    graph = {"format": "autopar-graph", "version": 1, "name": "batch", "inputs": [tensor("x", 8, 16)], "parameters": [tensor("w", 16, 16)],
             "ops": [op("fc", "MatMul", ["x", "w"], ["y"])], "outputs": ["y"]}
    (folder / "batch.json").write_text(json.dumps(graph))
    for model in (folder / "batch.json", pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models" / "mlp.onnx"):
        run("search", model, "--cluster", cluster(folder, 4), "--batch", 32, "-o", folder / "batch", "-q")
        for more in ((), ("--model", model)):
            assert run("run", folder / "batch", *more).stdout.splitlines()[-1] == "PASSED"


def test_updates_that_are_none(folder):
    """A pattern that names no pair is told of; a next value of another shape is no next value."""
    model = folder / "cache.json"
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "cache", "inputs": [tensor("x", 4, 1, 8), tensor("past", 4, 3, 8)],
        "ops": [{**op("grow", "Concat", ["past", "x"], ["new.past"]), "attributes": {"axis": 1}}], "outputs": ["new.past"]}))
    search = ("search", model, "--cluster", cluster(folder, 2), "-o", folder / "cache", "-q")
    assert run(*search).stderr == ""
    assert "PASSED" in run("run", folder / "cache", "--steps", 2, "-q").stdout
    for pattern in ("present.*", "*.next"):
        for command in (search[:-1], ("run", folder / "cache")):
            said = run(*command, "--updates", pattern).stderr
            assert f"--updates {pattern} names no pair" in said, (command, said)


def test_symbolic_graph_json(folder):
    """The model that a plan is compared with has the same sizes as the plan."""
    model = folder / "symbolic.json"
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "symbolic", "inputs": [tensor("x", "batch", 64)], "parameters": [tensor("w", 64, 32)],
        "ops": [op("fc", "MatMul", ["x", "w"], ["y"])], "outputs": ["y"]}))
    run("search", model, "--cluster", cluster(folder, 2), "-o", folder / "plan", "--dim", "batch=8", "-q")
    assert run("run", folder / "plan", "--dim", "batch=8").stdout.splitlines()[-1] == "PASSED"


def test_steps_of_gradients_that_are_rounding(folder):
    """Adam divides by the gradient's size, so of one that is nothing but rounding its sign is left: any step is right, of others one."""
    model, out = folder / "model.onnx", folder / "step"
    onnx.save(helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])], [numpy_helper.from_array(np.ones((16, 16), np.float32), "w")]),
        opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    run("search", model, "--cluster", cluster(folder, 4), "--train", "--loss", "sum", "--optimizer", "adamw", "-o", out, "-q")
    data = np.random.default_rng(1).uniform(1, 2, (8, 16)).astype(np.float32)
    data[:, 3] = 1e-9
    arrays = {"in.x": data, "in.w": np.ones((16, 16), np.float32), "in.adam.step": np.zeros((), np.float32), "in.learning_rate": np.float32(1e-3),
              "in.adam.m.w": np.zeros((16, 16), np.float32), "in.adam.v.w": np.zeros((16, 16), np.float32)}
    np.savez(folder / "in.npz", **arrays)
    run("run", out, "--data", folder / "in.npz", "--save", folder / "out.npz", "-q")
    with np.load(folder / "out.npz") as saved:
        right = dict(saved)
    for row, code, options in ((3, 0, ()), (3, 1, ("--strict",)), (4, 1, ())):
        other = right["out.new.w"].copy()
        other[row, 5] = 2 - other[row, 5]
        np.savez(folder / "other.npz", **arrays, **{**right, "out.new.w": other})
        said = run("run", out, "--data", folder / "other.npz", *options, code=code).stdout
        assert ("of 1 output are excused" in said) == (code == 0), said
        assert said.splitlines()[-1] == ("PASSED" if code == 0 else "FAILED"), said


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print("ok", name)


if __name__ == "__main__":
    main()
