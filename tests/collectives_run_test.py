"""Runs programs of single collectives on ranks as threads and as processes of every MPI that is here.

Every op of ai.autopar, of every element type, over groups along either axis of a 2 x 2 mesh, along both and in other orders;
AllToAll over dimensions that are not neighbours; messages from rank to rank. What is expected is computed by numpy here.
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

AUTOPAR = os.environ["AUTOPAR"]
DOMAIN = "ai.autopar"
WORLD = 4
TYPES = {
    "float32": (np.float32, TensorProto.FLOAT), "float64": (np.float64, TensorProto.DOUBLE),
    "float16": (np.float16, TensorProto.FLOAT16), "int64": (np.int64, TensorProto.INT64),
    "int32": (np.int32, TensorProto.INT32), "uint8": (np.uint8, TensorProto.UINT8), "bool": (np.bool_, TensorProto.BOOL),
}
GROUPS = {"rows": ([0, 1, 2, 3], 2), "columns": ([0, 2, 1, 3], 2), "all": ([0, 1, 2, 3], 4)}
LOCAL = (4, 3, 8)  # what every rank holds of every tensor


def blocks(groups, size):
    return [groups[i:i + size] for i in range(0, len(groups), size)]


def reduced(op, arrays):
    wide = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
    result = wide[0]
    for other in wide[1:]:
        if result.dtype == np.bool_:
            result = result | other if op in ("sum", "max", "avg") else result & other
        else:
            result = {"sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[op](result, other)
    if op == "avg" and result.dtype != np.bool_:
        result = (np.trunc(result / len(arrays)) if np.issubdtype(result.dtype, np.integer) else result / len(arrays))
    return result.astype(arrays[0].dtype)


def expected(kind, attributes, inputs):
    """rank -> array, for rank -> array."""
    outputs = {}
    for group in blocks(attributes["groups"], attributes["group_size"]):
        own = [inputs[r] for r in group]
        for place, rank in enumerate(group):
            if kind == "AllReduce":
                outputs[rank] = reduced(attributes["reduce_op"], own)
            elif kind == "AllGather":
                outputs[rank] = np.concatenate(own, attributes["axis"])
            elif kind == "ReduceScatter":
                outputs[rank] = np.split(reduced(attributes["reduce_op"], own), len(group), attributes["axis"])[place]
            elif kind == "AllToAll":
                parts = [np.split(a, len(group), attributes["split_axis"])[place] for a in own]
                outputs[rank] = np.concatenate(parts, attributes["concat_axis"])
            elif kind == "Broadcast":
                outputs[rank] = own[attributes["root"]]
            elif kind == "Permute":
                outputs[rank] = own[(place - attributes["shift"]) % len(group)]
            elif kind == "ShardSlice":
                outputs[rank] = np.split(own[place], len(group), attributes["axis"])[place]
    return outputs


class Program:
    """Collectives one after the other, each with the type of its input; chained by order inputs."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.infos = [], [], [], []
        self.data, self.layouts = {}, {}
        self.random = np.random.default_rng(7)
        self.seq = 0

    def add_boundary(self, names, prefix, name, arrays, element):
        whole = np.concatenate([arrays[r] for r in range(WORLD)])
        names.append(helper.make_tensor_value_info(name, element, arrays[0].shape))
        self.data[f"{prefix}.{name}"] = whole
        self.layouts[name] = {"shape": list(whole.shape), "spec": "[{a,b}" + ",{}" * (whole.ndim - 1) + "]",
                              "device_matrix": [2, 2], "tensor_map": [[1, 0]] + [-1] * (whole.ndim - 1)}

    def add_input(self, name, dtype, element):
        if dtype == np.bool_:
            arrays = {r: self.random.integers(0, 2, LOCAL).astype(dtype) for r in range(WORLD)}
        elif np.issubdtype(dtype, np.integer):
            arrays = {r: self.random.integers(0, 9, LOCAL).astype(dtype) for r in range(WORLD)}
        else:
            arrays = {r: self.random.standard_normal(LOCAL).astype(dtype) for r in range(WORLD)}
        self.add_boundary(self.inputs, "in", name, arrays, element)
        return arrays

    def add_op(self, kind, inputs, output, **attributes):
        after = [n.output[0] for n in self.nodes if n.domain == DOMAIN][-1:]
        after = [] if after and after[0] in inputs else after
        axes = attributes.pop("mesh_axes")
        node = helper.make_node(kind, inputs + after, [output], name=output, domain=DOMAIN, seq=self.seq, **attributes)
        node.attribute.append(helper.make_attribute("mesh_axes", axes, attr_type=onnx.AttributeProto.STRINGS))
        self.nodes.append(node)
        self.seq += 1

    def add(self, kind, type_name, axes, **attributes):
        dtype, element = TYPES[type_name]
        name = f"v{len(self.outputs)}_{kind}_{type_name}"
        arrays = self.add_input("x" + name, dtype, element)
        groups, size = GROUPS[axes]
        given = {"groups": groups, "group_size": size, "mesh_axes": {"rows": ["b"], "columns": ["a"], "all": ["a", "b"]}[axes]} | attributes
        self.add_op(kind, ["x" + name], name, **given)
        self.add_boundary(self.outputs, "out", name, expected(kind, given, arrays), element)

    def add_bfloat16(self, kind, axes, **attributes):
        """Between casts, since numpy has no such type; the numbers are small and whole, so that nothing is rounded."""
        name = f"v{len(self.outputs)}_{kind}_bfloat16"
        arrays = {r: self.random.integers(0, 9, LOCAL).astype(np.float32) for r in range(WORLD)}
        self.add_boundary(self.inputs, "in", "x" + name, arrays, TensorProto.FLOAT)
        groups, size = GROUPS[axes]
        given = {"groups": groups, "group_size": size, "mesh_axes": {"rows": ["b"], "columns": ["a"], "all": ["a", "b"]}[axes]} | attributes
        self.nodes.append(helper.make_node("Cast", ["x" + name], ["b" + name], name="b" + name, to=TensorProto.BFLOAT16))
        self.add_op(kind, ["b" + name], "c" + name, **given)
        self.nodes.append(helper.make_node("Cast", ["c" + name], [name], name=name, to=TensorProto.FLOAT))
        outputs = expected(kind, given, arrays)
        self.add_boundary(self.outputs, "out", name, outputs, TensorProto.FLOAT)
        self.infos += [helper.make_tensor_value_info("b" + name, TensorProto.BFLOAT16, LOCAL),
                       helper.make_tensor_value_info("c" + name, TensorProto.BFLOAT16, outputs[0].shape)]

    def add_message(self, type_name, pairs):
        dtype, element = TYPES[type_name]
        name = f"m{len(self.outputs)}_{type_name}"
        arrays = self.add_input("x" + name, dtype, element)
        given = {"groups": [r for pair in pairs for r in pair], "group_size": 2, "mesh_axes": []}
        self.add_op("Send", ["x" + name], "sent" + name, **given)
        self.infos.append(helper.make_tensor_value_info("sent" + name, element, LOCAL))
        self.add_op("Recv", [], name, shape=list(LOCAL), dtype=element, **given)
        received = {r: np.zeros(LOCAL, dtype) for r in range(WORLD)} | {to: arrays[sender] for sender, to in pairs}
        self.add_boundary(self.outputs, "out", name, received, element)

    def names(self):
        return [value.name for value in self.outputs]

    def save(self, folder):
        graph = helper.make_graph(self.nodes, "collectives", self.inputs, self.outputs, value_info=self.infos)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
        model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        mesh = [{"name": "a", "size": 2, "tier": "t"}, {"name": "b", "size": 2, "tier": "t"}]
        helper.set_model_props(model, {
            "autopar.version": "0.1.0", "autopar.world_size": str(WORLD), "autopar.mesh": json.dumps(mesh),
            "autopar.io": json.dumps(self.layouts), "autopar.model_sha256": "", "autopar.strategy_sha256": ""})
        onnx.save(model, folder / "plan.onnx")
        np.savez(folder / "io.npz", **self.data)


