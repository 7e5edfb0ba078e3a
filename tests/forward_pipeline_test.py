"""Models that are not trained in stages and micro-batches: planned, executed as the whole model says, applied to the same bytes, and refused where they cannot be cut."""
import json
import pathlib
import shutil
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.independent_step import SHARED, independent
from tools.small_steps import SOURCE, called, same_files, small_model, with_cluster

MODELS = SOURCE / "models"


def layers(folder, name, batch=8, added=None, carried=False, of_weights=False):
    """Four products of 32 x 32 with a Relu behind each, and what is asked for."""
    nodes, weights, last = [], [], "x"
    inputs, outputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32])], []
    for i in range(4):
        weights.append(numpy_helper.from_array(np.random.default_rng(i).standard_normal((32, 32)).astype(np.float32) / 6, f"w{i}"))
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], name=f"mm{i}"), helper.make_node("Relu", [f"m{i}"], [f"r{i}"], name=f"relu{i}")]
        last = f"r{i}"
    if added == "statistics":
        nodes.append(helper.make_node("Softmax", [last], ["s"], axis=0, name="over_samples"))
        last = "s"
    outputs.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, [batch, 32]))
    if added == "mean":
        nodes.append(helper.make_node("ReduceMean", [last], ["mean"], keepdims=0, name="of_all"))
        outputs.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, []))
    if of_weights:
        nodes.append(helper.make_node("MatMul", ["w0", "w1"], ["ww"], name="ww"))
        outputs.append(helper.make_tensor_value_info("ww", TensorProto.FLOAT, [32, 32]))
    if carried:
        inputs.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [batch, 32]))
        nodes.append(helper.make_node("Add", ["c", "r0"], ["new.c"], name="next"))
        outputs.append(helper.make_tensor_value_info("new.c", TensorProto.FLOAT, [batch, 32]))
    model = helper.make_model(helper.make_graph(nodes, name, inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def shaped(folder, name):
    """flat: samples lie inside the rows of others; numbered: each has its number from a constant; shared: divided by how many there are; numbers: these, too, leave."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4, 32])]
    weights = [numpy_helper.from_array(np.random.default_rng(i).standard_normal((32, 32)).astype(np.float32) / 6, f"w{i}") for i in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], name="mm0"), helper.make_node("MatMul", ["a", "w1"], ["b"], name="mm1")]
    if name == "flat":
        weights.append(numpy_helper.from_array(np.array([-1, 32]), "rows"))
        nodes += [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0, 2], name="turned"), helper.make_node("Reshape", ["t", "rows"], ["y"], name="rows_of_all")]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 32])]
    elif name == "shared":
        nodes += [helper.make_node("Shape", ["x"], ["shape"], start=0, end=1, name="of_x"), helper.make_node("Cast", ["shape"], ["count"], to=TensorProto.FLOAT, name="count_of"),
                  helper.make_node("Div", ["b", "count"], ["y"], name="by_count")]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4, 32])]
    else:
        nodes += [helper.make_node("Shape", ["x"], ["shape"], start=0, end=1, name="of_x"), helper.make_node("Squeeze", ["shape"], ["count"], name="count_of"),
                  helper.make_node("Range", ["zero", "count", "one"], ["numbers"], name="numbers_of"), helper.make_node("Cast", ["numbers"], ["real"], to=TensorProto.FLOAT, name="as_real"),
                  helper.make_node("Unsqueeze", ["real", "last"], ["column"], name="column_of"), helper.make_node("Add", ["b", "column"], ["y"], name="numbered")]
        weights += [numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array(1), "one"), numpy_helper.from_array(np.array([1, 2]), "last")]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4, 32])]
        if name == "numbers":
            outputs.append(helper.make_tensor_value_info("numbers", TensorProto.INT64, [8]))
    onnx.save(helper.make_model(helper.make_graph(nodes, name, inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def planned(folder, model, *options):
    out = folder / "plan"
    shutil.rmtree(out, ignore_errors=True)
    done = called("search", model, "--cluster", folder / "cluster.json", *options, "-o", out)
    return out, json.loads((out / "report.json").read_text()), json.loads((out / "step.json").read_text()), done


def checked(folder, name, model, *options, own_batch=True, below=60):
    """`own_batch`: the model's inputs are as large as the batch. `below`: that integers are."""
    out, report, step, _ = planned(folder, model, *options)
    stages = report["pipeline"]["stages"] if "pipeline" in report else 1
    assert step["world_size"] == 4 and all(program["phase"] == "F" for program in step["programs"]), step
    lines = [line.split(",") for line in (out / "schedule.csv").read_text().split()]
    assert len(lines) == stages and all("F" in cell for line in lines for cell in line), lines
    called("verify", out)
    run = json.loads(called("run", out, "--json").stdout)
    assert run["passed"] and {o["name"] for o in run["outputs"]} == set(step["outputs"]), run
    again = folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    called("apply", model, "--cluster", folder / "cluster.json", "--strategy", out / "strategy.json", "-q", "-o", again)
    same_files(out, again, name)
    price = json.loads(called("price", model, "--cluster", folder / "cluster.json", "--strategy", out / "strategy.json", "--json").stdout)
    if stages > 1:
        assert price["seconds"] == report["cost"]["seconds"] and price["memory_bytes"] == report["memory"]["peak_bytes"], (price["seconds"], report["cost"])
        assert report["cost"]["lower_bound_seconds"] <= report["cost"]["seconds"], report["cost"]
    told = independent(out, 1, below, model) if own_batch else "on another batch"
    print(f"{name}: {stages} stages, {step['micro_batches']} micro-batches, {step['outputs']}; {told}")
    return out, report, step


def executed(folder):
    for model, options in (("llama_tiny", ["--stages", 2, "--micro-batches", 2]), ("llama_tiny", ["--stages", 2, "--micro-batches", 4, "--schedule", "interleaved"]),
                           ("gpt2_tiny", ["--stages", 4, "--micro-batches", 1]), ("gpt2_tiny", ["--micro-batches", 2]), ("mlp", ["--stages", 2, "--micro-batches", 4])):
        checked(folder, model, MODELS / f"{model}.onnx", *options)
    for model in ("tiny_bert", "tiny_resnet", "tiny_unet3d"):
        if not (SHARED / "data" / "models" / f"{model}.onnx").exists():
            print(f"skipped: {model} is not here")
            continue
        checked(folder, model, SHARED / "data" / "models" / f"{model}.onnx", "--stages", 2, "--micro-batches", 2, below=2)
    # Another dimension of the batch, and inputs that are data by the options alone: both are in the plan's file.
    checked(folder, "second", shaped(folder, "numbered"), "--stages", 2, "--micro-batches", 2, "--batch-dim", 1, "--data-inputs", "x")
    # A batch that the file leaves open, an output of weights alone, a pipeline in words of the user.
    open_batch = layers(folder, "open", batch="samples", of_weights=True)
    _, _, step = checked(folder, "open", open_batch, "--stages", 2, "--micro-batches", 4, "--batch", 16, own_batch=False)
    assert step["outputs"] == {"r3": "concat:0", "ww": "last"} and step["micro_inputs"] == {"x": 0}, step
    (folder / "mine.csv").write_text("0F1,0F0\n1F1,1F0\n")
    out, report, _ = checked(folder, "mine", layers(folder, "mine"), "--stages", 2, "--micro-batches", 2, "--schedule", folder / "mine.csv", "--cuts", "mm3")
    assert (out / "schedule.csv").read_text() == "0F1,0F0\n1F1,1F0\n" and report["pipeline"]["chunks"][1]["first_op"] == "mm3"


def with_passes_as_reference(folder):
    """Where micro-batches are not the batch: samples that depend on each other, and a batch that constants do not allow."""
    out, report, step = checked(folder, "statistics", layers(folder, "statistics", added="statistics"), "--stages", 2, "--micro-batches", 2, own_batch=False)
    assert step["reference"] == "passes" and (out / "train.F.onnx").exists() and any("over_samples" in warning for warning in report["warnings"]), report["warnings"]
    for name in ("numbered", "shared"):
        _, _, step = checked(folder, name, shaped(folder, name), "--stages", 2, "--micro-batches", 2, own_batch=False)
        assert step["reference"] == "passes", step
    _, report, step = checked(folder, "another batch", MODELS / "llama_tiny.onnx", "--stages", 2, "--micro-batches", 4, "--batch", 16, own_batch=False)
    assert step["reference"] == "passes" and any("planned as micro-batches" in warning for warning in report["warnings"]), report["warnings"]


def times_and_memory(folder):
    """What a pipeline of like stages takes, and that what waits between stages of unlike ones counts."""
    model = layers(folder, "even")
    _, report, _, _ = planned(folder, model, "--stages", 2, "--micro-batches", 8, "--cuts", "mm2", "--searcher", "replicate")
    first, second = report["pipeline"]["chunks"]
    passes = 8 * max(first["forward_seconds"], first["send_forward_seconds"])
    assert report["cost"]["seconds"] >= passes + second["forward_seconds"], report
    assert first["in_flight"] == second["in_flight"] == 1 and "backward" not in (folder / "plan" / "schedule.csv").read_text()
    # The second stage has three of four products: it is behind the first one, whose results wait.
    held = {}
    for count in (1, 8):
        quick = json.loads((folder / "cluster.json").read_text())
        for tier in quick["tiers"]:
            tier["bandwidth_bytes_per_s"], tier["latency_s"] = 1e15, 0
        (folder / "quick.json").write_text(json.dumps(quick))
        out = folder / "waiting"
        shutil.rmtree(out, ignore_errors=True)
        called("search", layers(folder, "open", batch="samples"), "--cluster", folder / "quick.json", "--batch", 8 * count, "--stages", 2, "--micro-batches", count, "--cuts", "mm1",
               "--searcher", "replicate", "-q", "-o", out)
        held[count] = json.loads((out / "report.json").read_text())["memory"]["peak_bytes"]
    message = 8 * 32 * 4
    # The outputs of seven more; of as many that are made early some have been read.
    assert held[8] - held[1] in range(11 * message, 14 * message + 1), held
    limit = held[8] - 1
    done = called("search", folder / "open.onnx", "--cluster", folder / "quick.json", "--batch", 64, "--stages", 2, "--micro-batches", 8, "--cuts", "mm1", "--searcher", "replicate",
                  "--memory", limit, "-o", folder / "none", code=3)
    assert "waits between stages" in done.stderr, done.stderr
    # On a slow link they wait where they are made: the first stage, which stores three of the four products, is the fullest one then.
    peaks = [planned(folder, layers(folder, "even"), "--stages", 2, "--micro-batches", count, "--cuts", "mm3", "--searcher", "replicate")[1] for count in (1, 8)]
    waits = [report["memory"]["peak_bytes"] - report["pipeline"]["chunks"][0]["memory_bytes"] for report in peaks]
    assert waits[0] == 128 * 8 and waits[1] in range(6 * 128, 8 * 128 + 1), (waits, peaks)  # bytes of a sample, of which each has one or all


def files_of_ranks(folder):
    """Weights in slices, moved between numbers of stages and put together again; with nothing of them the step does not run."""
    model, out = layers(folder, "stored"), folder / "ranks"
    called("search", model, "--cluster", folder / "cluster.json", "--stages", 2, "--micro-batches", 2, "--weights", "sharded", "-q", "-o", out)
    assert json.loads(called("run", out, "--json").stdout)["passed"]
    held = sum(path.stat().st_size for path in out.glob("plan.c*.onnx"))
    assert held < 4 * 32 * 32 * 4 and (out / "rank00003" / "weights.safetensors").exists(), held
    called("verify", out)
    ranks = json.loads(called("price", out, "--cluster", folder / "cluster.json", "--json").stdout)["lines"]
    told = json.loads((out / "report.json").read_text())["memory"]["peak_bytes"]
    most = max(rank["memory_bytes"] for rank in ranks)
    assert 0.8 * told <= most <= told, (ranks, told)  # the plan counts what is on its way twice
    other = folder / "other"
    called("search", model, "--cluster", folder / "cluster.json", "--stages", 4, "--micro-batches", 2, "-q", "-o", other)
    moved = folder / "moved"
    called("reshard-weights", "--from", out, "--to", other, "-o", moved)
    assert json.loads(called("run", moved, "--json").stdout)["passed"]
    called("merge", moved, "-o", folder / "merged.safetensors")
    content = (folder / "merged.safetensors").read_bytes()
    for tensor in onnx.load(model).graph.initializer:
        assert numpy_helper.to_array(tensor).tobytes() in content, tensor.name
    shutil.rmtree(out / "rank00001")
    called("verify", out, code=4)
    called("run", out, code=4)
    without_values(folder)


def without_values(folder):
    """Weights that are inputs of the model: they are made up until files of ranks have them."""
    model, out = small_model(folder / "inputs.onnx", "--family", "gpt", "--layers", "2", "--sequence", "16", "--vocabulary", "64"), folder / "inputs"
    options = ("--cluster", folder / "cluster.json", "--batch", 8, "--stages", 2, "--micro-batches", 2, "-q", "-o", out)
    error = called("search", model, *options, "--weights", "sharded", code=4).stderr
    assert "wte" in error or "transformer" in error, error
    called("search", model, *options)
    assert json.loads(called("run", out, "--json").stdout)["passed"]
    called("verify", out)
    draw = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in onnx.load(model).graph.input if i.name != "input_ids"}
    np.savez(folder / "given.npz", **{name: draw.standard_normal(shape).astype(np.float32) / 6 for name, shape in shapes.items()})
    told = called("reshard-weights", "--from", folder / "given.npz", "--to", out).stdout
    assert f"{len(shapes)} weights" in told, told
    assert json.loads(called("run", out, "--json").stdout)["passed"]
    called("verify", out)


def what_stays(folder):
    """Files of somebody else, and what export prices."""
    mine = folder / "theirs"
    mine.mkdir()
    (mine / "schedule.csv").write_text("precious")
    error = called("search", layers(folder, "even"), "--cluster", folder / "cluster.json", "--stages", 2, "--micro-batches", 2, "-o", mine, code=4).stderr
    assert "schedule.csv" in error and (mine / "schedule.csv").read_text() == "precious", error
    out, _, _, _ = planned(folder, layers(folder, "even"), "--stages", 2, "--micro-batches", 2)
    told = called("export", out, "--as", "megatron", "--model", folder / "even.onnx", "--cluster", folder / "cluster.json")
    assert "not priced: templates of several micro-batches or stages" in told.stdout + told.stderr, (told.stdout, told.stderr)
    # Another plan's strategy stays, and the whole step of an earlier plan is not taken for the model.
    other = folder / "of_another"
    shutil.copytree(out, other)
    before = (other / "strategy.json").read_bytes()
    error = called("export", out, "--as", "mindspore", "-o", other / "settings.py", code=4).stderr
    assert str(other / "strategy.json") in error and (other / "strategy.json").read_bytes() == before, error
    stale = folder / "stale"
    for options in (("--train", "--loss", "sum"), ("--stages", 2, "--micro-batches", 2)):
        called("search", folder / "even.onnx", "--cluster", folder / "cluster.json", *options, "-q", "-o", stale)
    assert (stale / "train.onnx").exists() and json.loads(called("run", stale, "--json").stdout)["passed"]
    called("verify", stale)
    # The chunks of a stage are there one at a time but for what they store.
    chunks = planned(folder, layers(folder, "even"), "--stages", 2, "--micro-batches", 4, "--schedule", "interleaved", "--searcher", "replicate")[1]
    stored, beside = 2 * 32 * 32 * 4, 10 * 8 * 128
    assert stored < chunks["memory"]["peak_bytes"] <= stored + beside, chunks["memory"]


def bound_of_all_cuts(folder):
    """No pipeline with given cuts is below the bound, and the search finds the best of them."""
    model = layers(folder, "even")
    options = ["--stages", 2, "--micro-batches", 4]
    best, given = planned(folder, model, *options)[1]["cost"], []
    for cut in ("relu0", "mm1", "relu1", "mm2", "relu2", "mm3"):
        given.append(planned(folder, model, *options, "--cuts", cut)[1]["cost"]["seconds"])
    assert best["lower_bound_seconds"] <= min(given) and best["seconds"] <= min(given) * (1 + 1e-9), (best, given)


def refused(folder):
    model, cluster = layers(folder, "plain"), folder / "cluster.json"

    def told(code, *expected, model=model, options=("--stages", 2, "--micro-batches", 2)):
        error = called("search", model, "--cluster", cluster, *options, "-o", folder / "none", code=code).stderr
        assert all(text in error for text in expected), error
        assert not (folder / "none").exists()

    told(2, "does not divide the batch of 8", options=("--stages", 2, "--micro-batches", 3))
    told(2, "goes with --micro-batches", options=("--stages", 2))
    told(2, "zb-h1", "interleaved", options=("--stages", 2, "--micro-batches", 2, "--schedule", "zb-h1"))
    told(2, "--train", options=("--stages", 2, "--micro-batches", 2, "--searcher", "uniform"))
    told(2, "--train", options=("--stages", 2, "--micro-batches", 2, "--optimizer", "adam"))
    pins = {"format": "autopar-strategy", "version": 1, "ops": {"mm7": {"in_strategy": [[1, 1], [1, 2]]}}}
    (folder / "pins.json").write_text(json.dumps(pins))
    told(4, "pins.json", "'mm7'", options=("--stages", 2, "--micro-batches", 2, "--pin", folder / "pins.json"))
    told(4, "'mean'", "no dimension", model=layers(folder, "sum", added="mean"))
    told(4, "'y'", "outermost", model=shaped(folder, "flat"))
    told(4, "'numbers'", model=shaped(folder, "numbers"))
    told(2, "--dialect", options=("--micro-batches", 2, "--dialect", "trt"))
    told(2, "'new.c'", "hand nothing on", model=layers(folder, "carried", carried=True))
    (folder / "trained.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    told(4, "trained.csv", "not trained", options=("--stages", 2, "--micro-batches", 2, "--schedule", folder / "trained.csv"))
    (folder / "forward.csv").write_text("0F0,0F1\n1F0,1F1\n")
    told(4, "forward.csv", "no backward passes", options=("--stages", 2, "--micro-batches", 2, "--train", "--loss", "sum", "--schedule", folder / "forward.csv"))
    (folder / "short.csv").write_text("0F0,0F1\n1F1\n")
    told(4, "short.csv", "1F0 stands nowhere", options=("--stages", 2, "--micro-batches", 2, "--schedule", folder / "short.csv"))
    for count in (1, "auto"):
        told(4, "cannot be cut into 4 chunks", model=shaped(folder, "shared"), options=("--stages", 4, "--micro-batches", count))
    out, _, _, _ = planned(folder, model, "--stages", 2, "--micro-batches", 2)
    error = called("run", out / "plan.c0.F.onnx", code=2).stderr
    assert "program of the step" in error and str(out) in error, error


def forms_without_pins(folder):
    """A pin that some forms cannot keep leaves these out, and no other."""
    model, pins = layers(folder, "pinned"), folder / "of_four.json"

    def pinned(split, *options, code=0):
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"mm2": {"in_strategy": [split, [1, 1]]}}}))
        return called("search", model, "--cluster", folder / "cluster.json", *options, "--pin", pins, "-o", folder / "pinned", code=code)

    for options in ([], ["--train", "--loss", "sum"]):
        # In eight passes of a sample, and on two devices, there are no four parts.
        done = pinned([4, 1], "--stages", "auto", "--micro-batches", "auto", *options)
        ops = json.loads((folder / "pinned" / "strategy.json").read_text())["ops"]
        assert ops["mm2"]["in_strategy"][0] == [4, 1] and "cannot be" in done.stderr, (ops["mm2"], done.stderr)
        pinned([4, 1], "--micro-batches", "auto", *options)
        pinned([4, 1], "--micro-batches", 8, *options, code=4)
        for asked in (["--stages", "auto"], []):
            error = pinned([3, 1], *asked, "--micro-batches", "auto", *options, code=4).stderr
            assert "mm2" in error and "3" in error, error


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with_cluster(folder)
        for part in (executed, with_passes_as_reference, times_and_memory, files_of_ranks, what_stays, bound_of_all_cuts, refused, forms_without_pins):
            part(folder)
    print("pipelines of models that are not trained passed")


main()
