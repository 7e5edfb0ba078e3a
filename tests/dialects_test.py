"""Plans in the words of other runtimes, executed: every rank's file is run here, its local ops by ONNX Runtime, its collectives as TensorRT's
DistCollective and ONNX Runtime's com.microsoft define them, and compared with the unsharded model. Shares no code with autopar."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "data" / "models"
TOOL = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "tests" / "random_plan"
SLOW = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e11, "slower": 3, "latency": 1e-9}
TRT_TYPES = {np.dtype(t) for t in ("float32", "float16", "int8", "int32", "int64")}
ORT_SUM = {np.dtype(t) for t in ("float32", "float16", "float64")}
ORT_MOVE = ORT_SUM | {np.dtype("int64"), np.dtype("bool")}
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def attributes(node):
    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}


def reduced(op, parts):
    if op == "avg":
        return (REDUCE["sum"].reduce(parts) / len(parts)).astype(parts[0].dtype)
    return REDUCE[op].reduce(parts).astype(parts[0].dtype)


def dist_collective(nodes, arrays):
    """TensorRT: works along dimension 0, among the ranks of `groups`, in their order."""
    out = {}
    for rank, node in enumerate(nodes):
        a = attributes(node)
        group, kind, op = list(a["groups"]), a["collective_operation"], a["reduce_op"]
        assert set(a) == {"collective_operation", "reduce_op", "root", "groups", "group_size", "nb_rank"}, a
        assert rank in group and len(set(group)) == len(group) == a["group_size"] == a["nb_rank"], (node.name, rank, group)
        assert len(node.input) == 1 and node.domain == "", node.name
        for other in group:
            assert attributes(nodes[other]) == a, f"{node.name}: ranks {rank} and {other} of one group differ"
        parts, at, n = [arrays[r] for r in group], group.index(rank), len(group)
        assert len({(p.shape, p.dtype) for p in parts}) == 1 and parts[0].dtype in TRT_TYPES and parts[0].ndim, node.name
        assert (op != "none") == (kind in ("all_reduce", "reduce_scatter")), (node.name, kind, op)
        assert (a["root"] >= 0) == (kind == "broadcast"), (node.name, kind, a["root"])
        if kind in ("reduce_scatter", "all_to_all"):
            assert parts[0].shape[0] % n == 0, (node.name, parts[0].shape)
        if kind == "all_reduce":
            out[rank] = reduced(op, parts)
        elif kind == "all_gather":
            out[rank] = np.concatenate(parts)
        elif kind == "reduce_scatter":
            out[rank] = np.split(reduced(op, parts), n)[at]
        elif kind == "all_to_all":
            out[rank] = np.concatenate([np.split(p, n)[at] for p in parts])
        elif kind == "broadcast":
            assert group == list(range(len(nodes))), node.name
            out[rank] = parts[a["root"]]
        else:
            raise AssertionError(kind)
    return out


def microsoft(nodes, arrays):
    """com.microsoft: among all ranks; AllToAll works along dimension 0 and keeps the shape."""
    kind, n, out = nodes[0].op_type, len(nodes), {}
    for rank, node in enumerate(nodes):
        a = attributes(node)
        assert len(node.input) == 1 and a == attributes(nodes[0]), node.name
        assert arrays[rank].dtype in (ORT_SUM if kind == "AllReduce" else ORT_MOVE), (node.name, arrays[rank].dtype)
        if kind == "AllReduce":
            assert a == {}, a
            out[rank] = reduced("sum", arrays)
            continue
        assert a["group_size"] == n and set(a) == {"group_size"} | ({"axis"} if kind == "AllGather" else set()), a
        if kind == "AllGather":
            out[rank] = np.concatenate(arrays, a["axis"])
        else:
            assert kind == "AllToAll" and arrays[0].shape[0] % n == 0, (node.name, arrays[0].shape)
            out[rank] = np.concatenate([np.split(p, n)[rank] for p in arrays])
    return out


def know_dist_collective():
    """So that ONNX's checker takes the files of TensorRT's dialect for what they are."""
    op, option = onnx.defs.OpSchema, onnx.defs.OpSchema.FormalParameterOption.Single
    kinds = {"collective_operation": "STRING", "reduce_op": "STRING", "root": "INT", "groups": "INTS", "group_size": "INT", "nb_rank": "INT"}
    onnx.defs.register_schema(op(
        "DistCollective", "", 1, inputs=[op.FormalParameter("x", "T", param_option=option)], outputs=[op.FormalParameter("y", "T", param_option=option)],
        type_constraints=[("T", [f"tensor({t})" for t in ("float", "float16", "bfloat16", "int8", "int32", "int64")], "")],
        attributes=[op.Attribute(k, getattr(op.AttrType, v), "", required=True) for k, v in kinds.items()]))


DIALECTS = {"trt": (("", "DistCollective"), dist_collective), "ort": (("com.microsoft", None), microsoft)}


def slice_of(io, rank, x):
    matrix = io["device_matrix"]
    place = np.unravel_index(rank, matrix)
    for d, entry in enumerate(io["tensor_map"]):
        for m in entry if isinstance(entry, list) else [entry]:
            if m >= 0:
                axis = len(matrix) - 1 - m
                assert x.shape[d] % matrix[axis] == 0
                x = np.split(x, matrix[axis], d)[place[axis]]
    return np.array(x, order="C")


class Segment:
    """Local nodes between two collectives, as one session."""

    def __init__(self, model, nodes, later):
        made = {o for node in nodes for o in node.output if o}
        self.inputs = sorted({i for node in nodes for i in node.input if i} - made)
        self.outputs = sorted(made & later)
        self.nodes, self.model, self.session = nodes, model, None

    def __call__(self, env):
        if not self.outputs:
            return
        if self.session is None:
            inputs = [helper.make_tensor_value_info(i, helper.np_dtype_to_tensor_dtype(env[i].dtype), env[i].shape) for i in self.inputs]
            outputs = [onnx.ValueInfoProto(name=o) for o in self.outputs]
            graph = helper.make_graph(self.nodes, "segment", inputs, outputs)
            opsets = [o for o in self.model.opset_import if o.domain == ""]
            options = ort.SessionOptions()
            options.log_severity_level, options.intra_op_num_threads = 3, 1
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            self.session = ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), options,
                                                providers=["CPUExecutionProvider"])
        env.update(zip(self.outputs, self.session.run(self.outputs, {i: env[i] for i in self.inputs})))


def load(folder, dialect):
    """The manifest and every rank's model."""
    manifest = json.loads((folder / f"plan.{dialect}.json").read_text())
    assert manifest["format"] == "autopar-dialect" and manifest["dialect"] == dialect, manifest
    files = {f["file"]: (onnx.load(folder / f["file"]), f["ranks"]) for f in manifest["files"]}
    ranks = {r: model for model, members in files.values() for r in members}
    assert sorted(ranks) == list(range(manifest["world_size"])), manifest
    on_disk = sorted(p.name for p in folder.glob(f"plan.{dialect}.*onnx"))
    assert on_disk == sorted(files), (on_disk, sorted(files))
    for name in files:
        onnx.checker.check_model(str(folder / name))
    texts = [model.SerializeToString() for model, _ in files.values()]
    assert len(set(texts)) == len(texts), "two files are the same"
    return manifest, [ranks[r] for r in range(manifest["world_size"])]


