"""Training steps of forward models: planned, run against the unsharded step, written alike by apply; what is refused."""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import mpi_run_test
from tools.program import AUTOPAR, cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared")
CHECK = SHARED / "tools" / "step_check.py"
MACHINE = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e9, "slower": 4}
OWN = {"mlp": "mse", "gpt2_tiny": "cross_entropy", "llama_tiny": "cross_entropy"}
OTHERS = {"tiny_llama": "cross_entropy", "tiny_bert": "cross_entropy:logits", "tiny_resnet": "cross_entropy", "tiny_unet3d": "mse",
          "tiny_moe_gather": "cross_entropy", "tiny_dlrm": "loss"}


def failed(*arguments):
    """The message and exit code of a command that must fail."""
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stderr


def pairwise(*columns):
    """Rows so that every pair of values of two columns stands in one of them: each begins with a pair that is left."""
    left = dict.fromkeys((i, a, j, b) for i, j in itertools.combinations(range(len(columns)), 2) for a in columns[i] for b in columns[j])
    rows = []
    while left:
        i, a, j, b = next(iter(left))
        row = {i: a, j: b}
        for k in sorted(set(range(len(columns))) - row.keys(), key=lambda k: -len(columns[k])):
            # The value with most of what is left; of equals another one in each row.
            turned = columns[k][len(rows) % len(columns[k]):] + columns[k][:len(rows) % len(columns[k])]
            row[k] = max(turned, key=lambda value: sum(((c, row[c], k, value) if c < k else (k, value, c, row[c])) in left for c in row))
        rows.append(tuple(row[k] for k in range(len(columns))))
        for c, d in itertools.combinations(range(len(columns)), 2):
            left.pop((c, rows[-1][c], d, rows[-1][d]), None)
    return rows


def model_of(name):
    return SOURCE / "models" / f"{name}.onnx" if name in OWN else SHARED / "data" / "models" / f"{name}.onnx"


def batch_of(name):
    """As its file says."""
    return onnx.load(model_of(name), load_external_data=False).graph.input[0].type.tensor_type.shape.dim[0].dim_value


def samples_of(name, passes, number):
    """A batch for so many passes: of the file's own size each, or of fewer samples. Experts have room for the tokens of one of its own."""
    own = batch_of(name)
    return own * passes if number % 2 == 0 or name == "tiny_moe_gather" else max(own, passes)


def inputs_of(out):
    """Values for all inputs of the unsharded step on the whole batch; some labels do not count."""
    random, arrays = np.random.default_rng(3), {}
    step = json.loads((out / "step.json").read_text())
    whole = (out / "train.onnx").exists()
    values = [v for name in (["train.onnx"] if whole else ["train.FB.onnx", "train.U.onnx"]) for v in onnx.load(out / name).graph.input]
    for value in values:
        if value.name.startswith("acc.") or value.name in arrays:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if not whole and value.name in step["micro_inputs"]:
            shape[step["micro_inputs"][value.name]] *= step["micro_batches"]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.int64:
            array = random.integers(0, 2, size=shape)
            if value.name == "labels":
                array[random.random(shape) < 0.2] = -100
        else:
            # Second moments that are not near 0.
            array = np.abs(random.normal(scale=0.1, size=shape)) + 0.01 if value.name.startswith("adam.v.") else random.normal(scale=0.1, size=shape)
        arrays[value.name] = np.asarray(array, dtype)
    arrays["learning_rate"] = np.array(0.01, np.float32)
    if "adam.step" in arrays:
        arrays["adam.step"] = np.array(5, np.float32)
    return arrays


def by_passes(out, arrays):
    """What the unsharded passes and their update give, for steps whose passes are not one over the whole batch."""
    step = json.loads((out / "step.json").read_text())
    count, sessions = step["micro_batches"], [ort.InferenceSession(out / f"train.{p}.onnx") for p in ("FB", "U")]
    now, losses = dict(arrays), []
    for value in sessions[0].get_inputs():
        if value.name.startswith("acc."):
            now[value.name] = np.zeros(value.shape, np.float32)
    for part in range(count):
        for name, axis in step["micro_inputs"].items():
            now[name] = np.split(arrays[name], count, axis)[part]
        made = dict(zip([o.name for o in sessions[0].get_outputs()], sessions[0].run(None, {i.name: now[i.name] for i in sessions[0].get_inputs()})))
        now.update({name.removeprefix("new."): array for name, array in made.items() if name.startswith("new.")})
        losses.append(made.get("loss"))
    outputs = {name: array for name, array in made.items() if name.startswith("new.") and not name.startswith("new.acc.")}
    outputs.update(zip([o.name for o in sessions[1].get_outputs()], sessions[1].run(None, {i.name: now[i.name] for i in sessions[1].get_inputs()})))
    return {"loss": np.mean(losses, 0), **outputs} if "loss" not in outputs else outputs


