"""Pins of tensors as a user writes them: kept by search, apply and price in plans that run, or refused in one sentence."""
import json
import os
import pathlib
import random
import sys
import tempfile

import onnx

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
LLAMA, MLP = SOURCE / "models" / "llama_tiny.onnx", SOURCE / "models" / "mlp.onnx"


def pins(folder, tensors, ops=(), **more):
    path = folder / "pins.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": dict(ops), "tensors": tensors, **more}))
    return path


def read(out):
    return json.loads((out / "strategy.json").read_text())


def refused(*args):
    done = run(*args, code=4)
    assert len(done.stderr.strip().splitlines()) == 1 and len(done.stderr) < 500, done.stderr
    return done.stderr


def some_of(strategy, seed):
    """A few tensors of a strategy, each by its spec, by MindSpore's notation, or as its readers get it."""
    draw, tensors = random.Random(seed), {}
    for name in draw.sample(sorted(strategy["tensors"]), 6):
        tensor, kind = strategy["tensors"][name], draw.randrange(3)
        keys = (("spec",), ("device_matrix", "tensor_map"), ("spec", "hub_spec"))[kind]
        tensors[name] = {key: tensor.get(key, tensor["spec"]) for key in keys}
    return tensors


def check_kept(strategy, tensors):
    for name, pin in tensors.items():
        found = strategy["tensors"][name]
        assert pin.get("spec", found["spec"]) == found["spec"], (name, pin, found)
        assert pin.get("tensor_map", found["tensor_map"]) == found["tensor_map"], (name, pin, found)
        assert pin.get("hub_spec", found.get("hub_spec", found["spec"])) == found.get("hub_spec", found["spec"]), (name, pin, found)


def test_kept_and_run(folder):
    machine = cluster(folder, 2, 2)
    for seed, source in enumerate(("data_parallel", "replicate", "rec", "dp")):
        given, out = folder / f"given{seed}", folder / f"out{seed}"
        run("search", LLAMA, "--cluster", machine, "--mesh", "2x2", "-o", given, "--searcher", source)
        tensors, mesh = some_of(read(given), seed), read(given)["mesh"]
        for searcher in ("dp", "rec", "propagate"):
            run("search", LLAMA, "--cluster", machine, "-o", out, "--searcher", searcher, "--pin", pins(folder, tensors, mesh=mesh))
            check_kept(read(out), tensors)
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", (seed, searcher)
        best = read(out)["cost"]["seconds"]
        for fill in ("data_parallel", "search"):
            file = pins(folder, tensors, mesh=mesh)
            run("apply", LLAMA, "--cluster", machine, "-o", folder / "applied", "--fill", fill, "--strategy", file)
            check_kept(read(folder / "applied"), tensors)
            assert run("run", folder / "applied").stdout.splitlines()[-1] == "PASSED", (seed, fill)
            price = json.loads(run("price", LLAMA, "--cluster", machine, "--fill", fill, "--strategy", file, "--json").stdout)
            assert price["seconds"] == read(folder / "applied")["cost"]["seconds"]
        assert price["seconds"] <= best * (1 + 1e-9)


def test_refused(folder):
    machine, out = cluster(folder, 4), folder / "refused"
    whole = folder / "whole"
    run("search", MLP, "--cluster", machine, "-o", whole)
    strategy = read(whole)
    activation = "fc1_out"
    for tensor, pin, expected in (
            (activation, {"spec": "nonsense"}, "expected '['"),
            (activation, {"hub_spec": "[{elsewhere},{}]"}, "no mesh axis 'elsewhere'"),
            (activation, {"output_spec": "[{},{}]"}, "not an output of the model"),
            (activation, {"device_matrix": [4]}, "device_matrix and tensor_map together"),
            (activation, {"device_matrix": [4], "tensor_map": [1, -1]}, "tensor_map"),
            (activation, {"device_matrix": [8], "tensor_map": [0, -1]}, "8 devices"),
            (activation, {"layout": "[{},{}]"}, "expected a spec"),
            ("nowhere", {"spec": "[{},{}]"}, "no such tensor")):
        file = pins(folder, {tensor: pin})
        for command in (("search", "--pin"), ("apply", "--strategy"), ("price", "--strategy")):
            where = () if command[0] == "price" else ("-o", out)
            message = refused(command[0], MLP, "--cluster", machine, *where, command[1], file)
            assert expected in message and "pins.json" in message and tensor in message, message
    # A complete strategy, in which a tensor is said twice, or one is not the model's.
    strategy["tensors"][activation]["tensor_map"] = [0, -1] if strategy["tensors"][activation]["tensor_map"] != [0, -1] else [-1, 0]
    (folder / "changed.json").write_text(json.dumps(strategy))
    assert "disagree" in refused("apply", MLP, "--cluster", machine, "-o", out, "--strategy", folder / "changed.json")
    strategy = read(whole)
    strategy["tensors"]["nowhere"] = {"spec": "nonsense"}
    (folder / "changed.json").write_text(json.dumps(strategy))
    assert "nowhere" in refused("price", MLP, "--cluster", machine, "--strategy", folder / "changed.json")
    assert not out.exists()


