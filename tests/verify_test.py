"""autopar verify: plans that are right pass in all the forms that show and run take; each thing that is wrong is told, and where."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.numpy_helper

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


def write_two_products(path):
    values = np.random.default_rng(1)
    weights = [onnx.numpy_helper.from_array(values.standard_normal((64, 64)).astype(np.float32), name) for name in ("w1", "w2")]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w1"], ["h"], "fc1"), onnx.helper.make_node("MatMul", ["h", "w2"], ["y"], "fc2")]
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, 64]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


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


def named_lists(path):
    """Rewrites a program so that each list of ranks stands in it once. Returns how many ops name one."""
    model = onnx.load(path, load_external_data=False)
    lists, named = [], 0
    for node in model.graph.node:
        for attribute in node.attribute if node.domain == "ai.autopar" else []:
            if attribute.name != "groups":
                continue
            ranks = list(attribute.ints)
            if ranks not in lists:
                lists.append(ranks)
            attribute.CopyFrom(onnx.helper.make_attribute("group_ref", lists.index(ranks)))
            named += 1
    onnx.helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, "autopar.groups": json.dumps(lists)})
    onnx.save(model, path)
    return named


def runs(plan):
    """On threads, and on processes where Open MPI is here."""
    assert run("run", plan).stdout.splitlines()[-1] == "PASSED"
    launcher = shutil.which("mpirun.openmpi")
    if launcher and (pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / "libautopar_openmpi.so").exists():
        allowed = ["--allow-run-as-root"] if os.getuid() == 0 else []
        done = subprocess.run([launcher, "--oversubscribe", *allowed, "-n", "4", AUTOPAR, "run", str(plan)], capture_output=True, text=True)
        assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr


def says_the_same(*args, other, path):
    """A command about `path` says what it says of `other`."""
    found, expected = (run(*(at if a is None else a for a in args), "--json").stdout.replace(str(at if at.is_dir() else at.parent), "PATH") for at in (path, other))
    assert json.loads(found) == json.loads(expected), args


def test_lists_of_ranks_that_stand_once(folder):
    """A program whose collectives name lists of ranks (`group_ref`) is as one whose collectives have them."""
    plan = plan_of(folder, "--mesh", "2x2")
    named = folder / "named"
    shutil.copytree(plan, named)
    assert named_lists(named / "plan.onnx") > 2
    for command in (("verify", None), ("show", None), ("price", None, "--cluster", folder / "cluster.json")):
        says_the_same(*command, other=plan / "plan.onnx", path=named / "plan.onnx")
    runs(named)
    for at in (plan, named):
        run("export", at, "--dialect", "trt", "-o", at / "trt", "-q")
    for path in sorted((plan / "trt").glob("*.onnx")):
        assert path.read_bytes() == (named / "trt" / path.name).read_bytes(), path
    # A file that was written by hand, with the collectives in the body of a function or not.
    model = onnx.load(named / "plan.onnx", load_external_data=False)
    kept = [p for p in model.metadata_props if p.key in ("autopar.groups", "autopar.io", "autopar.mesh")]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, folder / "by_hand.onnx")
    assert states(folder / "by_hand.onnx")[0]["groups"]["state"] == "ok"


def test_lists_in_steps(folder):
    """Also in steps of several programs."""
    shutil.copy(MODEL, folder / "model.onnx")
    step, named = folder / "step", folder / "named"
    run("search", folder / "model.onnx", "--cluster", cluster(folder), "--train", "--loss", "cross_entropy", "--optimizer", "adamw", "--batch", "8",
        "--stages", "2", "--micro-batches", "2", "-o", step, "-q")
    shutil.copytree(step, named)
    assert sum(named_lists(program) for program in sorted(named.glob("plan.*.onnx"))) > 0
    says_the_same("verify", None, other=step, path=named)
    says_the_same("show", None, other=step, path=named)
    assert run("run", named).stdout.splitlines()[-1] == "PASSED"


def test_lists_in_files_of_ranks(folder):
    """Also where every rank has a file of its own, and in what `merge` makes of them."""
    write_two_products(folder / "model.onnx")
    plan, named = folder / "plan", folder / "named"
    run("search", folder / "model.onnx", "--cluster", cluster(folder), "--weights", "sharded", "-o", plan, "-q")
    shutil.copytree(plan, named)
    programs = sorted(named.rglob("plan.onnx"))
    assert len(programs) == 5 and all(named_lists(program) > 0 for program in programs), programs
    assert run("verify", named).stdout.splitlines()[-1] == "PASSED"
    runs(named)
    for at in (plan, named):
        run("merge", at, "-o", at / "whole.safetensors", "-q")
    assert (plan / "whole.safetensors").read_bytes() == (named / "whole.safetensors").read_bytes()


def test_wrong_lists(folder):
    plan = plan_of(folder)
    named_lists(plan / "plan.onnx")
    good = (plan / "plan.onnx").read_bytes()

    def message(lists=None, **changed):
        model = onnx.load_from_string(good)
        node = next(n for n in model.graph.node if n.domain == "ai.autopar")
        for name, value in changed.items():
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])
        props = {p.key: p.value for p in model.metadata_props}
        props.pop("autopar.groups") if lists == "" else props.update({"autopar.groups": lists} if lists else {})
        onnx.helper.set_model_props(model, props)
        told = []
        for keys in (props, {key: value for key, value in props.items() if key != "autopar.version"}):  # a plan, a program by hand
            onnx.helper.set_model_props(model, keys)
            onnx.save(model, plan / "plan.onnx")
            told.append(run("verify", plan / "plan.onnx", code=4).stderr)
            assert "plan.onnx" in told[-1] and "(" + node.op_type + ")" in told[-1] and node.name in told[-1], told
        assert told[0] == told[1], told
        return told[0]

    assert "expected metadata_props autopar.groups, whose lists it counts, found none" in message("")
    for place in (-1, 3000):
        assert f"attribute group_ref: expected a place in metadata_props autopar.groups, which has 1 list, found {place}" in message(group_ref=place)
    assert "attribute group_ref: expected an integer, found STRING" in message(group_ref="0")
    assert "it has the attributes groups and group_ref; expected one of them" in message(groups=[0, 1, 2, 3])
    for lists, found in (('{"a": 1}', "object"), ("[3]", "number at place 0"), ('[[0, "1"]]', 'a list with "1" at place 0'), ("[[0.5]]", "a list with 0.5 at place 0"), ("[[99999999999999999999]]", "a list with"), ("[[18446744073709551615]]", "a list with 18446744073709551615 at place 0")):
        assert "metadata_props autopar.groups: expected a list of lists of ranks, found " + found in message(lists), lists
    assert "metadata_props autopar.groups: is not JSON" in message("[[0, 1]")


def test_lists_of_many_ranks(folder):
    """Files for more than 512 ranks have each list of ranks once, those for up to 512 in each collective."""
    model = folder / "model.onnx"
    write_two_products(model)
    for devices in (512, 1024):
        options = ("--cluster", cluster(folder, devices), "-q")
        at = folder / str(devices)
        run("search", model, *options, "-o", at)
        run("apply", model, *options, "--strategy", at / "strategy.json", "-o", folder / "again")
        plan = at / "plan.onnx"
        assert plan.read_bytes() == (folder / "again" / "plan.onnx").read_bytes()
        program = onnx.load(plan)
        names = [{a.name for a in n.attribute} & {"groups", "group_ref"} for n in program.graph.node if n.domain == "ai.autopar"]
        assert names and all(found == ({"groups"} if devices == 512 else {"group_ref"}) for found in names), names
        lists = [json.loads(p.value) for p in program.metadata_props if p.key == "autopar.groups"]
        assert len(lists) == (devices > 512)
        if lists:
            used = [a.i for n in program.graph.node if n.domain == "ai.autopar" for a in n.attribute if a.name == "group_ref"]
            assert list(dict.fromkeys(used)) == list(range(len(lists[0]))), "in the order of first use"
            assert all(sorted(ranks) == list(range(devices)) for ranks in lists[0])
        assert states(at)[0]["groups"]["state"] == "ok"


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
