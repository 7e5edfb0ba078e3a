"""The folder that a plan is written to: what may not be lost there, whatever is refused or fails."""
import functools
import hashlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CLUSTER = SOURCE / "models" / "clusters" / "pcie-8.json"
NO_ROOM = 6


def run(*args, code=0, largest_file=None):
    """`largest_file`: in bytes; a limit that stands for a disk which is full."""
    limit = largest_file is not None and functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (largest_file, largest_file))
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, timeout=300, preexec_fn=limit or None)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout[-2000:]}\n{done.stderr}"
    return done


def contents(folder):
    return {str(p.relative_to(folder)): p.is_dir() or (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest())
            for p in folder.rglob("*")}


def model_with_data(folder, location, columns=256):
    """A model whose weights are a file of a few hundred KiB beside it."""
    folder.mkdir(exist_ok=True)
    weight = numpy_helper.from_array(np.ones((256, columns), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, columns])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    data = folder / location
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(weight.raw_data)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_names_that_the_data_may_not_have(folder):
    """A model's data keep their name beside the plan, so that it may not be that of a file which autopar writes there."""
    good = ["weights.bin", "plan.bin", "plan.onnx.data", "planes.onnx", "strategy.json.bin", "rank.bin", "rank0.bin", "ranks/0", "data/plan.onnx",
            "model.annotated.onnx"]
    taken = ["plan.onnx", "strategy.json", "report.json", "plan.trt.onnx", "plan.trt.rank0.onnx", "plan.trt.json", "plan.ort.onnx",
             "plan.stage0.onnx", "rank00000", "rank00001/weights.safetensors", "./plan.onnx"]
    for i, location in enumerate(good):
        model, out = model_with_data(folder / f"good{i}", location), folder / f"out{i}"
        run("search", model, "--cluster", CLUSTER, "-o", out, "-q")
        assert (out / location).read_bytes() == (model.parent / location).read_bytes(), location
        assert json.loads((out / "strategy.json").read_text())["format"] == "autopar-strategy", location
        onnx.load(out / "plan.onnx", load_external_data=False)
    for i, location in enumerate(taken):
        model, out = model_with_data(folder / f"taken{i}", location), folder / "none"
        for command in (("search",), ("search", "--weights", "sharded"), ("apply", "--strategy", folder / "out0" / "strategy.json")):
            said = run(command[0], model, "--cluster", CLUSTER, "-o", out, *command[1:], code=4).stderr
            assert f"the external data '{location}' of initializer 'w' has the name of a file that is written beside the plan" in said, said
            assert not out.exists(), (location, command)
    # Only where it is written.
    model = model_with_data(folder / "annotated", "model.annotated.onnx")
    said = run("search", model, "--cluster", CLUSTER, "-o", folder / "none", "--annotate", code=4).stderr
    assert "'model.annotated.onnx' of initializer 'w' has the name of a file" in said and not (folder / "none").exists(), said


def test_a_search_that_fails_leaves_the_earlier_plan(folder):
    """Whichever of the new files cannot be written, the folder is as before: every file of the earlier plan, and nothing else."""
    out, new = folder / "out", folder / "new"
    model = model_with_data(folder / "model", "weights.bin")
    variants = {"plain": [], "dialects": ["--dialect", "trt", "--dialect", "ort", "--annotate"], "sharded": ["--weights", "sharded"]}
    failed = 0
    for first in variants.values():
        run("search", model, "--cluster", CLUSTER, "-o", out, "-q", "--mesh", "8", *first)
        (out / "notes.txt").write_text("mine")
        before = contents(out)
        # A model of another size under the same name: all that is written differs, the data too.
        model_with_data(folder / "model", "weights.bin", columns=512)
        for then in variants.values():
            for command in ("search", "apply"):
                search = (model, "--cluster", CLUSTER, "-q", *then)
                if command == "apply":
                    search += ("--strategy", new / "strategy.json")
                else:
                    run(command, *search, "-o", new)
                for size in sorted({p.stat().st_size for p in new.rglob("*") if p.is_file()}):
                    said = run(command, *search, "-o", out, code=NO_ROOM, largest_file=size - 1).stderr
                    assert contents(out) == before, (first, then, size, said, contents(out).keys() ^ before.keys())
                    failed += 1
            shutil.rmtree(new)
        # No plan, or a name that is taken: nothing is touched, either.
        run("search", model, "--cluster", CLUSTER, "-o", out, "--memory", "1KiB", code=3)
        assert contents(out) == before
        (out / "strategy.json").rename(folder / "strategy.json")
        (out / "strategy.json").mkdir()
        said = run("search", model, "--cluster", CLUSTER, "-o", out, code=4).stderr
        assert f"{out / 'strategy.json'}: cannot be written" in said, said
        (out / "strategy.json").rmdir()
        (folder / "strategy.json").rename(out / "strategy.json")
        assert contents(out) == before
        # The earlier plan is still one, of the earlier model.
        model_with_data(folder / "model", "weights.bin")
        run("verify", out)
        # And a search that succeeds replaces all of it that it writes.
        run("search", model, "--cluster", CLUSTER, "-o", out, "-q", *first)
        run("search", model, "--cluster", CLUSTER, "-o", new, "-q", *first)
        assert not [name for name in contents(out) if ".part-" in name], contents(out).keys()
        for path in new.rglob("*"):
            same = path.relative_to(new)
            assert path.is_dir() or path.name == "report.json" or (out / same).read_bytes() == path.read_bytes(), same
        run("verify", out)
        shutil.rmtree(out)
        shutil.rmtree(new)
    assert failed > 50, failed


