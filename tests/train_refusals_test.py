"""What forward models, batches and options make a training step, and what is refused: messages that say where."""
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.program import cluster, run
from tools.trained_steps import MACHINE, check_independently, failed, linear, model


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
    refused(2, "--betas", arguments=[plain, "--loss", "sum", "--optimizer", "adam", "--betas", "0.9"])
    for optimizer, option, value in (("sgd", "--betas", "0.9,0.9"), ("momentum", "--eps", 1e-5), ("adam", "--momentum", 0.5)):
        refused(2, option, f"not with {optimizer}", arguments=[plain, "--loss", "sum", "--optimizer", optimizer, option, value])
    for option in "--lr", "--weight-decay", "--clip-norm":
        refused(2, option, "--optimizer none", arguments=[plain, "--loss", "sum", "--optimizer", "none", option, 0.5])
    refused(2, "--batch-dim", "--batch", arguments=[plain, "--loss", "sum", "--batch-dim", 0])
    run("grad", plain, "--loss", "sum", "--optimizer", "sgd", "--momentum", 0.5, "-o", folder / "momentum.onnx", "-q")
    assert "sgd.m.w" in {value.name for value in onnx.load(folder / "momentum.onnx").graph.input}
    refused(4, "nothing to train", arguments=[plain, "--loss", "sum", "--freeze", "w"])
    refused(4, "no input 'q'", arguments=[plain, "--loss", "sum", "--data-inputs", "q"])
    refused(2, "--parameters", "'v*'", "'w'", arguments=[plain, "--loss", "sum", "--parameters", "v*"])
    refused(2, "no data input has a dimension 2", arguments=[plain, "--loss", "sum", "--batch", 8, "--batch-dim", 2])
    # A loss that depends on no parameter.
    apart = model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
                           helper.make_node("ReduceSum", ["x"], ["loss"], keepdims=0, name="sum")],
                  [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2]), ("loss", TensorProto.FLOAT, [])], [("w", np.ones((3, 2), np.float32))])
    refused(4, "no gradient", "'w'", arguments=[apart])
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


def test_nothing_asked(folder):
    """Of a model that has its own loss, with no option but --train: apply and price read what search writes."""
    own = model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
                         helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0, name="mean")],
                [("x", TensorProto.FLOAT, [4, 3])], [("loss", TensorProto.FLOAT, [])], [("w", np.ones((3, 2), np.float32))])
    on = "--cluster", cluster(folder, 2)
    run("search", own, *on, "--train", "-o", folder / "searched", "-q")
    strategy = folder / "searched" / "strategy.json"
    run("apply", own, *on, "--strategy", strategy, "-o", folder / "applied", "-q")
    assert strategy.read_bytes() == (folder / "applied" / "strategy.json").read_bytes()
    run("price", own, *on, "--strategy", strategy, "-q")
    changed = json.loads(strategy.read_text())
    changed["training"]["optimizer"]["name"] = 1
    strategy.write_text(json.dumps(changed))
    code, message = failed("apply", own, *on, "--strategy", strategy, "-o", folder / "refused")
    assert code == 4 and "training: type must be string, but is number" in message and not (folder / "refused").exists(), message


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


def test_parameters_without_a_gradient(folder):
    """They are listed, stay as they are, and the others are trained."""
    path = model(folder, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("MatMul", ["x", "v"], ["z"], name="other")],
                 [("x", TensorProto.FLOAT, [4, 3])], [("y", TensorProto.FLOAT, [4, 2]), ("z", TensorProto.FLOAT, [4, 2])],
                 [("w", np.ones((3, 2), np.float32)), ("v", np.ones((3, 2), np.float32))])
    done = run("grad", path, "--loss", "sum:y", "-o", folder / "step.onnx", "--json")
    assert "no gradient reaches v" in done.stderr and json.loads(done.stdout)["unreached"] == ["v"], done
    assert [o.name for o in onnx.load(folder / "step.onnx").graph.output] == ["loss", "new.w"]


