"""Models with the collectives of TensorRT and ONNX Runtime are programs: shown, priced, order-checked and executed.

Plans are written in a dialect and read back, and give the bits that the plan gives. Single collectives, written here with the onnx package,
are executed and compared with numpy. What a dialect does not have, or ai.autopar cannot say, is refused."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dialects_test import net
from tools.program import cluster

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "data" / "models"
RANDOM_PLAN = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "tests" / "random_plan"
MACHINE = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e11, "slower": 3, "latency": 1e-9}
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def run(*arguments, code=0):
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done


def save(path, nodes, inputs, outputs, initializers=(), metadata=None, functions=()):
    """Inputs and outputs: name, array or shape."""
    def info(name, like):
        array = like if isinstance(like, np.ndarray) else np.empty(like, np.float32)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    graph = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs],
                              [numpy_helper.from_array(a, n) for n, a in initializers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)], ir_version=10,
                              functions=functions)
    for key, value in (metadata or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value if isinstance(value, str) else json.dumps(value)
    onnx.save(model, path)
    return path


def trt(operation, x="x", y="y", groups=(0, 1, 2, 3), reduce_op="none", root=-1, name="it", without=(), **other):
    attributes = {"collective_operation": operation, "reduce_op": reduce_op, "root": root, "groups": list(groups), "group_size": len(groups), "nb_rank": len(groups), **other}
    return helper.make_node("DistCollective", [x], [y], name=name, **{k: v for k, v in attributes.items() if k not in without})


def microsoft(op_type, inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node(op_type, list(inputs), list(outputs), name="it", domain="com.microsoft", **attributes)


def lying(shape, axis="ranks"):
    """Split over all ranks along dimension 0."""
    return {"shape": list(shape), "spec": "[{" + axis + "}" + ",{}" * (len(shape) - 1) + "]"}


def execute(path, x):
    np.savez(path.parent / "data.npz", **{"in.x": x})
    done = run("run", path, "--data", path.parent / "data.npz", "--save", path.parent / "out.npz")
    assert done.stdout.splitlines()[-1] == "PASSED (nothing compared)", done.stdout
    return np.load(path.parent / "out.npz")["out.y"]


def check_one(folder, what, node, parts, expected, ranks=4):
    """Every rank's part goes in, every rank's result comes out, one after the other."""
    x, y = np.concatenate(parts), np.concatenate(expected)
    path = save(folder / "one.onnx", [node], [("x", parts[0])], [("y", expected[0])],
                metadata={"autopar.world_size": str(ranks), "autopar.io": {"x": lying(x.shape), "y": lying(y.shape)}})
    found = execute(path, x)
    assert found.dtype == y.dtype and np.array_equal(found, y), (what, found.dtype, found.shape, y.dtype, y.shape, found[:9], y[:9])


def test_single(folder):
    random = np.random.default_rng(1)
    for dtype in (np.float32, np.float16, np.int32, np.int64):
        parts = [random.integers(1, 5, (8, 3)).astype(dtype) for _ in range(4)]
        swapped = [2, 0, 3, 1]
        for groups in (range(4), swapped):
            group = [parts[r] for r in groups]
            place = [list(groups).index(r) for r in range(4)]
            for op in REDUCE:
                total = REDUCE[op].reduce(group).astype(dtype)
                check_one(folder, op, trt("all_reduce", groups=groups, reduce_op=op), parts, [total] * 4)
                check_one(folder, op, trt("REDUCE_SCATTER", groups=groups, reduce_op=op.upper()), parts, [np.split(total, 4)[p] for p in place])
            check_one(folder, "gather", trt("all_gather", groups=groups), parts, [np.concatenate(group)] * 4)
            check_one(folder, "to all", trt("all_to_all", groups=groups), parts, [np.concatenate([np.split(p, 4)[at] for p in group]) for at in place])
        for root in range(4):
            check_one(folder, "broadcast", trt("broadcast", root=root), parts, [parts[root]] * 4)
        # No list of ranks: all of them.
        check_one(folder, "all", trt("all_gather", without=("groups", "group_size")), parts, [np.concatenate(parts)] * 4)
        check_one(folder, "all", trt("all_reduce", reduce_op="sum", without=("groups", "group_size", "nb_rank", "root")), parts, [REDUCE["sum"].reduce(parts, dtype=dtype)] * 4)
        check_one(folder, "sum", microsoft("AllReduce"), parts, [REDUCE["sum"].reduce(parts, dtype=dtype)] * 4)
        for axis in (0, 1):
            check_one(folder, "gather", microsoft("AllGather", axis=axis, group_size=4), parts, [np.concatenate(parts, axis)] * 4)
        check_one(folder, "to all", microsoft("AllToAll", group_size=4), parts, [np.concatenate([np.split(p, 4)[r] for p in parts]) for r in range(4)])
    mean = [np.full((4,), r, np.float32) for r in range(4)]
    check_one(folder, "avg", trt("all_reduce", reduce_op="avg"), mean, [np.full((4,), 1.5, np.float32)] * 4)


def test_number_of_ranks(folder):
    """From metadata_props, else from the ops; AllReduce of com.microsoft alone does not say it."""
    x = np.ones((4, 4), np.float32)
    gather = [microsoft("AllReduce", outputs=["s"]), helper.make_node("AllGather", ["s"], ["y"], name="gather", domain="com.microsoft", axis=1, group_size=3)]
    shown = run("show", save(folder / "g.onnx", gather, [("x", x)], [("y", (4, 12))])).stdout
    assert "program for 3 ranks, in the dialect ort" in shown and "AllReduce [0,1,2]" in shown and "AllGather [0,1,2] 1" in shown, shown
    shown = json.loads(run("show", save(folder / "t.onnx", [trt("all_reduce", groups=[4, 1, 0, 3, 2], reduce_op="max")], [("x", x)], [("y", x)]), "--json").stdout)
    assert shown["world_size"] == 5 and shown["dialect"] == "trt" and shown["collectives"][0]["groups"] == [4, 1, 0, 3, 2], shown
    path = save(folder / "s.onnx", [microsoft("AllReduce")], [("x", x)], [("y", x)])
    for command in ("show", "run"):
        message = run(command, path, code=4).stderr
        assert "s.onnx: op 'it' (com.microsoft::AllReduce): it runs among all ranks, and nothing in the file says how many" in message, message
        assert "autopar.world_size" in message and "world_size" in message, message
    # A list beside it says what the file does not.
    listing = {"format": "autopar-dialect", "version": 1, "world_size": 4, "files": [{"file": "s.onnx", "ranks": [0, 1, 2, 3]}],
               "io": {"x": lying((16, 4)), "y": lying((16, 4))}}
    (folder / "list.json").write_text(json.dumps(listing))
    data = np.arange(64, dtype=np.float32).reshape(16, 4)
    assert np.array_equal(execute(folder / "list.json", data), np.tile(sum(np.split(data, 4)), (4, 1)))
    priced = json.loads(run("price", folder / "list.json", "--cluster", cluster(folder, 4, **MACHINE), "--json").stdout)
    assert priced["ranks"] == 4 and priced["programs"][0]["terms"][0]["type"] == "AllReduce", priced
    for command in (["search", path], ["search", folder / "t.onnx"]):
        message = run(*command, "--cluster", cluster(folder, 4, **MACHINE), code=4).stderr
        assert "is already a program for several ranks, since op 'it' (" in message, message


def refused(folder, node, *what, ranks="4", shape=(8, 4), metadata=None, **more):
    path = save(folder / "refused.onnx", [node], [("x", shape)], [("y", shape)], metadata=metadata or {"autopar.world_size": ranks}, **more)
    message = run("show", path, code=4).stderr
    assert "refused.onnx" in message and "op 'it' (" in message and all(w in message for w in what), (what, message)


def test_refused(folder):
    refused(folder, trt("all_reduce"), "attribute reduce_op: expected sum, prod, max, min or avg, found 'none'")
    refused(folder, trt("all_reduce", reduce_op="xor"), "found 'xor'")
    refused(folder, trt("all_gather", reduce_op="sum"), "attribute reduce_op: expected none, since nothing is reduced, found 'sum'")
    refused(folder, trt("all_gather", root=0), "attribute root: expected -1, since it has none, found 0")
    refused(folder, trt("broadcast"), "attribute root: expected from 0 to 3, found -1")
    refused(folder, trt("broadcast", root=1, groups=[1, 0, 2, 3]), "root 1 is one rank as a rank, another as a place in groups [1,0,2,3]")
    refused(folder, trt("reduce", reduce_op="sum", root=0), "only the root has a result", "try all_reduce")
    refused(folder, trt("gather", root=0), "only the root has a result", "try all_gather")
    refused(folder, trt("scatter", root=0), "ai.autopar has no such op", "reduce_scatter with max")
    refused(folder, trt("all_reduced", reduce_op="none"), "attribute collective_operation: expected all_reduce, all_gather", "found 'all_reduced'")
    refused(folder, trt("all_reduce", reduce_op="sum", nb_rank=2), "attribute nb_rank: expected 4, as many as groups lists, found 2")
    refused(folder, trt("all_reduce", reduce_op="sum", group_size=3), "attribute group_size: expected 4, as many as groups lists, found 3")
    refused(folder, trt("all_reduce", reduce_op="sum", without=("groups", "group_size"), nb_rank=8), "attribute nb_rank: expected 4, the number of ranks, found 8")
    refused(folder, trt("all_reduce", reduce_op="sum", groups=[0, 1, 1, 2]), "attribute groups: expected ranks from 0 to 3, each at most once, found [0,1,1,2]")
    refused(folder, trt("all_reduce", reduce_op="sum", groups=[0, 1, 2, 4]), "found [0,1,2,4]")
    refused(folder, trt("all_reduce", reduce_op="sum", root=[1]), "attribute root: expected an integer, found INTS")
    refused(folder, trt("all_reduce", reduce_op="sum", stream=1), "the attribute stream is not known of it; expected only collective_operation")
    refused(folder, microsoft("AllReduce", group_size=4), "the attribute group_size is not known of it; expected none")
    refused(folder, microsoft("AllReduce", ["x", "x"]), "expected one input and one output, found 2 and 1")
    refused(folder, microsoft("AllGather", group_size=4), "attribute axis: expected a dimension, since ONNX Runtime has two defaults for it, found none")
    refused(folder, microsoft("AllGather", group_size=4, axis=-1), "attribute axis: expected a dimension counted from 0, found -1")
    refused(folder, microsoft("AllGather", axis=0), "attribute group_size: expected 4, the number of ranks, found none")
    refused(folder, microsoft("AllGather", axis=0, group_size="4"), "attribute group_size: expected an integer, found STRING")
    refused(folder, microsoft("AllGather", axis=0, group_size=-4), "attribute group_size: expected a number of ranks, found -4")
    refused(folder, trt("all_reduce", reduce_op="sum", groups=[0, 2 ** 63 - 1]), "found [0,9223372036854775807]")
    refused(folder, microsoft("AllToAll", group_size=2), "attribute group_size: expected 4, the number of ranks, since", "found 2")
    refused(folder, microsoft("NcclAllReduce"), "its group_type names a group", "so it is not read; try")
    refused(folder, microsoft("DistributedMatMul", ["x", "x"]), "it computes and communicates in one")
    refused(folder, microsoft("Send", ["x", "x"]), "its remote rank is an input")
    refused(folder, helper.make_node("DistCollective", ["x"], ["y"], name="it", domain="my.own", collective_operation="all_gather"), "TensorRT has it in ONNX's own domain")
    path = save(folder / "refused.onnx", [trt("all_to_all")], [("x", (6, 4))], [("y", (6, 4))])
    assert "6" in run("show", path, code=4).stderr
    path = save(folder / "refused.onnx", [trt("all_reduce", reduce_op="sum", groups=[0, 1])], [("x", (6, 4))], [("y", (6, 4))], metadata={"autopar.world_size": "4"})
    message = run("show", path, code=4).stderr
    assert "rank 2 runs it, but is in none of its groups" in message, message


def test_is_a_model(folder):
    """Ops of com.microsoft that compute only, and functions of the model that are only called like a collective."""
    body = helper.make_function("com.microsoft", "AllReduce", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 18)])
    path = save(folder / "function.onnx", [microsoft("AllReduce")], [("x", (4,))], [("y", (4,))], functions=[body])
    shown = run("show", path).stdout
    assert "program" not in shown and "Relu" in shown, shown


def files_of_ranks(folder, weights, begins, groups, changes=lambda rank, nodes: nodes):
    """x @ w over the parts of w, a slice of x by the rank, a scale that goes by the rank, and sums in groups."""
    names = []
    for rank, weight in enumerate(weights):
        group = next(g for g in groups if rank in g)
        nodes = [helper.make_node("Slice", ["x", "begin", "end", "axis"], ["p"], name="part"), helper.make_node("MatMul", ["p", "w"], ["h"], name="product"),
                 helper.make_node("Mul", ["h", "scale"], ["s"], name="scaled"), trt("all_reduce", "s", "y", group, "sum", name="sum")]
        begin = np.array([begins[rank]], np.int64)
        names.append(f"r{rank}.onnx")
        save(folder / names[-1], changes(rank, nodes), [("x", (4, 8))], [("y", (4, 6))],
             [("w", weight), ("begin", begin), ("end", begin + weight.shape[0]), ("axis", np.array([1], np.int64)), ("scale", np.array(2.0 ** rank, np.float32))])
    path = folder / "plan.trt.json"
    path.write_text(json.dumps({"format": "autopar-dialect", "version": 1, "world_size": len(weights), "files": [{"file": n, "ranks": [r]} for r, n in enumerate(names)],
                                "io": {"x": {"shape": [4, 8], "spec": "[{},{}]"}, "y": lying((4 * len(weights), 6))}}))
    return path


def test_files_of_ranks(folder):
    random = np.random.default_rng(2)
    whole = random.integers(-4, 4, (8, 6)).astype(np.float32)
    x = random.integers(-4, 4, (4, 8)).astype(np.float32)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        for groups in ([[0, 1, 2, 3]], [[0, 2], [1, 3]], [[3, 0], [2, 1]]):
            begins = [2 * p for p in order]
            path = files_of_ranks(folder, [whole[b:b + 2] for b in begins], begins, groups)
            partial = [2.0 ** r * (x[:, b:b + 2] @ whole[b:b + 2]) for r, b in enumerate(begins)]
            expected = np.concatenate([sum(partial[m] for m in next(g for g in groups if r in g)) for r in range(4)])
            for what in (path, folder):  # a folder without another program is its list
                assert np.array_equal(execute(what, x) if what is path else execute(path, x), expected), (order, groups)
            shown = json.loads(run("show", folder, "--json").stdout)
            kinds = [c["kind"] for c in shown["collectives"]]
            assert kinds.count("ShardSlice") == 3 and kinds.count("AllReduce") == 1 and shown["world_size"] == 4, kinds
    # The same with constants for what goes by the rank.
    def constants(rank, nodes):
        begin = begins[rank]
        return [helper.make_node("Constant", [], ["from"], value_ints=[begin]), helper.make_node("Constant", [], ["to"], value=numpy_helper.from_array(np.array([begin + 2]))),
                helper.make_node("Slice", ["x", "from", "to", "axis"], ["p"], name="part"), *nodes[1:]]
    path = files_of_ranks(folder, [whole[b:b + 2] for b in begins], begins, groups, constants)
    assert np.array_equal(execute(path, x), expected)
    # Ranks that share weights: two parts for four ranks.
    begins = [0, 4, 0, 4]
    path = files_of_ranks(folder, [whole[b:b + 4] for b in begins], begins, [[0, 1], [2, 3]])
    partial = [2.0 ** r * (x[:, b:b + 4] @ whole[b:b + 4]) for r, b in enumerate(begins)]
    assert np.array_equal(execute(path, x), np.concatenate([partial[0] + partial[1]] * 2 + [partial[2] + partial[3]] * 2))


def test_files_refused(folder):
    whole = np.ones((8, 6), np.float32)
    parts, begins, groups = [whole[:2]] * 4, [0, 2, 4, 6], [[0, 1, 2, 3]]

    def check(path, *what):
        message = run("show", path, code=4).stderr
        assert all(w in message for w in what), (what, message)

    check(files_of_ranks(folder, parts, [0, 2, 4, 4], groups), "op 'part' (Slice)", "some parts are taken more often than others")
    check(files_of_ranks(folder, parts, [0, 2, 4, 5], groups), "op 'part' (Slice)", "rank 3 takes 5 to 7 of 8")
    check(files_of_ranks(folder, parts, begins, [[0, 1], [2, 3]], lambda rank, nodes: nodes[:3] + [trt("all_reduce", "s", "y", [0, 1], "sum", name="sum")]),
          "r2.onnx: op 'sum'", "expected a list with rank 2, which runs this file")
    check(files_of_ranks(folder, parts, begins, [[0, 1], [1, 2, 3]]), "r2.onnx: op 'sum' (ai.autopar::AllReduce) differs from that of", "r0.onnx")
    check(files_of_ranks(folder, parts, begins, groups, lambda rank, nodes: nodes if rank < 3 else [nodes[0], helper.make_node("MatMul", ["p", "w"], ["h"], name="other")] + nodes[2:]),
          "r3.onnx: op 'other' (MatMul) differs")
    check(files_of_ranks(folder, parts, begins, groups, lambda rank, nodes: nodes if rank < 3 else nodes[:2] + [helper.make_node("Identity", ["h"], ["i"])] + [helper.make_node("Mul", ["i", "scale"], ["s"], name="scaled"), nodes[3]]),
          "r3.onnx: the number of ops, 5, not 4")
    check(files_of_ranks(folder, parts[:3] + [whole[:4]], [0, 2, 4, 4], groups), "r3.onnx: the type or shape of initializer 'w'")

    def change_all(change, path):
        for rank in range(4):
            model = onnx.load(folder / f"r{rank}.onnx")
            change(rank, model.graph)
            onnx.save(model, folder / f"r{rank}.onnx")
        return path

    def axis(of_rank):
        def change(rank, graph):
            graph.initializer[3].CopyFrom(numpy_helper.from_array(np.array([of_rank(rank)], np.int64), "axis"))
        return change

    def extent(rank, graph):
        graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2 ** 62

    def twice(rank, graph):
        graph.initializer[4].CopyFrom(graph.initializer[0])

    check(change_all(axis(lambda rank: rank // 2), files_of_ranks(folder, parts, begins, groups)), "op 'part' (Slice)", "not one and the same on all ranks")
    check(change_all(axis(lambda rank: 2), files_of_ranks(folder, parts, begins, groups)), "op 'part' (Slice)", "its axis 2 is no dimension of its input [4,8]")
    check(change_all(extent, files_of_ranks(folder, parts, begins, groups)), "r0.onnx: op 'part' (Slice)", "some parts are taken by no rank")
    check(files_of_ranks(folder, parts, begins, groups, lambda rank, nodes: [helper.make_node("Constant", [], ["text"], value_strings=[str(rank)])] + nodes),
          "r0.onnx: op 'text' (Constant) goes by the rank, and its value is of a kind that is not supported")
    check(change_all(twice, files_of_ranks(folder, parts, begins, groups)), "r0.onnx: initializer 'w' is there twice")
    path = files_of_ranks(folder, parts, begins, groups)
    listing = json.loads(path.read_text())
    for change, what in (({"world_size": 5}, "a file for each of 5 ranks"), ({"world_size": 3}, "ranks of the world that run no other file"),
                         ({"files": listing["files"][:3]}, "there is one for 3"), ({"version": 2}, "version"),
                         ({"files": [{"file": "../r0.onnx", "ranks": [0, 1, 2, 3]}]}, "the name of a file beside this one"),
                         ({"files": [{"file": "none.onnx", "ranks": [0, 1, 2, 3]}]}, "none.onnx: cannot be opened")):
        path.write_text(json.dumps({**listing, **change}))
        check(path, what)
    path.write_text(json.dumps(listing))
    (folder / "plan.ort.json").write_text(json.dumps(listing))
    check(folder, "name the one that is meant")


def test_external_data(folder):
    """Parts of one external file, one after the other, are told by their place; others are read."""
    random = np.random.default_rng(3)
    whole = random.integers(-4, 4, (8, 6)).astype(np.float32)
    x = random.integers(-4, 4, (4, 8)).astype(np.float32)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        for places in (range(4), [3, 1, 0, 2]):  # in the file
            begins = [2 * p for p in order]
            parts = [whole[b:b + 2] for b in begins]
            path = files_of_ranks(folder, parts, begins, [[0, 1, 2, 3]])
            (folder / "w.bin").write_bytes(b"".join(parts[r].tobytes() for r in sorted(range(4), key=lambda r: places[r])))
            for rank in range(4):
                model = onnx.load(folder / f"r{rank}.onnx")
                w = next(t for t in model.graph.initializer if t.name == "w")
                onnx.external_data_helper.set_external_data(w, "w.bin", places[rank] * 48, 48)
                w.ClearField("raw_data")
                onnx.save(model, folder / f"r{rank}.onnx")
            partial = [2.0 ** r * (x[:, b:b + 2] @ whole[b:b + 2]) for r, b in enumerate(begins)]
            assert np.array_equal(execute(path, x), np.tile(sum(partial), (4, 1))), (order, list(places))
    (folder / "w.bin").unlink()
    assert "AllReduce" in run("show", path).stdout  # nothing of it is needed
    model = onnx.load(folder / "r1.onnx", load_external_data=False)
    w = next(t for t in model.graph.initializer if t.name == "w")
    next(e for e in w.external_data if e.key == "offset").value = "4"
    onnx.save(model, folder / "r1.onnx")
    message = run("show", path, code=4).stderr
    assert "initializer 'w' goes by the rank, so that it must be read, but its file 'w.bin' is missing" in message, message


def test_stages(folder):
    """Programs of two stages, different from each other, in one world."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    def write(stage, nodes):
        metadata = {"autopar.world_size": "4", "autopar.ranks": [2 * stage, 2 * stage + 1], "autopar.stage": str(stage)}
        save(folder / f"plan.stage{stage}.onnx", nodes, [("x", x)], [(f"y{stage}", (2, 4))], metadata=metadata)

    for stage, local in enumerate(("Relu", "Neg")):
        write(stage, [helper.make_node(local, ["x"], ["l"], name="local"), trt("all_reduce", "l", f"y{stage}", [2 * stage, 2 * stage + 1], "sum", name="sum")])
    np.savez(folder / "data.npz", **{"in.x": x})
    run("run", folder, "--data", folder / "data.npz", "--save", folder / "out.npz")
    out = np.load(folder / "out.npz")
    assert np.array_equal(out["out.y0"], 2 * x) and np.array_equal(out["out.y1"], -2 * x), dict(out)
    shown = run("show", folder).stdout
    assert "in the dialect trt" in shown and "AllReduce [0,1]" in shown and "AllReduce [2,3]" in shown, shown
    # Among all ranks, and in the same order: proven over both programs.
    for operation, code in (("max", 0), ("min", 4)):
        for stage, op in enumerate(("max", operation)):
            write(stage, [helper.make_node(("Identity", "Neg")[stage], ["x"], ["l"]), trt("all_reduce", "l", f"m", reduce_op=op, without=("groups", "group_size"), name=f"all{stage}"),
                          *([helper.make_node("Exp", ["m"], ["y0"])] if stage == 0 else [trt("all_reduce", "m", "y1", [3, 2], "sum", name="two")])])
        done = run("show", folder, code=code)
        assert code == 0 or ("all0" in done.stderr and "all1" in done.stderr), done.stderr
        if code != 0:
            continue
        commands = [[]]
        if shutil.which("mpirun.openmpi"):
            commands.append(["mpirun.openmpi", "--oversubscribe", "-n", "4"] + (["--allow-run-as-root"] if os.getuid() == 0 else []))
        for launcher in commands:
            done = subprocess.run([*launcher, AUTOPAR, "run", folder, "--data", folder / "data.npz", "--save", folder / "out.npz", *(["--ranks-by", "mpi"] if launcher else [])],
                                  capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            out = np.load(folder / "out.npz")
            assert np.allclose(out["out.y0"], np.exp(np.abs(x))) and np.array_equal(out["out.y1"], 2 * np.abs(x)), dict(out)


def same_bits(folder, out, dialect, model):
    """What the plan gives, and what its words in a dialect give."""
    alone = out / f"{dialect}_alone"
    alone.mkdir()
    for file in out.iterdir():
        if file.name.startswith(f"plan.{dialect}."):
            shutil.copy(file, alone)
    for name, path in (("plan", out / "plan.onnx"), ("read", alone)):
        done = run("run", path, "--model", model, "--save", folder / f"{name}.npz", "--seed", "7", "--rtol", "2e-3", "--atol", "2e-4")
        assert done.stdout.splitlines()[-1] == "PASSED", done.stdout[-1000:]
    plan, read = (dict(np.load(folder / f"{name}.npz")) for name in ("plan", "read"))
    assert sorted(plan) == sorted(read)
    for name, array in plan.items():
        assert array.dtype == read[name].dtype and array.tobytes() == read[name].tobytes(), (out, dialect, name)
    return alone


def test_round_trip(folder):
    counts = {"trt": {}, "ort": {}}
    models = [net(folder)] + [m for m in (SHARED / "tiny_llama.onnx", SHARED / "tiny_moe_gather.onnx") if m.exists()]
    for model in models:
        for mesh, dialects in (("4", ("trt", "ort")), ("2x2", ("trt",)), ("2x3", ("trt",))):
            if model.stem != "net" and mesh == "2x3":
                continue
            out = folder / f"{model.stem}_{mesh}"
            out.mkdir()
            subprocess.run([RANDOM_PLAN, model, mesh, "3", out / "plan.onnx"], check=True)
            for dialect in dialects:
                done = subprocess.run([AUTOPAR, "export", out, "--dialect", dialect], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                alone = same_bits(folder, out, dialect, model)
                shown, plan = (json.loads(run("show", p, "--json").stdout) for p in (alone, out / "plan.onnx"))
                assert shown["dialect"] == dialect
                if dialect == "trt":  # a word for each collective; bools go as int32, which tiny_moe_gather has
                    exact = model.stem != "tiny_moe_gather"
                    sent = [[(c["name"], c["kind"], c["mesh_axes"], c["group_size"], exact and c["sent_bytes"]) for c in s["collectives"] if c["kind"] != "ShardSlice"]
                            for s in (shown, plan)]
                    assert sent[0] == sent[1], (model, mesh)
                    machine = cluster(folder, *map(int, reversed(mesh.split("x"))), **MACHINE)
                    prices = [json.loads(run("price", p, "--cluster", machine, "--json").stdout)["programs"][0]["communication_seconds"] for p in (alone, out)]
                    assert prices[0] == prices[1] > 0 if exact else prices[0] > prices[1] > 0, prices
                for c in shown["collectives"]:
                    counts[dialect][c["kind"]] = counts[dialect].get(c["kind"], 0) + 1
    print(counts)
    assert {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "ShardSlice"} <= set(counts["trt"]), counts
    assert {"AllReduce", "AllGather", "AllToAll", "ShardSlice"} <= set(counts["ort"]), counts
    # One dialect to another, and back.
    first = folder / "net_4" / "trt_alone"
    # One rank's file is not taken for that of all.
    part = first / "plan.trt.rank1.onnx"
    assert "is the file of 1 of 4 ranks, in the dialect trt; give" in run("show", part, code=4).stderr
    (folder / "part").mkdir()
    shutil.copy(part, folder / "part")
    assert "which lists the files of all, is not there" in run("run", folder / "part" / part.name, code=4).stderr
    run("export", first, "--dialect", "ort", "-o", folder / "other")
    assert json.loads(run("show", folder / "other", "--json").stdout)["dialect"] == "ort"
    run("run", folder / "other", "--model", models[0], "--seed", "7", "--save", folder / "other.npz")
    run("run", first, "--model", models[0], "--seed", "7", "--save", folder / "first.npz")
    a, b = (dict(np.load(folder / f"{n}.npz")) for n in ("other", "first"))
    assert all(np.allclose(a[n], b[n], rtol=1e-5, atol=1e-6) for n in a), "another dialect, other results"


def test_mpi(folder):
    launcher = shutil.which("mpirun.openmpi")
    if launcher is None:
        print("Open MPI is not there: skipped")
        return
    model, out = net(folder), folder / "mpi"
    out.mkdir()
    subprocess.run([RANDOM_PLAN, model, "2x2", "3", out / "plan.onnx"], check=True)
    run("export", out, "--dialect", "trt")
    alone = same_bits(folder, out, "trt", model)
    command = [launcher, "--oversubscribe", "-n", "4"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
    done = subprocess.run([*command, AUTOPAR, "run", alone, "--ranks-by", "mpi", "--model", model, "--seed", "7", "--save", folder / "mpi.npz"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", (done.stdout, done.stderr)
    assert (folder / "mpi.npz").read_bytes() == (folder / "read.npz").read_bytes()
    # What stands for the files while they run goes, however the run ends.
    temporaries = folder / "temporaries"
    temporaries.mkdir()
    done = subprocess.run([*command, AUTOPAR, "run", alone, "--ranks-by", "mpi", "--model", folder / "none.onnx"],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "TMPDIR": str(temporaries)})
    left = [str(path) for path in temporaries.rglob("plan.onnx")]
    assert done.returncode != 0 and "none.onnx" in done.stderr and not left, (done.stderr, left)


def test_outputs_that_each_rank_cuts(folder):
    model = SHARED / "train_mlp_adam.onnx"
    if not model.exists():
        print("skipped: there is no data/models/train_mlp_adam.onnx below AUTOPAR_SHARED")
        return
    four = {"format": "autopar-cluster", "version": 1, "name": "four",
            "device": {"name": "d", "memory_bytes": 2**36, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e10}},
            "tiers": [{"name": "t", "size": 4, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-5}]}
    (folder / "four.json").write_text(json.dumps(four))
    run("search", model, "--cluster", folder / "four.json", "--io", "full", "--dialect", "ort", "-q", "-o", folder / "cut")
    assert any(node.op_type == "Slice" for node in onnx.load(folder / "cut" / "plan.ort.rank1.onnx").graph.node)
    for command in (("verify",), ("show",), ("run", "-q")):
        run(command[0], folder / "cut" / "plan.ort.json", *command[1:])


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print("ok", name)


if __name__ == "__main__":
    sys.exit(main())