def test_parameters_are_free(folder):
    model = folder / "graph.json"
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "wide",
        "inputs": [{"name": "X", "dtype": "float32", "shape": [8, 512]}],
        "parameters": [{"name": "W", "dtype": "float32", "shape": [512, 512]}],
        "ops": [{"name": "mm", "type": "MatMul", "inputs": ["X", "W"], "outputs": ["Y"], "attributes": {}}],
        "outputs": ["Y"]}))
    for layout, whole in (("full", True), ("data_parallel", False)):
        out = folder / layout
        run("search", model, "--cluster", cluster(folder, 4), "-o", out, "--inputs", layout,
            *(() if whole else ("--pin", pins(folder, {"W": {"spec": "[{t0},{}]"}}))))
        tensors = read(out)["tensors"]
        assert (tensors["X"]["local_shape"] == [8, 512]) == whole, tensors
        assert tensors["W"]["local_shape"] != [512, 512], tensors
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"
    run("search", model, "--cluster", cluster(folder, 4), "-o", folder / "io", "--io", "full")
    assert read(folder / "io")["tensors"]["W"]["local_shape"] == [512, 512]


def gathers(plan):
    return sum(node.op_type == "AllGather" for node in onnx.load(plan, load_external_data=False).graph.node)


def three_readers(folder, name="three", op="shared", value="Z"):
    """H, read by three ops that give outputs, and one more reader of X, whose op and value are called as the caller likes."""
    model = folder / f"{name}.json"
    unary = [("a", "Relu", "H", "A"), ("b", "Tanh", "H", "B"), ("c", "Sigmoid", "H", "C"), (op, "Relu", "X", value)]
    model.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": name,
        "inputs": [{"name": "X", "dtype": "float32", "shape": [64, 64]}],
        "parameters": [{"name": "W", "dtype": "float32", "shape": [64, 64]}],
        "ops": [{"name": "mm", "type": "MatMul", "inputs": ["X", "W"], "outputs": ["H"], "attributes": {}}]
               + [{"name": n, "type": t, "inputs": [x], "outputs": [y], "attributes": {}} for n, t, x, y in unary],
        "outputs": ["A", "B", "C", value]}))
    return model


def check_same(folder, model, machine, out, *more):
    """A strategy file stands for the plan that it was written with, to apply, price and search, and for what that costs."""
    strategy, again = out / "strategy.json", folder / "again"
    run("apply", model, "--cluster", machine, "-o", again, "--strategy", strategy, *more)
    assert (again / "plan.onnx").read_bytes() == (out / "plan.onnx").read_bytes()
    assert (again / "strategy.json").read_bytes() == strategy.read_bytes()
    searched = folder / "searched"
    run("search", model, "--cluster", machine, "-o", searched, "--pin", strategy, "--searcher", "dp", *more)
    assert {k: read(searched)[k] for k in ("ops", "tensors")} == {k: read(out)[k] for k in ("ops", "tensors")}
    for priced in (("price", model, "--strategy", strategy, *more), ("price", out)):
        seconds = json.loads(run(*priced, "--cluster", machine, "--json").stdout)["seconds"]
        assert abs(seconds - read(out)["cost"]["seconds"]) <= 1e-12 * seconds, (priced, seconds)


