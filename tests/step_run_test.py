"""Steps of several programs, executed: on threads, MPI and the stand-in for NCCL with the same bits, and as the unsharded step says.

Micro-batches with accumulators that are partial sums, split or whole; two chunks on ranks and in layouts of their own; updates that need
each other's gradients; weights that two chunks read; running statistics. What is wrong fails, and folders that cannot be a step are
refused. The independent executor (step_check.py) is asked too where it is there.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "tools"))
import nccl_run_test
import step_folders as steps

AUTOPAR = os.environ["AUTOPAR"]
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or pathlib.Path(os.environ["AUTOPAR_SOURCE"]).parent / "shared")
CHECK = SHARED / "tools" / "step_check.py"
GPIPE = "0F0,0F1,0B0,0B1,0U\n1F0,1F1,1B0,1B1,1U"
ZERO_BUBBLE = "0F0,0F1,0F2,0F3,0B3,0B2,0B0,0B1,0U\n1F0,1F1,1F2,1F3,1I3,1I2,1I1,1I0,1W0,1W1,1W2,1W3,1U"
PYTORCH = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0BW0,0B1\n1RECV_F0,(1F0;1F1)OVERLAP_F_B,1B0,1SEND_B0,,1B1"


def run(*arguments, code=0, command="run"):
    done = subprocess.run([AUTOPAR, command, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def data_of(folder):
    """Values for all inputs of the unsharded step."""
    random, arrays = np.random.default_rng(5), {}
    for value in onnx.load(str(folder / "train.onnx")).graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        arrays["in." + value.name] = (random.standard_normal(shape) * 0.5 if shape else np.array(0.1)).astype(np.float32)
    np.savez(folder / "io.npz", **arrays)
    return folder / "io.npz"


def independent(folder, count, passes=True):
    if not CHECK.exists():
        return "step_check.py is not here"
    done = subprocess.run([sys.executable, CHECK, folder, "--model", folder / "train.onnx", "--data", folder / "io.npz", "--steps", str(count)],
                          capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == passes, f"{folder.name}: step_check.py: {done.stdout}\n{done.stderr}"
    return "step_check.py agrees"


def processes(folder, world, arguments, threads):
    """The same bits as threads by every way to start processes that is here."""
    ways, saved = [], folder / "processes.npz"
    for mpi, more in (("openmpi", ["--oversubscribe"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])), ("mpich", [])):
        launcher = shutil.which(f"mpirun.{mpi}")
        if launcher is None or not (pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / f"libautopar_{mpi}.so").exists():
            continue
        done = subprocess.run([launcher, *more, "-n", str(world), AUTOPAR, "run", *map(str, arguments), "--ranks-by", "mpi", "--save", str(saved)],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", f"{folder.name} by {mpi}: {done.stdout}\n{done.stderr}"
        same_bits(folder, threads, saved)
        ways.append(mpi)
    results = nccl_run_test.finish(nccl_run_test.start("run", *arguments, "--save", saved, ranks=world))
    assert [code for code, _, _ in results] == [0] * world, results
    assert results[0][1].splitlines()[-1] == "PASSED", results[0]
    same_bits(folder, threads, saved)
    return ways + ["the stand-in for NCCL"]


def same_bits(folder, threads, saved):
    expected, found = dict(np.load(threads)), dict(np.load(saved))
    assert expected.keys() == found.keys(), (folder.name, expected.keys() ^ found.keys())
    for name, array in expected.items():
        assert array.tobytes() == found[name].tobytes(), f"{folder.name}: {name} differs"


def check(folder, world, outputs, count=3, by_processes=False):
    threads = folder / "threads.npz"
    arguments = [folder, "--data", data_of(folder), "--steps", count]
    report = json.loads(run(*arguments, "--json", "--save", threads).stdout)
    assert report["passed"] and report["ranks"] == world, report
    assert {o["name"] for o in report["outputs"]} == set(outputs), report["outputs"]
    assert all(o["against"] == "model" and o["excused_elements"] == 0 for o in report["outputs"]), report["outputs"]
    told = independent(folder, count)
    ways = processes(folder, world, arguments, threads) if by_processes else []
    print(f"{folder.name}: {len(outputs)} outputs after {count} steps; {told}" + (f"; the same bits by {', '.join(ways)}" if ways else ""))


NETWORK = ["loss", "new.W1", "new.m.W1", "new.W2", "new.m.W2"]


def micro_batches(root):
    both, samples, hidden = (("dp", 2), ("tp", 2)), (("dp", 4),), (("tp", 2),)
    cases = [(samples, 1, "whole"), (samples, 2, "partial"), (samples, 1, "split"), (hidden, 4, "whole"), (both, 4, "partial"),
             (both, 2, "split"), (both, 1, "partial"), (both, 4, "whole")]
    for mesh, count, accumulators in cases:
        name = "x".join(f"{a}{n}" for a, n in mesh) + f"_{count}_{accumulators}"
        folder = steps.one_chunk(root / name, mesh, count, accumulators, outputs_too=count == 2)
        check(folder, int(np.prod([n for _, n in mesh])), NETWORK + (["Y"] if count == 2 else []), by_processes=count == 2)


def chunks(root):
    """As autopar writes programs, where the others are written by hand."""
    version = subprocess.run([AUTOPAR, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    steps.StepFolder.version = version
    check(steps.two_chunks(root / "gpipe", 2, GPIPE), 4, NETWORK, by_processes=True)
    check(steps.two_chunks(root / "zero_bubble", 4, ZERO_BUBBLE, apart=True), 4, NETWORK, by_processes=True)
    check(steps.two_chunks(root / "pytorch", 2, PYTORCH), 4, NETWORK)
    check(steps.two_chunks(root / "clipped", 2, GPIPE.replace("0U", "0R,0U").replace("1U", "1R,1U"), clipped=0.05), 4, NETWORK, by_processes=True)
    check(steps.tied(root / "tied", 2), 4, ["loss", "new.w"], by_processes=True)
    check(steps.one_chunk(root / "one", (("dp", 2), ("tp", 2)), 4, "split"), 4, NETWORK)
    steps.StepFolder.version = None


def how_outputs_combine(root):
    """Of all micro-batches."""
    folder = steps.one_chunk(root / "combined", (("dp", 2),), 4, outputs_too=True)
    data = data_of(folder)
    values = {}
    for how in ("mean", "sum", "last", "concat:0", "concat:1"):
        step = json.loads((folder / "step.json").read_text())
        step["outputs"] = {"loss": how if ":" not in how else "mean", "Y": how}
        (folder / "step.json").write_text(json.dumps(step))
        save = folder / "values.npz"
        run(folder, "--data", data, "--save", save, code=0 if how == "concat:0" else 1)
        values[how] = dict(np.load(save))
    y = values["concat:0"]["out.Y"]
    parts = np.split(y, 4)
    assert np.array_equal(values["last"]["out.Y"], parts[3])
    assert np.array_equal(values["concat:1"]["out.Y"], np.concatenate(parts, 1))
    assert np.allclose(values["sum"]["out.Y"], sum(parts), atol=1e-6) and np.allclose(values["mean"]["out.Y"], sum(parts) / 4, atol=1e-6)
    assert np.allclose(values["sum"]["out.loss"], 4 * values["mean"]["out.loss"])
    print("outputs: mean, sum, last, concat:0, concat:1")


def statistics(root):
    """The reference are the unsharded passes, where a micro-batch's statistics are not those of the batch."""
    for count in (1, 2, 4):
        folder = steps.running_statistics(root / f"statistics_{count}", count)
        report = json.loads(run(folder, "--steps", 3, "--json").stdout)
        assert report["passed"] and {o["name"] for o in report["outputs"]} == {"loss", "new.w", "new.running"}, report
        assert all(o["against"] == "model" for o in report["outputs"]), report
    # The passes of another number of micro-batches are another step.
    whole = root / "statistics_1"
    for name in ("train.FB.onnx", "train.U.onnx"):
        shutil.copy(whole / name, folder / name)
    assert "reads 'X' as float32[32,4]" in run(folder, code=4).stderr
    os.remove(folder / "train.FB.onnx")
    assert "neither train.FB.onnx nor train.F.onnx" in run(folder, code=4).stderr
    print("running statistics: as the unsharded passes leave them")