def execute(folder, dialect, feeds):
    """Outputs per rank, and how often each collective was met."""
    manifest, models = load(folder, dialect)
    (domain, kind), simulate = DIALECTS[dialect]
    first = models[0].graph
    for model in models[1:]:
        assert [(n.op_type, n.name, list(n.input), list(n.output)) for n in model.graph.node] == \
               [(n.op_type, n.name, list(n.input), list(n.output)) for n in first.node], "ranks have different nodes"
    io = json.loads({p.key: p.value for p in models[0].metadata_props}["autopar.io"])
    envs = []
    for rank, model in enumerate(models):
        assert all(o.domain != "ai.autopar" for o in model.opset_import)
        env = {t.name: numpy_helper.to_array(t, str(folder)) for t in model.graph.initializer}
        env.update({k: slice_of(io[k], rank, v) if k in io else v for k, v in feeds.items()})
        for i in model.graph.input:
            shape = tuple(d.dim_value for d in i.type.tensor_type.shape.dim)
            assert env[i.name].shape == shape, (i.name, env[i.name].shape, shape)
        envs.append(env)
    is_collective = [n.domain == domain and kind in (None, n.op_type) for n in first.node]
    counts, at = {}, 0
    while at < len(first.node):
        if is_collective[at]:
            nodes = [m.graph.node[at] for m in models]
            out = simulate(nodes, [env[nodes[0].input[0]] for env in envs])
            name = attributes(nodes[0]).get("collective_operation", nodes[0].op_type)
            counts[name] = counts.get(name, 0) + 1
            for rank, env in enumerate(envs):
                env[nodes[0].output[0]] = out[rank]
            at += 1
            continue
        end = at
        while end < len(first.node) and not is_collective[end]:
            end += 1
        later = {i for n in list(first.node)[end:] for i in n.input} | {o.name for o in first.output}
        segment = Segment(models[0], list(first.node)[at:end], later)
        for env in envs:
            segment(env)
        at = end
    for env in envs:
        for value in list(first.value_info) + list(first.output):
            if value.name in env:
                shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
                assert env[value.name].shape == shape, (value.name, env[value.name].shape, shape)
    return [[env[o.name] for o in first.output] for env in envs], [o.name for o in first.output], io, counts


