"""Sharded weights as their users meet them: safetensors, ONNX and ONNX Runtime read them; merged and resharded, they run."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save, save_file

from tools.program import AUTOPAR, cluster, run

MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or pathlib.Path(os.environ["AUTOPAR_SOURCE"]).parent / "shared") / "data" / "models"
SLOW = {"flops": 1e9, "memory_bandwidth": 1e9, "slower": 4}  # devices so slow that weights are worth cutting


def initializers(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def ranks(folder):
    return sorted(p for p in folder.iterdir() if p.is_dir())


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def entries(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")}


def typed_model(path, external):
    """Weights of many types and shapes; 16-bit ones, a scalar, one that is read twice. Returns them by name."""
    random = np.random.default_rng(1)
    weights, nodes, outputs = {}, [], []

    def weight(name, array):
        weights[name] = array
        return name

    def output(name, kind, shape):
        outputs.append(helper.make_tensor_value_info(name, kind, shape))

    nodes.append(helper.make_node("MatMul", ["x", weight("half", random.normal(size=(64, 48)).astype(np.float16))], ["y"], "fc"))
    nodes.append(helper.make_node("Mul", ["y", weight("scale", random.normal(size=(48,)).astype(np.float16))], ["scaled"], "scale_op"))
    nodes.append(helper.make_node("Mul", ["scaled", weight("one", np.array(0.5, np.float16))], ["z"], "one_op"))
    output("z", TensorProto.FLOAT16, [16, 48])
    nodes.append(helper.make_node("MatMul", ["x", weight("conv", random.normal(size=(64, 64)).astype(np.float16))], ["c"], "fc2"))
    nodes.append(helper.make_node("MatMul", ["c", "half"], ["d"], "fc3"))
    output("d", TensorProto.FLOAT16, [16, 48])
    nodes.append(helper.make_node("Gather", [weight("table", random.normal(size=(96, 32)).astype(np.float32)), "ids"], ["e"], "gather", axis=0))
    nodes.append(helper.make_node("Where", [weight("mask", random.random((16, 32)) < 0.5), "e", weight("other", random.normal(size=(16, 32)).astype(np.float32))], ["w"], "where"))
    output("w", TensorProto.FLOAT, [16, 32])
    graph = helper.make_graph(nodes, "typed", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [16, 64]), helper.make_tensor_value_info("ids", TensorProto.INT64, [16])],
                              outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if external:
        onnx.save(model, path, save_as_external_data=True, location=path.stem + ".data", size_threshold=256)
    else:
        onnx.save(model, path)
    return weights


def program(path):
    return onnx.load(path, load_external_data=False)


def check_ranks(folder, weights):
    """Every rank's folder is safetensors and ONNX at once; put together by what the plan says it is the weights."""
    plan = program(folder / "plan.onnx")
    if any(t.data_location == TensorProto.EXTERNAL for t in plan.graph.initializer):
        try:
            onnx.load(folder / "plan.onnx")
            raise AssertionError("the program of all ranks loads with the weights of one")
        except (FileNotFoundError, onnx.checker.ValidationError) as error:
            assert "#rankNNNNN" in str(error), error
    said = {p.key: p.value for p in plan.metadata_props}
    assert said["autopar.weights"] == "sharded"
    layouts = json.loads(said["autopar.weights_io"])
    devices = int(said["autopar.world_size"])
    assert len(ranks(folder)) == devices and set(layouts) == {n for n in weights if n in layouts}
    onnx.checker.check_model(plan)
    programs = {(r / "plan.onnx").read_bytes() for r in ranks(folder)}
    assert len(programs) == 1
    for rank, where in enumerate(ranks(folder)):
        onnx.checker.check_model(where / "plan.onnx")
        held, loaded = load_file(where / "weights.safetensors"), initializers(where / "plan.onnx")
        for name, layout in layouts.items():
            sizes, slices = layout["device_matrix"], []
            coordinates = np.unravel_index(rank, sizes)
            for extent, axes in zip(layout["shape"], layout["tensor_map"]):
                part, parts = 0, 1
                for axis in axes if isinstance(axes, list) else [] if axes == -1 else [axes]:
                    place = len(sizes) - 1 - axis
                    part, parts = part * sizes[place] + int(coordinates[place]), parts * sizes[place]
                slices.append(slice(part * extent // parts, (part + 1) * extent // parts))
            expected = weights[name][tuple(slices)]
            assert equal(loaded[name], expected), (name, rank)
            assert name not in held or equal(held[name], expected), (name, rank)
    return layouts


def test_models_run_from_their_ranks(folder):
    machine = cluster(folder, 2, 2, **SLOW)
    for name in ("tiny_llama", "tiny_moe_gather", "tiny_resnet"):
        model, out = MODELS / f"{name}.onnx", folder / name
        run("search", model, "--cluster", machine, "-o", out, "--weights", "sharded", "--memory", "1MiB", "--mesh", "2x2")
        weights = initializers(model)
        layouts = check_ranks(out, weights)
        assert any(axes != -1 for layout in layouts.values() for axes in layout["tensor_map"]), name
        assert run("run", out).stdout.splitlines()[-1] == "PASSED", name
        whole = folder / f"{name}.safetensors"
        run("merge", out, "-o", whole)
        merged = load_file(whole)
        assert set(merged) == set(layouts) and all(equal(merged[n], weights[n]) for n in merged)
        assert whole.read_bytes() == save(merged)  # byte for byte what the package writes
        told = run("reshard-weights", "--from", model, "--to", out, "-o", folder / f"{name}_again").stderr
        assert not told, told
        again = folder / f"{name}_again.onnx"
        run("merge", out, "-o", again)
        onnx.checker.check_model(again)
        assert {n: a.tobytes() for n, a in initializers(again).items()} == {n: a.tobytes() for n, a in weights.items()}


def test_types_and_external_data(folder):
    for external in (False, True):
        where = folder / f"external_{external}"
        where.mkdir()
        weights = typed_model(where / "typed.onnx", external)
        machine = cluster(folder, 2, 2, 3, **SLOW)
        run("search", where / "typed.onnx", "--cluster", machine, "-o", where / "a", "--weights", "sharded", "--mesh", "3x2x2")
        check_ranks(where / "a", weights)
        assert run("run", where / "a").stdout.splitlines()[-1] == "PASSED"
        # Another number of ranks, another mesh; the plan that they are for is not sharded.
        run("search", where / "typed.onnx", "--cluster", cluster(folder, 8, **SLOW), "-o", where / "b", "--mesh", "2x4", "--searcher", "rec")
        before = entries(where / "b")
        run("reshard-weights", "--from", where / "a", "--to", where / "b", "-o", where / "c")
        assert entries(where / "b") == before
        check_ranks(where / "c", weights)
        assert run("run", where / "c").stdout.splitlines()[-1] == "PASSED"
        run("merge", where / "a", "-o", where / "a.safetensors")
        run("merge", where / "c", "-o", where / "c.safetensors")
        assert (where / "a.safetensors").read_bytes() == (where / "c.safetensors").read_bytes()
        # From whole weights; in place.
        for source in (where / "a.safetensors", where / "typed.onnx"):
            run("reshard-weights", "--from", source, "--to", where / "b", "-o", where / "d")
            assert all((where / "d" / p.relative_to(where / "c")).read_bytes() == p.read_bytes() for p in (where / "c").glob("rank*/*"))
        run("reshard-weights", "--from", where / "a", "--to", where / "b")
        assert run("run", where / "b").stdout.splitlines()[-1] == "PASSED"


def test_states_of_a_training_step(folder):
    """Weights and optimizer states are inputs of the plan: they come from a file that has them and lie as the plan says."""
    model, machine = MODELS / "tiny_train_llama_adamw.onnx", cluster(folder, 2, 2, **SLOW)
    a, b = folder / "a", folder / "b"
    run("search", model, "--cluster", machine, "-o", a, "--mesh", "2x2", "--memory", "2MiB")
    run("search", model, "--cluster", cluster(folder, 6, **SLOW), "-o", b, "--mesh", "6", "--searcher", "rec")
    said = {p.key: p.value for p in program(a / "plan.onnx").metadata_props}
    layouts = json.loads(said["autopar.io"])
    random = np.random.default_rng(2)
    states = {i: random.normal(size=layouts[i]["shape"]).astype(np.float32) for i in layouts if f"new.{i}" in layouts}
    assert len(states) > 10 and any(axes != -1 for i in states for axes in layouts[i]["tensor_map"])
    save_file({**states, "stranger": np.zeros(3, np.float32)}, folder / "states.safetensors")
    lacking = run("reshard-weights", "--from", folder / "states.safetensors", "--to", a, code=4).stderr
    assert "lacks weights" in lacking and not ranks(a)
    tables = {n: v for n, v in initializers(model).items() if n in json.loads(said["autopar.weights_io"])}
    assert tables and all(f"'{n}'" in lacking for n in tables)
    told = run("reshard-weights", "--from", folder / "states.safetensors", "--to", a, "--keep-missing").stderr
    assert "'stranger'" in told and "nothing for these inputs" in told and "kept as they are" in told, told
    states.update(tables)
    said = {p.key: p.value for p in program(a / "plan.onnx").metadata_props}
    layouts.update(json.loads(said["autopar.weights_io"]))
    held = load_file(a / "rank00003" / "weights.safetensors")
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in program(a / "plan.onnx").graph.input}
    assert set(held) <= set(states) and all(list(held[n].shape) == shapes[n] for n in held if n in shapes)
    assert run("run", a).stdout.splitlines()[-1] == "PASSED"
    run("reshard-weights", "--from", a, "--to", b)
    run("merge", b, "-o", folder / "merged.safetensors")
    merged = load_file(folder / "merged.safetensors")
    assert set(merged) == set(states) and all(equal(merged[n], states[n]) for n in states)
    # A rank whose state went its own way is found.
    run("search", model, "--cluster", machine, "-o", folder / "c", "--searcher", "replicate")
    run("reshard-weights", "--from", b, "--to", folder / "c")
    held = load_file(folder / "c" / "rank00003" / "weights.safetensors")
    name = max(held)
    held[name] = held[name] + 1
    save_file(held, folder / "c" / "rank00003" / "weights.safetensors")
    told = run("merge", folder / "c", "-o", folder / "diverged.safetensors", code=1).stderr
    assert f"'{name}'" in told and "ranks 0 and 3" in told, told
    assert not list(folder.glob("diverged*"))


def test_a_training_step_keeps_what_a_file_lacks(folder):
    """Parameters that are not in the file are asked for; with --keep-missing those stay that lay there."""
    model, a = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models" / "mlp.onnx", folder / "a"
    run("search", model, "--cluster", cluster(folder, 2, 2, **SLOW), "--train", "--loss", "mse", "--optimizer", "sgd", "--weights", "sharded", "-o", a)
    run("merge", a, "-o", folder / "whole.safetensors")
    whole = load_file(folder / "whole.safetensors")
    name = min(whole)
    assert len(whole) > 2
    save_file({name: whole[name] + 1}, folder / "one.safetensors")
    before = {path: path.read_bytes() for path in a.rglob("*") if path.is_file()}
    told = run("reshard-weights", "--from", folder / "one.safetensors", "--to", a, code=4).stderr
    assert "lacks" in told and "--keep-missing" in told and f"'{name}'" not in told, told
    assert before == {path: path.read_bytes() for path in a.rglob("*") if path.is_file()}
    told = run("reshard-weights", "--from", folder / "one.safetensors", "--to", a, "--keep-missing").stderr
    assert "kept as they are" in told, told
    run("merge", a, "-o", folder / "merged.safetensors")
    merged = load_file(folder / "merged.safetensors")
    assert set(merged) == set(whole) and equal(merged[name], whole[name] + 1) and all(equal(merged[n], whole[n]) for n in whole if n != name)
    assert run("run", a).stdout.splitlines()[-1] == "PASSED"


def rewritten(path, change):
    """Another file of that name: the other ranks keep theirs."""
    model = program(path)
    change(model)
    path.unlink()
    onnx.save(model, path)


def test_what_runs_is_what_was_proven(folder):
    typed_model(folder / "typed.onnx", False)
    machine = cluster(folder, 2, 2, **SLOW)
    out, other = folder / "out", folder / "other"
    for where, mesh in ((out, "2x2"), (other, "4")):
        run("search", folder / "typed.onnx", "--cluster", machine, "-o", where, "--weights", "sharded", "--mesh", mesh, "--searcher", "rec")
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"
    plan = out / "rank00002" / "plan.onnx"
    kept = plan.read_bytes()

    def refused(what, path):
        told = run("run", out, code=4).stderr
        assert str(path) in told and what in told and "reshard-weights" in told, told

    # A rank's program that somebody has edited: the others have it as it was.
    def edit(model):
        op = next(n for n in model.graph.node if n.op_type == "Where")
        op.input[1], op.input[2] = op.input[2], op.input[1]
    rewritten(plan, edit)
    refused("Where 'where' differs", plan)
    # That of another plan; slices that do not fit the plan.
    plan.write_bytes((other / "rank00002" / "plan.onnx").read_bytes())
    refused("is not the program of", plan)
    plan.write_bytes(kept)
    weights = plan.with_name("weights.safetensors")
    slices = weights.read_bytes()
    held = load_file(weights)
    name = next(n for n, a in held.items() if a.shape[:1] > (1,))
    save_file({**held, name: held[name][:1]}, weights)
    refused("weight '", weights)
    save_file({n: a for n, a in held.items() if n != name}, weights)
    refused("weight '", weights)
    weights.write_bytes(slices)
    plan.unlink()
    refused("rank 2 runs it", plan)
    # A copy instead of a hard link, and a plan above it whose weights lie in the folder of rank 0, as they once did.
    plan.write_bytes(kept)
    def of_rank_0(model):
        for entry in (e for t in model.graph.initializer for e in t.external_data if e.key == "location"):
            entry.value = entry.value.replace("#rankNNNNN", "rank00000")
    rewritten(out / "plan.onnx", of_rank_0)
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"


def test_full_disk_and_wrong_use(folder):
    weights = typed_model(folder / "typed.onnx", True)
    machine = cluster(folder, 2, 2, **SLOW)
    # A limit on the size of files stands for a disk that is full.
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    before = entries(folder)
    limited = subprocess.run([AUTOPAR, "search", folder / "typed.onnx", "--cluster", machine, "-o", folder / "full", "--weights", "sharded"],
                             capture_output=True, text=True, preexec_fn=limit)
    assert limited.returncode == 6 and "weights.safetensors" in limited.stderr, limited
    assert entries(folder) == before
    run("search", folder / "typed.onnx", "--cluster", machine, "-o", folder / "whole")
    assert "nothing to merge" in run("merge", folder / "whole", "-o", folder / "x.safetensors", code=4).stderr
    run("merge", folder / "whole", "-o", folder / "x.bin", code=2)
    assert "has no plan.onnx" in run("merge", folder, "-o", folder / "x.safetensors", code=4).stderr
    partial = {n: a for n, a in weights.items() if n != "table"}
    save_file(partial, folder / "partial.safetensors")
    told = run("reshard-weights", "--from", folder / "partial.safetensors", "--to", folder / "whole", code=4).stderr
    assert "lacks weights" in told and "'table'" in told
    assert not ranks(folder / "whole")
    os.truncate(folder / "typed.data", 1000)
    told = run("search", folder / "typed.onnx", "--cluster", machine, "-o", folder / "short", "--weights", "sharded", code=4).stderr
    assert "typed.data" in told and not (folder / "short").exists()


def main():
    for test in (test_types_and_external_data, test_what_runs_is_what_was_proven, test_full_disk_and_wrong_use, test_models_run_from_their_ranks, test_states_of_a_training_step):
        if "model" in test.__name__ or "training" in test.__name__:
            if not (MODELS / "tiny_llama.onnx").exists():
                print(f"skipped {test.__name__}: no models in {MODELS} (set AUTOPAR_SHARED)")
                continue
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
