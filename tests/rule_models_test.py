"""The rule test on the ops of real models: every distinct op of the tiny models, with the values that it has there.

Needs the models outside the repository (AUTOPAR_SHARED); skipped without them."""
import os
import pathlib
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tools"))
import rule_oracle_test as oracle  # noqa: E402
from rule_cases import Case, Constant  # noqa: E402

MESHES = [[2], [2, 2]]
MODELS = ("tiny_bert", "tiny_dlrm", "tiny_llama", "tiny_moe_gather", "tiny_resnet", "tiny_train_llama_adamw",
          "tiny_train_resnet_sgd", "tiny_unet3d")


def all_values(model, data):
    """Runs the model with every intermediate value as an output."""
    wanted = {o for node in model.graph.node for o in node.output if o}
    wanted -= {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {i.name: data["in." + i.name] for i in session.get_inputs()}
    return {**feeds, **dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))}


def attributes_of(node):
    attributes = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode()
        elif not isinstance(value, (int, float, str)):
            value = list(value)
        attributes[attribute.name] = value
    return attributes


def cases_of(name, model, values):
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    opset = next(o.version for o in model.opset_import if o.domain == "")
    seen = set()
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output:
            constants[node.output[0]] = values[node.output[0]]
        if node.domain or node.op_type in ("Constant", "Shape", "NonZero"):
            continue
        inputs = [None if not i else Constant(constants[i]) if i in constants else values[i] for i in node.input]
        attributes = attributes_of(node)
        shapes = [(x.array.shape, x.array.tobytes()[:64]) if isinstance(x, Constant) else None if x is None else x.shape
                  for x in inputs]
        key = repr((node.op_type, attributes, shapes, [bool(o) for o in node.output]))
        if key in seen or any(x is not None and not isinstance(x, Constant) and x.size == 0 for x in inputs):
            continue
        seen.add(key)
        yield Case(f"{name}/{node.name or node.output[0]}", node.op_type, inputs, None, attributes,
                   [bool(o) for o in node.output], opset)


def main():
    source = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
    folder = pathlib.Path(os.environ.get("AUTOPAR_SHARED", source.parent / "shared")) / "data" / "models"
    if not folder.is_dir():
        print(f"skipped: no models in {folder}; set AUTOPAR_SHARED")
        return 77
    oracle.MESHES = MESHES
    failures, begin = [], time.time()
    for name in sys.argv[1:] or MODELS:
        model = onnx.load(folder / f"{name}.onnx")
        with np.load(folder / f"{name}.npz") as data:
            values = all_values(onnx.load(folder / f"{name}.onnx"), data)
        cases = list(cases_of(name, model, values))
        results = oracle.dump(cases)
        runs = 0
        for case, result in zip(cases, results):
            runs += len(result.get("runs", []))
            try:
                oracle.check_case(case, result)
            except AssertionError as error:
                failures.append(f"{case.type} {error}")
        print(f"{name}: {len(cases)} distinct ops, {runs} sharded runs, {time.time() - begin:.1f} s")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