def data_of(model):
    """Inputs, and what the unsharded model makes of them."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    arrays = dict(np.load(model.with_suffix(".npz"))) if model.with_suffix(".npz").exists() else {}
    arrays.update({k[3:]: v for k, v in arrays.items() if k.startswith("in.")})
    random, feeds = np.random.default_rng(5), {}
    for i in session.get_inputs():
        if i.name in arrays:
            feeds[i.name] = arrays[i.name]
        elif "float" in i.type:
            feeds[i.name] = (random.standard_normal(i.shape) / 4).astype(np.float32)
        else:
            feeds[i.name] = random.integers(0, 2, i.shape).astype(np.int64 if "int64" in i.type else np.int32)
    return feeds, dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def check(what, model, folder, dialect):
    feeds, expected = data_of(model)
    results, names, io, counts = execute(folder, dialect, feeds)
    worst = 0
    for rank, outputs in enumerate(results):
        for name, found in zip(names, outputs):
            wanted = slice_of(io[name], rank, expected[name]) if name in io else expected[name]
            assert found.shape == wanted.shape and found.dtype == wanted.dtype, (what, name, found.shape, wanted.shape)
            assert np.allclose(found, wanted, rtol=2e-3, atol=2e-4), (what, dialect, name, rank, np.abs(found - wanted).max())
            if found.size:
                worst = max(worst, float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()))
    files = len(list(folder.glob(f"plan.{dialect}.*onnx")))
    print(f"{what}, {dialect}: {len(results)} ranks, {files} files, {counts}, largest error {worst:.2g}")
    return counts


def net(folder):
    """Two products, a normalisation over a dimension that may be split, weights in the file."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array((random.standard_normal(s) / 4).astype(np.float32), n)
               for n, s in (("w1", (24, 48)), ("b1", (48,)), ("w2", (48, 24)))]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="up"), helper.make_node("Add", ["h", "b1"], ["a"], name="bias"),
             helper.make_node("Relu", ["a"], ["r"], name="relu"), helper.make_node("MatMul", ["r", "w2"], ["y"], name="down"),
             helper.make_node("Softmax", ["y"], ["p"], name="softmax", axis=-1),
             helper.make_node("Transpose", ["p"], ["t"], name="turn", perm=[1, 0])]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [24, 24])],
                              [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [24, 24]) for n in ("p", "t")], weights)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def random_plans(folder, model, meshes, dialects, seeds):
    """Whatever a strategy is, the dialect computes what the model does, or says what it cannot."""
    met, refused = {}, 0
    for mesh in meshes:
        for seed in seeds:
            out = folder / f"{model.stem}_{mesh}_{seed}"
            out.mkdir()
            subprocess.run([TOOL, model, mesh, str(seed), out / "plan.onnx"], check=True)
            for dialect in dialects:
                done = subprocess.run([os.environ["AUTOPAR"], "export", out, "--dialect", dialect], capture_output=True, text=True)
                if done.returncode == 0:
                    for kind, count in check(f"{model.stem} on {mesh}, seed {seed}", model, out, dialect).items():
                        met[kind] = met.get(kind, 0) + count
                    continue
                assert done.returncode == 4 and "is not representable in the dialect" in done.stderr and "; try " in done.stderr, done.stderr
                assert not list(out.glob(f"plan.{dialect}.*")), list(out.iterdir())
                print(done.stderr.strip())
                refused += 1
    print(f"{model.stem}: {met}, {refused} refused")
    return met, refused