def test_trained_inputs_are_no_data(folder):
    """A weight that is a graph input has no batch, where --parameters names it and nobody says what is data."""
    machine = cluster(folder, 2, **MACHINE)
    for rows in (8, 6):  # as long as the batch, and not
        path = model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"), helper.make_node("Tanh", ["h"], ["y"], name="act")],
                     [("x", TensorProto.FLOAT, [8, rows]), ("w", TensorProto.FLOAT, [rows, 4])], [("y", TensorProto.FLOAT, [8, 4])], [])
        for options in (["--micro-batches", "2"], ["--batch", "16"]):
            out = folder / "trained"
            run("search", path, "--cluster", machine, "--train", "--loss", "mse", "--parameters", "w", *options, "-q", "-o", out)
            step = onnx.load(out / "train.onnx")
            shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in step.graph.input}
            assert shapes["w"] == [rows, 4] and shapes["x"] == [16 if "--batch" in options else 8, rows], shapes
            run("run", out, "-q")


def test_micro_batches_refused(folder):
    machine, out = cluster(folder, 2, **MACHINE), folder / "none"

    def refused(code, *words, arguments):
        found, message = failed("search", *arguments, "--cluster", machine, "-o", out)
        assert found == code and all(word in message for word in words), (found, message)
        assert not out.exists()

    plain = linear(folder)
    train = [plain, "--train", "--loss", "mse"]
    refused(2, "--micro-batches 3", "batch of 4", "1, 2, 4", arguments=[*train, "--micro-batches", 3])
    refused(2, "--micro-batches 5", "batch of 12", "1, 2, 3, 4, 6, 12", arguments=[*train, "--micro-batches", 5, "--batch", 12])
    for count in ("0", "-1", "2.5", "many"):
        refused(2, f"'{count}'", "a number, or auto", arguments=[*train, "--micro-batches=" + count])
    refused(2, "--optimizer", "--train", arguments=[plain, "--micro-batches", 2, "--optimizer", "sgd"])
    for option, value in (("--io", "full"), ("--dialect", "ort")):
        refused(2, f"{option} {value}" if option != "--dialect" else option, "several micro-batches", arguments=[*train, "--micro-batches", 2, option, value])
    refused(2, "no data input has a dimension 2", arguments=[*train, "--micro-batches", 2, "--batch-dim", 2])
    taken = model(folder, [helper.make_node("MatMul", ["x", "acc.w"], ["y"], name="product"), helper.make_node("MatMul", ["y", "w"], ["z"], name="second")],
                  [("x", TensorProto.FLOAT, [4, 3])], [("z", TensorProto.FLOAT, [4, 2])], [("acc.w", np.ones((3, 3), np.float32)), ("w", np.ones((3, 2), np.float32))])
    refused(4, "'acc.w'", "rename", arguments=[taken, "--train", "--loss", "mse", "--micro-batches", 2])
    # What was planned of the whole step and of parts of it are not the same.
    linear(folder)
    run("search", *train, "--cluster", machine, "--micro-batches", 2, "-o", folder / "plan", "-q")
    code, message = failed("apply", folder / "plan" / "train.onnx", "--cluster", machine, "--strategy", folder / "plan" / "strategy.json", "-o", out)
    assert code == 2 and "2 passes" in message and "forward model" in message, message
    # The state of another optimizer, or of other parameters.
    for name, arrays, told in (("momentum", {"w": np.ones((3, 2)), "sgd.m.w": np.ones((3, 2))}, "the step has no 'sgd.m.w'"),
                               ("other", {"weight": np.ones((3, 2))}, "the file lacks 'w'")):
        np.savez(folder / f"{name}.npz", **{n: a.astype(np.float32) for n, a in arrays.items()})
        code, message = failed("run", folder / "plan", "--weights-from", folder / f"{name}.npz")
        assert code == 4 and told in message, message


