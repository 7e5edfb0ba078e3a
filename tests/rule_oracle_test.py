"""Every op rule against ONNX Runtime: shard the inputs by every valid assignment, run the local program on every rank,
put the outputs together as their specs say, and compare with the whole op.

Partial inputs are split into unequal random summands, so that errors cannot cancel. Each case says which factors its
rule must have, so that a rule that is too timid fails as well. Arguments: names of cases to run (default: all), and
-v for the rule and the number of runs of each."""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tools"))
from rule_cases import CASES, Constant  # noqa: E402

TOOL = os.environ.get("AUTOPAR_RULE_DUMP") or str(pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "tests" / "rule_dump")
MESHES = [[2], [2, 2], [3, 2]]
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int8": np.int8, "uint8": np.uint8,
          "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint32": np.uint32, "uint64": np.uint64,
          "bool": np.bool_}
REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}

_sessions = {}


def execute(op_type, opset, attributes, inputs, constants, output_names):
    """Runs one op. inputs: arrays or None; constants: for each input whether it is baked into the model."""
    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    key = (op_type, opset, repr(attributes), tuple(output_names),
           tuple(None if x is None else (x.dtype.str, x.shape, x.tobytes() if c else None)
                 for x, c in zip(inputs, constants)))
    if key not in _sessions:
        node = helper.make_node(op_type, names, output_names)
        for name, value in attributes.items():
            node.attribute.append(make_attribute(name, value))
        given = [(n, x, c) for n, x, c in zip(names, inputs, constants) if n]
        graph = helper.make_graph(
            [node], "op",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for n, x, c in given if not c],
            [onnx.ValueInfoProto(name=n) for n in output_names if n],
            [numpy_helper.from_array(x, n) for n, x, c in given if c])
        _sessions[key] = session_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                                      ir_version=10))
    feeds = {n: x for n, x, c in zip(names, inputs, constants) if n and not c}
    return _sessions[key].run([n for n in output_names if n], feeds)


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        # A few ops that ONNX Runtime has no kernel for are left to ONNX's own definition.
        return ReferenceEvaluator(model)


def make_attribute(name, value):
    kind, value = value["kind"], value["value"]
    if kind == "tensor":
        return helper.make_attribute(name, numpy_helper.from_array(from_hex(value)))
    kinds = {"int": onnx.AttributeProto.INT, "float": onnx.AttributeProto.FLOAT, "string": onnx.AttributeProto.STRING,
             "ints": onnx.AttributeProto.INTS, "floats": onnx.AttributeProto.FLOATS,
             "strings": onnx.AttributeProto.STRINGS}
    return helper.make_attribute(name, value, attr_type=kinds[kind])


def from_hex(entry):
    return np.frombuffer(bytes.fromhex(entry["hex"]), DTYPES[entry["dtype"]]).reshape(entry["shape"])


def describe(array, name, constant):
    entry = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    if constant:
        entry["hex"] = array.tobytes().hex()
    return entry


def describe_attribute(value):
    if isinstance(value, np.ndarray):
        return {"kind": "tensor", "value": describe(value, "", True)}
    if isinstance(value, (list, tuple)):
        kind = {int: "ints", float: "floats", str: "strings"}[type(value[0]) if value else int]
        return {"kind": kind, "value": list(value)}
    return {"kind": {int: "int", float: "float", str: "string"}[type(value)], "value": value}


class Ranks:
    def __init__(self, sizes):
        self.sizes = sizes
        self.coordinates = list(itertools.product(*[range(n) for n in sizes]))

    def groups(self, axes):
        """Ranks that differ only along `axes`, the first of them varying slowest."""
        groups = {}
        for rank, at in enumerate(self.coordinates):
            rest = tuple(c for a, c in enumerate(at) if a not in axes)
            groups.setdefault(rest, []).append((tuple(at[a] for a in axes), rank))
        return [[rank for _, rank in sorted(group)] for group in groups.values()]

    def position(self, rank, axes):
        position = 0
        for a in axes:
            position = position * self.sizes[a] + self.coordinates[rank][a]
        return position

    def count(self, axes):
        return int(np.prod([self.sizes[a] for a in axes], dtype=int))


def part(array, dim, count, position):
    step = array.shape[dim] // count
    return array[(slice(None),) * dim + (slice(position * step, (position + 1) * step),)]


