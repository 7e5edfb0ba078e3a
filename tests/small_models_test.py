"""Models that are no transformers: what their exporters write and their shapes have that others do not."""
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from tools.independent_step import independent
from tools.program import cluster, run

FLOAT = TensorProto.FLOAT


def write(path, nodes, inputs, outputs, weights=(), constants=(), opset=17):
    """`inputs` and `outputs`: name to shape; `weights`: name to shape, of small random numbers; `constants`: name to array."""
    random = np.random.default_rng(1)
    tensors = [numpy_helper.from_array((random.standard_normal(shape) * 0.3).astype(np.float32), name)
               for name, shape in dict(weights).items()]
    tensors += [numpy_helper.from_array(np.array(array), name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "small", [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(n, FLOAT, s) for n, s in outputs.items()], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def chain(path, widths, batch=8):
    """Products with Relu between them, and a bias behind the last."""
    nodes, weights, value = [], {}, "x"
    for i, (rows, columns) in enumerate(zip(widths, widths[1:])):
        weights[f"w{i}"] = (rows, columns)
        nodes += [helper.make_node("MatMul", [value, f"w{i}"], [f"y{i}"], f"fc{i}"), helper.make_node("Relu", [f"y{i}"], [f"r{i}"], f"relu{i}")]
        value = f"r{i}"
    weights["bias"] = (widths[-1],)
    nodes.append(helper.make_node("Add", [value, "bias"], ["out"], "head"))
    return write(path, nodes, {"x": (batch, widths[0])}, {"out": (batch, widths[-1])}, weights)


def planned(folder, model, name, *options, machine=None):
    out = folder / name
    run("search", model, "--cluster", machine or cluster(folder, 2, 2), "-q", "-o", out, *options)
    return out


def check(out, *options):
    assert run("verify", out).stdout.splitlines()[-1] == "PASSED"
    assert run("run", out, *options).stdout.splitlines()[-1] == "PASSED"


def test_a_constant_that_repeats_one_sample(folder):
    """An Expand and an Add that say the model's batch take one sample, too, and make two of it."""
    expand = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), helper.make_node("Unsqueeze", ["y", "one"], ["u"], "row"),
              helper.make_node("Expand", ["u", "target"], ["out"], "spread")]
    add = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), helper.make_node("ConstantOfShape", ["target"], ["c"], "fill"),
           helper.make_node("Add", ["y", "c"], ["out"], "shift")]
    for name, nodes, target, shape, op in (("expand", expand, [2, 3, 4], (2, 3, 4), "'spread' (Expand)"),
                                           ("add", add, [2, 4], (2, 4), "'shift' (Add)")):
        constants = {"target": np.array(target)} | ({"one": np.array([1])} if name == "expand" else {})
        model = write(folder / f"{name}.onnx", nodes, {"x": (2, 6)}, {"out": shape}, {"w": (6, 4)}, constants)
        check(planned(folder, model, f"{name}_plan", "--train", "--loss", "sum", "--micro-batches", "2"), "--steps", "2")
        told = run("search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "sum", "--batch", "1", "-o", folder / "none",
                   code=4).stderr
        assert op in told and "--batch 1" in told and not (folder / "none").exists(), told
    # The constant that is written anew stays one.
    inputs = [value.name for value in onnx.load(folder / "add_plan" / "train.onnx").graph.input]
    assert sorted(inputs) == ["learning_rate", "w", "x"], inputs


