"""Graphs that have collectives already: written by hand with the onnx package, and plans without all that autopar adds to them.

They are shown, priced, order-checked; search and apply refuse them. What costs can be said by hand is compared with that."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared"))
AUTOPAR = os.environ["AUTOPAR"]
RANDOM_PLAN = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "tests" / "random_plan"
FLOAT = TensorProto.FLOAT
CLUSTER = {"format": "autopar-cluster", "version": 1, "name": "two nodes",
           "device": {"name": "d", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e12, "peak_flops_per_s": {"float32": 1e12}},
           "tiers": [{"name": "near", "size": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6},
                     {"name": "far", "size": 2, "bandwidth_bytes_per_s": 1e8, "latency_s": 1e-5}],
           "host_link": {"bandwidth_bytes_per_s": 1e9}}


def run(*arguments, code=0):
    done = subprocess.run([AUTOPAR, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done


def refused(what, *arguments, code=4):
    message = run(*arguments, code=code).stderr
    assert what in message, (arguments, what, message)


def collective(op_type, inputs, output, groups, name="", domain="ai.autopar", **attributes):
    attributes.setdefault("group_size", 2)
    return helper.make_node(op_type, inputs, [output], name=name, domain=domain, groups=groups, **attributes)


def save(path, nodes, inputs, outputs, initializers=(), metadata=None):
    make = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [make(n, FLOAT, s) for n, s in inputs], [make(n, FLOAT, s) for n, s in outputs],
                              [onnx.numpy_helper.from_array(a, n) for n, a in initializers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.autopar", 1)], ir_version=10)
    for key, value in (metadata or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.save(model, path)
    return path


def tensor_parallel(path, groups=(0, 1, 2, 3), **changes):
    """x @ w by columns, then by rows, and the sum: as one writes it, with nothing that can be left out."""
    attributes = {"axis": -1, **changes}
    w = np.ones((8, 16), np.float32)
    v = np.ones((16, 8), np.float32)
    nodes = [collective("ShardSlice", ["w"], "w_part", groups, axis=1), collective("ShardSlice", ["v"], "v_part", groups, axis=0),
             helper.make_node("MatMul", ["x", "w_part"], ["h"]), helper.make_node("MatMul", ["h", "v_part"], ["part"]),
             collective("AllReduce", ["part"], "y", groups, "sum"),
             collective("AllGather", ["h"], "h_all", groups, "gather", **attributes)]
    return save(path, nodes, [("x", [4, 8])], [("y", [4, 8]), ("h_all", [4, 16])], [("w", w), ("v", v)])


def test_by_hand(folder):
    path = tensor_parallel(folder / "tp.onnx")
    shown = run("show", path)
    assert "program for 4 ranks, written by hand" in shown.stdout, shown.stdout
    assert "AllReduce [0,1][2,3]" in shown.stdout and "AllGather [0,1][2,3] 1" in shown.stdout, shown.stdout
    assert "2 of 2 collectives had no seq" in shown.stderr, shown.stderr
    assert "1 of 2 collectives did not wait for the one before, the first AllGather 'gather'" in shown.stderr, shown.stderr
    summary = json.loads(run("show", path, "--json").stdout)
    kinds = {c["name"]: c for c in summary["collectives"]}
    assert summary["by_hand"] and summary["world_size"] == 4
    assert kinds["sum"]["groups"] == [0, 1, 2, 3] and kinds["sum"]["sent_bytes"] == 4 * 8 * 4
    assert kinds["gather"]["sent_bytes"] == 4 * 8 * 4


def test_price(folder):
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER))
    for groups, tiers, bandwidth, latency in (((0, 1, 2, 3), "near", 1e9, 1e-6), ((0, 2, 1, 3), "far", 1e8, 1e-5), ((0, 3, 1, 2), "far", 1e8, 1e-5)):
        priced = json.loads(run("price", tensor_parallel(folder / "tp.onnx", groups), "--cluster", cluster, "--json").stdout)
        terms = {t["op"]: t for t in priced["programs"][0]["terms"]}
        assert terms["sum"]["tiers"] == tiers, terms["sum"]
        # A ring over two ranks: half of the bytes there and back, two phases of one latency each.
        expected = 2 * (4 * 8 * 4 / 2 / bandwidth + latency)
        assert abs(terms["sum"]["seconds"] - expected) < 1e-12, (terms["sum"], expected)
        assert abs(priced["seconds"] - sum(t["seconds"] for t in terms.values())) < 1e-12
        local = [t for t in terms.values() if t["type"] == "MatMul"]
        # The larger of arithmetic and memory, on the local shapes.
        assert abs(local[0]["seconds"] - max(2 * 4 * 8 * 8 / 1e12, 4 * (4 * 8 + 8 * 8 + 4 * 8) / 1e12)) < 1e-15, local
    table = run("price", folder / "tp.onnx", "--cluster", cluster).stdout
    assert "AllReduce [0,3][1,2]" in table and "4 ranks:" in table, table
    CLUSTER["tiers"][1]["size"] = 1
    cluster.write_text(json.dumps(CLUSTER))
    CLUSTER["tiers"][1]["size"] = 2
    refused("is for 4 ranks, the cluster two nodes has 2 devices", "price", folder / "tp.onnx", "--cluster", cluster)


def test_refused(folder):
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER))
    path = tensor_parallel(folder / "tp.onnx")
    refused("is already a program for 4 ranks", "search", path, "--cluster", cluster, "-o", folder / "out")
    strategy = folder / "s.json"
    strategy.write_text('{"format": "autopar-strategy", "version": 1, "ops": {}}')
    refused("is already a program for 4 ranks", "apply", path, "--strategy", strategy, "--cluster", cluster, "-o", folder / "out")
    refused("--strategy is required", "price", SOURCE / "models" / "mlp.onnx", "--cluster", cluster, code=2)
    refused("rank 2 runs it, but is in none of its groups", "show",
            save(folder / "missing.onnx", [collective("AllReduce", ["x"], "a", [0, 1, 2, 3]), collective("AllReduce", ["a"], "y", [0, 1])],
                 [("x", [4])], [("y", [4])], metadata={"autopar.world_size": "4"}))
    refused("list rank 1 twice", "show", tensor_parallel(folder / "overlap.onnx", (0, 1, 1, 2)))
    refused("seq 0 is not above that of AllReduce 'first', 1", "show",
            save(folder / "seq.onnx", [collective("AllReduce", ["x"], "a", [0, 1], "first", seq=1), collective("AllReduce", ["a"], "y", [0, 1], "then", seq=0)],
                 [("x", [4])], [("y", [4])]))


def test_unknown_domain(folder):
    """An op of a domain that says nothing may well communicate: it is taken for local, and that is said."""
    nodes = [helper.make_node("Exchange", ["x"], ["h"], name="first", domain="my.own"), helper.make_node("Exchange", ["h"], ["s"], name="second", domain="my.own"),
             collective("AllReduce", ["s"], "y", [0, 1], "sum")]
    for last, what in ((nodes[2], "program for 2 ranks"), (helper.make_node("Relu", ["s"], ["y"]), "3 ops")):
        graph = helper.make_graph([*nodes[:2], last], "g", [helper.make_tensor_value_info("x", FLOAT, [4])], [helper.make_tensor_value_info("y", FLOAT, [4])],
                                  value_info=[helper.make_tensor_value_info(n, FLOAT, [4]) for n in "hs"])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.own", 1), helper.make_opsetid(last.domain or "my.other", 1)]
        path = folder / f"unknown_{what.split()[0]}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        warning = "op 'first' and 1 more are my.own::Exchange, of a domain that is not known: taken for local"
        shown = run("show", path)
        assert what in shown.stdout and warning in shown.stderr, (shown.stdout, shown.stderr)
        assert any(warning in w for w in json.loads(run("show", path, "--json").stdout)["warnings"])
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER))
    assert warning in run("price", folder / "unknown_program.onnx", "--cluster", cluster).stderr
    # What runs is a file that was made of it; the messages name the user's.
    refused("unknown_program.onnx: ONNX Runtime refuses the plan", "run", folder / "unknown_program.onnx")


def test_messages_name_the_file(folder):
    """An op that ONNX knows and ONNX Runtime has no kernel for is refused when the session opens."""
    save(folder / "det.onnx", [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Det", ["a"], ["d"], name="det"),
                               collective("AllReduce", ["d"], "y", [0, 1], "sum")], [("x", [4, 4])], [("y", [])])
    model = onnx.load(folder / "det.onnx")
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.elem_type = TensorProto.DOUBLE
    onnx.save(model, folder / "det.onnx")
    message = run("run", folder / "det.onnx", code=4).stderr
    assert str(folder / "det.onnx") in message and "/plan.onnx" not in message and "autopar-" not in message, message


def stages(folder, first_seq=0, receive_shape=(4, 8)):
    """Two stages of two ranks each, data parallel; rank r of the first sends to rank r + 2."""
    pairs = [0, 2, 1, 3]
    send = [helper.make_node("Relu", ["x"], ["h"], name="relu"), collective("Send", ["h"], "sent", pairs, "send"),
            helper.make_node("Identity", ["sent"], ["a"])]
    receive = [helper.make_node("Recv", [], ["h"], name="receive", domain="ai.autopar", groups=pairs, group_size=2, shape=list(receive_shape), dtype=FLOAT),
               collective("AllReduce", ["h"], "y", [2, 3], "sum", reduce_op="sum")]
    folder.mkdir(exist_ok=True)
    save(folder / "plan.stage0.onnx", send, [("x", [4, 8])], [("a", [4, 8])], metadata={"autopar.world_size": "4", "autopar.ranks": "[0, 1]", "autopar.stage": "0"})
    save(folder / "plan.stage1.onnx", receive, [], [("y", list(receive_shape))], metadata={"autopar.world_size": "4", "autopar.ranks": "[2, 3]", "autopar.stage": "1"})
    return folder


def test_stages(folder):
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER))
    path = stages(folder / "stages")
    shown = run("show", path).stdout
    assert "program for 2 ranks of 4 (stage 0: ranks 0 to 1)" in shown and "stage 1: ranks 2 to 3" in shown, shown
    assert "Send [0,2][1,3]" in shown and "Recv [0,2][1,3]" in shown, shown
    priced = json.loads(run("price", path, "--cluster", cluster, "--json").stdout)
    terms = {t["op"]: t for p in priced["programs"] for t in p["terms"]}
    message = 4 * 8 * 4 / 1e8 + 1e-5
    assert abs(terms["send"]["seconds"] - message) < 1e-12 and terms["send"]["tiers"] == "far", terms["send"]
    # One after the other: relu, the message, the sum; the message counts once.
    expected = terms["relu"]["seconds"] + message + terms["sum"]["seconds"]
    copy = [t for t in terms.values() if t["type"] == "Identity"]
    assert expected - 1e-12 <= priced["seconds"] <= expected + sum(t["seconds"] for t in copy) + 1e-12, (priced["seconds"], expected)
    refused("has shape [4,8]", "show", stages(folder / "wrong", receive_shape=(8, 4)))
    (folder / "wrong" / "plan.stage1.onnx").unlink()
    refused("is the program of 2 of 4 ranks", "show", folder / "wrong")


def stripped(plan, path, keep=()):
    """A plan without metadata (but those to keep), seq, mesh_axes, order inputs and inner shapes."""
    model = onnx.load(plan)
    kept = [(p.key, p.value) for p in model.metadata_props if p.key in keep]
    del model.metadata_props[:]
    for key, value in kept:
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    del model.graph.value_info[:]
    for node in model.graph.node:
        if node.domain != "ai.autopar":
            continue
        kept = [a for a in node.attribute if a.name not in ("seq", "mesh_axes")]
        del node.attribute[:]
        node.attribute.extend(kept)
        if node.op_type != "ShardSlice":
            del node.input[1:]
    onnx.save(model, path)
    return path


def test_plans_without_metadata(folder):
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER))
    models = [SOURCE / "models" / "llama_tiny.onnx", SHARED / "data" / "models" / "tiny_llama.onnx"]
    for model in models:
        if not model.exists():
            print(f"{model.name} is not there: skipped")
            continue
        plan = folder / "plan.onnx"
        subprocess.run([RANDOM_PLAN, model, "2x2", "3", plan], check=True)
        path = stripped(plan, folder / "stripped.onnx")
        of_plan, of_hand = (json.loads(run("show", p, "--json").stdout) for p in (plan, path))
        parts = lambda s: [(c["kind"], c["input_bytes"], c["sent_bytes"]) for c in s["collectives"] if c["kind"] != "ShardSlice"]
        assert len(parts(of_plan)) > 10
        assert parts(of_plan) == parts(of_hand)
        prices = [json.loads(run("price", p, "--cluster", cluster, "--json").stdout) for p in (plan, path)]
        sums = [p["programs"][0]["communication_seconds"] for p in prices]
        assert abs(sums[0] - sums[1]) < 1e-9 * sums[0], sums
        # Where it says how its inputs lie, what was completed computes what the model does.
        path = stripped(plan, folder / "stripped.onnx", keep=("autopar.io", "autopar.mesh"))
        done = run("run", path, "--model", model, "--rtol", "2e-3", "--atol", "2e-4")
        assert done.stdout.splitlines()[-1] == "PASSED", done.stdout[-1000:]


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print("ok", name)


if __name__ == "__main__":
    sys.exit(main())