def test_a_plan_of_another_form(folder):
    """Of one pass, of several, in stages: what reads the folder takes the plan that was written last."""
    model = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models" / "mlp.onnx"
    out = folder / "out"
    train = ("search", model, "--cluster", CLUSTER, "-o", out, "--train", "--loss", "mse", "--optimizer", "sgd")
    forms = {"one": [], "several": ["--micro-batches", "2"], "stages": ["--micro-batches", "2", "--stages", "2"]}
    for first, before in forms.items():
        for then, options in forms.items():
            run(*train, "-q", *before)
            said = run(*train, *options).stderr
            run("verify", out)
            assert ("program" in run("show", out).stdout.splitlines()[0]) == (then != "one"), (first, then)
            assert (out / "step.json").exists() == (then != "one")
            # Programs that are no more of it stay, and are told of.
            left = {("several", "one"): "plan.c0.FB.onnx", ("stages", "one"): "plan.c1.F.onnx", ("stages", "several"): "plan.c1.F.onnx", ("several", "stages"): "plan.c0.FB.onnx",
                    ("one", "several"): "plan.onnx", ("one", "stages"): "plan.onnx"}.get((first, then), "")
            assert (left in said and "left as they are" in said) if left else "left as they are" not in said, (first, then, said)
            shutil.rmtree(out)
    # A step that somebody wrote by hand stays.
    out.mkdir()
    (out / "step.json").write_text('{"format": "autopar-step", "version": 1}')
    said = run(*train, "-q", code=4).stderr
    assert "step.json: is there and was not written by autopar" in said and len(contents(out)) == 1, said


def test_files_of_ranks_of_an_earlier_plan(folder):
    """A step of one pass that reads whole weights does not read them; it has no weights that could be moved, either."""
    weights = [numpy_helper.from_array(np.ones((8, 8), np.float32), name) for name in ("w", "v")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"], "one"), helper.make_node("MatMul", ["h", "v"], ["y"], "two")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8])], weights)
    model, out = folder / "model.onnx", folder / "out"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    search = ("search", model, "--cluster", CLUSTER, "--train", "--loss", "mse", "-o", out)
    run(*search, "--optimizer", "adamw", "--weights", "sharded", "-q")
    run("run", out, "-q")
    said = run(*search, "--optimizer", "sgd").stderr
    assert "left as they are: rank00000" in said, said
    run("run", out, "-q")
    run("verify", out, "-q")
    said = run("reshard-weights", "--from", out, "--to", out, "-o", folder / "new", code=4).stderr
    assert f"{out}: holds no weights" in said and "'v'" in said and not (folder / "new").exists(), said


def test_slices_of_another_layout(folder):
    """Of the same shapes on every rank: what a rank holds stands elsewhere in the whole."""
    model, out = folder / "model.onnx", folder / "out"
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "one")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8])], [numpy_helper.from_array(np.arange(64, dtype=np.float32).reshape(8, 8), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    pins = {}
    for name, order in (("a", "{p},{q}"), ("b", "{q},{p}")):
        pins[name] = folder / f"{name}.json"
        pins[name].write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": [{"name": name, "size": 2} for name in "pqr"],
                                          "tensors": {"w": {"spec": f"[{order}]"}}}))
    search = ("search", model, "--cluster", CLUSTER, "--train", "--loss", "sum", "--micro-batches", 2, "-o", out, "-q")
    run(*search, "--pin", pins["a"], "--weights", "sharded")
    run("verify", out), run("run", out, "-q"), run("merge", out, "-o", folder / "whole.safetensors", "-q")
    run(*search, "--pin", pins["b"])
    for command in (("verify", out), ("run", out), ("merge", out, "-o", folder / "other.safetensors")):
        done = run(*command, code=4)
        assert "rank00002/weights.safetensors: 'w' begins at [0,4] of the whole, expected [4,0]" in done.stdout + done.stderr, done
    assert not (folder / "other.safetensors").exists()