def save_stages(folder):
    """Two pipeline stages of two ranks each: Y = max(X A, 0) B, with A and B cut so that each stage ends in an AllReduce."""
    random = np.random.default_rng(3)
    x, a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 4), (4, 10)))
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    pairs = {"groups": [0, 2, 1, 3], "group_size": 2, "domain": DOMAIN}
    own = lambda ranks: {"groups": ranks, "group_size": 2, "reduce_op": "sum", "domain": DOMAIN}
    whole = lambda shape, axis: {"shape": shape, "device_matrix": [2], "tensor_map": axis,
                                 "spec": "[" + ",".join("{t}" if m == 0 else "{}" for m in axis) + "]"}
    stages = [
        ([helper.make_node("MatMul", ["X", "A"], ["P"], name="up"), helper.make_node("AllReduce", ["P"], ["H"], name="sum0", seq=0, **own([0, 1])),
          helper.make_node("Relu", ["H"], ["R"], name="relu"), helper.make_node("Send", ["R"], ["S"], name="send", seq=1, **pairs)],
         [info("X", [6, 4]), info("A", [4, 4])], [info("S", [6, 4])],
         [info("P", [6, 4]), info("H", [6, 4]), info("R", [6, 4])], {"X": whole([6, 8], [-1, 0]), "A": whole([8, 4], [0, -1]), "S": whole([6, 4], [-1, -1])}),
        ([helper.make_node("Recv", [], ["R"], name="receive", seq=0, shape=[6, 4], dtype=TensorProto.FLOAT, **pairs),
          helper.make_node("ShardSlice", ["R"], ["L"], name="slice", axis=1, groups=[2, 3], group_size=2, seq=1, domain=DOMAIN),
          helper.make_node("MatMul", ["L", "B"], ["Q"], name="down"), helper.make_node("AllReduce", ["Q"], ["Y"], name="sum1", seq=2, **own([2, 3]))],
         [info("B", [2, 10])], [info("Y", [6, 10])],
         [info("R", [6, 4]), info("L", [6, 2]), info("Q", [6, 10])], {"B": whole([4, 10], [0, -1]), "Y": whole([6, 10], [-1, -1])}),
    ]
    for stage, (nodes, inputs, outputs, infos, layouts) in enumerate(stages):
        for node in nodes:
            if node.domain == DOMAIN:
                node.attribute.append(helper.make_attribute("mesh_axes", [] if node.op_type in ("Send", "Recv") else ["t"], attr_type=onnx.AttributeProto.STRINGS))
        graph = helper.make_graph(nodes, f"stage{stage}", inputs, outputs, value_info=infos)
        model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)])
        helper.set_model_props(model, {
            "autopar.version": "0.1.0", "autopar.world_size": "4", "autopar.model_sha256": "", "autopar.strategy_sha256": "",
            "autopar.mesh": json.dumps([{"name": "t", "size": 2, "tier": "t"}]), "autopar.io": json.dumps(layouts),
            "autopar.stage": str(stage), "autopar.ranks": json.dumps([2 * stage, 2 * stage + 1])})
        onnx.save(model, folder / f"plan.stage{stage}.onnx")
    hidden = np.maximum(x @ a, 0)
    np.savez(folder / "io.npz", **{"in.X": x, "in.A": a, "in.B": b, "out.S": hidden, "out.Y": hidden @ b})