def test_losses_of_the_passes_are_combined(folder):
    """As the model combines its samples: else the step would be another one than that of the whole batch."""
    machine = cluster(folder, 2, **MACHINE)
    path = model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"), helper.make_node("Mul", ["h", "h"], ["q"], name="square"),
                          helper.make_node("ReduceSum", ["q"], ["total"], name="add", keepdims=0), helper.make_node("ReduceMean", ["q"], ["mean"], name="average", keepdims=0),
                          helper.make_node("ReduceMean", ["q", "first"], ["each"], name="of_features", keepdims=0)],
                 [("x", TensorProto.FLOAT, [8, 3])], [("q", TensorProto.FLOAT, [8, 2]), ("total", TensorProto.FLOAT, []), ("mean", TensorProto.FLOAT, []), ("each", TensorProto.FLOAT, [2])],
                 [("w", np.ones((3, 2), np.float32)), ("first", np.array([0], np.int64))])
    search = ("search", path, "--cluster", machine, "--train", "-q", "-o", folder / "combined")
    for loss in ("mean", "sum:total", "sum:q", "mse:q"):
        run(*search, "--loss", loss, "--micro-batches", 2)
        run("run", folder / "combined", "-q")
    for loss, op, advice in (("total", "'add' (ReduceSum) adds up", "--loss sum:total"), ("sum:mean", "'average' (ReduceMean) averages", "--loss mean"),
                             ("sum:each", "'of_features' (ReduceMean) averages", "--micro-batches 1"), ("mse:each", "no dimension of the batch", "--micro-batches 1")):
        code, message = failed(*search, "--loss", loss, "--micro-batches", 2)
        assert code == 2 and op in message and message.rstrip().endswith(advice), (loss, message)
    # One pass is that of the whole batch in any case.
    for loss in ("total", "sum:mean", "mse:each"):
        run(*search, "--loss", loss)
        run("run", folder / "combined", "-q")


def test_own_batch_in_a_shape(folder):
    """Where another dimension would take up the difference, samples would lie among others: an error, or passes of the own batch."""
    def folded(own, target):
        return model(folder, [helper.make_node("Reshape", ["x", "shape"], ["r"], name="fold"), helper.make_node("MatMul", ["r", "w"], ["h"], name="product"),
                              helper.make_node("Softmax", ["h"], ["y"], axis=1, name="among")],
                     [("x", TensorProto.FLOAT, [own, 6, 4])], [("y", TensorProto.FLOAT, None)],
                     [("w", np.ones((2, 2), np.float32)), ("shape", np.array(target, np.int64))])

    machine, out = cluster(folder, 2, **MACHINE), folder / "none"
    for own, target in ((4, [4, -1, 2]), (1, [1, -1, 2])):
        for batch in (8, 2):
            path = folded(own, target)
            code, message = failed("grad", path, "--loss", "mse", "--batch", batch, "-o", folder / "none.onnx")
            assert code == 4 and "'fold'" in message and f"--batch {batch}" in message, message
            assert not (folder / "none.onnx").exists()
    code, message = failed("search", folded(4, [4, -1, 2]), "--cluster", machine, "--batch", 8, "-o", out)
    assert code == 4 and "'fold'" in message, message
    # In passes the shape is stated anew; what is told by the input stays.
    for number, (own, target, passes) in enumerate(((4, [4, -1, 2], 2), (4, [4, -1, 2], 4), (4, [0, -1, 2], 2), (1, [-1, 12, 2], 4))):
        run("search", folded(own, target), "--train", "--loss", "mse", "--cluster", machine, "--batch", 8, "--micro-batches", passes, "-o", folder / f"plan{number}", "-q")
        assert run("run", folder / f"plan{number}", "--steps", "3").stdout.splitlines()[-1] == "PASSED", (own, target)