def test_weights_that_a_merged_model_refers_to(folder):
    """They stay where it says; the model itself may be merged again."""
    model, out, merged, weights = model_with_data(folder / "model", "w.bin"), folder / "out", folder / "merged.onnx", folder / "merged.safetensors"
    run("search", model, "--cluster", CLUSTER, "--weights", "sharded", "-o", out, "-q")
    run("merge", out, "-o", merged, "-q")
    before = weights.read_bytes()
    said = run("merge", out, "-o", weights, code=4).stderr
    assert "at places that would change" in said and weights.read_bytes() == before, said
    run("merge", out, "-o", merged, "-q")
    assert weights.read_bytes() == before


def test_what_is_read_stays(folder):
    """No file takes the place of the model, of a plan's program, or of a training step of somebody else."""
    model = (SOURCE / "models" / "mlp.onnx").read_bytes()
    train = ("--cluster", CLUSTER, "--train", "--loss", "mse", "--optimizer", "sgd", "-q")
    for name, options in (("train.onnx", train), ("plan.onnx", ("--cluster", CLUSTER, "-q"))):
        out = folder / name.split(".")[0]
        out.mkdir()
        (out / name).write_bytes(model)
        said = run("search", out / name, *options, "-o", out, code=4).stderr
        assert f"{out / name}: is the model, so it is not replaced" in said and (out / name).read_bytes() == model, said
    foreign = folder / "foreign"
    foreign.mkdir()
    for name, text in (("train.onnx", model), ("schedule.csv", b"0F0"), ("plan.c0.FB.onnx", model)):
        (foreign / name).write_bytes(text)
        said = run("search", SOURCE / "models" / "mlp.onnx", *train, "--micro-batches", 2, "-o", foreign, code=4).stderr
        assert f"{foreign / name}: is there and was not written by autopar" in said and (foreign / name).read_bytes() == text, said
        (foreign / name).unlink()
    # Where a plan lies the rest of it is replaced; a model that came there later is not.
    run("search", SOURCE / "models" / "mlp.onnx", *train, "--micro-batches", 2, "-o", foreign)
    run("search", SOURCE / "models" / "mlp.onnx", *train, "--micro-batches", 4, "-o", foreign)
    (foreign / "train.onnx").write_bytes(model)
    run("search", SOURCE / "models" / "mlp.onnx", *train, "-o", foreign, code=4)
    assert (foreign / "train.onnx").read_bytes() == model

    own = folder / "own.onnx"
    own.write_bytes(model)
    machine = folder / "machine.json"
    machine.write_bytes(CLUSTER.read_bytes())
    search = ("search", own, "--cluster", machine, "-q", "-o", folder / "out")
    run(*search)
    program = folder / "out" / "plan.onnx"
    for path, command in ((own, ("grad", own, "--loss", "mse", "-o", own)), (own, (*search, "--timeline", own)), (machine, (*search, "--timeline", machine)),
                          (own, (*search, "--dump-problem", own)), (program, ("run", folder / "out", "-q", "--timeline", program)), (own, ("run", folder / "out", "-q", "--save", own))):
        before = path.read_bytes()
        said = run(*command, code=4).stderr
        assert "is what is read, so it is not replaced" in said and path.read_bytes() == before, (command, said)


