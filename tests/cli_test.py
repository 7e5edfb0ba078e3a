"""What a demanding user meets at the command line: files that hold what they say, layouts and pins kept or refused, messages, exit codes."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODEL = SOURCE / "models" / "llama_tiny.onnx"
MLP = SOURCE / "models" / "mlp.onnx"
Q = "layers.0.attn.q"


def run(*args, code=0, cwd=None):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, *tiers, bandwidth=1e11):
    """Slow devices, fast links: plans communicate."""
    path = folder / ("cluster_" + "x".join(map(str, tiers)) + f"_{bandwidth:g}.json")
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "test", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e9,
                   "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": bandwidth / 3 ** i, "latency_s": 1e-9}
                  for i, n in enumerate(tiers)],
        "host_link": {"bandwidth_bytes_per_s": 1e10}}))
    return path


def pins(folder, ops, **more):
    path = folder / "pins.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops, **more}))
    return path


def shape_of(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def axes_of(entry):
    return [[] if m == -1 else m if isinstance(m, list) else [m] for m in entry["tensor_map"]]


def test_files_hold_what_they_say(folder):
    for tiers in ((4,), (2, 3), (2, 2, 3)):
        machine, out = cluster(folder, *tiers), folder / "x".join(map(str, tiers))
        run("search", MODEL, "--cluster", machine, "-o", out)
        strategy, plan = json.loads((out / "strategy.json").read_text()), onnx.load(out / "plan.onnx")
        sizes, ranks = [a["size"] for a in strategy["mesh"]], int(np.prod(tiers))
        assert int(np.prod(sizes)) == ranks
        for name, tensor in strategy["tensors"].items():
            assert tensor["device_matrix"] == sizes
            slices = [int(np.prod([sizes[len(sizes) - 1 - m] for m in axes])) for axes in axes_of(tensor)]
            assert [n // s for n, s in zip(tensor["shape"], slices)] == tensor["local_shape"], (name, tensor)
        infos = {v.name: v for v in [*plan.graph.value_info, *plan.graph.input, *plan.graph.output]}
        seqs = []
        for node in plan.graph.node:
            for output in node.output:
                assert not output or all(isinstance(n, int) for n in shape_of(infos[output])), output
            if node.domain != "ai.autopar":
                continue
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            assert sorted(attributes["groups"]) == list(range(ranks)), node.name
            size = int(np.prod([a["size"] for a in strategy["mesh"] if a["name"].encode() in attributes["mesh_axes"]]))
            assert attributes["group_size"] == size, node.name
            if node.op_type != "ShardSlice":
                seqs.append(attributes["seq"])
        assert seqs and seqs == sorted(set(seqs)), seqs
        onnx.checker.check_model(plan)
        report = json.loads((out / "report.json").read_text())
        assert report["cost"]["seconds"] == strategy["cost"]["seconds"]


def test_same_bytes_elsewhere(folder):
    machine = cluster(folder, 2, 3)
    shutil.copy(MODEL, folder / "m.onnx")
    run("search", folder / "m.onnx", "--cluster", machine, "-o", folder / "a")
    run("search", "m.onnx", "--cluster", machine.name, "-o", "b", "--threads", 2, cwd=folder)
    for name in ("strategy.json", "plan.onnx", "report.json"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), name


def test_apply_of_a_complete_strategy(folder):
    machine, out, again = cluster(folder, 4), folder / "out", folder / "again"
    run("search", MODEL, "--cluster", machine, "-o", out)
    written = json.loads((out / "strategy.json").read_text())

    def apply(strategy, *options, code=0, machine=machine):
        (folder / "given.json").write_text(json.dumps(strategy))
        shutil.rmtree(again, ignore_errors=True)
        return run("apply", MODEL, "--cluster", machine, "--strategy", folder / "given.json", "-o", again, *options, code=code)

    # Another layout of the JSON and a made-up cost change nothing.
    apply({**written, "cost": {**written["cost"], "seconds": 1}})
    for name in ("strategy.json", "plan.onnx"):
        assert (out / name).read_bytes() == (again / name).read_bytes(), name
    # Another cluster: its own hash and cost, no bound that was proven elsewhere.
    apply(written, machine=cluster(folder, 4, bandwidth=1e10))
    elsewhere = json.loads((again / "strategy.json").read_text())
    assert elsewhere["cluster"]["sha256"] != written["cluster"]["sha256"]
    assert elsewhere["cost"]["seconds"] > written["cost"]["seconds"] and elsewhere["cost"]["lower_bound_seconds"] == 0
    # Layouts that are asked for win over the boundary of the file, the ops stay.
    apply(written, "--io", "full")
    plan = onnx.load(again / "plan.onnx").graph
    assert shape_of(plan.input[0]) == [4, 16] and shape_of(plan.output[0]) == [4, 16, 128]
    assert json.loads((again / "strategy.json").read_text())["ops"] == written["ops"]
    assert run("run", again).stdout.splitlines()[-1] == "PASSED"
    assert "more than its 100.00 KiB" in apply(written, "--memory", "100KiB").stderr
    # What contradicts itself or the model is refused.
    changed = json.loads(json.dumps(written))
    changed["ops"][Q]["in_strategy"] = [[1, 1, 4], [4, 1]]
    assert Q in apply(changed, code=4).stderr
    changed = json.loads(json.dumps(written))
    changed["ops"][Q]["type"] = "Conv"
    assert "MatMul" in apply(changed, code=4).stderr


def test_pins(folder):
    machine, out = cluster(folder, 4), folder / "out"

    def search(file, *options, code=0):
        return run("search", MODEL, "--cluster", machine, "-o", out, "--pin", file, *options, code=code)

    for counts in ([[1, 1, 1], [1, 4]], [[1, 1, 2], [2, 1]], [[2, 1, 1], [1, 2]]):
        search(pins(folder, {Q: {"in_strategy": counts}}))
        assert json.loads((out / "strategy.json").read_text())["ops"][Q]["in_strategy"] == counts
    both = {Q: {"in_strategy": [[1, 1, 1], [1, 4]], "assignment": {"t0": "k"}}}
    assert "give one of them only" in search(pins(folder, both), "--mesh", "4", code=4).stderr
    assert "pins.json" in search(pins(folder, {Q: {"in_strategy": [[3, 1, 1], [1, 1]]}}), code=4).stderr
    tensor = pins(folder, {}, mesh=[{"name": "t0", "size": 4}], tensors={"input_ids": {"spec": "[{t0},{}]"}})
    search(tensor)
    assert "input_ids" in search(tensor, "--inputs", "full", code=4).stderr
    for fill in ("data_parallel", "replicate", "search"):
        run("apply", MODEL, "--cluster", machine, "-o", out, "--fill", fill,
            "--strategy", pins(folder, {Q: {"in_strategy": [[1, 1, 4], [4, 1]]}}))
        assert json.loads((out / "strategy.json").read_text())["ops"][Q]["in_strategy"] == [[1, 1, 4], [4, 1]]
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"


def test_show_and_json(folder):
    machine, out = cluster(folder, 4), folder / "out"
    table = run("search", MODEL, "--cluster", machine, "-o", out)
    assert not table.stderr
    assert table.stdout.startswith(run("show", out / "report.json").stdout)
    for file in (MODEL, machine, *out.iterdir()):
        assert run("show", file).stdout and json.loads(run("show", file, "--json").stdout), file
    given = ("--cluster", machine, "--strategy", out / "strategy.json", "--json")
    for command in (("search", MODEL, "--cluster", machine, "-o", folder / "again", "--json"), ("price", MODEL, *given),
                    ("apply", MODEL, *given, "-o", folder / "again"), ("run", out, "--json")):
        assert json.loads(run(*command).stdout), command
    quiet = run("search", MODEL, "--cluster", machine, "-o", out, "-q")
    assert quiet.stdout == quiet.stderr == ""


def test_run(folder):
    machine, out = cluster(folder, 4), folder / "out"
    run("search", MODEL, "--cluster", machine, "-o", out)
    output, ids = onnx.load(out / "plan.onnx").graph.output[0].name, np.zeros((4, 16), np.int64)

    def given(**arrays):
        np.savez(folder / "data.npz", **arrays)
        return folder / "data.npz"

    wrong = run("run", out, "--data", given(**{"out." + output: np.zeros((4, 16, 128), np.float32)}), code=1)
    assert wrong.stdout.splitlines()[-1] == "FAILED"
    assert "int64[4,16]" in run("run", out, "--data", given(**{"in.input_ids": ids[:, :3]}), code=4).stderr
    assert "SHA-256" in run("run", out, "--model", MLP, code=4).stderr
    run("run", out, "--rtol", "nan", code=2)
    # Data that the model itself cannot process is bad input; without the model it is the rank that fails on it.
    ids_too_large = given(**{"in.input_ids": ids + 99999})
    assert "on these inputs" in run("run", out, "--data", ids_too_large, code=4).stderr
    report = out / "report.json"
    report.write_text(report.read_text().replace('"version": 1', '"version": 2'))
    assert "--model" in run("run", out, code=4).stderr
    report.unlink()
    assert "--model" in run("run", out, code=4).stderr
    failed = run("run", out, code=5, *("--data", given(**{
        "in.input_ids": ids + 99999, "out." + output: np.zeros((4, 16, 128), np.float32)})))
    assert "rank" in failed.stderr and "embed" in failed.stderr, failed.stderr


def test_nothing_half_written(folder):
    machine = cluster(folder, 4)
    (folder / "file").write_text("x")
    run("search", MODEL, "--cluster", machine, "-o", folder / "file", code=4)
    # A folder in the place of a file: the plan is written before it, and must go again.
    for blocked in ("strategy.json", "report.json"):
        out = folder / ("blocked_" + blocked)
        (out / blocked / "x").mkdir(parents=True)
        run("search", MODEL, "--cluster", machine, "-o", out, code=4)
        assert [p.name for p in out.iterdir()] == [blocked]


def test_words(folder):
    machine = cluster(folder, 4)
    assert "'search'" in run("serch", MODEL, code=2).stderr
    assert "'--cluster'" in run("search", MODEL, "--clutser", machine, code=2).stderr
    search = ("search", MODEL, "--cluster", machine, "-o", folder / "out")
    # Common options stand before the command or after it.
    assert "'--nodes'" in run("--threads", 1, *search, "--nodes", 4, code=2).stderr
    run("--mesh", "0x4", *search, code=2)
    assert json.loads(run("--json", "show", machine).stdout)["format"] == "autopar-cluster"
    for option, value in (("--dim", "b=99999999999999999999"), ("--memory", "-1"), ("--memory", "nan"), ("--gap", "x"),
                          ("--seed", "-1"), ("--mesh", "0x4"), ("--threads", "-1"), ("--inputs", "nothing")):
        run(*search, option, value, code=2)
    run(*search, "--io", "full", "--inputs", "data_parallel", code=2)
    assert "combinations" in run(*search, "--searcher", "exhaustive", code=4).stderr
    # With wishes, which another mesh may keep: that is not what is wrong.
    (folder / "wish.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"layers.0.attn.q": {"in_strategy": [[1, 1, 1], [1, 1]]}}}))
    stderr = run(*search, "--searcher", "exhaustive", "--pin", folder / "wish.json", code=4).stderr
    assert "combinations" in stderr and "keeps all pins" not in stderr, stderr
    (folder / "rules.txt").write_bytes(b'MatMul "\xa4 k, k n -> \xa4 n"')
    assert "UTF-8" in run(*search, "--rules", folder / "rules.txt", code=4).stderr
    model = onnx.load(MODEL).SerializeToString().replace(b"layers.0.attn.q", b"layers.0.attn.\xff")
    (folder / "bad.onnx").write_bytes(model)
    assert "UTF-8" in run("search", folder / "bad.onnx", "--cluster", machine, "-o", folder / "out", code=4).stderr
    assert not (folder / "out").exists()


def refused(*command, because, cwd=None):
    message = run(*command, code=2, cwd=cwd).stderr
    assert because in message, message
    return message


def test_apply_of_another_batch(folder):
    """The strategy of a model that was planned on another batch is one on that batch."""
    machine, out, again = cluster(folder, 4), folder / "out", folder / "again"
    mlp = SOURCE / "models" / "mlp.onnx"
    run("search", mlp, "--cluster", machine, "--batch", 32, "-o", out)
    assert json.loads((out / "strategy.json").read_text())["batch"] == {"size": 32}
    run("apply", mlp, "--cluster", machine, "--strategy", out / "strategy.json", "-o", again)
    for name in ("strategy.json", "plan.onnx"):
        assert (out / name).read_bytes() == (again / name).read_bytes(), name
    price = json.loads(run("price", mlp, "--cluster", machine, "--strategy", out / "strategy.json", "--json").stdout)
    assert price["seconds"] == json.loads((out / "report.json").read_text())["cost"]["seconds"]


def test_values_of_options(folder):
    """An option takes one value, which says something, and the same one each time."""
    machine, out, step = cluster(folder, 4), folder / "out", folder / "step.onnx"
    mlp = SOURCE / "models" / "mlp.onnx"
    for option in "--mesh", "--memory", "--pin", "--profile", "-o":
        refused("search", mlp, "--cluster", machine, option, "", because=": expected a value, found ''")
    refused("search", mlp, "--cluster", machine, "--memory", "0.0001KiB", because="expected a size such as")
    refused("search", mlp, "--cluster", machine, "--dim", "a=1", "--dim", "a=2", because="--dim 'a=2': a is also given as 1")
    refused("search", mlp, "--cluster", machine, "--searcher", "rec", "--gap", "1%", because="rec proves none")
    run("grad", "--freeze", "fc1.bias", mlp, "--loss", "sum", "-o", step)
    run("search", mlp, "--cluster", machine, "-o", out)
    assert "nowhere.onnx is not there" in run("verify", out, "--model", folder / "nowhere.onnx", code=4).stderr


def test_options_that_are_not_read(folder):
    """Every command refuses what it does not read, and what only goes with something else."""
    machine, out = cluster(folder, 4), folder / "out"
    run("search", MODEL, "--cluster", machine, "-o", out)
    given = ("--cluster", machine, "--strategy", out / "strategy.json")
    for *command, option, value in (
            ("run", out, "--memory", "1GiB"), ("run", out, "--mesh", "4"), ("price", MODEL, *given, "-o", "x"), ("price", MODEL, *given, "--rows", 3),
            ("show", machine, "--threads", 2), ("show", MODEL, "--mesh", "4"), ("export", out, "--dialect", "ort", "--seed", 1),
            ("merge", out, "-o", "w.onnx", "--dim", "a=1"), ("reshard-weights", "--from", out, "--to", out, "--threads", 2),
            ("calibrate", "--memory", "1GiB"), ("solve", "none.json", "--mesh", "4"), ("search", MODEL, "--cluster", machine, "--strategy", "x")):
        refused(*command, option, value, because=f"{command[0]} does not read '{option}', which is an option of ")
    search = ("search", MODEL, "--cluster", machine, "-o", folder / "again")
    refused(*search, "--fill", "data_parallel", because="--fill says what ops get that sharding propagation does not reach")
    refused(*search, "--mesh", "4", "--max-axes", 2, because="--mesh fixes the mesh")
    for option, value in (("--gap", "1%"), ("--time-limit", "3s")):
        refused("apply", MODEL, *given, "-o", folder / "again", option, value, because=f"{option} says when a search stops")
        refused("price", MODEL, *given, option, value, because=f"{option} says when a search stops")
    refused("price", MODEL, *given, "--memory", "1GiB", because="--fill search")
    for option, value in (("--io", "full"), ("--gap", "1%"), ("--mesh", "4"), ("--memory", "1GiB"), ("--threads", 2), ("--inputs", "full"),
                          ("--fill", "search"), ("--cost-model", "roofline"), ("--max-axes", 2)):
        refused("price", out, "--cluster", machine, option, value, because=f"{option} goes with --strategy")
    refused("show", machine, "--rows", 3, because="--rows goes with a report")
    refused("show", out / "report.json", "--ops", because="--ops goes with a model or a plan")
    refused("show", out / "strategy.json", "--dim", "a=1", because="--dim goes with a model or a plan")
    assert not (folder / "again").exists()


def test_options_before_the_command(folder):
    machine, out = cluster(folder, 4), folder / "out"
    search = ("search", MODEL, "-o", out)
    run("--json", "--threads", 1, "--memory=1GiB", "-q", "--cluster", machine, *search)
    assert json.loads(run("--json", "show", out / "plan.onnx").stdout)["format"] == "autopar-plan-summary"
    refused("--memory", "1GiB", "--json", "run", out, because="run does not read '--memory'")
    refused("--nothing", "4", *search, because="unknown command '4'")
    refused("--threds", *search, because="unknown option '--threds'; did you mean '--threads'?")
    # Values that look like commands or options.
    (folder / "search").write_text(machine.read_text())
    run("--cluster", "search", *search, cwd=folder)
    assert run("--help", "search").stdout.startswith("autopar search: ")
    # What is said before and after the command comes together.
    model = onnx.load(MLP)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    columns = dims[1].dim_value
    dims[0].dim_param, dims[1].dim_param = "rows", "columns"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    del model.graph.value_info[:]
    onnx.save(model, folder / "open.onnx")
    run("--dim", "rows=16", "show", folder / "open.onnx", "--dim", f"columns={columns}")


def test_what_is_replaced_is_told(folder):
    machine, out = cluster(folder, 4), folder / "out"
    search = ("search", MODEL, "--cluster", machine, "-o", out)
    assert not run(*search, "--weights", "sharded").stderr
    run(*search, "--dialect", "trt", "-q")
    (out / "notes.txt").write_text("mine")
    again = run(*search)
    assert f"{out}: the plan of '{MODEL.name}' for '{machine.stem}' that lay there is replaced" in again.stderr, again.stderr
    assert "of an earlier plan, and left as they are: plan.trt.json, plan.trt.rank0.onnx, " in again.stderr, again.stderr
    assert "rank00003; remove them" in again.stderr and (out / "notes.txt").read_text() == "mine" and (out / "rank00003").is_dir()
    assert run(*search, "-q").stderr == ""
    # What autopar did not write is not replaced: another tool's report, pins by hand, a model.
    for name, text in (("report.json", '{"format": "other"}'), ("strategy.json", '{"format": "autopar-strategy", "version": 1, "ops": {}}'),
                       ("plan.onnx", MLP.read_bytes())):
        own = folder / ("own_" + name)
        own.mkdir()
        (own / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        done = run("search", MODEL, "--cluster", machine, "-o", own, code=4)
        assert str(own / name) in done.stderr and "not replaced" in done.stderr, done.stderr
        assert [p.name for p in own.iterdir()] == [name]


def test_calibrate_says_what_it_replaces(folder):
    def calibrate(*options, code=0):
        return run("calibrate", "--ranks", 2, "--quick", "--name", "here", *options, code=code, cwd=folder)

    assert calibrate("-q").stdout == ""
    assert "cluster.json: the cluster 'here' that lay there is replaced" in calibrate().stderr
    (folder / "notes.json").write_text("{}")
    assert "notes.json: is there and was not written by autopar" in calibrate("-o", "notes.json", code=4).stderr
    assert (folder / "notes.json").read_text() == "{}"


def test_clusters(folder):
    listed = json.loads(run("show", "clusters", "--json").stdout)["clusters"]
    names = [path.stem for path in sorted((SOURCE / "models" / "clusters").glob("*.json"))]
    assert [c["name"] for c in listed] == names
    table = run("show", "clusters").stdout
    assert all(name in table for name in names)
    for message in (run("search", MODEL, code=2).stderr, run("search", MODEL, "--cluster", "nosuch", "-o", folder / "x", code=4).stderr):
        assert ", ".join(names) in message, message
    assert run("show", folder / "nosuch.onnx", code=4).stderr == f"autopar: error: {folder / 'nosuch.onnx'}: no such file\n"
    assert run("price", folder / "nosuch", "--cluster", "dgx-a100-1x8", code=4).stderr == f"autopar: error: {folder / 'nosuch'}: no such file or folder\n"
    assert "did you mean 'dgx-a100-1x8'" in run("show", "dgx-a100-1x9", code=4).stderr


def test_profiles(folder):
    names = [path.stem for path in sorted((SOURCE / "models" / "profiles").glob("*.json"))]
    assert [p["name"] for p in json.loads(run("show", "profiles", "--json").stdout)["profiles"]] == names
    table = run("show", "profiles").stdout
    assert all(name in table for name in names)
    assert run("show", names[0]).stdout == run("show", SOURCE / "models" / "profiles" / f"{names[0]}.json").stdout
    refused = run("search", MODEL, "--cluster", "dgx-a100-1x8", "--profile", "nosuch", "-o", folder / "x", code=4).stderr
    assert ", ".join(names) in refused and "show profiles" in refused, refused


def test_pictures_of_documents(folder):
    """show has tables for what --json of the commands prints."""
    machine, out = cluster(folder, 4), folder / "out"
    run("search", MODEL, "--cluster", machine, "-o", out, "-q")
    commands = {"price": ("price", MODEL, "--cluster", machine, "--strategy", out / "strategy.json"), "program": ("price", out, "--cluster", machine),
                "run": ("run", out), "verify": ("verify", out), "doctor": ("doctor",), "plan": ("show", out / "plan.onnx"), "clusters": ("show", "clusters")}
    for name, command in commands.items():
        document = run(*command, "--json").stdout
        (folder / f"{name}.json").write_text(document)
        shown = run("show", folder / f"{name}.json").stdout
        assert "{" not in shown.splitlines()[0] and shown.startswith("autopar-") and '": ' not in shown, (name, shown)
        assert run("show", folder / f"{name}.json", "--json").stdout == document
    price = json.loads((folder / "price.json").read_text())
    shown = run("show", folder / "price.json").stdout
    assert price["terms"][0]["op"] in shown and " us" in shown and "memory_bytes" in shown


def test_quiet_and_verbose(folder):
    machine, out = cluster(folder, 4), folder / "out"
    search = run("search", MODEL, "--cluster", machine, "-o", out, "-v").stderr
    for what in (f"{MODEL}: opset", "cluster '", "rules: ", "mesh 4: ", "rewrite: ", f"wrote {out / 'plan.onnx'}"):
        assert what in search, (what, search)
    assert run("run", out, "-q").stdout == "PASSED\n"
    assert json.loads(run("run", out, "-q", "--json").stdout)["passed"]
    assert run("show", machine, "-q").stdout == run("show", machine).stdout
    for command, what in ((("run", out), "compared with the unsharded model"), (("show", out), "a plan for 4 ranks of 4"),
                          (("verify", out), "a plan for 4 ranks of 4"), (("export", out, "--dialect", "trt"), "a plan for 4 ranks of 4"),
                          (("price", out, "--cluster", machine), "a plan for 4 ranks of 4"), (("show", MODEL), "opset"),
                          (("price", MODEL, "--cluster", machine, "--strategy", out / "strategy.json"), "ops and ")):
        assert what in run(*command, "-v").stderr, command
        assert what not in run(*command).stderr, command


def test_a_cache_is_data_and_is_written_in_place(folder):
    """One step of a decoder, in a file that does not say what is data."""
    make, batch, tokens, width = onnx.helper, 8, 4096, 64

    def value(name, shape, dtype=onnx.TensorProto.FLOAT):
        return make.make_tensor_value_info(name, dtype, shape)
    nodes = [make.make_node("MatMul", ["x", "w"], ["token"], "project"),
             make.make_node("ScatterElements", ["cache", "at", "token"], ["new.cache"], "write", axis=1),
             make.make_node("Transpose", ["new.cache"], ["turned"], "turn", perm=[0, 2, 1]),
             make.make_node("MatMul", ["x", "turned"], ["y"], "read")]
    at = onnx.numpy_helper.from_array(np.full([batch, 1, width], 7, dtype=np.int64), "at")
    w = onnx.numpy_helper.from_array(np.ones([width, width], dtype=np.float32), "w")
    cache = [batch, tokens, width]
    graph = make.make_graph(nodes, "step", [value("x", [batch, 1, width]), value("cache", cache)],
                            [value("y", [batch, 1, tokens]), value("new.cache", cache)], [at, w])
    path, machine = folder / "step.onnx", cluster(folder, 4)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9), path)
    shown = {line.split()[0]: line.split()[1:] for line in run("show", path).stdout.splitlines() if line.startswith(("  inputs ", "  parameters "))}
    assert shown["inputs"][0] == "2" and shown["parameters"] == ["1", "16.00", "KiB"], shown
    report = json.loads(run("search", path, "--cluster", machine, "-o", folder / "out", "--json").stdout)
    assert report["model"]["parameters"] == width * width, report["model"]
    copied = json.loads(run("search", path, "--cluster", machine, "-o", folder / "copied", "--json", "--updates", "next.*").stdout)
    moved = 4 * batch * tokens * width / 1e9 / 4  # the cache once, on each of the devices
    assert copied["cost"]["seconds"] - report["cost"]["seconds"] > 1.9 * moved, (copied["cost"], report["cost"])
    assert copied["memory"]["peak_bytes"] > 1.8 * report["memory"]["peak_bytes"], (copied["memory"], report["memory"])
    # A file that holds the plan says the same.
    priced = json.loads(run("price", path, "--cluster", machine, "--strategy", folder / "out" / "strategy.json", "--json").stdout)
    assert priced["seconds"] == report["cost"]["seconds"], (priced["seconds"], report["cost"])
    assert run("run", folder / "out").stdout.splitlines()[-1].startswith("PASSED")


def test_durations(folder):
    machine, out = cluster(folder, 4), folder / "out"
    for limit in ("20s", "20000ms", "1m", "20"):
        run("search", MLP, "--cluster", machine, "-o", out, "--time-limit", limit, "-q")
    for time in ("20s", "2m", "5000ms", "7"):
        run("run", out, "--timeout", time, "-q")
    problem = folder / "problem.json"
    run("search", MLP, "--cluster", machine, "-o", out, "--dump-problem", problem, "-q")
    answers = {run("solve", problem, "--time-limit", limit, "--threads", threads).stdout for limit in ("10s", "10", "10000ms") for threads in (0, 1, 3)}
    assert len(answers) == 1, answers
    for command in (("search", MLP, "--cluster", machine, "-o", out, "--time-limit"), ("run", out, "--timeout"), ("solve", problem, "--time-limit"),
                    ("calibrate", "--timeout")):
        for wrong in ("x", "0", "-1", "3 parsecs", "1e30s"):
            assert "a bare number is seconds" in run(*command, wrong, code=2).stderr, (command, wrong)


def foreign(path, domain, op_type, rows=8, info=(8, 8), version=1, first=False):
    """A product before and after an op of another domain than ONNX's, or one after it."""
    tensor = lambda name, shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    random = np.random.default_rng(5)
    weights = [onnx.numpy_helper.from_array(random.standard_normal((8, 8)).astype(np.float32), n) for n in ("W", "U")][first:]
    before = [] if first else [onnx.helper.make_node("MatMul", ["X", "W"], ["Y"], name="before")]
    nodes = before + [onnx.helper.make_node(op_type, ["X" if first else "Y"], ["Z"], name="foreign", domain=domain),
                      onnx.helper.make_node("MatMul", ["Z", "U"], ["V"], name="after")]
    graph = onnx.helper.make_graph(nodes, "foreign", [tensor("X", [rows, 8])], [tensor("V", [rows, 8])], weights,
                                   value_info=[tensor("Z", info)] if info else [])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(domain, version)], ir_version=9), path)
    return path