def launchers():
    yield "threads", []
    openmpi = ["--oversubscribe", "-n", str(WORLD)] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
    for name, program, arguments in (("Open MPI", "mpirun.openmpi", openmpi), ("MPICH", "mpirun.mpich", ["-n", str(WORLD)])):
        if shutil.which(program):
            yield name, [program] + arguments
        else:
            print(f"skipped: {name}, there is no {program}")


def check(what, save, names):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save(folder)
        for name, launcher in launchers():
            by = "mpi" if launcher else "threads"
            command = launcher + [AUTOPAR, "run", str(folder), "--ranks-by", by, "--data", str(folder / "io.npz"), "--rtol", "1e-6",
                                  "--atol", "2e-6", "--json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{what}, {name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
            rows = json.loads(done.stdout)["outputs"]
            assert {r["name"] for r in rows} == set(names) and all(r["matches"] for r in rows), rows
            print(f"{what}, {name}: {len(rows)} outputs as expected")


def main():
    program = Program()
    for type_name, axes in itertools.product(TYPES, GROUPS):
        for op in ("sum", "max", "min", "prod", "avg"):
            program.add("AllReduce", type_name, axes, reduce_op=op)
        program.add("ReduceScatter", type_name, axes, reduce_op="sum", axis=2)
        program.add("AllGather", type_name, axes, axis=1)
        program.add("AllToAll", type_name, axes, split_axis=2, concat_axis=0)
        program.add("Broadcast", type_name, axes, root=1)
        program.add("Permute", type_name, axes, shift=3 if axes == "all" else 1)
        program.add("ShardSlice", type_name, axes, axis=0)
    for axes, op in itertools.product(GROUPS, ("sum", "max", "min")):
        program.add_bfloat16("AllReduce", axes, reduce_op=op)
        program.add_bfloat16("ReduceScatter", axes, reduce_op=op, axis=0 if axes == "all" else 2)
        program.add_bfloat16("AllToAll", axes, split_axis=0, concat_axis=2)
    check("every type and kind of group", program.save, program.names())

    program = Program()
    for split, concat in itertools.product((0, 2), (0, 1, 2)):
        program.add("AllToAll", "float32", "columns", split_axis=split, concat_axis=concat)
    for axis in (0, 1, 2):
        program.add("AllGather", "float32", "rows", axis=axis)
    for axis in (0, 2):
        program.add("ReduceScatter", "float32", "all", axis=axis, reduce_op="max")
    check("every dimension", program.save, program.names())

    program = Program()
    for type_name in TYPES:
        program.add_message(type_name, [(0, 1)])
        program.add("AllReduce", type_name, "all", reduce_op="sum")
        program.add_message(type_name, [(0, 3), (2, 1)])
    check("messages", program.save, program.names())
    check("two stages", save_stages, ["S", "Y"])


if __name__ == "__main__":
    sys.exit(main())
