"""Models that are not trained in stages and micro-batches: planned, executed as the whole model says, applied to the same bytes, and refused where they cannot be cut."""
import json
import pathlib
import shutil
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.independent_step import SHARED, independent
from tools.small_steps import SOURCE, called, same_files, with_cluster

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
        slow = json.loads((folder / "cluster.json").read_text())
        slow["tiers"][1]["bandwidth_bytes_per_s"], slow["tiers"][1]["latency_s"] = 1e15, 0
        (folder / "quick.json").write_text(json.dumps(slow))
        out = folder / "waiting"
        shutil.rmtree(out, ignore_errors=True)
        called("search", layers(folder, "open", batch="samples"), "--cluster", folder / "quick.json", "--batch", 8 * count, "--stages", 2, "--micro-batches", count, "--cuts", "mm1",
               "--searcher", "replicate", "-q", "-o", out)
        held[count] = json.loads((out / "report.json").read_text())["memory"]["peak_bytes"]
    message = 8 * 32 * 4
    assert held[8] - held[1] in range(4 * message, 7 * message + 1), held  # of seven that are made early some have been read
    limit = held[8] - 1
    done = called("search", folder / "open.onnx", "--cluster", folder / "quick.json", "--batch", 64, "--stages", 2, "--micro-batches", 8, "--cuts", "mm1", "--searcher", "replicate",
                  "--memory", limit, "-o", folder / "none", code=3)
    assert "waits between stages" in done.stderr, done.stderr


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
    told(4, "'mean'", "no dimension of the batch", model=layers(folder, "sum", added="mean"))
    told(2, "'new.c'", "hand nothing on", model=layers(folder, "carried", carried=True))
    (folder / "trained.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    told(4, "trained.csv", "not trained", options=("--stages", 2, "--micro-batches", 2, "--schedule", folder / "trained.csv"))
    (folder / "forward.csv").write_text("0F0,0F1\n1F0,1F1\n")
    told(4, "forward.csv", "no backward passes", options=("--stages", 2, "--micro-batches", 2, "--train", "--loss", "sum", "--schedule", folder / "forward.csv"))
    (folder / "short.csv").write_text("0F0,0F1\n1F1\n")
    told(4, "short.csv", "1F0 stands nowhere", options=("--stages", 2, "--micro-batches", 2, "--schedule", folder / "short.csv"))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with_cluster(folder)
        for part in (executed, with_passes_as_reference, times_and_memory, bound_of_all_cuts, refused):
            part(folder)
    print("pipelines of models that are not trained passed")


main()