def wrong_plans(root):
    for fault in ("no reduction", "not accumulated", "not reduced", "not averaged"):
        folder = steps.one_chunk(root / fault.replace(" ", "_"), (("dp", 2), ("tp", 2)), 2, fault=fault)
        done = run(folder, "--data", data_of(folder), code=1)
        assert done.stdout.splitlines()[-1] == "FAILED", done.stdout
        independent(folder, 1, passes=False)
    # An output that the unsharded step has and no program makes.
    folder = steps.one_chunk(root / "lacking", (("dp", 2),), 2)
    edit(folder, outputs={})
    done = run(folder, code=1)
    assert "loss" in done.stdout and "no program of the step makes it" in done.stdout, done.stdout
    print("wrong steps: FAILED")


def edit(folder, **changes):
    step = json.loads((folder / "step.json").read_text())
    (folder / "step.json").write_text(json.dumps({**step, **changes}))


def model_of(folder, name, change):
    model = onnx.load(str(folder / name))
    change(model)
    onnx.save(model, str(folder / name))


def rename(old, new):
    """A value of a program, in its metadata too."""
    def change(model):
        for node in model.graph.node:
            node.input[:] = [new if n == old else n for n in node.input]
            node.output[:] = [new if n == old else n for n in node.output]
        for value in list(model.graph.input) + list(model.graph.output):
            value.name = new if value.name == old else value.name
        for entry in model.metadata_props:
            entry.value = entry.value.replace(f'"{old}"', f'"{new}"')
    return change


