"""Options, files and tables that say what cannot be: each is refused with what was expected, and nothing is written."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper

from tools.chain_model import chain
from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MLP = SOURCE / "models" / "mlp.onnx"


def test_numbers_of_options(folder):
    search = "search", MLP, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "-o", folder / "plan", "-q"
    for option, value, expected in (("--batch", "0", "a whole number from 1 on"), ("--batch", "1e3", "a whole number from 1 on"),
                                    ("--lr", "nan", "a number from 0 on"), ("--lr", "-1", "a number from 0 on"), ("--updates", "next", "a pattern with one *"),
                                    ("--clip-norm", "nan", "a number above 0"), ("--weight-decay", "-1", "a number from 0 on"),
                                    ("--momentum", "nan", "a number from 0 to 1"), ("--momentum", "2", "a number from 0 to 1"), ("--eps", "0", "a number above 0"),
                                    ("--rows", "-1", "a whole number from 0 on"), ("--rows", "2.5", "a whole number from 0 on"),
                                    ("--batch", "99999999999999999999", "a whole number from 1 on"), ("--threads", "x", "a whole number from 0 to 4096"),
                                    ("--max-axes", "9", "a whole number from 1 to 6")):
        told = run(*search, option, value, code=2).stderr
        assert f"{option}: expected {expected}" in told and f"found '{value}'" in told and "AND" not in told and not (folder / "plan").exists(), told
    run(*search, "--lr", "1e-3", "--optimizer", "adam", "--eps", "1E-6", "--rows", "0")
    assert "--rtol: expected" in run("run", folder / "plan", "--rtol", "-1", code=2).stderr


def test_what_does_not_fit_is_told_once(folder):
    """Of the levels of recomputation that which saves most says how much would do, and what to try."""
    llama = SOURCE / "models" / "llama_tiny.onnx"
    search = "search", llama, "--cluster", cluster(folder, 2, 2), "--memory", "8KiB", "-o", folder / "plan", "-q"
    for more in ((), ("--train", "--loss", "cross_entropy")):
        told = run(*search, *more, code=3).stderr
        assert told.count("no plan fits into") == told.count("Try ") == 1 and ", with --recompute " in told and ", and more with others. Try " in told, told


def test_peaks_of_no_type(folder):
    """A misspelt type would leave the plan without the peak that was meant."""
    path = cluster(folder, 2, 2)
    text = json.loads(path.read_text())
    text["device"]["peak_flops_per_s"] = {"float32": 1e12, "tfloat32": 2e12, "float8e4m3fn": 4e12}
    path.write_text(json.dumps(text))
    run("search", MLP, "--cluster", path, "-o", folder / "plan", "-q")
    text["device"]["peak_flops_per_s"] = {"fp32": 1e12}
    path.write_text(json.dumps(text))
    told = run("search", MLP, "--cluster", path, "-o", folder / "none", "-q", code=4).stderr
    assert "device.peak_flops_per_s" in told and "'fp32' is no type" in told and not (folder / "none").exists(), told


def test_an_update_before_the_passes(folder):
    """Its accumulators are not there yet; what it reads then is not what the passes make."""
    plan = folder / "plan"
    run("search", MLP, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "--micro-batches", "2", "-o", plan, "-q")
    assert run("verify", plan).stdout.splitlines()[-1] == "PASSED"
    cells = (plan / "schedule.csv").read_text().strip().split(",")
    for moved in (cells[-1:] + cells[:-1], cells[:1] + cells[-1:] + cells[1:-1]):
        (plan / "schedule.csv").write_text(",".join(moved) + "\n")
        for command in ("verify", "run"):
            told = run(command, plan, code=4).stderr
            assert "stands behind 0U" in told and "after all passes" in told, told


def test_what_is_read_stays(folder):
    """No output of a command takes the place of one of its inputs."""
    devices, model, pins, table = cluster(folder, 2, 2), folder / "model.onnx", folder / "pins.json", folder / "runs.csv"
    chain(model)
    profile, layouts, schedule, weights = (folder / name for name in ("profile.json", "layouts.json", "schedule.csv", "weights.npz"))
    shutil.copy(SOURCE / "models" / "profiles" / "a100-eager.json", profile)
    layouts.write_text("{}")
    schedule.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    np.savez(weights, none=np.zeros(1, np.float32))
    searched, staged = ("search", model, "--cluster", devices, "-o", folder / "other"), ("--train", "--loss", "mse", "--micro-batches", "2", "--stages", "2")
    train = "--train", "--loss", "mse", "--weights", "sharded"
    run("search", model, "--cluster", devices, "-o", folder / "whole", "-q")
    run("search", model, "--cluster", devices, *train, "-o", folder / "step", "-q")
    shutil.copy(folder / "whole" / "strategy.json", pins)
    run("run", folder / "whole", "--save", folder / "saved.npz", "-q")
    table.write_text("plan,seconds\nwhole,0.001\nwhole,0.001\nwhole,0.001\nwhole,0.001\n")
    problem = folder / "problem.json"
    problem.write_text('{"problem": {"name": "x", "nodes": {"intervals": [[0, 1]], "costs": [[1.5, 2]], "usages": [[1, 1]]}, "edges": {"nodes": [], "costs": []}, "usage_limit": 2}}')
    for kept, command in ((folder / "step" / "strategy.json", ("export", folder / "step", "--as", "megatron", "-o")), (model, ("export", folder / "step", "--as", "megatron", "--model", model, "-o")),
                          (folder / "step" / "rank00000" / "weights.safetensors", ("merge", folder / "step", "-o")), (pins, ("search", model, "--cluster", devices, "-o", folder / "other", "--pin", pins, "--timeline")),
                          (pins, ("search", model, "--cluster", devices, "-o", folder / "other", "--pin", pins, "--dump-problem")), (folder / "whole" / "strategy.json", ("run", folder / "whole", "--save")),
                          (folder / "saved.npz", ("run", folder / "whole", "--data", folder / "saved.npz", "--save")), (table, ("fit", table, "--cluster", devices, "--model", model, "--only", "host_s", "-o")), (problem, ("solve", problem, "-o")),
                          (profile, (*searched, "--profile", profile, "--timeline")), (layouts, (*searched, "--inputs", layouts, "--dump-problem")),
                          (schedule, (*searched, *staged, "--schedule", schedule, "--timeline")), (pins, ("apply", *searched[1:], "--strategy", pins, "--timeline")),
                          (weights, ("grad", model, "--loss", "mse", "--weights-from", weights, "-o"))):
        before = kept.read_bytes()
        if command[0] == "fit":
            command = tuple(part for part in command if part not in ("--model", model))
        told = run(*command, kept, code=4).stderr
        assert "is what is read, so it is not replaced" in told and kept.read_bytes() == before, (command, told)


def test_weights_of_a_step(folder):
    """They go into the model that they are of, and into no other."""
    model = folder / "model.onnx"
    chain(model)
    sharded = "search", model, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "--weights", "sharded", "-q", "-o"
    run(*sharded, folder / "step", "--zero", 3)
    assert "--model FILE is the model" in run("merge", folder / "step", "-o", folder / "merged.onnx", code=2).stderr
    other = run("merge", folder / "step", "-o", folder / "merged.onnx", "--model", SOURCE / "models" / "gpt2_tiny.onnx", code=4).stderr
    assert "has none of these weights" in other and not (folder / "merged.onnx").exists(), other
    assert "warning" not in run("merge", folder / "step", "-o", folder / "merged.onnx", "--model", model).stderr
    # What would lie beside it is somebody's.
    (folder / "mine.safetensors").write_text("mine")
    told = run("merge", folder / "step", "-o", folder / "mine.onnx", "--model", model, code=4).stderr
    assert "mine.safetensors: is there and not of" in told and (folder / "mine.safetensors").read_text() == "mine" and not (folder / "mine.onnx").exists(), told
    # A rank's file of another plan: what `run` refuses `verify` does, too.
    run(*sharded, folder / "whole", "--searcher", "replicate")
    run("verify", folder / "step")
    shutil.copy(folder / "whole" / "rank00001" / "weights.safetensors", folder / "step" / "rank00001")
    for command in "verify", "run":
        done = run(command, folder / "step", code=4)
        assert "rank00001/weights.safetensors: tensor" in done.stdout + done.stderr, done


def test_profiles_go_with_times(folder):
    devices = cluster(folder, 2, 2)
    told = run("search", MLP, "--cluster", devices, "--cost-model", "mindspore", "--profile", SOURCE / "models" / "profiles" / "h100-eager.json", "-o", folder / "plan", code=2).stderr
    assert "--profile says how long things take" in told, told
    # That of the cluster is left out.
    text = json.loads(devices.read_text())
    plans = []
    for profile in None, json.loads((SOURCE / "models" / "profiles" / "h100-eager.json").read_text()):
        devices.write_text(json.dumps(text | ({"profile": profile} if profile else {})))
        run("search", MLP, "--cluster", devices, "--cost-model", "mindspore_all", "-o", folder / "plan", "-q")
        run("show", folder / "plan" / "report.json")
        plans.append(json.loads((folder / "plan" / "strategy.json").read_text())["ops"])
    assert plans[0] == plans[1]


def test_long_names_of_searchers(folder):
    """They say the same as the short ones."""
    of = ("search", MLP, "--cluster", cluster(folder, 2, 2), "--train", "--loss", "mse", "--stages", 2, "--micro-batches", 2, "--batch", 8, "-q", "-o", folder / "plan")
    plans = []
    for name in "dp", "dynamic_programming":
        run(*of, "--searcher", name)
        plans.append((folder / "plan" / "strategy.json").read_bytes())
    assert plans[0] == plans[1]


def test_tables_of_measured_runs(folder):
    run("search", MLP, "--cluster", cluster(folder, 2, 2), "-o", folder / "plan", "-q")
    # As a spreadsheet writes it.
    (folder / "measured.csv").write_bytes(b"\xef\xbb\xbfplan,seconds\r\nplan,0.001\r\n")
    run("fit", folder / "measured.csv", "--cluster", cluster(folder, 2, 2), "--only", "host_s", "-o", folder / "profile.json", "-q")
    truth = [sys.executable, SOURCE / "bench" / "truth.py"]
    table = folder / "table.csv"
    for text, code, said in (("", 0, "it has no line of columns"), ("# words\n", 0, "it has no line of columns"), ("a,b\n1,2\n", 0, "no known table"), (None, 1, "cannot be read")):
        table.unlink() if text is None else table.write_text(text)
        done = subprocess.run([*truth, table], capture_output=True, text=True)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, (text, done)


def test_shapes_that_do_not_fit_together(folder):
    """A model that ONNX Runtime would not run is not planned."""
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", [2, 4, 8, 8]), ("w", [6, 3, 3, 3]), ("y", [2, 6, 6, 6]))]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], name="stem")], "g", tensors[:2], tensors[2:])
    model = folder / "wrong.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), model)
    for command in (("search", model, "--cluster", cluster(folder, 2, 2), "-o", folder / "plan"), ("grad", model, "--loss", "sum:y", "-o", folder / "plan"), ("show", model)):
        told = run(*command, code=4).stderr
        assert f"{model}: op 'stem' (Conv): dimension 1 of its input 1 (W) is 3; expected 4 (channels), since dimension 1 of input 0 (X) is 4" in told, told
        assert "'w' float32[6,3,3,3]" in told and not (folder / "plan").exists(), told


def main():
    for test in [value for name, value in list(globals().items()) if name.startswith("test_")]:
        folder = pathlib.Path(tempfile.mkdtemp())
        try:
            test(folder)
        finally:
            shutil.rmtree(folder)
        print(f"{test.__name__}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