def test_a_batch_that_only_constants_say(folder):
    """A symbol says the batch, and a constant says it too: the op is named, not the symbol that was given."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), helper.make_node("Reshape", ["y", "target"], ["out"], "fold")]
    model = write(folder / "symbol.onnx", nodes, {"x": ("batch", 6)}, {"out": (8, 2, 2)}, {"w": (6, 4)}, {"target": np.array([8, 2, 2])})
    options = "--cluster", cluster(folder, 2, 2), "--train", "--loss", "sum", "--batch", "8", "-o", folder / "symbol_plan"
    run("search", model, *options)
    told = run("search", model, *options, "--micro-batches", "2", code=4).stderr
    assert "op 'fold' (Reshape)" in told and "--dim" not in told, told


def test_a_last_window_in_the_padding(folder):
    """ONNX's inference counts it before opset 22, no runtime does."""
    for name, op, extra, pads, shape in (("max", "MaxPool", {}, [0, 1, 0, 1], (7, 3)), ("mixed", "MaxPool", {}, [0, 1, 0, 1], (7, 3)),
                                         ("average", "AveragePool", {"count_include_pad": 1}, [1, 1, 1, 1], (7, 3))):
        image = (2, 3, 14 if name == "max" else 13, 5)
        nodes = [helper.make_node("Conv", ["x", "k"], ["y"], "conv"),
                 helper.make_node(op, ["y"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], pads=pads, ceil_mode=1, **extra),
                 helper.make_node("Conv", ["p", "l"], ["q"], "next", pads=[1, 1, 1, 1]),
                 helper.make_node("GlobalAveragePool", ["q"], ["out"], "mean")]
        model = write(folder / f"{name}.onnx", nodes, {"x": image}, {"out": (2, 5, 1, 1)}, {"k": (4, 3, 1, 1), "l": (5, 4, 3, 3)})
        check(planned(folder, model, f"{name}_plan"))
        out = planned(folder, model, f"{name}_train", "--train", "--loss", "mse")
        check(out, "--steps", "2")
        sizes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in onnx.load(out / "train.onnx").graph.value_info}
        assert sizes["p"][2:] == shape, sizes["p"]


def test_parameters_of_one_number_in_a_pipeline(folder):
    """A bias of one number is updated where its gradient is, not behind all others."""
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], "fc0"), helper.make_node("Mul", ["a", "scale"], ["b"], "gain"),
             helper.make_node("Relu", ["b"], ["c"], "relu"), helper.make_node("MatMul", ["c", "w1"], ["d"], "fc1"),
             helper.make_node("Tanh", ["d"], ["e"], "tanh"), helper.make_node("MatMul", ["e", "w2"], ["f"], "fc2"),
             helper.make_node("Add", ["f", "bias"], ["out"], "head")]
    model = write(folder / "one.onnx", nodes, {"x": (4, 6)}, {"out": (4, 1)}, {"w0": (6, 6), "scale": (1,), "w1": (6, 6), "w2": (6, 1), "bias": (1,)})
    for optimizer in ("momentum", "adamw"):
        out = planned(folder, model, f"one_{optimizer}", "--train", "--loss", "mse", "--micro-batches", "2", "--stages", "2", "--clip-norm", "0.1",
                      "--optimizer", optimizer, "--weight-decay", "0.1")
        check(out, "--steps", "2")


def test_a_norm_of_all_gradients_takes_two_messages(folder):
    """The stage that adds up the others' sums waits for these, and the updates of all for what it makes of them: the plan says what its programs take."""
    model, machine = chain(folder / "clipped.onnx", [32] * 9), cluster(folder, 2, 4, latency=2e-4, memory_bandwidth=1e9, link=1e9)
    for name, options in (("two", ("--micro-batches", "2", "--stages", "2")), ("four", ("--micro-batches", "1", "--stages", "4")),
                          ("parts", ("--micro-batches", "4", "--stages", "4", "--schedule", "zb-h1")), ("chunks", ("--micro-batches", "4", "--stages", "2", "--schedule", "interleaved"))):
        out, drawn = folder / name, folder / "drawn.json"
        run("search", model, "--cluster", machine, "--train", "--loss", "mse", "--optimizer", "momentum", "--clip-norm", "0.5", *options, "-q", "-o", out, "--timeline", drawn)
        claimed = json.loads((out / "report.json").read_text())["cost"]["seconds"]
        priced = json.loads(run("price", out, "--cluster", machine, "--json").stdout)["seconds"]
        assert abs(claimed / priced - 1) < 0.03, (name, claimed, priced)
        rows = {}
        for event in json.loads(drawn.read_text())["traceEvents"]:
            if event["ph"] == "X":
                rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
        for row in rows.values():
            row.sort()
            assert all(before[1] <= after[0] + 2e-3 for before, after in zip(row, row[1:])), (name, row)
        assert any(event.startswith("sums of") for row in rows.values() for _, _, event in row), name
        check(out)