def metadata(key, old, new):
    def change(model):
        for entry in model.metadata_props:
            if entry.key == key:
                assert old in entry.value, entry.value
                entry.value = entry.value.replace(old, new)
    return change


def refused(root):
    one = steps.one_chunk(root / "one", (("dp", 2),), 2)
    two = steps.two_chunks(root / "two", 2, GPIPE)
    count = 0

    def expect(source, change, *words, arguments=(), code=4):
        nonlocal count
        count += 1
        folder = root / f"refused_{count}"
        shutil.copytree(source, folder)
        change(folder)
        errors = run(folder, *arguments, code=code).stderr
        assert all(word in errors for word in words), f"expected {words}: {errors}"

    def schedule(text):
        return lambda folder: (folder / "schedule.csv").write_text(text)

    def program(name, change):
        return lambda folder: model_of(folder, name, change)

    nothing = lambda folder: None
    expect(one, lambda f: os.remove(f / "plan.c0.U.onnx"), "plan.c0.U.onnx")
    expect(one, lambda f: edit(f, version=2), "step.json", "version")
    expect(one, lambda f: edit(f, world_size=3), "rank 2 of the world of 3 runs no program")
    expect(one, lambda f: edit(f, micro_inputs={"X": 0, "T": 0, "tokens": 0}), "no program reads 'tokens'")
    expect(one, lambda f: edit(f, micro_inputs={"X": 2, "T": 0}), "'X' along dimension 2", "float32[4,8]")
    expect(one, lambda f: edit(f, outputs={"losses": "mean"}), "no program makes 'losses'")
    expect(one, lambda f: edit(f, outputs={"loss": "concat:0"}), "'loss'", "has no dimension 0")
    expect(one, schedule("0FB0,0U"), "schedule.csv: 0FB1 stands nowhere")
    expect(one, schedule("0FB0,0FB1,0U,0R"), "no program for chunk 0, phase R")
    expect(one, schedule("0FB0,0FC1"), "line 1: '0FC1'")
    expect(one, program("plan.c0.U.onnx", rename("acc.W1", "acc.W3")), "'acc.W3', to which no program of chunk 0 adds")
    expect(one, program("plan.c0.FB.onnx", metadata("autopar.io", '"spec": "[{},{}] +{dp}"', '"spec": "[{},{}]"')),
           "'acc.W1'", "all programs of a chunk hold an accumulator alike")
    expect(one, program("plan.c0.FB.onnx", rename("acc.W1", "sum.W1")), "sum.W1", "partial sum")
    expect(one, program("plan.c0.FB.onnx", rename("loss", "new.W1")), "'new.W1'", "a value is made by one program")
    expect(one, program("plan.c0.U.onnx", rename("learning_rate", "loss")), "plan.c0.U.onnx: reads 'loss'", "for every micro-batch")
    expect(one, nothing, "--updates goes with a plan", arguments=["--updates", "next.*"], code=2)
    expect(two, schedule("0F0,0B0,0F1,0B1,0U\n1F0,1F1,1B0,1B1,1U"), "schedule.csv: 0B0 reads 'da' of 1B0")
    expect(two, schedule("0B0,0F0,0F1,0B1,0U\n1F0,1F1,1B0,1B1,1U"), "schedule.csv: 0B0 reads 'a' of 0F0")
    expect(two, program("c1.F.onnx", metadata("autopar.io", '"shape": [4, 16]', '"shape": [16, 16]')), "c1.F.onnx", "'a'")
    expect(two, program("c0.F.onnx", lambda m: m.graph.node.append(onnx.helper.make_node(
        "Send", ["a"], ["sent"], name="away", domain="ai.autopar", groups=[0, 1], seq=7))), "c0.F.onnx")
    expect(two, program("c1.F.onnx", lambda m: [n.attribute.remove(a) or n.attribute.append(onnx.helper.make_attribute("groups", [0, 1]))
                                               for n in m.graph.node for a in list(n.attribute) if a.name == "groups"]), "c1.F.onnx")
    print(f"{count} folders refused")