def test_one_table_for_every_sample(folder):
    """An exporter that knows the batch computes positions of each sample: told of, and repeated for passes where it is not trained."""
    rng = np.random.default_rng(3)

    def added(same):
        table = np.broadcast_to(rng.normal(size=(1, 5, 3)), (4, 5, 3)) if same else rng.normal(size=(4, 5, 3))
        return model(folder, [helper.make_node("Add", ["x", "positions"], ["a"], name="add"), helper.make_node("MatMul", ["a", "w"], ["y"], name="product")],
                     [("x", TensorProto.FLOAT, [4, 5, 3])], [("y", TensorProto.FLOAT, [4, 5, 2])],
                     [("w", np.ones((3, 2), np.float32)), ("positions", np.array(table, np.float32))])

    machine, passes = cluster(folder, 2, **MACHINE), ("--micro-batches", 2)
    search = ("search", added(True), "--train", "--loss", "mse", "--cluster", machine)
    assert "'positions' (the same for every sample); --freeze positions" in run(*search, "-o", folder / "whole").stderr
    code, message = failed(*search, *passes, "-o", folder / "none")
    assert code == 4 and "'positions' is as long as the batch" in message and "--freeze positions" in message, message
    for number, batch in enumerate((4, 12)):
        out = folder / f"frozen{number}"
        run(*search, *passes, "--batch", batch, "--freeze", "positions", "-o", out, "-q")
        assert run("run", out, "--steps", 3).stdout.splitlines()[-1] == "PASSED"
        check_independently(out)
    added(False)
    code, message = failed(*search, *passes, "--freeze", "positions", "-o", folder / "none")
    assert code == 4 and "'positions'" in message and "slices that differ" in message and not (folder / "none").exists(), message


def test_rows_of_each_sample(folder):
    """x[arange(batch), index] takes of each sample what is its own: passes are the whole step in parts. x[0, index] does not."""
    def taken(first, depth):
        columns = [helper.make_node("Concat", ["numbers", "place"], ["at"], axis=1, name="join")]
        shape = [6, 3] if depth == 2 else [6]
        return model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), *columns, helper.make_node("GatherND", ["h", "at"], ["r"], name="rows"),
                              helper.make_node("ScatterND", ["z", "at", "r"], ["s"], name="written"), helper.make_node("Mul", ["s", "s"], ["y"], name="square")],
                     [("x", TensorProto.FLOAT, [6, 5, 4]), ("place", TensorProto.INT64, [6, depth - 1]), ("z", TensorProto.FLOAT, [6, 5, 3])],
                     [("r", TensorProto.FLOAT, shape), ("y", TensorProto.FLOAT, [6, 5, 3])],
                     [("w", np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)), ("numbers", np.array(first, np.int64)[:, None])])

    machine = cluster(folder, 2, **MACHINE)
    for depth, passes in ((2, 6), (2, 2), (3, 3)):
        search = ("search", "--train", "--loss", "sum:y", "--cluster", machine, "--micro-batches", passes)
        out = folder / f"rows{depth}{passes}"
        done = run(*search, taken(range(6), depth), "-o", out)
        assert "makes a sample depend" not in done.stderr, done.stderr
        assert json.loads((out / "step.json").read_text()).get("reference") != "passes"
        assert run("run", out, "--steps", 3).stdout.splitlines()[-1] == "PASSED"
        check_independently(out)
        for first in ([0] * 6, [1, 0, 2, 3, 4, 5]):
            code, message = failed(*search, taken(first, depth), "-o", folder / "none")
            assert code == 4 and "'rows' (GatherND) does not run over dimension 0 of 'h'" in message, message


def test_opset(folder):
    """Gradients of a look-up are added, which ONNX can since opset 16."""
    table = model(folder, [helper.make_node("Gather", ["w", "i"], ["y"], name="look")], [("i", TensorProto.INT64, [5])],
                  [("y", TensorProto.FLOAT, [5, 2])], [("w", np.ones((3, 2), np.float32))], opset=13)
    done = run("grad", table, "--loss", "sum", "-o", folder / "step.onnx")
    assert "opset" in done.stderr and onnx.load(folder / "step.onnx").opset_import[0].version == 16, done.stderr


def main():
    for test in (test_refusals, test_nothing_asked, test_batch, test_opset, test_parameters_without_a_gradient, test_micro_batches_refused,
                 test_own_batch_in_a_shape, test_trained_inputs_are_no_data, test_losses_of_the_passes_are_combined, test_one_table_for_every_sample,
                 test_rows_of_each_sample):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