def test_a_bound_holds_where_no_place_is_better_than_those_beside_it(folder):
    """Tensors only shrink towards the output: chunks begin anywhere, and the bound of pipelines is about such cuts too."""
    model, slow = chain(folder / "funnel.onnx", [128, 96, 64, 48, 32, 4], batch=64), folder / "slow.json"
    device = {"name": "d", "memory_bytes": 1 << 36, "memory_bandwidth_bytes_per_s": 1e9, "peak_flops_per_s": {"float32": 1e9}}
    tier = {"name": "a", "size": 2, "bandwidth_bytes_per_s": 3e7, "latency_s": 1e-6}
    slow.write_text(json.dumps({"format": "autopar-cluster", "version": 1, "name": "slow", "device": device, "tiers": [tier]}))
    for schedule in ("1f1b", "zb-h1"):
        for stages in ("2", "auto"):
            out = folder / f"funnel.{schedule}.{stages}"
            run("search", model, "--cluster", slow, "--train", "--loss", "mse", "--micro-batches", "8", "--stages", stages, "--schedule", schedule, "-o", out)
            cost = json.loads((out / "strategy.json").read_text())["cost"]
            assert 0 < cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (schedule, stages, cost)
            if stages == "2":
                two = cost["seconds"]
        assert cost["seconds"] <= two * (1 + 1e-9), (schedule, two, cost)


def test_what_onnx_has_in_float32_alone_in_steps_of_16_bits(folder):
    """Mean and deviation of a LayerNormalization, and MeanVarianceNormalization, whatever the precision."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
             helper.make_node("LayerNormalization", ["h", "scale", "shift"], ["y", "mean", "spread"], "norm"),
             helper.make_node("Mul", ["y", "spread"], ["z"], "times"), helper.make_node("Add", ["z", "mean"], ["s"], "plus"),
             helper.make_node("MeanVarianceNormalization", ["s"], ["n"], "standard", axes=[1]), helper.make_node("MatMul", ["n", "v"], ["out"], "head")]
    model = write(folder / "norms.onnx", nodes, {"x": (8, 16)}, {"out": (8, 4)},
                  {"w": (16, 32), "scale": (32,), "shift": (32,), "v": (32, 4)})
    for precision in ("fp16", "mixed-fp16", "bf16", "mixed-bf16"):
        out = planned(folder, model, f"norms.{precision}", "--train", "--loss", "mse", "--precision", precision)
        if precision.endswith("bf16"):  # ONNX Runtime has no products of bfloat16 on a CPU
            assert run("verify", out).stdout.splitlines()[-1] == "PASSED"
        else:
            check(out)


def test_normalisation_that_trains_and_resizing_in_steps_of_16_bits(folder):
    """Running statistics belong to their op whatever casts come before it; and products that ONNX does not have for bfloat16."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
             helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "spread"], ["b", "next_mean", "next_spread"], "norm", training_mode=1),
             helper.make_node("Resize", ["b", "", "", "size"], ["out"], "wider", mode="linear")]
    model = write(folder / "resized.onnx", nodes, {"x": (8, 4, 5, 6)}, {"out": (8, 4, 8, 9)},
                  {"w": (4, 4, 3, 3), "scale": (4,), "shift": (4,)},
                  {"mean": np.zeros(4, np.float32), "spread": np.ones(4, np.float32), "size": np.array([8, 4, 8, 9])}, opset=18)
    turn = [helper.make_node("Mul", ["x", "w"], ["c"], "turn"), helper.make_node("AffineGrid", ["c", "size"], ["out"], "grid")]
    grid = write(folder / "grid.onnx", turn, {"x": (8, 2, 3)}, {"out": (8, 5, 7, 2)}, {"w": (2, 3)}, {"size": np.array([8, 3, 5, 7])}, opset=20)
    for precision in ("fp16", "mixed-fp16", "bf16", "mixed-bf16"):
        for name, of in (("resized", model), ("grid", grid)):
            out = planned(folder, of, f"{name}.{precision}", "--train", "--loss", "mse", "--precision", precision)
            if precision == "bf16":  # ONNX Runtime has no such ops on a CPU
                assert run("verify", out).stdout.splitlines()[-1] == "PASSED"
            else:
                check(out)