def test_random(folder, model):
    met, refused = random_plans(folder, model, ("2", "4", "3", "2x2", "2x3"), ("trt",), range(3))
    assert refused == 0 and {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"} <= set(met), (met, refused)
    met, refused = random_plans(folder / "world", model, ("2", "4"), ("ort",), range(3))
    assert refused == 0 and {"AllReduce", "AllGather", "AllToAll"} <= set(met), (met, refused)


def test_one_file(folder, model):
    """Ranks that run the same share a file; with whole inputs TensorRT's ranks still do."""
    machine = cluster(folder, 4, **SLOW)
    for io in ("local", "full"):
        for dialect in ("trt", "ort"):
            out = folder / f"{io}_{dialect}"
            run("search", model, "--cluster", machine, "-o", out, "--searcher", "data_parallel", "--io", io, "--dialect", dialect)
            counts = check(f"rows split, --io {io}", model, out, dialect)
            files = [f["file"] for f in json.loads((out / f"plan.{dialect}.json").read_text())["files"]]
            assert (files == [f"plan.{dialect}.onnx"]) == (io == "local" or dialect == "trt"), files
            assert io == "local" or dialect == "ort" or counts["reduce_scatter"] >= 1, counts
    pin = folder / "pin.json"
    pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"up": {"in_strategy": [[1, 1], [1, 4]]}}}))
    out = folder / "columns"
    run("apply", model, "--cluster", machine, "-o", out, "--strategy", pin, "--fill", "replicate", "--dialect", "ort", "--dialect", "trt")
    for dialect in ("trt", "ort"):
        check("columns split", model, out, dialect)
        model0 = onnx.load(out / f"plan.{dialect}.rank0.onnx")
        shapes = {t.name: tuple(t.dims) for t in model0.graph.initializer}
        assert (24, 12) in shapes.values() and (24, 48) not in shapes.values(), shapes
        # A plan that is read from its file gives the same files as one that was just made.
        later = folder / f"later_{dialect}"
        run("export", out, "--dialect", dialect, "-o", later)
        for path in out.glob(f"plan.{dialect}.*"):
            assert path.read_bytes() == (later / path.name).read_bytes(), path


def test_refused(folder, model):
    machine = cluster(folder, 2, 2, **SLOW)
    pin = folder / "pin.json"
    pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": [{"name": "t1", "size": 2}, {"name": "t0", "size": 2}],
                               "ops": {"down": {"assignment": {"t1": "m", "t0": "k"}}}}))
    out = folder / "refused"
    done = run("apply", model, "--cluster", machine, "-o", out, "--strategy", pin, "--dialect", "ort", code=4)
    assert "is not representable in the dialect ort: it runs in groups of 2 ranks" in done.stderr and "op '" in done.stderr, done.stderr
    assert not out.exists(), list(out.iterdir())
    run("apply", model, "--cluster", machine, "-o", out, "--strategy", pin, "--dialect", "trt")
    check("rows and sums split", model, out, "trt")
    manifest, models = load(out, "trt")
    assert len(manifest["files"]) > 1 and not (out / "plan.trt.onnx").exists(), manifest
    done = run("run", out / manifest["files"][0]["file"], code=4)
    assert "dialect trt" in done.stderr, done.stderr
    run("search", model, "--cluster", machine, "--dialect", "tensorflow", code=2)


def test_again(folder, model):
    """Files of an earlier plan go where they are not of this one."""
    out = folder / "again"
    for tiers, searcher in (((4,), "dp"), ((2,), "dp"), ((2,), "data_parallel")):
        run("search", model, "--cluster", cluster(folder, *tiers, **SLOW), "-o", out, "--searcher", searcher, "--dialect", "trt")
        check(f"again, {searcher} on {tiers}", model, out, "trt")  # no other files are there
    assert [p.name for p in out.glob("plan.trt.*onnx")] == ["plan.trt.onnx"]


