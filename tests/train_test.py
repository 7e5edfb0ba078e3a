"""Training steps of forward models: planned, run against the unsharded step, written alike by apply; what is refused."""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.program import AUTOPAR, cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared")
MACHINE = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e9, "slower": 4}
OWN = {"mlp": "mse", "gpt2_tiny": "cross_entropy", "llama_tiny": "cross_entropy"}
OTHERS = {"tiny_llama": "cross_entropy", "tiny_bert": "cross_entropy:logits", "tiny_resnet": "cross_entropy", "tiny_unet3d": "mse",
          "tiny_moe_gather": "cross_entropy", "tiny_dlrm": "loss"}


def failed(*arguments):
    """The message and exit code of a command that must fail."""
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stderr


def pairwise(*columns):
    """Rows so that every pair of values of two columns stands in one of them."""
    left = {(i, a, j, b) for i, j in itertools.combinations(range(len(columns)), 2) for a in columns[i] for b in columns[j]}
    rows = []
    while left:
        best, most = None, -1
        for row in itertools.product(*columns):
            new = sum((i, row[i], j, row[j]) in left for i, j in itertools.combinations(range(len(columns)), 2))
            if new > most:
                best, most = row, new
        rows.append(best)
        left -= {(i, best[i], j, best[j]) for i, j in itertools.combinations(range(len(columns)), 2)}
    return rows


def model_of(name):
    return SOURCE / "models" / f"{name}.onnx" if name in OWN else SHARED / "data" / "models" / f"{name}.onnx"


def test_plans_run(folder):
    names = list(OWN) + [n for n in OTHERS if model_of(n).exists()]
    if len(names) == len(OWN):
        print(f"models outside the repository are not there: skipped ({SHARED}/data/models)")
    rows = pairwise(names, ("sgd", "momentum", "adam", "adamw", "none"), ("fp32", "mixed-fp16", "fp16"),
                    ((4,), (2, 2), (4, 2)), ("auto", "data_parallel", "rec"), ("", "--clip-norm"), ("none", "cheap"))
    for number, (name, optimizer, precision, mesh, searcher, clip, recompute) in enumerate(rows):
        if name == "tiny_dlrm" and precision == "fp16":
            precision = "mixed-fp16"  # in float16 one unit in a twentieth of its weights moves its gradients by up to a fifth
        out = folder / f"plan{number}"
        arguments = ["--loss", {**OWN, **OTHERS}[name], "--optimizer", optimizer, "--precision", precision]
        arguments += [clip, "0.5"] if clip else []
        machine = cluster(folder, *mesh, **MACHINE)
        run("search", model_of(name), "--cluster", machine, "--train", *arguments, "--searcher", searcher,
            "--recompute", recompute, "-o", out, "-q")
        last = run("run", out).stdout.splitlines()[-1]
        assert last == "PASSED", (name, optimizer, precision, mesh, searcher, clip, recompute, last)
        given = folder / f"given{number}"
        run("apply", out / "train.onnx", "--cluster", machine, "--strategy", out / "strategy.json", "-o", given, "-q")
        assert (given / "plan.onnx").read_bytes() == (out / "plan.onnx").read_bytes(), (name, searcher)
    print(f"{len(rows)} combinations")


def test_the_step_is_what_is_planned(folder):
    """grad writes what search --train plans, and the same bytes each time."""
    machine = cluster(folder, 2, **MACHINE)
    model = model_of("llama_tiny")
    options = ["--loss", "cross_entropy", "--optimizer", "adamw"]
    run("grad", model, *options, "-o", folder / "a.onnx", "-q")
    run("grad", model, *options, "-o", folder / "b.onnx", "-q")
    run("search", model, "--cluster", machine, "--train", *options, "-o", folder / "out", "-q")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes() == (folder / "out" / "train.onnx").read_bytes()
    step = onnx.load(folder / "a.onnx")
    facts = json.loads({p.key: p.value for p in step.metadata_props}["autopar.training"])
    inputs = [i.name for i in step.graph.input]
    assert inputs == facts["data"] + facts["parameters"] + facts["statistics"] + facts["states"], inputs
    outputs = [o.name for o in step.graph.output]
    changed = set(facts["parameters"]) | set(facts["states"]) - {"learning_rate"}
    assert outputs[0] == facts["loss"] == "loss" and {o[4:] for o in outputs[1:]} == changed, outputs