def test_a_compress_whose_condition_is_known(folder):
    """It looks up the places that stay; ONNX does not say how many these are."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), helper.make_node("Compress", ["y", "keeps"], ["z"], "some", axis=-1),
             helper.make_node("MatMul", ["z", "v"], ["out"], "head")]
    keeps = np.array([0, 1, 1, 0, 1, 0, 0, 1], bool)
    model = write(folder / "compress.onnx", nodes, {"x": (8, 6)}, {"out": (8, 4)}, {"w": (6, 8), "v": (4, 4)}, {"keeps": keeps})
    check(planned(folder, model, "compressed"))
    check(planned(folder, model, "compressed_step", "--train", "--loss", "mse", "--micro-batches", "2"))
    row = write(folder / "row.onnx", [helper.make_node("Compress", ["x", "keeps"], ["out"], "some")], {"x": (8,)}, {"out": (4,)}, (), {"keeps": keeps})
    check(planned(folder, row, "compressed_row"))
    model = write(folder / "long.onnx", nodes, {"x": (8, 6)}, {"out": (8, 4)}, {"w": (6, 7), "v": (4, 4)}, {"keeps": keeps})
    told = run("search", model, "--cluster", cluster(folder, 2, 2), "-o", folder / "long", code=4).stderr
    assert "'some' (Compress)" in told and "keeps place 7" in told and "has 7" in told, told


def test_ranks_hold_a_model_in_the_16_bits_of_its_step(folder):
    """The model's file has its weights in float32, the files of the ranks as the programs read them."""
    model, weights = chain(folder / "narrow.onnx", [16, 32, 8]), {}
    for precision, dtype in (("fp16", "float16"), ("fp32", "float32")):
        out = planned(folder, model, f"narrow.{precision}", "--train", "--loss", "mse", "--precision", precision, "--micro-batches", "2",
                      "--weights", "sharded")
        check(out)
        parts = [load_file(file) for file in sorted(out.glob("rank*/*.safetensors"))]
        assert parts and all(part["w0"].dtype == dtype for part in parts), (precision, parts[0])
        weights[precision] = parts
    for narrow, wide in zip(weights["fp16"], weights["fp32"]):
        if narrow["w0"].shape == wide["w0"].shape:
            assert np.array_equal(narrow["w0"], wide["w0"].astype(np.float16))


def test_the_report_of_a_pipeline_is_shown(folder):
    model = chain(folder / "chain.onnx", [8, 8, 8, 8, 4])
    out = folder / "pipeline"
    told = run("search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "--micro-batches", "2", "--stages", "2",
               "-o", out).stdout
    shown = run("show", out / "report.json").stdout
    assert "stages of" in shown and "memory/device" in shown and "the optimum" in shown, shown
    assert told.startswith(shown), (told, shown)
    assert json.loads(run("show", out / "report.json", "--json").stdout)["pipeline"]["stages"] > 1
    assert "lists chunks" in run("show", out / "report.json", "--rows", "3", code=2).stderr
    ran = run("run", out).stdout
    assert "predicted for" in ran and "one step" in ran and "local ops" not in ran.split("predicted for")[1], ran


def test_forms_that_cannot_be(folder):
    model, machine = chain(folder / "forms.onnx", [8, 8, 8, 8, 4]), cluster(folder, 2, 2)
    search = "search", model, "--cluster", machine, "--train", "--loss", "mse", "-o", folder / "forms", "-q"
    for passes in ("2", "auto"):
        told = run(*search, "--micro-batches", passes, "--stages", "3", code=2).stderr
        assert told.count("--stages 3") == 1 and "what does: 1, 2, 4" in told, told
        told = run(*search, "--micro-batches", passes, "--stages", "2", "--searcher", "propagate", code=2).stderr
        assert told.count("nothing is fixed") == 1, told
    # The runtime alone fills the device.
    told = run(*search, "--micro-batches", "1", "--stages", "2", "--memory", "1GiB", "--profile", "h100-nanotron", code=3).stderr
    assert "no plan surely fits into 1.00 GiB" in told, told
    told = run("search", model, "--cluster", machine, "--train", "--loss", "cross_entropy:flat", "-o", folder / "forms", code=2)
    assert not (folder / "forms").exists()


