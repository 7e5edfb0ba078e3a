"""The gradients of what ONNX's own node tests hold: more forms of attributes than ours.

Every test of one op whose type has a gradient is compared as grad_oracle_test.py does. What is left out is told with
its reason (-v lists every one). Arguments: names of tests or types (default: all), -v."""
import collections
import concurrent.futures
import sys
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from onnx import numpy_helper

from grad_oracle_test import check
from grad_cases import OPERANDS
from rule_cases import Case, Constant

LARGEST = 200_000  # elements of all inputs; the evaluators take seconds for more

CORNERS = "the evaluator takes a corner for one of a fractional extent, runtimes do not"
SHAPE = "the evaluator gives another shape"
LEFT_OUT = {"test_pow": "powers of negative numbers",
            "test_resize_downsample_scales_cubic_align_corners": CORNERS,
            "test_resize_downsample_scales_linear_align_corners": CORNERS,
            "test_stft": SHAPE, "test_stft_with_window": SHAPE}

# Constant wherever they are smooth: no gradient reaches their input.
FLAT = {"Ceil", "Floor", "Round", "Sign"}

WITHIN_ONE = {"Acos", "Asin", "Atanh"}


def tests_of_one_op():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for test in collect_testcases(None):
            graph = test.model.graph
            if len(graph.node) == 1 and not graph.node[0].domain and test.data_sets:
                yield test


def array_of(given):
    return np.asarray(given) if isinstance(given, (np.ndarray, np.generic)) else numpy_helper.to_array(given)


def off_corners(item, share):
    """Examples like to hold zeros, ones and equal numbers, where functions are not smooth."""
    if not isinstance(item, np.ndarray):
        return item
    return (share * item + np.random.default_rng(1).uniform(0.01, 0.02, item.shape)).astype(item.dtype)


def case_of(test):
    """The test as a case of ours, or why it is none."""
    graph = test.model.graph
    node = graph.node[0]
    if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
        return "has a subgraph"
    if any(not o.type.HasField("tensor_type") for o in graph.output):
        return "gives a sequence or an optional"
    given = dict(zip([i.name for i in graph.input], test.data_sets[0][0]))
    if any(isinstance(x, (list, dict)) or x is None for x in given.values()):
        return "takes a sequence or an optional"
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    inputs = []
    for name in node.input:
        array = None if not name else known[name] if name in known else array_of(given[name])
        if array is not None and array.dtype.kind not in "fiub":
            return f"takes {array.dtype}"
        fixed = array is not None and (array.dtype.kind != "f" or (node.op_type, len(inputs)) in OPERANDS)
        inputs.append(Constant(array) if fixed else array)
        inputs[-1] = off_corners(inputs[-1], 0.9 if node.op_type in WITHIN_ONE else 1)
    floating = [x for x in inputs if isinstance(x, np.ndarray)]
    if not floating:
        return "takes no floating-point numbers"
    if not all(np.isfinite(x).all() for x in floating):
        return "takes numbers that are not finite"
    if sum(x.size for x in floating) > LARGEST:
        return "large"
    opset = next(o.version for o in test.model.opset_import if not o.domain)
    if not 13 <= opset <= 26:
        return f"opset {opset}"
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    return Case(test.name, node.op_type, inputs, "", attributes, [bool(o) for o in node.output], opset)


def result_of(case):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(case)
    except Exception as error:  # noqa: BLE001  of the evaluators
        return f"raises {type(error).__name__}: {error}"


def reason_of(case, result):
    """Why nothing was compared; None where something is wrong."""
    if result.startswith("["):
        return result.strip("[]")[:120]
    if "has no gradient" in result:
        return f"{case.type} has no gradient " + result.partition("has no gradient")[2].split(";")[0].strip()[:100]
    if case.type in FLAT and "no gradient of the loss reaches" in result:
        return "no gradient reaches the input, as it should be"
    if "depends on data" in result or "is not a tensor" in result:
        return "cannot be imported"
    return None


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    verbose = "-v" in sys.argv
    chosen, left_out, results = [], collections.defaultdict(list), {}
    for test in tests_of_one_op():
        if names and test.name not in names and test.model.graph.node[0].op_type not in names:
            continue
        case = LEFT_OUT.get(test.name) or case_of(test)
        if isinstance(case, str):
            left_out[case].append(test.name)
        else:
            chosen.append(case)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        results = list(pool.map(result_of, chosen, chunksize=4))
    compared = wrong = 0
    for case, result in zip(chosen, results):
        if not result:
            compared += 1
        elif reason := reason_of(case, result):
            left_out[reason].append(case.name)
        else:
            wrong += 1
            print(f"{case.name} ({case.type}): {result}")
    for reason, tests in sorted(left_out.items(), key=lambda item: -len(item[1])):
        print(f"{len(tests)} left out: {reason}" + (f": {', '.join(tests)}" if verbose else ""))
    print(f"{compared} compared, {wrong} wrong, {sum(map(len, left_out.values()))} left out")
    return 1 if wrong or (not names and compared < 300) else 0


if __name__ == "__main__":
    sys.exit(main())
