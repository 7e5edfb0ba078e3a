"""Every gradient of the op table against finite differences in float64.

Each case of the rules' test (and those of grad_cases.py) becomes a model of one op whose loss is a weighted sum of its
outputs; `autopar grad --optimizer none` writes the gradients by all its floating-point inputs, and what these say of a
few random directions is compared with how the loss changes along them. ONNX's reference evaluator runs both, ONNX
Runtime where that lacks an op. Arguments: names of cases (default: all), -v to see each."""

import concurrent.futures
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_grid_sample

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tools"))
from grad_cases import ABSORBED, GRAD_CASES, OPERANDS, SINGLE_ONLY, SINGLE_TOO, STATISTICS, WITHOUT_GRADIENT  # noqa: E402
from recurrent_ops import RECURRENT_OPS  # noqa: E402
from rule_cases import CASES, Constant  # noqa: E402


AUTOPAR = os.environ["AUTOPAR"]
DIRECTIONS = 3


class Precision:
    """What the op is run in, how far along a direction, and which share of the sum of all changes may be off."""
    def __init__(self, dtype, onnx_type, step, allowed):
        self.dtype, self.onnx_type, self.step, self.allowed = dtype, onnx_type, step, allowed


DOUBLE = Precision(np.float64, TensorProto.DOUBLE, 1e-6, 2e-5)
SINGLE = Precision(np.float32, TensorProto.FLOAT, 1e-2, 1e-2)  # of ops that take no float64


def wide(array, precision):
    array = np.asarray(array)
    return array.astype(precision.dtype) if array.dtype in (np.float32, np.float16, np.float64) else array


class Erf(OpRun):
    """The evaluator's own one calculates in float32."""
    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Shrink(OpRun):
    def _run(self, x, bias=0.0, lambd=0.5):
        return (np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(x.dtype),)


