"""autopar verify: plans that are right pass in all the forms that show and run take; each thing that is wrong is told, and where."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODEL = SOURCE / "models" / "llama_tiny.onnx"


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, devices=4):
    path = folder / "cluster.json"
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": "c",
        "device": {"name": "test", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e9, "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": "t", "size": devices, "bandwidth_bytes_per_s": 1e11, "latency_s": 1e-9}], "host_link": {"bandwidth_bytes_per_s": 1e10}}))
    return path


def plan_of(folder, *options):
    shutil.copy(MODEL, folder / "model.onnx")
    run("search", folder / "model.onnx", "--cluster", cluster(folder), "-o", folder / "plan", "-q", *options)
    return folder / "plan"


def states(path, *options, code=0):
    done = run("verify", path, "--json", *options, code=code)
    document = json.loads(done.stdout)
    assert document["format"] == "autopar-verification" and document["passed"] == (code == 0)
    return {check["name"]: check for check in document["checks"]}, done.stderr


def test_what_is_right_passes(folder):
    plan = plan_of(folder)
    checks, _ = states(plan)
    assert {name: check["state"] for name, check in checks.items()} == dict.fromkeys(
        ("program", "groups", "boundary", "order", "strategy.json", "model"), "ok"), checks
    collectives = [n for n in onnx.load(plan / "plan.onnx").graph.node if n.domain == "ai.autopar"]
    assert collectives and checks["groups"]["what"].startswith(f"{len(collectives)} collectives "), checks["groups"]
    assert "4 ranks issue" in checks["order"]["what"]
    table = run("verify", plan / "plan.onnx").stdout
    assert table.splitlines()[-1] == "PASSED" and "matching collectives in one order" in table
    assert run("verify", plan, "-q").stdout == "PASSED\n"
    # Alone it can still be proven; what it was made of is then not known.
    shutil.copy(plan / "plan.onnx", folder / "alone.onnx")
    checks, _ = states(folder / "alone.onnx")
    assert checks["strategy.json"]["state"] == checks["model"]["state"] == "absent" and "--model" in checks["model"]["what"]
    assert states(folder / "alone.onnx", "--model", folder / "model.onnx")[0]["model"]["state"] == "ok"
    # Other runtimes' words for it, and a folder that holds only these.
    run("export", plan, "--dialect", "trt", "-o", folder / "trt")
    assert states(folder / "trt")[0]["order"]["state"] == "ok"


def test_sharded_weights(folder):
    plan = plan_of(folder, "--weights", "sharded")
    for path in (plan, plan / "rank00001", plan / "rank00001" / "plan.onnx"):
        checks, _ = states(path)
        assert checks["order"]["state"] == checks["ranks"]["state"] == "ok" and "4 folders" in checks["ranks"]["what"], (path, checks)


def test_ranks_that_run_something_else(folder):
    """The ranks run the files of their folders, not the one that is proven above them."""
    plan = plan_of(folder, "--weights", "sharded")
    own = plan / "rank00002" / "plan.onnx"
    model = onnx.load(own, load_external_data=False)
    node = next(n for n in model.graph.node if n.op_type in ("Add", "Mul"))
    node.op_type = "Sub"
    good = own.read_bytes()
    own.unlink()  # a hard link of the other ranks' otherwise
    own.write_bytes(model.SerializeToString())
    checks, message = states(plan, code=4)
    assert checks["order"]["state"] == "ok" and checks["ranks"]["state"] == "wrong" and str(own) in message, (checks, message)
    own.write_bytes(good)
    assert states(plan)[0]["ranks"]["state"] == "ok"
    weights = plan / "rank00001" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert "rank00001" in states(plan, code=4)[1]
    own.unlink()
    assert "rank" in states(plan, code=4)[1]


def test_other_files_than_the_plan_was_made_of(folder):
    plan = plan_of(folder)
    strategy = (plan / "strategy.json").read_text()
    (plan / "strategy.json").write_text(strategy.replace('"version": 1', '"version":  1'))
    checks, message = states(plan, code=4)
    assert checks["strategy.json"]["state"] == "wrong" and checks["model"]["state"] == "ok" and "strategy.json" in message
    (plan / "strategy.json").write_text(strategy)
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes() + b"\n")
    checks, message = states(plan, code=4)
    assert checks["model"]["state"] == "wrong" and "model.onnx" in message
    assert run("verify", plan, code=4).stdout.splitlines()[-1] == "FAILED"
    (folder / "model.onnx").unlink()
    assert states(plan)[0]["model"]["state"] == "absent"


def test_wrong_programs(folder):
    """Groups, order, shapes and layouts, each damaged by hand."""
    plan = plan_of(folder)
    good = (plan / "plan.onnx").read_bytes()

    def damaged(change):
        model = onnx.load_from_string(good)
        change(model)
        (plan / "plan.onnx").write_bytes(model.SerializeToString())
        checks, message = states(plan, code=4)
        assert [c["state"] for c in checks.values()] == ["wrong"] and "plan.onnx" in message, (checks, message)
        return message

    def calls(model):
        return [n for n in model.graph.node if n.domain == "ai.autopar" and n.op_type != "ShardSlice"]

    def attribute(node, name):
        return next(a for a in node.attribute if a.name == name)

    def one_rank_twice(model):
        groups = attribute(calls(model)[0], "groups").ints
        groups[0] = groups[1]

    def same_seq(model):
        first, second = calls(model)[:2]
        attribute(second, "seq").i = attribute(first, "seq").i

    def other_layout(model):
        entry = next(p for p in model.metadata_props if p.key == "autopar.io")
        layouts = json.loads(entry.value)
        layouts[model.graph.output[0].name]["shape"][0] *= 2
        entry.value = json.dumps(layouts)

    assert calls(onnx.load_from_string(good))[0].name in damaged(one_rank_twice)
    assert "seq" in damaged(same_seq)
    assert onnx.load_from_string(good).graph.output[0].name in damaged(other_layout)
    (plan / "plan.onnx").write_bytes(good[: len(good) // 2])
    assert "plan.onnx" in states(plan, code=4)[1]
    assert "no such file" in run("verify", folder / "none", code=4).stderr


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
