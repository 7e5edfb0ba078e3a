"""The rule test on ONNX's own conformance cases for single ops, as they lie in the onnx package."""
import pathlib
import sys
import time

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tools"))
import rule_oracle_test as oracle  # noqa: E402
from rule_cases import Case, Constant  # noqa: E402
from rule_models_test import attributes_of  # noqa: E402

FOLDER = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
MESHES = [[2], [3], [2, 2]]
LEAST_CASES = 900  # so that a change of the package does not empty the test
# Not the same twice, or values that exist or not depending on data.
NO_CASES = {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike",
            "NonZero", "OptionalGetElement", "OptionalHasElement", "Compress", "Unique", "NonMaxSuppression",
            "If", "Loop", "Scan"}
# Elsewhere a short integer tensor after the first input describes the op and is known at import.
DATA_MAY_BE_SHORT = {
    "Add", "Attention", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "ConvInteger", "DequantizeLinear", "Div",
    "Equal", "GRU", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "LSTM", "Less", "LessOrEqual",
    "MatMulInteger", "Max", "Min", "Mod", "Mul", "NegativeLogLikelihoodLoss", "Pow", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear", "RNN", "ReverseSequence", "RoiAlign", "RotaryEmbedding", "ScatterElements", "ScatterND",
    "SoftmaxCrossEntropyLoss", "Sub", "TensorScatter", "Where"}


def array_of(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def case_of(folder):
    """Nothing for what the rule test cannot hold: several ops, other domains and types, opsets out of range."""
    model = onnx.load(folder / "model.onnx")
    opset = max(o.version for o in model.opset_import)
    if len(model.graph.node) != 1 or model.graph.node[0].domain or not 13 <= opset <= 26:
        return None
    node = model.graph.node[0]
    if node.op_type in NO_CASES or any(not v.type.HasField("tensor_type") for v in model.graph.input):
        return None
    values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    known = set(values)
    for k, value in enumerate(model.graph.input):
        values[value.name] = array_of(folder / "test_data_set_0" / f"input_{k}.pb")
    inputs = []
    for port, name in enumerate(node.input):
        array = values[name] if name else None
        if array is not None and array.dtype.name not in oracle.DTYPES:
            return None
        describes = (array is not None and array.dtype.kind == "i" and array.ndim <= 1
                     and (port > 0 or node.op_type == "ConstantOfShape") and node.op_type not in DATA_MAY_BE_SHORT)
        inputs.append(Constant(array) if describes or name in known else array)
    return Case(folder.name, node.op_type, inputs, None, attributes_of(node), [bool(o) for o in node.output], opset)


def runnable(case):
    """Whether the whole op runs here, with outputs of types that the test knows."""
    try:
        return all(isinstance(x, np.ndarray) and x.dtype.name in oracle.DTYPES for x in oracle.whole_outputs(case))
    except Exception:  # noqa: BLE001 - no kernel for this type
        return False


def cases():
    for folder in sorted(FOLDER.iterdir()):
        try:
            case = case_of(folder)
        except (TypeError, NotImplementedError, ValueError, onnx.onnx_cpp2py_export.checker.ValidationError):
            continue  # types that numpy does not have
        if case is not None and runnable(case):
            yield case


def main():
    oracle.MESHES = MESHES
    begin = time.time()
    found = list(cases())
    assert len(found) >= LEAST_CASES, f"only {len(found)} cases in {FOLDER}"
    failures, runs = [], 0
    for case, result in zip(found, oracle.dump(found)):
        runs += len(result.get("runs", []))
        try:
            oracle.check_case(case, result)
        except AssertionError as error:
            failures.append(f"{case.type} {error}")
    print(f"{len(found)} cases of {len({case.type for case in found})} op types, {runs} sharded runs, "
          f"{time.time() - begin:.1f} s")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