def other_commands(root):
    folder = steps.two_chunks(root / "shown", 2, GPIPE)
    for path in (folder, folder / "step.json"):
        shown = run(path, command="show").stdout
        assert "step of 6 programs for 4 ranks, 2 micro-batches" in shown, shown
        assert "0F0 0F1 0B0 0B1 0U" in shown and "c1.B.onnx" in shown and "+{dp}" in shown, shown
    summary = json.loads(run(folder, "--json", command="show").stdout)
    assert summary["format"] == "autopar-step-summary" and summary["lines"][1][0] == "1F0" and len(summary["programs"]) == 6, summary
    assert run(folder, command="verify").stdout.splitlines()[-1] == "PASSED"
    (folder / "schedule.csv").write_text("0F0,0B0,0F1,0B1,0U\n1F0,1F1,1B0,1B1,1U")
    done = run(folder, command="verify", code=4)
    assert "0B0 reads 'da'" in done.stdout and done.stdout.splitlines()[-1] == "FAILED", done.stdout
    assert "step of several programs" in run(folder, "--dialect", "trt", "-o", root / "dialect", command="export", code=4).stderr

    folder = steps.two_chunks(root / "timed", 2, GPIPE)
    report = json.loads(run(folder, "--repeat", 2, "--steps", 2, "--timeline", folder / "timeline.json", "--json").stdout)
    assert report["passed"] and report["timed_runs"] == 2 and not report["warnings"], report
    calls = {t["kind"]: t["calls_per_rank"] for t in report["times"]}
    assert calls["Tanh"] == 4 and calls["Send"] > 0 and calls["Recv"] > 0, calls
    events = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    sums = [e for e in events if e.get("args", {}).get("op_type") == "AllReduce"]
    assert sums and all("waiting_us" in e["args"] for e in sums), sums
    assert any(e["ph"] == "s" for e in events), "no message has an arrow"
    print("show, verify, --repeat and --timeline of steps")


def main():
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        for part in (micro_batches, chunks, how_outputs_combine, statistics, wrong_plans, refused, other_commands):
            (root / part.__name__).mkdir()
            part(root / part.__name__)


if __name__ == "__main__":
    main()