def test_ops_of_other_domains(folder):
    """They are planned by what the file says of their outputs: whole, or as a rule has it."""
    machine, rules, out, again = cluster(folder, 4), folder / "rules", folder / "out", folder / "again"
    rules.write_text('com.microsoft::QuickGelu "... -> ..."\nmy.own::Foo "... -> ..."\nai.onnx.ml::Normalizer "n c^ -> n c^"\n')
    for domain, op_type, version in (("com.microsoft", "QuickGelu", 1), ("my.own", "Foo", 3), ("ai.onnx.ml", "Normalizer", 3)):
        model = foreign(folder / f"{op_type}.onnx", domain, op_type, version=version)
        for more in ((), ("--rules", rules)):
            told = run("search", model, "--cluster", machine, "-o", out, *more).stderr
            assert (f"no rule for foreign ({op_type})" in told) == (not more), told
            split = json.loads((out / "strategy.json").read_text())["ops"]["foreign"]["in_strategy"]
            assert np.prod(split) == (4 if more else 1), (op_type, split)
            run("apply", model, "--cluster", machine, "-o", again, "--strategy", out / "strategy.json", *more)
            assert (out / "plan.onnx").read_bytes() == (again / "plan.onnx").read_bytes()
            run("price", model, "--cluster", machine, "--strategy", out / "strategy.json", *more)
            run("price", out, "--cluster", machine)
            run("show", out)
            run("export", out, "--dialect", "trt", "-o", folder / "trt")
            assert run("verify", out).stdout.splitlines()[-1] == "PASSED"
            if op_type == "Foo":
                told = run("run", out, code=4).stderr
                assert "my.own:Foo" in told and "ONNX Runtime has no such op" in told, told
            else:
                assert run("run", out).stdout.splitlines()[-1] == "PASSED", op_type
        told = run("search", model, "--cluster", machine, "--train", "--loss", "sum:V", code=4).stderr
        assert f"{op_type} has no gradient" in told and "--freeze" in told, told