def check_independently(out):
    """By the executor that shares no code with autopar; False where it is not here."""
    if not CHECK.exists():
        return False
    arrays = inputs_of(out)
    data, reference = {"in." + n: a for n, a in arrays.items()}, ["--model", out / "train.onnx", "--steps", "3"]
    if json.loads((out / "step.json").read_text()).get("reference") == "passes":
        data.update({"out." + n: a for n, a in by_passes(out, arrays).items()})
        reference = []
    np.savez(out / "io.npz", **data)
    done = subprocess.run([sys.executable, CHECK, out, "--data", out / "io.npz", *reference], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("PASSED"), (out, done.stdout, done.stderr)
    return True


def by_processes(out, ranks):
    """The MPIs by which the same step passes."""
    libraries = [mpi for mpi in ("openmpi", "mpich") if shutil.which(f"mpirun.{mpi}")]
    for mpi in libraries:
        done = subprocess.run(mpi_run_test.command(mpi, ranks, "run", out, "--steps", 3, "--ranks-by", "mpi"), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", (out, mpi, done.stdout, done.stderr)
    return libraries


def same_files(out, given):
    """Programs, their order, and what was decided."""
    names = sorted(p.name for p in out.iterdir() if p.suffix in (".onnx", ".csv") or p.name in ("step.json", "strategy.json"))
    assert "strategy.json" in names and "train.onnx" in names or "train.FB.onnx" in names, names
    for name in names:
        assert (given / name).read_bytes() == (out / name).read_bytes(), (given, name)


OPTIMIZERS = {"first": ("sgd", "momentum"), "second": ("adam", "adamw"), "none": ("none",)}
STORED = {"as read": ("auto", "off"), "states cut": ("1", "2"), "cut": ("3",)}


def test_plans_run(folder):
    names = (*OWN, *(n for n in OTHERS if model_of(n).exists()))
    if len(names) == len(OWN):
        print(f"models outside the repository are not there: skipped ({SHARED}/data/models)")
    rows = pairwise(names, (4, 1, 2), tuple(OPTIMIZERS), ("fp32", "mixed-fp16", "fp16"), ((4,), (2, 2), (4, 2)),
                    ("auto", "data_parallel", "rec"), ((), ("--clip-norm", "0.5"), ("--gradients", "sum")), ("none", "cheap"),
                    tuple(STORED))
    checked, libraries, told = 0, [], 0
    for number, (name, passes, optimizer, precision, mesh, searcher, options, recompute, stored) in enumerate(rows):
        if name == "tiny_dlrm" and precision == "fp16":
            precision = "fp32"  # in float16 one unit in a twentieth of its weights moves its gradients by up to a fifth
        if optimizer == "none" and "--clip-norm" in options:
            options = ()  # that is about an update
        out, kinds = folder / f"plan{number}", OPTIMIZERS[optimizer]
        arguments = ["--loss", {**OWN, **OTHERS}[name], "--optimizer", kinds[number % len(kinds)], "--precision", precision, "--zero", STORED[stored][number // 2 % len(STORED[stored])], *options]
        if passes > 1:
            arguments += ["--micro-batches", passes, "--batch", samples_of(name, passes, number)]
        machine, what = cluster(folder, *mesh, **MACHINE), (name, mesh, searcher, recompute, *arguments)
        run("search", model_of(name), "--cluster", machine, "--train", *arguments, "--searcher", searcher,
            "--recompute", recompute, "-o", out, "-q")
        assert (out / "step.json").exists() == (passes > 1) == (not (out / "plan.onnx").exists()), what
        done = subprocess.run([AUTOPAR, "run", out, "--steps", "3"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", (what, done.stdout, done.stderr)
        given = folder / f"given{number}"
        run("apply", model_of(name), "--cluster", machine, "--strategy", out / "strategy.json", "-o", given, "-q")
        same_files(out, given)
        if passes == 1:
            continue
        told += json.loads((out / "step.json").read_text()).get("reference") == "passes"
        if precision == "fp32":
            checked += check_independently(out)
        if number % 6 == 0:
            libraries = by_processes(out, int(np.prod(mesh)))
    print(f"{len(rows)} combinations, {told} of them compared with their unsharded passes; "
          + (f"{checked} by step_check.py too; " if checked else "skipped: step_check.py is not here; ")
          + (f"some by {', '.join(libraries)}" if libraries else "skipped: there is no mpirun.openmpi and no mpirun.mpich"))


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
            # Every input is one of what the metadata lists, copies in 16 bits too.
            facts = json.loads({p.key: p.value for p in steps[kind].metadata_props}["autopar.training"])
            assert [i.name for i in steps[kind].graph.input] == facts["data"] + facts["parameters"] + facts["statistics"] + facts["states"], facts
            assert any(state.startswith(f"{kind}.") for state in facts["states"]) == bool(mixed), facts["states"]
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


def test_extremes_in_16_bits(folder):
    """An extreme that the runtime rounds elsewhere than what it is one of leaves gradients as they are."""
    rng = np.random.default_rng(5)
    for op, more in (("ReduceMax", ["axes"]), ("ReduceMin", ["axes"]), ("Max", ["other"]), ("Min", ["other"])):
        net = model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
                             helper.make_node(op, ["t", *more], ["m"], name="most"), helper.make_node("MatMul", ["t", "v"], ["u"], name="next"),
                             helper.make_node("Add", ["u", "m"], ["y"], name="add")],
                    [("x", TensorProto.FLOAT, [8, 6])], [("y", TensorProto.FLOAT, [8, 5])],
                    [("w", rng.standard_normal((6, 5)).astype(np.float32)), ("v", rng.standard_normal((5, 5)).astype(np.float32)),
                     ("axes", np.array([1], np.int64)) if more == ["axes"] else ("other", rng.standard_normal((1, 5)).astype(np.float32))])
        for precision in ("fp16", "mixed-fp16"):
            out = folder / f"{op}.{precision}"
            run("search", net, "--train", "--loss", "cross_entropy", "--precision", precision, "--cluster", cluster(folder, 2, **MACHINE), "-o", out, "-q")
            done = run("run", out, "--steps", 2, "--save", folder / "saved.npz")
            assert done.stdout.splitlines()[-1] == "PASSED", (op, precision, done.stdout)
            assert np.isfinite(np.load(folder / "saved.npz")["out.new.w"].astype(np.float32)).all()


def test_one_pass_chosen_of_several(folder):
    """--micro-batches auto may find one pass best, on a batch that the constants do not say; apply follows it there."""
    machine = cluster(folder, 2, **MACHINE)
    run("search", model_of("llama_tiny"), "--cluster", machine, "--train", "--loss", "cross_entropy", "--batch", 8, "--micro-batches", "auto",
        "--searcher", "data_parallel", "-o", folder / "out", "-q")
    assert (folder / "out" / "plan.onnx").exists(), "more passes only cost more where all fits"
    run("apply", model_of("llama_tiny"), "--cluster", machine, "--strategy", folder / "out" / "strategy.json", "-o", folder / "given", "-q")
    same_files(folder / "out", folder / "given")


def test_statistics_of_one_sample(folder):
    """A pass of one sample has statistics of its own too: the unsharded passes are what it is compared with."""
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
             helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["n", "new_mean", "new_variance"], name="norm", training_mode=1),
             helper.make_node("GlobalAveragePool", ["n"], ["p"], name="pool"), helper.make_node("Flatten", ["p"], ["y"], name="flat")]
    net = model(folder, nodes, [("x", TensorProto.FLOAT, ["batch", 3, 6, 6])], [("y", TensorProto.FLOAT, ["batch", 4])],
                [("w", np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)), ("scale", ones), ("bias", zeros), ("mean", zeros), ("variance", ones)])
    done = run("search", net, "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "mse", "--batch", 4, "--micro-batches", 4, "-o", folder / "out")
    assert "op 'norm' makes a sample depend on others" in done.stderr, done.stderr
    assert json.loads((folder / "out" / "step.json").read_text())["reference"] == "passes"
    assert run("run", folder / "out", "--steps", 2).stdout.splitlines()[-1] == "PASSED"
    check_independently(folder / "out")


def test_statistics_are_counted_once(folder):
    """What is repeated for the backward pass leaves running statistics alone: they are those of a step that repeats nothing."""
    random = np.random.default_rng(2)
    constants = [("w", random.standard_normal((4, 3, 3, 3)).astype(np.float32)), ("w2", random.standard_normal((4, 4, 3, 3)).astype(np.float32))]
    nodes, x = [], "x"
    for i, weight in enumerate(("w", "w2")):
        constants += [(f"{n}{i}", (np.ones if n in ("scale", "variance") else np.zeros)(4, np.float32)) for n in ("scale", "bias", "mean", "variance")]
        nodes += [helper.make_node("Conv", [x, weight], [f"c{i}"], name=f"conv{i}"),
                  helper.make_node("BatchNormalization", [f"c{i}", f"scale{i}", f"bias{i}", f"mean{i}", f"variance{i}"], [f"n{i}", f"m{i}", f"v{i}"], name=f"norm{i}", training_mode=1),
                  helper.make_node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}")]
        x = f"r{i}"
    nodes += [helper.make_node("GlobalAveragePool", [x], ["p"], name="pool"), helper.make_node("Flatten", ["p"], ["y"], name="flat")]
    net = model(folder, nodes, [("x", TensorProto.FLOAT, ["batch", 3, 8, 8])], [("y", TensorProto.FLOAT, ["batch", 4])], constants)
    (folder / "pins.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "checkpoints": ["p"]}))
    machine, found = cluster(folder, 2, **MACHINE), {}
    for passes in (1, 2):
        for recompute in ("none", "full", "cheap"):
            run("search", net, "--cluster", machine, "--train", "--loss", "mse", "--batch", 8, "--micro-batches", passes, "--recompute", recompute, *(["--pin", folder / "pins.json"] if recompute == "full" else []), "--searcher",
                "replicate", "-o", folder / "out", "-q")
            data = []
            if passes > 1:
                np.savez(folder / "io.npz", **{"in." + n: np.abs(a) if n.startswith("variance") else a for n, a in inputs_of(folder / "out").items()})
                data = ["--data", folder / "io.npz"]
            assert run("run", folder / "out", *data, "--steps", 2, "--save", folder / "saved.npz").stdout.splitlines()[-1] == "PASSED"
            found[recompute] = dict(np.load(folder / "saved.npz"))
            names = [n.name for file in (folder / "out").glob("plan*.onnx") for n in onnx.load(file).graph.node]
            assert recompute != "full" or "norm0.again" in names, (passes, names)
        for recompute in ("full", "cheap"):
            for name, array in found["none"].items():
                assert np.allclose(array, found[recompute][name], rtol=1e-5, atol=1e-6), (passes, recompute, name)


def test_labels_that_do_not_count(folder):
    """The mean is over those of the whole batch that count, however they lie in its parts; without any it is 0."""
    out = folder / "out"
    run("search", model_of("gpt2_tiny"), "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "cross_entropy", "--optimizer", "sgd",
        "--micro-batches", 4, "--searcher", "data_parallel", "-o", out, "-q")
    arrays = inputs_of(out)
    labels = np.random.default_rng(4).integers(0, 128, arrays["labels"].shape)
    for case in "one part", "one label", "none":
        arrays["labels"] = np.full_like(labels, -100)
        if case == "one part":
            arrays["labels"][2] = labels[2]
            arrays["labels"][3, :5] = labels[3, :5]
        elif case == "one label":
            arrays["labels"][1, 3] = labels[1, 3]
        np.savez(folder / "io.npz", **{"in." + n: a for n, a in arrays.items()})
        done = run("run", out, "--data", folder / "io.npz", "--save", folder / "out.npz")
        saved = np.load(folder / "out.npz")
        assert done.stdout.splitlines()[-1] == "PASSED", (case, done.stdout)
        assert (saved["out.loss"] == 0) == (case == "none"), (case, saved["out.loss"])
        moved = np.abs(saved["out.new.wte.weight"] - arrays["wte.weight"]).max()
        assert (moved == 0) == (case == "none"), (case, moved)


def test_labels_that_do_not_count_of_impossible_classes(folder):
    """What stands in for a label that does not count may have an infinite loss, which nothing is added of."""
    mask = np.array([-np.inf, 0, 0, 0, 0, 0], np.float32)
    masked = model(folder, [helper.make_node("MatMul", ["x", "w"], ["z"], name="fc"), helper.make_node("Add", ["z", "mask"], ["y"], name="mask")],
                   [("x", TensorProto.FLOAT, [8, 4])], [("y", TensorProto.FLOAT, [8, 6])], [("w", np.ones((4, 6), np.float32)), ("mask", mask)])
    random, out = np.random.default_rng(5), folder / "out"
    x, w = random.standard_normal((8, 4)).astype(np.float32), random.standard_normal((4, 6)).astype(np.float32)
    labels = np.array([1, 2, -100, 3, 4, -100, 5, 1])
    logits, counted = x @ w + mask, labels >= 0
    loss = (np.log(np.exp(logits).sum(1))[counted] - logits[counted, labels[counted]]).mean()
    np.savez(folder / "io.npz", **{"in.x": x, "in.w": w, "in.labels": labels, "in.learning_rate": np.array(0.1, np.float32)})
    for options in ("--searcher", "replicate"), ("--searcher", "data_parallel"), ("--searcher", "data_parallel", "--micro-batches", 2):
        run("search", masked, "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "cross_entropy", "--optimizer", "sgd", "--data-inputs", "x",
            "--freeze", "mask", *options, "-o", out, "-q")
        done = run("run", out, "--data", folder / "io.npz", "--save", folder / "saved.npz")
        saved = np.load(folder / "saved.npz")
        assert done.stdout.splitlines()[-1] == "PASSED" and np.isfinite(saved["out.new.w"]).all(), (options, done.stdout)
        assert np.allclose(saved["out.loss"], loss, rtol=1e-5), (options, saved["out.loss"], loss)


def masked_attention_grads(q, k, v, shows):
    """Of the sum of the outputs, which are 0 for queries that see no key."""
    scale = q.shape[-1] ** -0.5
    scores = np.where(shows, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    powers = np.where(shows, np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30)), 0)
    shares = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)
    slopes = np.ones_like(q) @ v.swapaxes(-1, -2)
    slopes = shares * (slopes - (slopes * shares).sum(-1, keepdims=True)) * scale
    return {"grad.q": slopes @ k, "grad.k": slopes.swapaxes(-1, -2) @ q, "grad.v": shares.swapaxes(-1, -2) @ np.ones_like(q)}


def test_queries_that_see_no_key(folder):
    """Nothing flows back from their outputs, however the mask hides all keys."""
    shows = np.ones((2, 1, 4, 4), bool)
    shows[0, :, :, :2] = False
    shows[1, :, 0] = False
    random, shape = np.random.default_rng(6), [2, 2, 4, 3]
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name in "qkv"}
    for causal, hidden in itertools.product((0, 1), (None, -np.inf, np.finfo(np.float32).min)):
        feeds["m"] = shows if hidden is None else np.where(shows, 0, hidden).astype(np.float32)
        mask_type = helper.np_dtype_to_tensor_dtype(feeds["m"].dtype)
        attention = model(folder, [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"], name="attention", is_causal=causal)],
                          [(n, TensorProto.FLOAT, shape) for n in "qkv"] + [("m", mask_type, shows.shape)], [("y", TensorProto.FLOAT, shape)], [], opset=23)
        run("grad", attention, "--loss", "sum:y", "--parameters", "q,k,v", "--optimizer", "none", "-o", folder / "step.onnx")
        session = ort.InferenceSession(folder / "step.onnx")
        found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
        expected = masked_attention_grads(*(feeds[n].astype(np.float64) for n in "qkv"), shows & np.tri(4, dtype=bool) if causal else shows)
        for name, array in expected.items():
            assert np.allclose(found[name], array, rtol=1e-4, atol=1e-5), (causal, hidden, name, found[name], array)


def test_opset(folder):
    """Gradients of a look-up are added, which ONNX can since opset 16."""
    table = model(folder, [helper.make_node("Gather", ["w", "i"], ["y"], name="look")], [("i", TensorProto.INT64, [5])],
                  [("y", TensorProto.FLOAT, [5, 2])], [("w", np.ones((3, 2), np.float32))], opset=13)
    done = run("grad", table, "--loss", "sum", "-o", folder / "step.onnx")
    assert "opset" in done.stderr and onnx.load(folder / "step.onnx").opset_import[0].version == 16, done.stderr


def main():
    for test in (test_refusals, test_batch, test_opset, test_parameters_without_a_gradient, test_micro_batches_refused, test_own_batch_in_a_shape,
                 test_trained_inputs_are_no_data, test_losses_of_the_passes_are_combined, test_one_table_for_every_sample, test_rows_of_each_sample, test_extremes_in_16_bits,
                 test_one_pass_chosen_of_several, test_statistics_of_one_sample, test_statistics_are_counted_once, test_labels_that_do_not_count,
                 test_labels_that_do_not_count_of_impossible_classes, test_queries_that_see_no_key, test_the_step_is_what_is_planned, test_bfloat16_is_float16_with_another_type, test_plans_run):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