def test_by_hand(folder):
    """Collectives that somebody wrote into a model."""
    f = onnx.TensorProto.FLOAT
    info = [helper.make_tensor_value_info(n, f, [4, 4]) for n in ("x", "y")]

    def write(name, nodes):
        graph = helper.make_graph(nodes, name, info[:1], info[1:])
        model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.autopar", 1)])
        (folder / name).mkdir()
        onnx.save(model, folder / name / "plan.onnx")
        return folder / name

    out = write("hybrid", [helper.make_node("Relu", ["x"], ["r"], name="relu"),
                           helper.make_node("AllReduce", ["r"], ["y"], name="sum", domain="ai.autopar", groups=[0, 2, 1, 3], group_size=2, reduce_op="sum")])
    listed = json.loads(run("export", out, "--dialect", "trt", "--json").stdout)
    assert listed["format"] == "autopar-export" and listed["folder"] == str(out) and listed["files"][-1] == "plan.trt.json", listed
    assert all((out / name).exists() for name in listed["files"]), listed
    x = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    results, *_, counts = execute(out, "trt", {"x": x})
    assert counts == {"all_reduce": 1} and all(np.array_equal(y, 2 * np.maximum(x, 0)) for y, in results), counts
    manifest, _ = load(out, "trt")
    assert [entry["ranks"] for entry in manifest["files"]] == [[0, 2], [1, 3]], manifest
    out = write("messages", [helper.make_node("Send", ["x"], ["s"], name="send", domain="ai.autopar", groups=[0, 1], group_size=2),
                             helper.make_node("Recv", [], ["r"], name="receive", domain="ai.autopar", groups=[0, 1], group_size=2, shape=[4, 4], dtype=1),
                             helper.make_node("Add", ["s", "r"], ["y"], name="add")])
    for dialect in ("trt", "ort"):
        done = run("export", out, "--dialect", dialect, "-o", folder / "nowhere", code=4)
        assert "op 'send' (Send) is not representable" in done.stderr and "messages between two ranks" in done.stderr, done.stderr
        assert not (folder / "nowhere").exists()