def test_cuts_at_ops_of_the_user(folder):
    """An op that import makes several of, one that it removes, and one that no loss reads."""
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], "fc0"), helper.make_node("Identity", ["a"], ["b"], "same"),
             helper.make_node("Split", ["b", "parts"], ["c", "d"], "halves", axis=1), helper.make_node("Mul", ["c", "d"], ["e"], "gate"),
             helper.make_node("MatMul", ["e", "w1"], ["out"], "fc1"), helper.make_node("Relu", ["e"], ["other"], "aside")]
    model = write(folder / "cuts.onnx", nodes, {"x": (4, 6)}, {"out": (4, 5), "other": (4, 4)}, {"w0": (6, 8), "w1": (4, 5)},
                  {"parts": np.array([4, 4])})
    options = "--train", "--loss", "mse:out", "--micro-batches", "2", "--stages", "2"
    check(planned(folder, model, "cut", *options, "--cuts", "halves"))
    pins = folder / "pins.json"
    for op, why in (("same", "removed at import"), ("aside", "the loss does not depend on it"), ("none", "has no such op")):
        search = "search", model, "--cluster", cluster(folder, 2, 2), *options, "-o", folder / "refused"
        assert why in run(*search, "--cuts", op, code=4).stderr, op
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"fc1": {"pipeline_stage": 1}, op: {"pipeline_stage": 0}}}))
        told = run(*search, "--pin", pins, code=4).stderr
        assert f"op '{op}'" in told and why in told and not (folder / "refused").exists(), told


def test_cross_entropy_of_the_batch(folder):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), helper.make_node("ReduceMean", ["y"], ["out"], "mean", axes=[1], keepdims=0)]
    model = write(folder / "flat.onnx", nodes, {"x": (4, 6)}, {"out": (4,)}, {"w": (6, 4)})
    told = run("search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "cross_entropy", "-o", folder / "flat", code=2).stderr
    assert "'out' is [4]" in told and "[..., classes]" in told, told


def test_a_baseline_without_time(folder):
    model = chain(folder / "late.onnx", [8, 8, 8, 8, 4])
    for options in (("--searcher", "replicate"), ("--searcher", "data_parallel"), ("--searcher", "uniform"), ("--searcher", "uniform:dp=4"),
                    ("--stages", "2", "--micro-batches", "2")):
        check(planned(folder, model, "late", "--train", "--loss", "mse", "--time-limit", "0.01ms", "--profile", "a100-eager", *options))


def test_templates_without_time_that_do_not_fit(folder):
    model = chain(folder / "full.onnx", [64, 64, 64, 64, 64])
    late = "search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "--searcher", "uniform", "-o", folder / "full", "-q", "--time-limit", "0.01ms"
    told = run(*late, "--memory", "60KiB", code=3).stderr
    assert "the smallest, dp=4" in told and "were not tried, since the time was up" in told, told


def test_what_a_constant_makes_of_a_weight_is_split(folder):
    """The gradient of a sum is a constant, whose product with a weight is an activation: with --zero off, too, its readers may split it."""
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["y"], "fc0"), helper.make_node("Relu", ["y"], ["r"], "relu"),
             helper.make_node("MatMul", ["r", "w1"], ["out"], "fc1")]
    model = write(folder / "sum.onnx", nodes, {"x": (8, 8)}, {"out": (8, 4)}, {"w0": (8, 8), "w1": (8, 4)})
    for searcher in ("data_parallel", "dp"):
        check(planned(folder, model, searcher, "--train", "--loss", "sum", "--zero", "off", "--searcher", searcher))


def test_sums_of_gradients_count_in_their_chunk(folder):
    """Where memory is slow, what adds up gradients takes most of a pass: it belongs to the chunk that has the weight, not to the loss."""
    model = chain(folder / "sums.onnx", [64, 64, 64, 64, 64, 64])
    slow = cluster(folder, 2, memory_bandwidth=1e8)
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        for cuts in ((), ("--cuts", "fc1"), ("--cuts", "fc3")):
            out = planned(folder, model, "sums", "--train", "--loss", "mse", "--stages", 2, "--micro-batches", 8, "--schedule", schedule, *cuts, machine=slow)
            cost = json.loads((out / "report.json").read_text())["cost"]
            assert 0.9 * cost["seconds"] < cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (schedule, cuts, cost)


def test_templates_of_all_counts(folder):
    """Numbers of micro-batches of which the schedule cannot be made are left out, unless it is the one that is asked for."""
    nodes, weights = [], {f"w{i}": (16, 16) for i in range(6)}
    for i in range(6):
        x, out = f"x{i}" if i else "x", f"x{i + 1}" if i < 5 else "out"
        nodes += [helper.make_node("MatMul", [x, f"w{i}"], [f"y{i}"], f"layers.{i}.fc"), helper.make_node("Relu", [f"y{i}"], [f"r{i}"], f"layers.{i}.relu"),
                  helper.make_node("Add", [x, f"r{i}"], [out], f"layers.{i}.add")]
    model = write(folder / "counts.onnx", nodes, {"x": (8, 16)}, {"out": (8, 16)}, weights)
    options = "--train", "--loss", "mse", "--searcher", "uniform", "--stages", 2, "--schedule", "dualpipev", "--micro-batches"
    out = planned(folder, model, "counts", *options, "auto")
    left = {trial["micro_batches"]: trial.get("why", "") for trial in json.loads((out / "report.json").read_text())["pipeline"]["tried"] if not trial["seconds"]}
    assert "at least twice as many micro-batches" in left[1] and "at least twice" in left[2], left
    told = run("search", model, "--cluster", cluster(folder, 2, 2), *options, 2, "-o", folder / "none", code=4).stderr
    assert "at least twice as many micro-batches" in told, told