def test_readers_share_a_pinned_hub(folder):
    machine, whole = cluster(folder, 4), {name: {"in_strategy": [[1, 1]]} for name in "abc"}
    scattered = dict(whole, mm={"in_strategy": [[1, 4], [4, 1]], "out_strategy": [[4, 1]]})
    model = three_readers(folder)
    for tensors, ops in (({"H": {"hub_spec": "[{t0},{}]"}}, whole), ({}, scattered)):
        for searcher in ("dp", "rec", "auto", "propagate"):
            out, file = folder / "shared", pins(folder, tensors, ops)
            run("search", model, "--cluster", machine, "-o", out, "--searcher", searcher, "--pin", file)
            found = read(out)
            assert gathers(out / "plan.onnx") == 1 and found["ops"]["H.hub"]["type"] == "Identity", found
            assert found["tensors"]["H"].get("hub_spec", found["tensors"]["H"]["spec"]) == "[{t0},{}]", found
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", searcher
            assert run("verify", out).stdout.splitlines()[-1] == "PASSED", searcher
            check_same(folder, model, machine, out)
        run("apply", model, "--cluster", machine, "-o", folder / "applied", "--strategy", file)
        assert gathers(folder / "applied" / "plan.onnx") == 1
    # The hub itself is an output, too, and that goes its own way; ranks' own weights; whole inputs and outputs.
    document = json.loads(model.read_text())
    document["outputs"].append("H")
    model.write_text(json.dumps(document))
    for more in ((), ("--weights", "sharded"), ("--io", "full")):
        run("search", model, "--cluster", machine, "-o", out, "--pin", pins(folder, {"H": {"hub_spec": "[{t0},{}]"}}, whole), *more)
        assert "H.hub" in read(out)["ops"] and read(out)["tensors"]["H.hub"]["hub_spec"] == "[{},{}]" or more, read(out)
        assert run("run", out).stdout.splitlines()[-1] == "PASSED", more
        if more[:1] != ("--weights",):
            check_same(folder, model, machine, out, *more)


def test_hub_ops_and_names(folder):
    machine, whole = cluster(folder, 4), {name: {"in_strategy": [[1, 1]]} for name in "abc"}
    hub, out = {"H": {"hub_spec": "[{t0},{}]"}}, folder / "named"
    # Ops and tensors of the user's that are called so.
    model = three_readers(folder, "taken", "H.hub", "H.hub")
    run("search", model, "--cluster", machine, "-o", out, "--pin", pins(folder, dict(hub, **{"H.hub": {"spec": "[{},{t0}]"}}), whole))
    found = read(out)
    assert found["ops"]["H.hub"]["type"] == "Relu" and found["ops"]["H.hub/1"]["type"] == "Identity", found
    assert found["tensors"]["H.hub"]["spec"] == "[{},{t0}]" and gathers(out / "plan.onnx") == 1, found
    check_same(folder, model, machine, out)
    # Where nothing pins the hub there is no such op to pin; any part of a file that names it brings it along.
    model = three_readers(folder)
    assert "no such op" in refused("search", model, "--cluster", machine, "-o", out, "--pin", pins(folder, {}, {"H.hub": {"type": "Relu", "in_strategy": [[1, 1]]}}))
    run("search", model, "--cluster", machine, "-o", out, "--pin", pins(folder, hub, whole))
    found = read(out)
    for part in ({"ops": found["ops"]}, {"tensors": {"H.hub": found["tensors"]["H.hub"]}}):
        file = pins(folder, part.get("tensors", {}), part.get("ops", {}), mesh=found["mesh"])
        run("search", model, "--cluster", machine, "-o", folder / "part", "--pin", file)
        assert "H.hub" in read(folder / "part")["ops"]
    # A complete file says where hubs are that the search chose: it adds no op.
    machine = cluster(folder, 4, memory=1 << 31, flops=1e9, memory_bandwidth=1e9)
    run("search", LLAMA, "--cluster", machine, "-o", out, "--searcher", "dp")
    assert any("hub_spec" in tensor for tensor in read(out)["tensors"].values())
    check_same(folder, LLAMA, machine, out)
    assert not any(name.endswith(".hub") for name in read(folder / "again")["ops"])


def test_repeated_ops(folder):
    """What is repeated follows the pins of what it repeats, unless the pins say something of it, by its name or by what it makes."""
    machine, out, name = cluster(folder, 4, flops=1e9, memory_bandwidth=1e9), folder / "repeated", "layers.0.mlp.sigmoid"
    rows, columns = "[{t0},{},{}]", "[{},{},{t0}]"
    op = {"rows": {"assignment": {"t0": "d0"}}, "columns": {"assignment": {"t0": "d2"}}}
    for ops, tensors, found in (({name: op["columns"]}, {}, [columns, columns]),
                                ({}, {f"{name}_out": {"spec": rows}}, [rows, rows]),
                                ({name: op["columns"], f"{name}.again": op["rows"]}, {}, [columns, rows]),
                                ({f"{name}.again": op["rows"]}, {f"{name}_out": {"spec": columns}}, [columns, rows]),
                                ({name: op["columns"]}, {f"{name}_out.again": {"spec": rows}}, [columns, rows])):
        file = pins(folder, tensors, ops, mesh=[{"name": "t0", "size": 4, "tier": "t0"}])
        run("search", LLAMA, "--cluster", machine, "-o", out, "--train", "--loss", "cross_entropy", "--recompute", "cheap", "--searcher", "dp", "--pin", file)
        assert [read(out)["tensors"][f"{name}_out{again}"]["spec"] for again in ("", ".again")] == found, (ops, tensors, found)