def session_of(model):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model if isinstance(model, str) else model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check_library(plan, model):
    """Where the ops come as a library for ONNX Runtime, its kernels win over the bodies as well."""
    library, launcher = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / "libautopar_ops.so", shutil.which("mpirun.openmpi")
    if launcher is None or not library.exists():
        print("libautopar_ops.so or Open MPI is not there: skipped")
        return
    command = [launcher, "--oversubscribe", "-n", "4"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
    done = subprocess.run([*command, sys.executable, SOURCE / "scripts" / "run_with_onnxruntime.py", "--library", library, plan, "--model", model],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip().splitlines()[-1] == "PASSED", (done.stdout, done.stderr)
    print("libautopar_ops.so: its kernels win over the bodies")


def check_bodies(functions, opset):
    """In groups of one rank a body gives what the collective would; in larger ones the shape, and the numbers of equal ranks."""
    random, n = np.random.default_rng(7), 0
    for function in functions.values():
        for size in (1, 2, 4):
            for a in range(2):
                for b in range(2):
                    # Attributes of nodes that the file has no node of are not among the function's.
                    values = {"axis": a, "split_axis": a, "concat_axis": b, "group_size": size, "groups": list(range(size)), "seq": 0,
                              "mesh_axes": ["t0"], "reduce_op": "sum", "root": 0}
                    node = helper.make_node(function.name, ["x", "x"][:len(function.input)], ["y"], domain="ai.autopar",
                                            **{k: v for k, v in values.items() if k in function.attribute})
                    x = random.standard_normal((8, 12)).astype(np.float32)
                    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
                    graph = helper.make_graph([node], "one", [info], [onnx.ValueInfoProto(name="y")])
                    model = helper.make_model(graph, functions=[function], ir_version=10,
                                              opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.autopar", 1)])
                    y, = session_of(model).run(None, {"x": x})
                    first = np.split(x, size, a)[0]
                    expected = {"AllGather": np.concatenate([x] * size, a), "ReduceScatter": first, "ShardSlice": first,
                                "AllToAll": np.concatenate([first] * size, b)}.get(function.name, x)
                    assert size > 1 or np.array_equal(expected, x)
                    assert np.array_equal(y, expected), (function.name, size, a, b)
                    n += 1
    print(f"bodies of {sorted(functions)}: {n} calls")


def test_fallback(folder, model):
    """Plans with bodies for the collectives load in a runtime that knows none of them; `autopar run` does not take the bodies."""
    functions = {}
    apart = subprocess.run([os.environ["AUTOPAR"], "search", model, "--cluster", cluster(folder, 4, **SLOW), "-o", folder / "apart", "--weights", "sharded", "--fallback-functions"],
                           capture_output=True, text=True, timeout=60)
    assert apart.returncode == 2 and "--fallback-functions goes with --weights referenced" in apart.stderr, apart.stderr
    plans = {"whole": ((1,), {}), "sums": ((4,), {"down": {"assignment": {"t0": "k"}}}),
             "columns": ((4,), {"up": {"in_strategy": [[1, 1], [1, 4]]}}),
             "both": ((2, 2), {"up": {"assignment": {"t1": "n"}}, "down": {"assignment": {"t1": "m", "t0": "k"}}})}
    feeds, expected = data_of(model)
    for name, (tiers, ops) in plans.items():
        pin, out = folder / f"{name}.json", folder / f"fallback_{name}"
        mesh = [{"name": f"t{i}", "size": n} for i, n in enumerate(tiers)][::-1]
        pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": mesh, "ops": ops}))
        done = run("apply", model, "--cluster", cluster(folder, *tiers, **SLOW), "-o", out, "--strategy", pin, "--fill", "replicate", "--fallback-functions")
        assert "WRONG RESULTS on more than one rank" in done.stderr, done.stderr
        path = out / "plan.onnx"
        plan = onnx.load(path)
        assert "WRONG on more than one rank" in {p.key: p.value for p in plan.metadata_props}["autopar.fallback_functions"]
        used = {n.op_type for n in plan.graph.node if n.domain == "ai.autopar"}
        assert {f.name for f in plan.functions} == used and bool(used) == (name != "whole"), (name, used)
        onnx.checker.check_model(str(path), full_check=True)
        onnx.shape_inference.infer_shapes(plan, strict_mode=True, data_prop=True)
        session = session_of(str(path))
        io = json.loads({p.key: p.value for p in plan.metadata_props}["autopar.io"])
        outputs = session.run(None, {k: slice_of(io[k], 0, v) for k, v in feeds.items()})
        for declared, found in zip(session.get_outputs(), outputs):
            assert list(found.shape) == declared.shape == list(slice_of(io[declared.name], 0, expected[declared.name]).shape), declared.name
            assert name != "whole" or np.allclose(found, expected[declared.name], rtol=1e-4, atol=1e-5), declared.name
        # The kernels win: with the bodies the sums would be wrong.
        right = all(np.allclose(f, slice_of(io[d.name], 0, expected[d.name]), rtol=1e-3, atol=1e-4) for d, f in zip(session.get_outputs(), outputs))
        assert right == (name == "whole") or name == "columns", name
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"
        functions.update({f.name: f for f in plan.functions})
    check_library(folder / "fallback_both" / "plan.onnx", model)
    assert set(functions) >= {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "ShardSlice"}, set(functions)
    check_bodies(functions, 17)


def test_shared(folder):
    for name in ("tiny_llama", "tiny_bert", "tiny_moe_gather", "tiny_train_llama_adamw"):
        model = SHARED / f"{name}.onnx"
        for mesh, tiers, dialects in (("4", (4,), ("trt", "ort")), ("2x2", (2, 2), ("trt",))):
            out = folder / f"{name}_{mesh}"
            run("search", model, "--cluster", cluster(folder, *tiers, **SLOW), "--mesh", mesh, "-o", out, *[x for d in dialects for x in ("--dialect", d)])
            for dialect in dialects:
                assert check(f"{name} on {mesh}", model, out, dialect), name
        (folder / name).mkdir()
        random_plans(folder / name, model, ("2x2",), ("trt",), (1,))
        random_plans(folder / name, model, ("4",), ("ort",), (1,))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        know_dist_collective()
        (folder / "world").mkdir()
        model = net(folder)
        test_random(folder, model)
        test_one_file(folder, model)
        test_refused(folder, model)
        test_again(folder, model)
        test_by_hand(folder)
        test_fallback(folder, model)
        if SHARED.exists():
            test_shared(folder)
        else:
            print("models outside the repository are not there: skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