def test_one_program_has_one_pass(folder):
    """Options of a plan of one program leave --micro-batches auto one number; with another one they are refused before the search."""
    model = chain(folder / "one.onnx", [8, 8, 8])
    search = "search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "-o", folder / "one", "--micro-batches"
    for option in (("--io", "full"), ("--dialect", "trt"), ("--fallback-functions",)):
        told = run(*search, "auto", *option).stderr
        assert f"one micro-batch: {' '.join(option[:2]) if option[0] == '--io' else option[0]} goes with a plan of one program" in told, told
        assert not (folder / "one" / "step.json").exists()
        told = run(*search, "2", *option, code=2).stderr
        assert "leave out one of" in told and "training step" not in told, told
    assert "One micro-batch was tried alone, since --io full" in run(*search, "auto", "--io", "full", "--memory", "1KiB", code=3).stderr


def test_resharded_weights_are_the_same_files(folder):
    """Weights stay in the order of the program, whose names are in another one."""
    model = chain(folder / "order.onnx", [8] * 12)
    out = planned(folder, model, "order", "--weights", "sharded")
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    run("merge", out, "-o", folder / "order.safetensors")
    run("reshard-weights", "--from", folder / "order.safetensors", "--to", out)
    assert before == {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_frozen_weights_of_a_pipeline_are_moved(folder):
    """What is not trained lies in the programs of a step, and in the files of a plan's ranks."""
    model = chain(folder / "frozen.onnx", [8, 8, 8, 8, 4])
    options = "--train", "--loss", "mse", "--freeze", "w1,bias", "--micro-batches", "2", "--stages", "2", "--weights", "sharded"
    values = {t.name: numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    pipeline, plan = planned(folder, model, "pipeline", *options), planned(folder, model, "one", *options[:5])
    run("reshard-weights", "--from", pipeline, "--to", plan)
    check(plan)
    for place in (plan, pipeline):
        run("merge", place, "-o", folder / "merged.safetensors")
        merged = load_file(folder / "merged.safetensors")
        for name in ("w0", "w1", "bias"):
            assert np.array_equal(merged[name], values[name]), (place, name)


def test_frozen_weights_of_ranks(folder):
    """With files of ranks a device holds its slices of what is not trained, as the plan counts them; else the programs hold it whole, and `price` counts that."""
    model, machine = chain(folder / "frozen.onnx", [64, 256, 64, 256, 64]), cluster(folder, 4, memory_bandwidth=1e7, link=1e9)
    values = {t.name: numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    frozen = "w1", "w3"
    steps = {"one": (), "passes": ("--micro-batches", "2"), "stages": ("--micro-batches", "2", "--stages", "2"), "four": ("--micro-batches", "4", "--stages", "4")}

    def memory(out):
        price = json.loads(run("price", out, "--cluster", machine, "--json").stdout)
        return max(part["memory_bytes"] for part in price.get("lines", price["programs"]))

    def is_sharded(out):
        for file in out.glob("plan*.onnx"):
            held = {t.name for t in onnx.load(file, load_external_data=False).graph.initializer if len(t.dims) > 1 and t.data_location == TensorProto.DEFAULT}
            assert not held & set(values), (file, held)
        for name in frozen:
            files = [load_file(file) for file in out.glob("rank*/weights.safetensors")]
            slices = [file[name] for file in files if name in file]
            assert len(files) == 4 and slices and all(s.size * len(slices) == values[name].size for s in slices), (out, name)
        check(out)

    for name, options in steps.items():
        options = "--train", "--loss", "mse", "--optimizer", "adam", "--freeze", ",".join(frozen), *options
        out = planned(folder, model, name, *options, "--weights", "sharded", machine=machine)
        claimed = json.loads((out / "report.json").read_text())["memory"]["peak_bytes"]
        assert abs(memory(out) / claimed - 1) < 0.02, (name, memory(out), claimed)
        is_sharded(out)
        run("merge", out, "-o", folder / "merged.safetensors")
        merged = load_file(folder / "merged.safetensors")
        assert set(merged) == set(values) and all(np.array_equal(merged[n], values[n]) for n in values), name
        whole = planned(folder, model, name + ".whole", *options, machine=machine)
        check(whole)
        if name != "four":  # where each stage is one device
            assert memory(whole) > 1.05 * claimed, (name, memory(whole), claimed)
        if name != "one":
            print(" ", name, independent(out, 2), end="")
    print()
    # Between steps of other stages, and of whole weights; what a file lacks stays.
    run("run", folder / "stages", "--save", folder / "trained.npz")
    for source, target in (("passes", "stages"), ("one", "stages.whole"), ("merged.safetensors", "stages.whole"), ("trained.npz", "stages"),
                           ("trained.npz", "stages.whole"), ("stages", "passes.whole"), ("stages", "one.whole")):
        run("reshard-weights", "--from", folder / source, "--to", folder / target, "-o", folder / "moved")
        is_sharded(folder / "moved")
        shutil.rmtree(folder / "moved")
    for source in ("trained.npz", "merged.safetensors", "passes", "one"):
        check(folder / "stages", "--weights-from", folder / source)
        check(folder / "stages.whole", "--weights-from", folder / source)
    run("search", model, "--cluster", machine, "--train", "--loss", "mse", "--optimizer", "adam", "--freeze", ",".join(frozen), *steps["stages"],
        "--weights", "sharded", "--weights-from", folder / "trained.npz", "-q", "-o", folder / "again")
    is_sharded(folder / "again")
    for file in folder.glob("again/rank*"):
        shutil.rmtree(file)
    assert "has no files of ranks" in run("run", folder / "again", code=4).stderr
    assert run("verify", folder / "again", code=4).stdout.splitlines()[-1] == "FAILED"


def test_frozen_weights_in_another_file(folder):
    """What is not trained stays in the model's external data: that goes with the step, and with the step's copy on other ranks."""
    model = folder / "outside.onnx"
    onnx.save(onnx.load(chain(folder / "inside.onnx", [8, 8, 8, 8, 4])), model, save_as_external_data=True, location="outside.data", size_threshold=0)
    options = "--train", "--loss", "mse", "--freeze", "w1,bias", "--weights", "sharded"
    check(planned(folder, model, "one", *options))
    pipeline = planned(folder, model, "pipeline", *options, "--micro-batches", "2", "--stages", "2")
    run("reshard-weights", "--from", pipeline, "--to", pipeline, "-o", folder / "copy")
    check(folder / "copy")
    run("merge", folder / "copy", "-o", folder / "copied.safetensors")
    assert set(load_file(folder / "copied.safetensors")) == {t.name for t in onnx.load(model).graph.initializer}


def dropped(path, batch, seed=None):
    """A product of what a Dropout leaves of another, with a Reshape between that says the batch where that is a number."""
    seeded = {} if seed is None else {"seed": seed}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["r"], "first"), helper.make_node("Dropout", ["r", "ratio", "train"], ["y"], "drop", **seeded),
             helper.make_node("Reshape", ["y", "shape"], ["z"], "flat"), helper.make_node("MatMul", ["z", "w"], ["out"], "fc")]
    constants = {"ratio": np.float32(0.5), "train": np.array(True), "shape": np.array([batch if isinstance(batch, int) else -1, 64])}
    return write(path, nodes, {"x": (batch, 4, 16)}, {"out": (batch, 16)}, {"v": (16, 16), "w": (64, 16)}, constants)


def test_a_dropout_that_trains(folder):
    """Ranks and the unsharded model draw the same numbers, whether the model has a seed or not, and in each pass."""
    for seed in (None, 7):
        model = dropped(folder / "drop.onnx", 8, seed)
        for searcher in ("replicate", "data_parallel"):
            check(planned(folder, model, f"{searcher}{seed}", "--searcher", searcher))
        for name, options in (("one", ()), ("two", ("--micro-batches", "2")), ("stages", ("--micro-batches", "2", "--stages", "2"))):
            check(planned(folder, model, f"{name}{seed}", "--train", "--loss", "mse", *options))
    for model in (dropped(folder / "fixed.onnx", 8), dropped(folder / "symbolic.onnx", "b")):
        check(planned(folder, model, f"{model.stem}.off", "--train", "--loss", "mse", "--batch", "8", "--micro-batches", "4", "--dropout", "off"))


def test_a_symbol_is_the_batch_of_passes(folder):
    """--dim says the whole batch, as --batch does."""
    model = dropped(folder / "symbolic.onnx", "b")
    options = "--train", "--loss", "mse", "--micro-batches", "4", "--dropout", "off"
    by_batch, by_dim = planned(folder, model, "batch", *options, "--batch", "8"), planned(folder, model, "dim", *options, "--dim", "b=8")
    check(by_dim)
    assert (by_batch / "step.json").read_bytes() == (by_dim / "step.json").read_bytes()
    graphs = [onnx.load(out / "plan.c0.FB.onnx").graph for out in (by_batch, by_dim)]
    assert graphs[0] == graphs[1]
    check(planned(folder, model, "stages", *options, "--dim", "b=8", "--stages", "2"))


def test_a_hint_about_the_batch(folder):
    """Only where the batch is another than the file's: what cannot be is no matter of that else."""
    model = write(folder / "wrong.onnx", [helper.make_node("Reshape", ["x", "shape"], ["out"], "flat")], {"x": (8, 4)}, {"out": (9, 4)}, (), {"shape": np.array([9, 4])})
    for batch, hint in ((8, False), (16, True)):
        said = run("search", model, "--cluster", cluster(folder, 2, 2), "-o", folder / "out", "--batch", batch, code=4).stderr
        assert "'flat'" in said and ("in place of the model's own batch" in said) == hint, said


def test_statistics_of_a_batch_are_told_of(folder):
    """Also of a pipeline: its passes are not one pass over the whole batch."""
    names = ("scale", "bias", "mean", "var")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc"),
             helper.make_node("BatchNormalization", ["y", *names], ["z", "next_mean", "next_var"], "norm", training_mode=1),
             helper.make_node("MatMul", ["z", "v"], ["out"], "head")]
    weights = {"w": (8, 8), "v": (8, 4)} | {name: (8,) for name in names[:3]}
    model = write(folder / "norm.onnx", nodes, {"x": (8, 8)}, {"out": (8, 4)}, weights, {"var": np.ones(8, np.float32)})
    for options in ((), ("--stages", "2")):
        said = run("search", model, "--cluster", cluster(folder, 2, 2), "-o", folder / f"out{len(options)}", "--train", "--loss", "mse", "--micro-batches", "4", *options)
        assert "op 'norm' makes a sample depend on others of its micro-batch" in said.stdout + said.stderr, said
    # The repeated normalisation reads no statistics; a strategy with it is taken back.
    nodes[:1] = [helper.make_node("MatMul", ["x", "u"], ["a"], "first"), helper.make_node("Tanh", ["a"], ["b"], "act"), helper.make_node("MatMul", ["b", "w"], ["y"], "fc")]
    nodes[-1:] = [helper.make_node("Tanh", ["z"], ["t"], "act2"), helper.make_node("MatMul", ["t", "v"], ["h"], "head"), helper.make_node("Tanh", ["h"], ["out"], "act3")]
    model = write(folder / "repeated.onnx", nodes, {"x": (8, 8)}, {"out": (8, 4)}, weights | {"u": (8, 8)}, {"var": np.ones(8, np.float32)})
    for options in ((), ("--stages", "2", "--cuts", "act")):
        out, again = folder / "repeated", folder / "again"
        run("search", model, "--cluster", cluster(folder, 2, 2), "-q", "-o", out, "--train", "--loss", "mse", "--micro-batches", "4", "--recompute", "full", *options)
        strategy = json.loads((out / "strategy.json").read_text())
        assert "norm.again.no_statistics" in strategy["ops"], strategy["ops"].keys()
        run("apply", model, "--cluster", cluster(folder, 2, 2), "-q", "--strategy", out / "strategy.json", "-o", again)
        for file in json.loads((out / "step.json").read_text())["programs"]:
            assert (again / file["file"]).read_bytes() == (out / file["file"]).read_bytes(), file
        check(out)


def main():
    for test in [value for name, value in list(globals().items()) if name.startswith("test_")]:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
            print(f"{test.__name__}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