def test_bfloat16_is_float16_with_another_type(folder):
    for mixed in "", "mixed-":
        steps = {}
        for kind in "bf16", "fp16":
            path = folder / f"{kind}.onnx"
            run("grad", model_of("llama_tiny"), "--loss", "cross_entropy", "--optimizer", "none", "--precision", mixed + kind, "-o", path, "-q")
            steps[kind] = onnx.load(path)
        # Loss scaling is fp16's alone: its ops are those that are more.
        def types(step, narrow):
            found = {}
            for value in list(step.graph.value_info) + list(step.graph.input):
                kind = value.type.tensor_type.elem_type
                found[value.name.replace("bf16.", "x.").replace("fp16.", "x.")] = "narrow" if kind == narrow else kind
            return found
        first, second = types(steps["bf16"], TensorProto.BFLOAT16), types(steps["fp16"], TensorProto.FLOAT16)
        forward = [n for n in first if ".grad" not in n and ".update" not in n and n in second and not n.startswith("loss")]
        assert len(forward) > 60 and all(first[n] == second[n] for n in forward)
        assert sum(kind == "narrow" for kind in first.values()) > 60


def model(folder, nodes, inputs, outputs, initializers, name="model.onnx", opset=18, data=None):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                              [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
                              [numpy_helper.from_array(a, n) for n, a in initializers])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    if data is not None:
        entry = made.metadata_props.add()
        entry.key, entry.value = "data_inputs", data
    onnx.save(made, folder / name)
    return folder / name


def linear(folder, **options):
    weight = np.ones((3, 2), np.float32)
    return model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
                 [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2])], [("w", weight)], **options)


def test_refusals(folder):
    plain, out = linear(folder), folder / "step.onnx"

    def refused(code, *words, arguments):
        found, message = failed("grad", *arguments, "-o", out)
        assert found == code and all(word in message for word in words), (found, message)
        assert not out.exists()

    refused(2, "which loss", "'y'", arguments=[plain])
    refused(2, "no output 'z'", arguments=[plain, "--loss", "z"])
    refused(2, "[4,2]", "one number", arguments=[plain, "--loss", "y"])
    refused(2, "--freeze", "'v*'", "'w'", arguments=[plain, "--loss", "sum", "--freeze", "v*"])
    refused(2, "--betas", arguments=[plain, "--loss", "sum", "--betas", "0.9"])
    refused(4, "nothing to train", arguments=[plain, "--loss", "sum", "--freeze", "w"])
    refused(4, "no input 'q'", arguments=[plain, "--loss", "sum", "--data-inputs", "q"])
    # Through integers no gradient comes.
    integers = model(folder, [helper.make_node("Cast", ["w"], ["i"], to=TensorProto.INT64, name="whole"),
                              helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT, name="back"),
                              helper.make_node("MatMul", ["x", "f"], ["y"], name="product")],
                     [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2])], [("w", np.ones((3, 2), np.float32))])
    refused(4, "no gradient", "'w'", arguments=[integers, "--loss", "sum"])
    # The op without a gradient, its type, and the way from it.
    quantised = model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
                               helper.make_node("DynamicQuantizeLinear", ["y"], ["q", "scale", "zero"], name="quantise"),
                               helper.make_node("Mul", ["y", "scale"], ["z"], name="scaled"),
                               helper.make_node("ReduceSum", ["z"], ["loss"], keepdims=0, name="sum")],
                      [("x", TensorProto.FLOAT, [4, 3])], [("loss", TensorProto.FLOAT, [])], [("w", np.ones((3, 2), np.float32))])
    refused(4, "'quantise'", "DynamicQuantizeLinear", "'scaled' -> 'sum'", arguments=[quantised])
    taken = model(folder, [helper.make_node("MatMul", ["x", "w"], ["labels"], name="product")],
                  [("x", TensorProto.FLOAT, [4, 3])], [("labels", TensorProto.FLOAT, [4, 2])], [("w", np.ones((3, 2), np.float32))])
    refused(2, "'labels'", arguments=[taken, "--loss", "mse"])
    state = model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
                           helper.make_node("Relu", ["h"], ["adam.step"], name="relu")],
                  [("x", TensorProto.FLOAT, [4, 3])], [("adam.step", TensorProto.FLOAT, [4, 2])], [("w", np.ones((3, 2), np.float32))])
    refused(4, "'adam.step'", arguments=[state, "--loss", "sum", "--optimizer", "adam"])
    machine = cluster(folder, 2, **MACHINE)
    code, message = failed("search", plain, "--cluster", machine, "--optimizer", "sgd", "-o", folder / "none")
    assert code == 2 and "--optimizer" in message and "--train" in message, message