class Conv(OpRun):
    """The evaluator's own one stumbles over groups of several images and over SAME_LOWER."""
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None):
        rank = x.ndim - 2
        strides, dilations, group = strides or [1] * rank, dilations or [1] * rank, group or 1
        spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations)]
        before, after = list((pads or [0] * 2 * rank)[:rank]), list((pads or [0] * 2 * rank)[rank:])
        if auto_pad and auto_pad.startswith("SAME"):
            for d in range(rank):
                total = max((-(-x.shape[d + 2] // strides[d]) - 1) * strides[d] + spans[d] - x.shape[d + 2], 0)
                before[d] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
                after[d] = total - before[d]
        x = np.pad(x, [(0, 0), (0, 0)] + list(zip(before, after)))
        places = [(n - span) // stride + 1 for n, span, stride in zip(x.shape[2:], spans, strides)]
        x = x.reshape(x.shape[0], group, -1, *x.shape[2:])
        w = w.reshape(group, -1, *w.shape[1:])
        y = sum(np.einsum("ngc...,gmc->ngm...", x[under(k, dilations, strides, places)], w[(...,) + k])
                for k in np.ndindex(*w.shape[3:])).reshape(x.shape[0], -1, *places)
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


def under(k, dilations, strides, places):
    """What the element k of a kernel lies on, place by place."""
    return (...,) + tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, s, n in zip(k, dilations, strides, places))


class ConvTranspose(OpRun):
    """The evaluator's own one stumbles over groups."""
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None,
             output_shape=None, pads=None, strides=None):
        rank, places = x.ndim - 2, x.shape[2:]
        strides, dilations, group = strides or [1] * rank, dilations or [1] * rank, group or 1
        more, pads = output_padding or [0] * rank, list(pads or [0] * 2 * rank)
        full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(places, strides, w.shape[2:], dilations)]
        if output_shape or (auto_pad and auto_pad.startswith("SAME")):
            output_shape = list(output_shape or [n * s for n, s in zip(places, strides)])[-rank:]
            for d in range(rank):
                total = max(full[d] + more[d] - output_shape[d], 0)
                pads[d] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        else:
            output_shape = [full[d] + more[d] - pads[d] - pads[d + rank] for d in range(rank)]
        x = x.reshape(x.shape[0], group, -1, *places)
        w = w.reshape(group, -1, *w.shape[1:])
        y = np.zeros((x.shape[0], group, w.shape[2], *[pads[d] + output_shape[d] + full[d] for d in range(rank)]), x.dtype)
        for k in np.ndindex(*w.shape[3:]):
            y[under(k, dilations, strides, places)] += np.einsum("ngc...,gcm->ngm...", x, w[(...,) + k])
        y = y[(...,) + tuple(slice(before, before + n) for before, n in zip(pads, output_shape))]
        y = y.reshape(x.shape[0], -1, *output_shape)
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


class LRN(OpRun):
    """The evaluator's own one takes the batch for the channels."""
    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        padded = np.pad(x * x, [(0, 0), ((size - 1) // 2, size // 2)] + [(0, 0)] * (x.ndim - 2))
        squares = sum(padded[:, k:k + x.shape[1]] for k in range(size))
        return (x / (bias + alpha / size * squares) ** beta,)


class GlobalMaxPool(OpRun):
    """The evaluator's own one loses dimensions."""
    def _run(self, x):
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def exact_places(self, n, dims, align_corners):
    """The evaluator's own ones are float32."""
    return np.array([self._gs_denormalize(n=v, length=dim, align_corners=align_corners) for v, dim in zip(n, dims)])


op_grid_sample.GridSample._gs_denormalize_coordinates = exact_places
EVALUATORS = [Erf, Shrink, Conv, ConvTranspose, LRN, GlobalMaxPool, *RECURRENT_OPS]


class Unable(Exception):
    """Neither evaluator runs the model."""


# ONNX Runtime calculates these in float32, or draws other numbers at every run.
REFERENCE_FIRST = {"Shrink", "Dropout", "RNN", "GRU", "LSTM"}


def avoids_runtime(node):
    # ONNX Runtime crashes where a part of a Split has no name.
    return node.op_type in REFERENCE_FIRST or (node.op_type == "Split" and "" in node.output)


def runner_of(model):
    """A function from feeds to outputs."""
    errors = []
    try:
        if any(avoids_runtime(node) for node in model.graph.node):
            reference = ReferenceEvaluator(model, new_ops=NEW_OPS)
            return lambda feeds: reference.run(None, feeds)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        # Copies: BatchNormalization writes its running statistics over what it was fed.
        return lambda feeds: session.run(None, {name: array.copy() for name, array in feeds.items()})
    except Exception as error:  # noqa: BLE001  whatever an evaluator raises, the other is asked
        errors.append(str(error)[:200])
    try:
        reference = ReferenceEvaluator(model, new_ops=EVALUATORS)
        return lambda feeds: reference.run(None, feeds)
    except Exception as error:  # noqa: BLE001
        errors.append(str(error)[:200])
    raise Unable("; ".join(errors))


def forward_model(case, rng, precision):
    """The op and a weighted sum of its floating-point outputs; inputs that are differentiated, and all feeds."""
    names, feeds, initializers, infos, wanted = [], {}, [], [], []
    for k, item in enumerate(case.inputs):
        if item is None:
            names.append("")
            continue
        name = f"i{k}"
        names.append(name)
        array = np.asarray(item.array if isinstance(item, Constant) else item)
        array = array if (case.type, k) in OPERANDS else wide(array, precision)
        if isinstance(item, Constant):
            initializers.append(numpy_helper.from_array(array, name))
            continue
        feeds[name] = array
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
        if array.dtype == precision.dtype and array.ndim > 0 and array.size > 0:
            wanted.append(name)
    outputs = [f"o{k}" if there else "" for k, there in enumerate(case.outputs)]
    before = [helper.make_node("Mul", [names[k], "one"], [f"{names[k]}_kept"]) for k in STATISTICS.get(case.type, [])]
    if before:
        initializers.append(numpy_helper.from_array(np.array(1, precision.dtype), "one"))
    names = [f"i{k}_kept" if k in STATISTICS.get(case.type, []) else name for k, name in enumerate(names)]
    node = helper.make_node(case.type, names, outputs, name="op")
    for name, value in case.attributes.items():
        value = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        node.attribute.append(helper.make_attribute(name, value))
    model = helper.make_model(
        helper.make_graph([*before, node], "op", infos, [onnx.ValueInfoProto(name=o) for o in outputs if o], initializers),
        opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    try:
        values = runner_of(model)(feeds)
    except Exception as error:  # noqa: BLE001
        raise Unable(str(error)[:300]) from error
    nodes, terms = [*before, node], []
    inferred = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in model.graph.output}
    for name, value in zip([o for o in outputs if o], values):
        value = np.asarray(value)
        if inferred[name] and 0 not in inferred[name] and inferred[name] != list(value.shape):
            raise Unable(f"{name}: {list(value.shape)}, ONNX infers {inferred[name]}")
        if value.dtype != precision.dtype:
            continue
        weights = rng.uniform(0.5, 1.5, value.shape) * rng.choice([-1, 1], value.shape)
        weights = weights.astype(precision.dtype)
        initializers.append(numpy_helper.from_array(weights, "weights_" + name))
        nodes.append(helper.make_node("Mul", [name, "weights_" + name], ["weighted_" + name]))
        nodes.append(helper.make_node("ReduceSum", ["weighted_" + name], ["sum_" + name], keepdims=0))
        terms.append("sum_" + name)
    if not terms:
        return None, [], feeds
    nodes.append(helper.make_node("Sum", terms, ["loss"]))
    graph = helper.make_graph(nodes, "op", infos, [helper.make_tensor_value_info("loss", precision.onnx_type, [])],
                              initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
    data = model.metadata_props.add()
    data.key, data.value = "data_inputs", ",".join(n for n in feeds if n not in wanted)
    return model, wanted, feeds


FLAT = "no gradient of the loss reaches a parameter"


def check_flat(model, wanted, feeds, rng, precision):
    """Steps have no slope: the loss does not change."""
    forward = runner_of(model)
    for name in wanted:
        for _ in range(DIRECTIONS):
            direction = rng.standard_normal(feeds[name].shape).astype(precision.dtype)
            ahead = forward({**feeds, name: feeds[name] + precision.step * direction})[0]
            if ahead != forward(feeds)[0]:
                return f"{name}: the loss changes, its gradient says it does not"
    return ""


def check(case, precision=DOUBLE):
    """What is wrong; a word in brackets where nothing was compared."""
    if case.name in ABSORBED:
        return "[absorbed]"
    if precision is DOUBLE and case.type in SINGLE_ONLY:
        return check(case, SINGLE)
    if precision is DOUBLE and case.type in SINGLE_TOO:
        return compared(case, DOUBLE) or compared(case, SINGLE).partition("[")[0]
    return compared(case, precision)


def compared(case, precision):
    rng = np.random.default_rng(sum(map(ord, case.name)))
    try:
        model, wanted, feeds = forward_model(case, rng, precision)
    except Unable as error:
        return check(case, SINGLE) if precision is DOUBLE else f"[cannot run: {error}]"
    if not wanted or model is None:
        return "[no floating-point inputs or outputs]"
    with tempfile.TemporaryDirectory() as folder:
        path, step = os.path.join(folder, "model.onnx"), os.path.join(folder, "step.onnx")
        onnx.save(model, path)
        made = subprocess.run([AUTOPAR, "grad", path, "--optimizer", "none", "--parameters", ",".join(wanted), "-o", step],
                              capture_output=True, text=True)
        if "is float64, which" in made.stderr and precision is DOUBLE:
            return check(case, SINGLE)
        if case.type in WITHOUT_GRADIENT:
            told = "no gradient" in made.stderr
            return "[none, and told]" if made.returncode == 4 and told else f"should have none: {made.stderr}"
        if FLAT in made.stderr:
            return check_flat(model, wanted, feeds, rng, precision)
        if "has been deprecated" in made.stderr:
            return "[cannot be read: deprecated]"
        if "is float64, which" in made.stderr and precision is DOUBLE:
            return check(case, SINGLE)
        if made.returncode != 0:
            return f"exit code {made.returncode}: {made.stderr.strip()[-600:]}"
        gradients = onnx.load(step)
    try:
        runner = runner_of(gradients)
        there = {i.name for i in gradients.graph.input}
        found = dict(zip([o.name for o in gradients.graph.output], runner({n: x for n, x in feeds.items() if n in there})))
    except Unable as error:
        return f"[cannot run the gradients: {error}]"
    except Exception as error:  # noqa: BLE001
        return f"the gradients do not run: {str(error)[:400]}"
    forward = runner_of(model)
    loss = float(forward(feeds)[0])
    if not np.isfinite(loss):
        return "[the loss is not finite]"
    if not np.isclose(float(found["loss"]), loss, rtol=precision.allowed * 1e-2, atol=precision.allowed * 1e-2):
        return f"loss {found['loss']}, expected {loss}"
    for name in wanted:
        grad = found.get("grad." + name)
        grad = np.zeros(feeds[name].shape) if grad is None else np.asarray(grad)
        if grad.shape != feeds[name].shape:
            return f"{name}: shape {grad.shape}, expected {feeds[name].shape}"
        if not np.isfinite(grad).all():
            return f"{name}: not finite"
        for _ in range(DIRECTIONS):
            direction = rng.standard_normal(feeds[name].shape).astype(precision.dtype)
            ahead = float(forward({**feeds, name: feeds[name] + precision.step * direction})[0])
            behind = float(forward({**feeds, name: feeds[name] - precision.step * direction})[0])
            change = (ahead - behind) / (2 * precision.step)
            told = float(np.sum(grad * direction))
            scale = np.sum(np.abs(grad * direction)) + abs(change) + abs(loss) * 1e-3 + 1e-3
            if not abs(told - change) <= precision.allowed * scale:
                return f"{name}: the loss changes by {change:.9g} along a direction, its gradient says {told:.9g}"
    return ""


def cases():
    seen = set()
    for case in list(CASES) + list(GRAD_CASES):
        if case.user_rule or case.must_fail or case.name in seen:
            continue
        seen.add(case.name)
        yield case


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    verbose = "-v" in sys.argv
    chosen = [c for c in cases() if not names or c.name in names or c.type in names]
    # Unlike multiprocessing.Pool, this notices where an evaluator has crashed.
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        results = list(pool.map(check, chosen, chunksize=4))
    failed = compared = 0
    for case, result in zip(chosen, results):
        wrong = bool(result) and not result.startswith("[")
        failed += wrong
        compared += not result
        if wrong or verbose:
            print(f"{case.name} ({case.type}): {result or 'ok'}")
    print(f"{compared} compared, {failed} wrong, {len(chosen) - compared - failed} without anything to compare")
    return 1 if failed or (not names and compared < 250) else 0


if __name__ == "__main__":
    sys.exit(main())