def test_what_cannot_be_written_is_told_first(folder):
    """Before anything is read or searched: none of the files that the commands name is there."""
    (folder / "file").write_text("mine")
    (folder / "folder" / "strategy.json").mkdir(parents=True)
    folders = {f"{folder}/file": "cannot be made: 'FOLDER/file' is a file, not a folder", f"{folder}/file/a/b": "cannot be made: 'FOLDER/file' is a file, not a folder",
               f"{folder}/{'a' * 256}": "File name too long", f"{folder}/new/{'a' * 256}/b": "File name too long",
               f"{folder}/folder": "strategy.json: cannot be written: Is a directory"}
    files = {f"{folder}/file/a": "cannot be written: 'FOLDER/file' is a file, not a folder", f"{folder}/folder": "cannot be written: Is a directory",
             f"{folder}/{'a' * 256}": "File name too long", f"{folder}/new/{'a' * 256}/b": "File name too long"}
    search = ("search", "none.onnx", "--cluster", CLUSTER)
    to_folder = [(*search, "-o"), ("apply", "none.onnx", "--cluster", CLUSTER, "--strategy", "none.json", "-o"),
                 ("reshard-weights", "--from", "none", "--to", "none", "-o")]
    to_file = [(*search, "--timeline"), (*search, "--dump-problem"), ("grad", "none.onnx", "-o"), ("fit", "none.csv", "-o"), ("calibrate", "--model", "none.onnx", "-o"),
               ("solve", "none.json", "-o"), ("run", "none", "--save"), ("run", "none", "--timeline"), ("export", "none", "--as", "megatron", "-o")]
    before = contents(folder)
    for places, commands in ((folders, to_folder), (files, to_file)):
        for command in commands:
            for place, reason in places.items():
                if command[0] == "reshard-weights" and place.endswith("folder"):
                    continue  # no strategy.json is sure to be written
                said = run(*command, place, code=4).stderr
                assert reason.replace("FOLDER", str(folder)) in said and place in said, (command, place, said)
    said = run("merge", "none", "-o", folder / "file" / "a.safetensors", code=4).stderr
    assert "is a file, not a folder" in said, said
    out = folder / "out"
    run("search", SOURCE / "models" / "mlp.onnx", "--cluster", CLUSTER, "-q", "-o", out)
    said = run("export", out, "--dialect", "trt", "-o", folder / "file" / "a", code=4).stderr
    assert "is a file, not a folder" in said, said
    shutil.rmtree(out)
    assert contents(folder) == before


def test_folders_of_others(folder):
    """What the user may not write to, and devices; a name may be as long as the system has them."""
    nobody = 65534
    as_nobody = {"user": nobody, "group": nobody, "extra_groups": []} if os.geteuid() == 0 else {}
    folder.chmod(0o755)
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    try:
        can_start = subprocess.run([AUTOPAR, "--version"], capture_output=True, timeout=60, **as_nobody).returncode == 0
    except OSError:
        can_start = False
    for command in ((("search", "none.onnx", "--cluster", "pcie-8", "-o", closed), ("search", "none.onnx", "--cluster", "pcie-8", "-o", closed / "new" / "out"),
                     ("grad", "none.onnx", "-o", closed / "a.onnx"), ("run", "none", "--save", closed / "a.npz")) if can_start else ()):
        done = subprocess.run([AUTOPAR, *map(str, command)], capture_output=True, text=True, timeout=60, cwd="/", **as_nobody)
        assert done.returncode == 4 and f"{command[-1]}: cannot be " in done.stderr and "Permission denied" in done.stderr, (command, done.stderr)
    closed.chmod(0o755)
    model = SOURCE / "models" / "mlp.onnx"
    longest = folder / ("a" * 250 + ".onnx")
    run("grad", model, "--loss", "mse", "-q", "-o", longest)
    assert longest.is_file()
    out = folder / "out"
    run("search", model, "--cluster", CLUSTER, "-q", "-o", out)
    run("run", out, "-q", "--save", folder / "new" / "saved.npz")
    assert "out.Y" in np.load(folder / "new" / "saved.npz")
    os.mkfifo(folder / "pipe")
    said = run("run", out, "-q", "--save", folder / "pipe", code=4).stderr
    assert "is a device or a pipe" in said and (folder / "pipe").is_fifo(), said


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as temporary:
                test(pathlib.Path(temporary))


if __name__ == "__main__":
    main()