def test_batch(folder):
    """--batch sets a number or a symbol; what holds the old size is an error that says where."""
    def shape_of(path, name):
        return [d.dim_value for d in next(i for i in onnx.load(path).graph.input if i.name == name).type.tensor_type.shape.dim]

    out = folder / "step.onnx"
    run("grad", linear(folder), "--loss", "mse", "--batch", 10, "-o", out, "-q")
    assert shape_of(out, "x") == [10, 3] and shape_of(out, "labels") == [10, 2]
    symbolic = onnx.load(linear(folder))
    for value in (symbolic.graph.input[0], symbolic.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(symbolic, folder / "symbolic.onnx")
    run("grad", folder / "symbolic.onnx", "--loss", "mse", "--batch", 6, "-o", out, "-q")
    assert shape_of(out, "x") == [6, 3]
    baked = model(folder, [helper.make_node("Reshape", ["x", "shape"], ["r"], name="fold"),
                           helper.make_node("MatMul", ["r", "w"], ["y"], name="product")],
                  [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2])],
                  [("w", np.ones((3, 2), np.float32)), ("shape", np.array([4, 3], np.int64))])
    code, message = failed("grad", baked, "--loss", "sum", "--batch", 8, "-o", folder / "none.onnx")
    assert code == 4 and "'fold'" in message and "--batch 8" in message, message
    both = model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("Add", ["y", "b"], ["z"], name="add")],
                 [("x", TensorProto.FLOAT, [4, 3]), ("b", TensorProto.FLOAT, [1, 2])], [("z", TensorProto.FLOAT, [4, 2])],
                 [("w", np.ones((3, 2), np.float32))])
    code, message = failed("grad", both, "--loss", "sum", "--batch", 8, "-o", folder / "none.onnx")
    assert code == 2 and "'x'" in message and "'b'" in message, message


def test_opset(folder):
    """Gradients of a look-up are added, which ONNX can since opset 16."""
    table = model(folder, [helper.make_node("Gather", ["w", "i"], ["y"], name="look")], [("i", TensorProto.INT64, [5])],
                  [("y", TensorProto.FLOAT, [5, 2])], [("w", np.ones((3, 2), np.float32))], opset=13)
    done = run("grad", table, "--loss", "sum", "-o", folder / "step.onnx")
    assert "opset" in done.stderr and onnx.load(folder / "step.onnx").opset_import[0].version == 16, done.stderr


def main():
    for test in (test_refusals, test_batch, test_opset, test_the_step_is_what_is_planned, test_bfloat16_is_float16_with_another_type, test_plans_run):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