def shard(array, spec, ranks, random):
    """The slices of all ranks."""
    copies = ranks.count(spec["partial"])
    if copies > 1:
        if array.dtype.kind == "f":
            summands = [random.standard_normal(array.shape).astype(array.dtype) for _ in range(copies - 1)]
        else:
            summands = [random.integers(0, 7, array.shape).astype(array.dtype) for _ in range(copies - 1)]
        summands.append(array - sum(summands))
    else:
        summands = [array]
    slices = []
    for rank in range(len(ranks.coordinates)):
        local = summands[ranks.position(rank, spec["partial"])]
        for dim, axes in enumerate(spec["dims"]):
            local = part(local, dim, ranks.count(axes), ranks.position(rank, axes))
        slices.append(np.ascontiguousarray(local).reshape(local.shape))
    return slices


def combine(slices, spec, ranks, tolerance):
    """The whole tensor; ranks that hold the same must agree."""
    pieces = {}
    for rank, local in enumerate(slices):
        where = tuple(ranks.position(rank, axes) for axes in spec["dims"])
        pieces.setdefault((where, ranks.position(rank, spec["partial"])), []).append(local)
    for (where, _), same in sorted(pieces.items(), key=lambda item: item[0]):
        for other in same[1:]:
            check_close(other, same[0], tolerance, "ranks that hold the same part")
    reduced = {}
    for (where, _), same in sorted(pieces.items(), key=lambda item: item[0]):
        if where in reduced:
            reduced[where] = np.asarray(REDUCTIONS[spec["reduction"]](reduced[where], same[0]))
        else:
            reduced[where] = same[0]
    shape = [n * ranks.count(axes) for n, axes in zip(slices[0].shape, spec["dims"])]
    whole = np.empty(shape, slices[0].dtype)
    for where, local in reduced.items():
        index = tuple(slice(p * n, (p + 1) * n) for p, n in zip(where, local.shape))
        whole[index] = local
    return whole


def tolerance_of(arrays):
    """By the narrowest floating type that takes part."""
    widths = [x.dtype.itemsize for x in arrays if x.dtype.kind == "f"]
    return {2: 2e-2, 4: 2e-4, 8: 1e-9}[min(widths, default=8)]


def check_close(found, expected, tolerance, what):
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: type {found.dtype}, expected {expected.dtype}"
    if expected.dtype.kind != "f":
        assert np.array_equal(found, expected), f"{what}: {found.ravel()[:8]}, expected {expected.ravel()[:8]}"
        return
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), tolerance, tolerance, err_msg=what)


def run_collective(op, values, ranks):
    attributes = {name: value["value"] for name, value in op["attributes"].items()}
    axes, source, target = attributes["axes"], op["inputs"][0], op["outputs"][0]
    if op["type"] == "ShardSlice":
        for rank, local in enumerate(values):
            local[target] = part(local[source], attributes["axis"], ranks.count(axes), ranks.position(rank, axes))
        return
    if op["type"] == "AllGather":
        for group in ranks.groups(axes):
            gathered = np.concatenate([values[rank][source] for rank in group], attributes["axis"])
            for rank in group:
                values[rank][target] = gathered
        return
    if op["type"] in ("Broadcast", "Permute"):
        for group in ranks.groups(axes):
            for position, rank in enumerate(group):
                sender = attributes["root"] if op["type"] == "Broadcast" else position - attributes["shift"]
                values[rank][target] = values[group[sender % len(group)]][source]
        return
    assert op["type"] == "AllReduce", op["type"]
    for group in ranks.groups(axes):
        total = values[group[0]][source]
        for rank in group[1:]:
            total = np.asarray(REDUCTIONS[attributes["reduce_op"]](total, values[rank][source]))
        for rank in group:
            values[rank][target] = total


def run_program(program, opset, inputs, ranks):
    """inputs: per rank a map of names. Returns the outputs per rank."""
    declared = {value["name"]: value for value in program["values"]}
    constants = {name: from_hex(value) for name, value in declared.items() if "hex" in value}
    values = [{**constants, **given} for given in inputs]
    for op in program["ops"]:
        if op["domain"] == "ai.autopar":
            run_collective(op, values, ranks)
        else:
            assert op["domain"] == "", op["domain"]
            baked = [name in constants for name in op["inputs"]]
            for local in values:
                arrays = [local[name] if name else None for name in op["inputs"]]
                results = execute(op["type"], opset, op["attributes"], arrays, baked, op["outputs"])
                local.update(zip([name for name in op["outputs"] if name], results))
        for local in values:
            for name in filter(None, op["outputs"]):
                value = declared[name]
                assert list(local[name].shape) == value["shape"], \
                    f"{op['type']} makes {name} {local[name].shape}, declared {value['shape']}"
                assert local[name].dtype == DTYPES[value["dtype"]], f"{op['type']} makes {name} {local[name].dtype}"
    return [[local[name] for name in program["outputs"]] for local in values]