TRAIN = "--train", "--loss", "cross_entropy", "--optimizer", "adamw"


def flags(strategy, said=True):
    return {name for name, op in strategy["ops"].items() if op.get("recompute") is said}


def repeats(strategy):
    return {name.removesuffix(".again") for name in strategy["ops"] if name.endswith(".again")}


def test_repeated_ops_say_so(folder):
    """A strategy says of each op whether the backward pass repeats it, beside the level, also of pipelines."""
    machine, out, again = cluster(folder, 2, 2), folder / "levels", folder / "levels_again"
    for more in (("--recompute", "cheap"), ("--recompute", "full"), ("--recompute", "none"), ("--recompute", "products", "--batch", "8", "--micro-batches", "2"),
                 ("--recompute", "cheap", "--batch", "8", "--stages", "2", "--micro-batches", "4")):
        run("search", LLAMA, "--cluster", machine, "-o", out, *TRAIN, *more)
        found = read(out)
        assert flags(found) == repeats(found) and bool(flags(found)) == ("none" not in more), (more, flags(found) ^ repeats(found))
        run("apply", LLAMA, "--cluster", machine, "-o", again, "--strategy", out / "strategy.json")
        for file in sorted(out.glob("plan*.onnx")):
            assert file.read_bytes() == (again / file.name).read_bytes(), (more, file)
        assert (again / "strategy.json").read_bytes() == (out / "strategy.json").read_bytes(), more
    # What contradicts the level is refused.
    run("search", LLAMA, "--cluster", machine, "-o", out, *TRAIN, "--recompute", "cheap")
    found = read(out)
    for name, said, told in ((sorted(flags(found))[0], False, "is false, and recompute cheap repeats the op"),
                             ("layers.0.mlp.down", True, "is true, and recompute cheap does not repeat the op")):
        other = json.loads(json.dumps(found))
        other["ops"][name]["recompute"] = said
        strategy = pins(folder, **{key: value for key, value in other.items() if key not in ("format", "version")})
        message = run("apply", LLAMA, "--cluster", machine, "-o", again, "--strategy", strategy, code=4).stderr
        assert f"ops.{name}.recompute: {told}" in message, message


def test_pinned_repeats(folder):
    """Ops of a pin file that say so are repeated in the backward pass, and no others."""
    machine, out = cluster(folder, 2, 2), folder / "pinned"
    layer = [f"layers.0.{name}" for name in ("mlp.sigmoid", "mlp.gate", "mlp_norm", "attn.softmax")]
    some, chain = {name: {"recompute": True} for name in layer[:1]}, {name: {"recompute": True} for name in layer}
    mixed = dict(chain, **{"layers.1.mlp.sigmoid": {"recompute": False}})
    for ops, more in ((some, ()), (chain, ()), (mixed, ("--memory", "1GiB")), (chain, ("--batch", "8", "--micro-batches", "2"))):
        run("search", LLAMA, "--cluster", machine, "-o", out, *TRAIN, *more, "--pin", pins(folder, {}, ops))
        found = read(out)
        assert "recompute" not in found and flags(found) == {name for name, op in ops.items() if op["recompute"]}, flags(found)
        assert repeats(found) <= flags(found) and repeats(found), repeats(found)
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"
        again = folder / "pinned_again"
        run("apply", LLAMA, "--cluster", machine, "-o", again, "--strategy", out / "strategy.json", *(more[:2] if "--memory" in more else ()))
        for file in ["strategy.json", *sorted(path.name for path in out.glob("plan*.onnx"))]:
            assert (again / file).read_bytes() == (out / file).read_bytes(), (ops, file)
        run("price", LLAMA, "--cluster", machine, "--strategy", out / "strategy.json")
    # Also as a part of a strategy that apply completes.
    run("search", LLAMA, "--cluster", machine, "-o", out, *TRAIN)
    training = read(out)["training"]
    run("apply", LLAMA, "--cluster", machine, "-o", out, "--strategy", pins(folder, {}, some, training=training))
    assert flags(read(out)) == set(layer[:1]) == repeats(read(out))

    def message(ops, *more, code=4):
        done = run("search", LLAMA, "--cluster", machine, "-o", out, *(TRAIN if "plain" not in more else ()), *[m for m in more if m != "plain"], "--pin", pins(folder, {}, ops), code=code)
        assert "pins.json: " in done.stderr, done.stderr
        return done.stderr

    assert "ops.nobody.recompute: the model has no op of that name" in message({"nobody": {"recompute": True}})
    assert "cannot be repeated in the backward pass: it is of the backward pass" in message({"layers.0.mlp.sigmoid.grad": {"recompute": True}})
    assert "cannot be repeated in the backward pass: it looks weights up" in message({"embed": {"recompute": True}})
    assert "cannot be repeated in the backward pass: the model has none" in message(some, "plain")
    assert "expected true or false" in message({layer[0]: {"recompute": "cheap"}})
    assert "cannot be repeated in the backward pass: nothing there reads what it makes" in message({"layers.0.attn.q": {"recompute": True}})
    assert "is false, and no op has true" in message({layer[0]: {"recompute": False}})
    assert "found --recompute full" in message(some, "--recompute", "full", code=2)
    assert "in plans of one stage" in message(some, "--stages", "2", "--batch", "8", "--micro-batches", "4", code=2)