def test_shapes_of_ops_of_other_domains(folder):
    """A dimension may be one of an input; what is missing is named."""
    machine, out = cluster(folder, 4), folder / "out"
    gelu = "com.microsoft", "QuickGelu"
    run("search", foreign(folder / "n.onnx", *gelu, rows="N", info=("N", 8)), "--cluster", machine, "--dim", "N=16", "-o", out)
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"
    for info, why in (((), "it does not"), (("M", 8), "there a dimension is 'M', as no input has it")):
        told = run("search", foreign(folder / "m.onnx", *gelu, info=info), "--cluster", machine, code=4).stderr
        assert "the shape of its output 'Z' must stand in the model's value_info" in told and why in told and "make_tensor_value_info('Z'" in told, told
    # No gradient goes through it.
    model = foreign(folder / "first.onnx", *gelu, rows="N", info=("N", 8), first=True)
    for more in ((), ("--micro-batches", 2)):
        run("search", model, "--cluster", machine, "--train", "--loss", "sum:V", "--batch", 16, "-o", out, *more)
        assert run("run", out).stdout.splitlines()[-1] == "PASSED", more


def test_version(folder):
    assert len(run("--version").stdout.splitlines()) == 1
    full = run("--version", "-v").stdout
    assert full.startswith(run("--version").stdout) and "\nMPI: " in full and "\ncompiler: " in full and "\nNCCL: " in full
    assert "a command is required" in run(code=2).stderr


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