def whole_outputs(case):
    arrays = [x.array if isinstance(x, Constant) else x for x in case.inputs]
    names = [f"out{i}" if used else "" for i, used in enumerate(case.outputs)]
    attributes = {name: describe_attribute(value) for name, value in case.attributes.items()}
    constant = [isinstance(x, Constant) for x in case.inputs]
    return execute(case.type, case.opset, attributes, arrays, constant, names)


def request_of(case):
    try:
        made = iter(whole_outputs(case))
    except Exception as error:
        raise AssertionError(f"{case.name}: the whole op does not run: {error}") from error
    inputs = []
    for i, x in enumerate(case.inputs):
        constant = isinstance(x, Constant)
        inputs.append(None if x is None else describe(x.array if constant else x, f"x{i}", constant))
    request = {"name": case.name, "opset": case.opset, "type": case.type, "inputs": inputs,
               "outputs": [describe(next(made), f"out{i}", False) if used else None
                           for i, used in enumerate(case.outputs)],
               "attributes": {name: describe_attribute(value) for name, value in case.attributes.items()}}
    if case.meshes:
        request["meshes"] = case.meshes
    if case.user_rule:
        request["user_rule"] = case.user_rule
    return request


def check_run(case, run, expected):
    ranks = Ranks(run["mesh"])
    random = np.random.default_rng(7)
    given = [{} for _ in ranks.coordinates]
    for i, x in enumerate(case.inputs):
        if x is None:
            continue
        array = x.array if isinstance(x, Constant) else x
        for rank, local in enumerate(shard(array, run["inputs"][i], ranks, random)):
            # A constant that is not sliced is in the program itself.
            given[rank][f"in{i}"] = local
    outputs = run_program(run["program"], case.opset, given, ranks)
    specs = [spec for spec, used in zip(run["outputs"], case.outputs) if used]
    arrays = [x.array if isinstance(x, Constant) else x for x in case.inputs if x is not None]
    tolerance = tolerance_of(arrays + list(expected))
    for k, spec in enumerate(specs):
        found = combine([local[k] for local in outputs], spec, ranks, tolerance)
        check_close(found, expected[k], tolerance, f"output {k}")


def check_case(case, result):
    assert "error" not in result, f"{case.name}: {result['error']}"
    assert result["has_rule"], f"{case.name}: no rule"
    found = set()
    expected = whole_outputs(case)
    for run in result["runs"]:
        found.update(word.split(":")[1] for word in run["assignment"].split() if ":" in word)
        try:
            check_run(case, run, expected)
        except Exception as error:  # noqa: BLE001 - any failure of a local program is a wrong rule
            raise AssertionError(f"{case.name}: rule \"{result['rule']}\", mesh {run['mesh']}, "
                                 f"assignment '{run['assignment']}': {error}") from error
    if case.factors is None:
        return
    missing = set(case.factors) - found
    assert not missing, f"{case.name}: rule \"{result['rule']}\" never splits {sorted(missing)}, only {sorted(found)}"
    if not case.factors and not case.user_rule:
        assert not found, f"{case.name}: rule \"{result['rule']}\" splits {sorted(found)}"


def dump(cases):
    request = {"cases": [request_of(case) for case in cases], "meshes": MESHES}
    done = subprocess.run([TOOL], input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == 0, f"{TOOL} failed at the last of these cases: {done.stderr[-500:]}"
    return json.loads(done.stdout)["cases"]


def main():
    verbose = "-v" in sys.argv
    wanted = [name for name in sys.argv[1:] if name != "-v"]
    cases = [case for case in CASES if not wanted or any(w in (case.name, case.type) for w in wanted)]
    assert cases, f"no case is named {wanted}"
    begin = time.time()
    failures, runs = [], 0
    for case, result in zip(cases, dump(cases)):
        runs += len(result.get("runs", []))
        before = time.time()
        try:
            check_case(case, result)
        except AssertionError as error:
            if not case.must_fail:
                failures.append(str(error))
        else:
            if case.must_fail:
                failures.append(f"{case.name}: a wrong rule was not noticed")
        if verbose:
            print(f"{case.name}: {result.get('rule')}: {len(result.get('runs', []))} runs, {time.time() - before:.2f} s")
    types = len({case.type for case in cases})
    print(f"{len(cases)} cases of {types} op types, {runs} sharded runs, {time.time() - begin:.1f} s")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