def test_pinned_whole(folder):
    """A strategy that is pinned whole is that strategy; an output leaves as the hub that is pinned beside its op."""
    machine, out, again = cluster(folder, 2, 2), folder / "whole", folder / "whole_again"
    for source in ("data_parallel", "rec", "dp"):
        for more in ((), ("--outputs", "full")):
            run("search", LLAMA, "--cluster", machine, "-o", out, "--searcher", source, *more)
            for options in ((), more, ("--searcher", "rec")):
                run("search", LLAMA, "--cluster", machine, "-o", again, "--pin", out / "strategy.json", *options)
                found, given = read(again), read(out)
                assert found["cost"]["seconds"] == given["cost"]["seconds"], (source, more, options)
                assert (found["ops"], found["tensors"]) == (given["ops"], given["tensors"]), (source, more, options)
    # An output that others read, too, and leaves as they get it, or as it is made, or otherwise.
    value = {"dtype": "float32", "shape": [8, 16]}
    graph = {"format": "autopar-graph", "version": 1, "name": "hub", "inputs": [{"name": "X", **value}], "parameters": [],
             "ops": [{"name": "made", "type": "Relu", "inputs": ["X"], "outputs": ["H"], "attributes": {}},
                     {"name": "read", "type": "Softmax", "inputs": ["H"], "outputs": ["Y"], "attributes": {"axis": 1}}], "outputs": ["H", "Y"]}
    model, rows, whole = folder / "hub.json", "[{t0},{}]", "[{},{}]"
    model.write_text(json.dumps(graph))
    machine = cluster(folder, 2)
    mesh = [{"name": "t0", "size": 2, "tier": "t0"}]
    for said, left in (({}, whole), ({"output_spec": rows}, rows), ({"output_spec": "[{},{t0}]"}, "[{},{t0}]")):
        pinned = pins(folder, {"H": {"spec": rows, "hub_spec": whole, **said}}, {"made": {"in_strategy": [[2, 1]]}}, mesh=mesh)
        run("search", model, "--cluster", machine, "-o", out, "--pin", pinned)
        tensor = read(out)["tensors"]["H"]
        assert tensor["hub_spec"] == whole and tensor.get("output_spec", whole) == left, tensor
        run("search", model, "--cluster", machine, "-o", again, "--pin", out / "strategy.json")
        assert read(again)["tensors"] == read(out)["tensors"] and read(again)["cost"]["seconds"] == read(out)["cost"]["seconds"]
        run("apply", model, "--cluster", machine, "-o", again, "--strategy", out / "strategy.json")
        assert (again / "plan.onnx").read_bytes() == (out / "plan.onnx").read_bytes()
    # Where the op is pinned alone, its output leaves as it makes it.
    run("search", model, "--cluster", machine, "-o", out, "--pin", pins(folder, {}, {"made": {"in_strategy": [[2, 1]]}}, mesh=mesh))
    tensor = read(out)["tensors"]["H"]
    assert tensor.get("output_spec", tensor.get("hub_spec", tensor["spec"])) == rows, tensor


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for test in (test_kept_and_run, test_refused, test_parameters_are_free, test_readers_share_a_pinned_hub, test_hub_ops_and_names,
                     test_repeated_ops, test_repeated_ops_say_so, test_pinned_repeats, test_pinned_whole):
            test(folder)
            print(f"{test.__name__}: ok")


if __name__ == "__main__":
    sys.exit(main())
