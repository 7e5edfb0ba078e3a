"""Steps of several programs, written by hand: a two-layer network with momentum, cut in many ways, beside its unsharded step.

    folder = StepFolder(path, world=2, micro_batches=2)
    folder.add("plan.FB.onnx", 0, "FB", [0, 1], program)          # a Program
    folder.write(outputs={"loss": "mean"}, micro_inputs={"X": 0, "T": 0}, schedule="0FB0,0FB1,0U")

The network: loss = mean((tanh(X W1) W2 - T)^2), m' = 0.9 m + g, W' = W - learning_rate m'.
"""
import json

import numpy as np
import onnx
from onnx import TensorProto, helper

BATCH, INPUTS, HIDDEN, OUTPUTS = 8, 8, 16, 4
WEIGHTS = {"W1": (INPUTS, HIDDEN), "W2": (HIDDEN, OUTPUTS)}


class Program:
    """An SPMD program over a mesh, [(axis, size), ...] from the outermost; values have the shapes of a rank."""

    def __init__(self, mesh=(("ranks", 1),), ranks=None):
        self.mesh = list(mesh)
        count = int(np.prod([n for _, n in self.mesh]))
        self.ranks = list(range(count)) if ranks is None else list(ranks)
        self.nodes, self.inputs, self.outputs, self.constants, self.io = [], [], [], [], {}
        self.seq, self.last, self.names = 0, None, 0

    def local(self, shape, spec):
        sizes = dict(self.mesh)
        return [n // int(np.prod([sizes[a] for a in axes] or [1])) for n, axes in zip(shape, spec)]

    def boundary(self, name, shape, spec=None, partial=()):
        spec = [()] * len(shape) if spec is None else [(a,) if isinstance(a, str) else tuple(a) for a in spec]
        axes = [a for a, _ in self.mesh]
        place = {a: len(axes) - 1 - k for k, a in enumerate(axes)}
        text = "[" + ",".join("{" + ",".join(s) + "}" for s in spec) + "]"
        if partial:
            text += " +{" + ",".join(partial) + "}"
        maps = [-1 if not s else place[s[0]] if len(s) == 1 else [place[a] for a in s] for s in spec]
        if shape or partial:
            self.io[name] = {"shape": list(shape), "spec": text, "device_matrix": [n for _, n in self.mesh], "tensor_map": maps}
        else:
            self.io[name] = {"shape": [], "spec": "[]", "device_matrix": [n for _, n in self.mesh], "tensor_map": []}
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.local(shape, spec))

    def input(self, name, shape, spec=None, partial=()):
        self.inputs.append(self.boundary(name, shape, spec, partial))
        return name

    def output(self, value, name, shape, spec=None, partial=()):
        self.outputs.append(self.boundary(name, shape, spec, partial))
        if value != name:
            self.nodes.append(helper.make_node("Identity", [value], [name], name="give " + name))
        return name

    def op(self, kind, *inputs, **attributes):
        self.names += 1
        out = f"v{self.names}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}{self.names}", **attributes))
        return out

    def number(self, value):
        self.names += 1
        name = f"c{self.names}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def groups(self, axes):
        """The ranks that differ along these axes only."""
        sizes = [n for _, n in self.mesh]
        index = np.arange(int(np.prod(sizes))).reshape(sizes)
        names = [a for a, _ in self.mesh]
        moved = [names.index(a) for a in axes]
        kept = [k for k in range(len(names)) if k not in moved]
        table = index.transpose(kept + moved).reshape(-1, int(np.prod([sizes[k] for k in moved])))
        table = table[np.argsort(table[:, 0])]
        return [self.ranks[p] for p in table.reshape(-1)], table.shape[1]

    def collective(self, kind, value, axes, **attributes):
        groups, size = self.groups(axes)
        self.names += 1
        out = f"v{self.names}"
        inputs = [value] + ([self.last] if self.last else [])
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"{kind}{self.names}", domain="ai.autopar", groups=groups,
                                           group_size=size, seq=self.seq, mesh_axes=list(axes), **attributes))
        self.seq += 1
        if kind != "ShardSlice":
            self.last = out
        return out

    def sum_over(self, value, axes):
        return self.collective("AllReduce", value, axes, reduce_op="sum")

    def local_values(self):
        """Type and shape of every value, by ordinary ops that give what the collectives give."""
        nodes = []
        for node in self.nodes:
            if node.domain:
                of = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                out, size, axis = node.output[0], of["group_size"], of.get("axis", 0)
                kind = {"AllReduce": "Identity", "AllGather": "Concat"}.get(node.op_type, "Split")
                inputs = [node.input[0]] * (size if kind == "Concat" else 1)
                outputs = [out] + ([f"{out}.{k}" for k in range(1, size)] if kind == "Split" else [])
                more = {"Identity": {}, "Concat": {"axis": axis}, "Split": {"axis": axis, "num_outputs": size}}[kind]
                node = helper.make_node(kind, inputs, outputs, **more)
            nodes.append(node)
        graph = helper.make_graph(nodes, "local", self.inputs, self.outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        real = {n for node in self.nodes for n in node.output} - {o.name for o in self.outputs}
        return [v for v in onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info if v.name in real]

    def model(self, metadata=True, version=None):
        graph = helper.make_graph(self.nodes, "program", self.inputs, self.outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.autopar", 1)],
                                  ir_version=10)
        if metadata:
            props = {"autopar.io": json.dumps(self.io), "autopar.world_size": str(len(self.ranks)),
                     "autopar.mesh": json.dumps([{"name": a, "size": n} for a, n in self.mesh])}
            if version:  # as a plan that autopar wrote
                props |= {"autopar.version": version, "autopar.model_sha256": "", "autopar.strategy_sha256": ""}
                model.graph.value_info.extend(self.local_values())
            helper.set_model_props(model, props)
        return model


class StepFolder:
    version = None  # of autopar, whose plans the programs then are; else they are written by hand

    def __init__(self, path, world, micro_batches):
        self.path, self.world, self.micro_batches, self.programs = path, world, micro_batches, []
        path.mkdir(parents=True, exist_ok=True)

    def add(self, name, chunk, phase, program, metadata=True):
        onnx.save(program.model(metadata, self.version), str(self.path / name))
        self.programs.append({"file": name, "chunk": chunk, "phase": phase, "ranks": program.ranks})

    def write(self, schedule, outputs=None, micro_inputs=None, **more):
        (self.path / "schedule.csv").write_text(schedule + "\n")
        step = {"format": "autopar-step", "version": 1, "world_size": self.world, "micro_batches": self.micro_batches,
                "schedule": "schedule.csv", "programs": self.programs,
                "micro_inputs": {"X": 0, "T": 0} if micro_inputs is None else micro_inputs,
                "outputs": {"loss": "mean"} if outputs is None else outputs, **more}
        (self.path / "step.json").write_text(json.dumps(step, indent=1))
        return self.path


def gradient(p, x, t, w1, w2, rows, sums=(lambda v: v, lambda v: v)):
    """Loss and gradients of `rows` samples of which these are some; sums over hidden units and over samples."""
    over_hidden, over_rows = sums
    a = p.op("Tanh", p.op("MatMul", x, w1))
    y = over_hidden(p.op("MatMul", a, w2))
    d = p.op("Sub", y, t)
    scale = p.number(np.float32(1 / (rows * OUTPUTS)))
    loss = over_rows(p.op("Mul", p.op("ReduceSum", p.op("Mul", d, d), keepdims=0), scale))
    dy = p.op("Mul", d, p.number(np.float32(2 / (rows * OUTPUTS))))
    g2 = p.op("MatMul", p.op("Transpose", a, perm=[1, 0]), dy)
    da = p.op("MatMul", dy, p.op("Transpose", w2, perm=[1, 0]))
    dh = p.op("Mul", da, p.op("Sub", p.number(np.float32(1)), p.op("Mul", a, a)))
    return loss, p.op("MatMul", p.op("Transpose", x, perm=[1, 0]), dh), g2, y


def update(p, weight, momentum, g, rate):
    moved = p.op("Add", p.op("Mul", momentum, p.number(np.float32(0.9))), g)
    return p.op("Sub", weight, p.op("Mul", moved, rate)), moved


def unsharded_step(path, outputs_too=False):
    """train.onnx: the whole batch at once."""
    p = Program()
    x, t = p.input("X", (BATCH, INPUTS)), p.input("T", (BATCH, OUTPUTS))
    w = {n: p.input(n, s) for n, s in WEIGHTS.items()}
    m = {n: p.input("m." + n, s) for n, s in WEIGHTS.items()}
    rate = p.input("learning_rate", ())
    loss, g1, g2, y = gradient(p, x, t, w["W1"], w["W2"], BATCH)
    p.output(loss, "loss", ())
    if outputs_too:
        p.output(y, "Y", (BATCH, OUTPUTS))
    for n, g in (("W1", g1), ("W2", g2)):
        new, moved = update(p, w[n], m[n], g, rate)
        p.output(new, "new." + n, WEIGHTS[n])
        p.output(moved, "new.m." + n, WEIGHTS[n])
    onnx.save(p.model(metadata=False), str(path))


def weight_specs(mesh):
    tp = ("tp",) if any(a == "tp" for a, _ in mesh) else ()
    return {"W1": ((), tp), "W2": (tp, ())}


def pass_program(mesh, micro_batches, accumulators="partial", ranks=None, fault=None, outputs_too=False, named=None):
    """FB over dp (samples) and tp (hidden units). Accumulators: "partial" sums over dp, "split" along it, or "whole"."""
    p, rows, axes = Program(mesh, ranks), BATCH // micro_batches, [a for a, _ in mesh]
    dp = ("dp",) if "dp" in axes else ()
    specs = weight_specs(mesh)
    x, t = p.input("X", (rows, INPUTS), (dp, ())), p.input("T", (rows, OUTPUTS), (dp, ()))
    w = {n: p.input(n, s, specs[n]) for n, s in WEIGHTS.items()}
    over_hidden = (lambda v: p.sum_over(v, ["tp"])) if "tp" in axes and fault != "no reduction" else lambda v: v
    over_rows = (lambda v: p.sum_over(v, ["dp"])) if dp else lambda v: v
    loss, g1, g2, y = gradient(p, x, t, w["W1"], w["W2"], rows, (over_hidden, over_rows))
    for n, g in (("W1", g1), ("W2", g2)):
        spec, partial = list(specs[n]), ()
        if dp and accumulators == "partial":
            partial = dp
        elif dp and accumulators == "split":
            split = 0 if n == "W1" else 1
            spec[split] = tuple(spec[split]) + dp
            g = p.collective("ReduceScatter", g, ["dp"], axis=split, reduce_op="sum")
        elif dp:
            g = p.sum_over(g, ["dp"])
        acc = p.input("acc." + n, WEIGHTS[n], spec, partial)
        new = g if fault == "not accumulated" else p.op("Add", acc, g)
        p.output(new, "new.acc." + n, WEIGHTS[n], spec, partial)
    p.output(loss, "loss", ())
    if outputs_too:
        p.output(y, "Y", (rows, OUTPUTS), (dp, ()))
    return p


def update_program(mesh, micro_batches, accumulators="partial", ranks=None, fault=None):
    p, axes = Program(mesh, ranks), [a for a, _ in mesh]
    dp = ("dp",) if "dp" in axes else ()
    specs, rate = weight_specs(mesh), p.input("learning_rate", ())
    for n, shape in WEIGHTS.items():
        spec, partial, split = list(specs[n]), (), 0 if n == "W1" else 1
        if dp and accumulators == "partial":
            partial = dp
        elif dp and accumulators == "split":
            spec[split] = tuple(spec[split]) + dp
        g = p.input("acc." + n, shape, spec, partial)
        if partial and fault != "not reduced":
            g = p.sum_over(g, ["dp"])
        if fault != "not averaged":
            g = p.op("Mul", g, p.number(np.float32(1 / micro_batches)))
        w = p.input(n, shape, specs[n])
        m = p.input("m." + n, shape, spec)
        if spec != list(specs[n]):
            w = p.collective("ShardSlice", w, ["dp"], axis=split)
        new, moved = update(p, w, m, g, rate)
        if spec != list(specs[n]):
            new = p.collective("AllGather", new, ["dp"], axis=split)
        p.output(new, "new." + n, shape, specs[n])
        p.output(moved, "new.m." + n, shape, spec)
    return p


def one_chunk(path, mesh, micro_batches, accumulators="partial", fault=None, outputs_too=False, **more):
    """All ranks run FB for every micro-batch, then U."""
    folder = StepFolder(path, int(np.prod([n for _, n in mesh])), micro_batches)
    folder.add("plan.c0.FB.onnx", 0, "FB", pass_program(mesh, micro_batches, accumulators, fault=fault, outputs_too=outputs_too))
    folder.add("plan.c0.U.onnx", 0, "U", update_program(mesh, micro_batches, accumulators, fault=fault))
    unsharded_step(path / "train.onnx", outputs_too)
    outputs = {"loss": "mean", **({"Y": "concat:0"} if outputs_too else {})}
    return folder.write(",".join([f"0FB{m}" for m in range(micro_batches)] + ["0U"]), outputs, **more)


def two_chunks(path, micro_batches, schedule, apart=False, clipped=None):
    """The layers on two ranks each: the first one splits samples, the second hidden units. `apart`: the second layer's backward pass
    in two. `clipped`: gradients by their common norm, for which the chunks need each other's (R)."""
    rows = BATCH // micro_batches
    folder = StepFolder(path, 4, micro_batches)
    dp, tp = (("dp", 2),), (("tp", 2),)
    first, second = [0, 1], [3, 2]

    p = Program(dp, first)
    x, w1 = p.input("X", (rows, INPUTS), (("dp",), ())), p.input("W1", WEIGHTS["W1"])
    p.output(p.op("Tanh", p.op("MatMul", x, w1)), "a", (rows, HIDDEN), (("dp",), ()))
    folder.add("c0.F.onnx", 0, "F", p)

    p = Program(dp, first)
    x, a = p.input("X", (rows, INPUTS), (("dp",), ())), p.input("a", (rows, HIDDEN), (("dp",), ()))
    da = p.input("da", (rows, HIDDEN), (("dp",), ()))
    dh = p.op("Mul", da, p.op("Sub", p.number(np.float32(1)), p.op("Mul", a, a)))
    g = p.op("MatMul", p.op("Transpose", x, perm=[1, 0]), dh)
    p.output(p.op("Add", p.input("acc.W1", WEIGHTS["W1"], None, ("dp",)), g), "new.acc.W1", WEIGHTS["W1"], None, ("dp",))
    folder.add("c0.B.onnx", 0, "B", p)

    p = Program(tp, second)
    a = p.input("a", (rows, HIDDEN), ((), ("tp",)))
    w2, t = p.input("W2", WEIGHTS["W2"], (("tp",), ())), p.input("T", (rows, OUTPUTS))
    d = p.op("Sub", p.sum_over(p.op("MatMul", a, w2), ["tp"]), t)
    p.output(p.op("Mul", p.op("ReduceSum", p.op("Mul", d, d), keepdims=0), p.number(np.float32(1 / (rows * OUTPUTS)))), "loss", ())
    p.output(p.op("Mul", d, p.number(np.float32(2 / (rows * OUTPUTS)))), "dy", (rows, OUTPUTS))
    folder.add("c1.F.onnx", 1, "F", p)

    def backward(inputs_too, weights_too):
        p = Program(tp, second)
        dy = p.input("dy", (rows, OUTPUTS))
        if inputs_too:
            w2 = p.input("W2", WEIGHTS["W2"], (("tp",), ()))
            p.output(p.op("MatMul", dy, p.op("Transpose", w2, perm=[1, 0])), "da", (rows, HIDDEN), ((), ("tp",)))
        if weights_too:
            a, acc = p.input("a", (rows, HIDDEN), ((), ("tp",))), p.input("acc.W2", WEIGHTS["W2"], (("tp",), ()))
            g = p.op("MatMul", p.op("Transpose", a, perm=[1, 0]), dy)
            p.output(p.op("Add", acc, g), "new.acc.W2", WEIGHTS["W2"], (("tp",), ()))
        return p
    if apart:
        folder.add("c1.I.onnx", 1, "I", backward(True, False))
        folder.add("c1.W.onnx", 1, "W", backward(False, True))
    else:
        folder.add("c1.B.onnx", 1, "B", backward(True, True))

    for chunk, mesh, ranks, name, spec in ((0, dp, first, "W1", ((), ())), (1, tp, second, "W2", (("tp",), ()))):
        partial, shape = ("dp",) if chunk == 0 else (), WEIGHTS[name]

        def averaged(p):
            g = p.input("acc." + name, shape, spec, partial)
            if partial:
                g = p.sum_over(g, ["dp"])
            return p.op("Mul", g, p.number(np.float32(1 / micro_batches)))
        if clipped is not None:
            p = Program(mesh, ranks)
            g = averaged(p)
            norm = p.op("ReduceSum", p.op("Mul", g, g), keepdims=0)
            p.output(p.sum_over(norm, ["tp"]) if chunk == 1 else norm, f"norm.{chunk}", ())
            folder.add(f"c{chunk}.R.onnx", chunk, "R", p)
        p = Program(mesh, ranks)
        g, rate = averaged(p), p.input("learning_rate", ())
        if clipped is not None:
            norm = p.op("Sqrt", p.op("Add", p.input("norm.0", ()), p.input("norm.1", ())))
            g = p.op("Mul", g, p.op("Min", p.number(np.float32(1)), p.op("Div", p.number(np.float32(clipped)), norm)))
        new, moved = update(p, p.input(name, shape, spec), p.input("m." + name, shape, spec), g, rate)
        p.output(new, "new." + name, shape, spec)
        p.output(moved, "new.m." + name, shape, spec)
        folder.add(f"c{chunk}.U.onnx", chunk, "U", p)
    unsharded_clipped(path / "train.onnx", clipped)
    return folder.write(schedule)


def unsharded_clipped(path, clipped):
    if clipped is None:
        return unsharded_step(path)
    p = Program()
    x, t = p.input("X", (BATCH, INPUTS)), p.input("T", (BATCH, OUTPUTS))
    w = {n: p.input(n, s) for n, s in WEIGHTS.items()}
    rate = p.input("learning_rate", ())
    loss, g1, g2, _ = gradient(p, x, t, w["W1"], w["W2"], BATCH)
    p.output(loss, "loss", ())
    norm = p.op("Sqrt", p.op("Add", *[p.op("ReduceSum", p.op("Mul", g, g), keepdims=0) for g in (g1, g2)]))
    factor = p.op("Min", p.number(np.float32(1)), p.op("Div", p.number(np.float32(clipped)), norm))
    for n, g in (("W1", g1), ("W2", g2)):
        new, moved = update(p, w[n], p.input("m." + n, WEIGHTS[n]), p.op("Mul", g, factor), rate)
        p.output(new, "new." + n, WEIGHTS[n])
        p.output(moved, "new.m." + n, WEIGHTS[n])
    onnx.save(p.model(metadata=False), str(path))


def running_statistics(path, micro_batches, reference="passes"):
    """Samples less the batch's mean, whose moving average is a state that every pass updates; beside its unsharded passes."""
    rows, mesh = BATCH // micro_batches, (("dp", 2),)

    def of_pass(p, dp):
        x, t, w = p.input("X", (rows, OUTPUTS), (dp, ())), p.input("T", (rows, OUTPUTS), (dp, ())), p.input("w", (OUTPUTS,))
        total = p.op("ReduceSum", x, p.number(np.array([0], np.int64)), keepdims=0)
        mean = p.op("Mul", p.sum_over(total, ["dp"]) if dp else total, p.number(np.float32(1 / rows)))
        centred = p.op("Sub", x, mean)
        d = p.op("Sub", p.op("Mul", centred, w), t)
        scale = p.number(np.float32(1 / (rows * OUTPUTS)))
        loss = p.op("Mul", p.op("ReduceSum", p.op("Mul", d, d), keepdims=0), scale)
        g = p.op("Mul", p.op("ReduceSum", p.op("Mul", d, centred), p.number(np.array([0], np.int64)), keepdims=0), scale)
        p.output(p.sum_over(loss, ["dp"]) if dp else loss, "loss", ())
        p.output(p.op("Add", p.input("acc.w", (OUTPUTS,), None, dp), g), "new.acc.w", (OUTPUTS,), None, dp)
        moved = p.op("Add", p.op("Mul", p.input("running", (OUTPUTS,)), p.number(np.float32(0.9))), p.op("Mul", mean, p.number(np.float32(0.1))))
        p.output(moved, "new.running", (OUTPUTS,))
        return p

    def of_update(p, dp):
        g = p.input("acc.w", (OUTPUTS,), None, dp)
        g = p.op("Mul", p.sum_over(g, ["dp"]) if dp else g, p.number(np.float32(1 / micro_batches)))
        p.output(p.op("Sub", p.input("w", (OUTPUTS,)), p.op("Mul", g, p.input("learning_rate", ()))), "new.w", (OUTPUTS,))
        return p
    folder = StepFolder(path, 2, micro_batches)
    folder.add("plan.c0.FB.onnx", 0, "FB", of_pass(Program(mesh), ("dp",)))
    folder.add("plan.c0.U.onnx", 0, "U", of_update(Program(mesh), ("dp",)))
    for name, program in (("train.FB.onnx", of_pass(Program(), ())), ("train.U.onnx", of_update(Program(), ()))):
        onnx.save(program.model(metadata=False), str(path / name))
    return folder.write(",".join([f"0FB{m}" for m in range(micro_batches)] + ["0U"]), reference=reference)


def tied(path, micro_batches):
    """Both chunks multiply by the same weights, which the first one updates with what the second one tells it (R)."""
    rows, shape = BATCH // micro_batches, (OUTPUTS,)
    folder = StepFolder(path, 4, micro_batches)
    dp, tp = (("dp", 2),), (("tp", 2),)
    first, second = [0, 1], [2, 3]
    scale = np.float32(1 / (rows * OUTPUTS))

    def summed(p, value):
        return p.op("ReduceSum", value, p.number(np.array([0], np.int64)), keepdims=0)

    p = Program(dp, first)
    p.output(p.op("Mul", p.input("X", (rows, OUTPUTS), (("dp",), ())), p.input("w", shape)), "h", (rows, OUTPUTS), (("dp",), ()))
    folder.add("c0.F.onnx", 0, "F", p)
    p = Program(dp, first)
    g = summed(p, p.op("Mul", p.input("dh", (rows, OUTPUTS), (("dp",), ())), p.input("X", (rows, OUTPUTS), (("dp",), ()))))
    p.output(p.op("Add", p.input("acc.w", shape, None, ("dp",)), g), "new.acc.w", shape, None, ("dp",))
    folder.add("c0.B.onnx", 0, "B", p)
    p = Program(tp, second)
    h, w = p.input("h", (rows, OUTPUTS), ((), ("tp",))), p.input("w", shape, (("tp",),))
    d = p.op("Sub", p.op("Mul", h, w), p.input("T", (rows, OUTPUTS), ((), ("tp",))))
    loss = p.op("ReduceSum", p.op("Mul", d, d), keepdims=0)
    p.output(p.op("Mul", p.sum_over(loss, ["tp"]), p.number(scale)), "loss", ())
    dy = p.op("Mul", d, p.number(np.float32(2) * scale))
    p.output(p.op("Add", p.input("acc.w", shape, (("tp",),)), summed(p, p.op("Mul", dy, h))), "new.acc.w", shape, (("tp",),))
    p.output(p.op("Mul", dy, w), "dh", (rows, OUTPUTS), ((), ("tp",)))
    folder.add("c1.FB.onnx", 1, "FB", p)
    p = Program(tp, second)
    p.output(p.input("acc.w", shape, (("tp",),)), "told", shape, (("tp",),))
    folder.add("c1.R.onnx", 1, "R", p)
    p = Program(dp, first)
    g = p.op("Add", p.sum_over(p.input("acc.w", shape, None, ("dp",)), ["dp"]), p.input("told", shape))
    step = p.op("Mul", p.op("Mul", g, p.number(np.float32(1 / micro_batches))), p.input("learning_rate", ()))
    p.output(p.op("Sub", p.input("w", shape), step), "new.w", shape)
    folder.add("c0.U.onnx", 0, "U", p)

    p = Program()
    x, t, w = p.input("X", (BATCH, OUTPUTS)), p.input("T", (BATCH, OUTPUTS)), p.input("w", shape)
    h, scale = p.op("Mul", x, w), np.float32(1 / (BATCH * OUTPUTS))
    d = p.op("Sub", p.op("Mul", h, w), t)
    p.output(p.op("Mul", p.op("ReduceSum", p.op("Mul", d, d), keepdims=0), p.number(scale)), "loss", ())
    dy = p.op("Mul", d, p.number(np.float32(2) * scale))
    g = p.op("Add", summed(p, p.op("Mul", dy, h)), summed(p, p.op("Mul", p.op("Mul", dy, w), x)))
    p.output(p.op("Sub", w, p.op("Mul", g, p.input("learning_rate", ()))), "new.w", shape)
    onnx.save(p.model(metadata=False), str(path / "train.onnx"))
    passes = [",".join(f"0F{m}" for m in range(micro_batches)), ",".join(f"0B{m}" for m in reversed(range(micro_batches)))]
    return folder.write(",".join(passes) + ",0U\n" + ",".join(f"1FB{m}" for m in range(micro_batches)) + ",1R")
