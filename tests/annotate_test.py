"""ONNX's sharding metadata on the user's own model: the model is the same, the metadata is what strategy.json says (recomputed here device by
device), and the package onnx-ir, which reads it independently, finds nothing wrong."""
import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tools.program import cluster, run

try:
    import onnx_ir
    from onnx_ir import _multi_device
except ImportError:
    onnx_ir = None

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared")) / "data" / "models"
SLOW = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e11, "slower": 3, "latency": 1e-9}


def held_by_metadata(spec, shape, devices):
    """Per device the elements (numbered in row-major order) that it holds, as docs/IR.md has it."""
    counts = {}
    for dim in spec.sharded_dim:
        axis = dim.axis % len(shape)
        assert axis not in counts and len(dim.simple_sharding) == 1, spec
        simple = dim.simple_sharding[0]
        assert simple.dim_value == shape[axis] and simple.num_shards > 1 and shape[axis] % simple.num_shards == 0, (spec, shape)
        counts[axis] = simple.num_shards
    assert len(spec.device) == int(np.prod(list(counts.values()), dtype=int)), spec
    groups = {g.key: list(g.value) for g in spec.index_to_device_group_map}
    assert all(k < 0 and len(v) > 1 for k, v in groups.items()) and set(groups) == {d for d in spec.device if d < 0}, spec
    whole, held = np.arange(int(np.prod(shape, dtype=int))).reshape(shape), {}
    for shard, device in enumerate(spec.device):
        part = whole
        for (axis, count), at in zip(counts.items(), np.unravel_index(shard, tuple(counts.values()))):
            part = np.split(part, count, axis)[at]
        for d in groups.get(device, [device]):
            assert d not in held, f"device {d} twice in {spec}"
            held[d] = part
    assert sorted(held) == list(range(devices)), spec
    return [held[d] for d in range(devices)]


def held_by_map(shape, matrix, tensor_map):
    whole, held = np.arange(int(np.prod(shape, dtype=int))).reshape(shape), []
    for device in range(int(np.prod(matrix))):
        place, part = np.unravel_index(device, matrix), whole
        for d, entry in enumerate(tensor_map):
            for m in entry if isinstance(entry, list) else [entry]:
                if m >= 0:
                    axis = len(matrix) - 1 - m
                    part = np.split(part, matrix[axis], d)[place[axis]]
        held.append(part)
    return held


def map_of_text(text, mesh):
    """A tensor map of a spec's text, and whether it is a partial sum."""
    names = [a["name"] for a in mesh]
    dims = text[1:text.index("]")]
    entries = [e.strip("{}").split(",") for e in dims.split("},{")] if dims else []
    return [[len(names) - 1 - names.index(a) for a in e if a] or -1 for e in entries], text[text.index("]") + 1:].strip() != ""


def expected(tensor, mesh):
    """How a tensor lies when its op is through with it: reduced, where its readers get it so."""
    entries, partial = map_of_text(tensor["spec"], mesh)
    assert held_equal(held_by_map(tensor["shape"], tensor["device_matrix"], entries),
                      held_by_map(tensor["shape"], tensor["device_matrix"], tensor["tensor_map"]))
    if partial and "hub_spec" in tensor:
        hub, hub_partial = map_of_text(tensor["hub_spec"], mesh)
        if not hub_partial:
            return held_by_map(tensor["shape"], tensor["device_matrix"], hub), partial
    return held_by_map(tensor["shape"], tensor["device_matrix"], tensor["tensor_map"]), partial


def held_equal(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


def stripped(model, ir_version):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = ir_version
    copy.ClearField("configuration")
    kept = [p for p in copy.metadata_props if not p.key.startswith("autopar.")]
    del copy.metadata_props[:]
    copy.metadata_props.extend(kept)
    for node in copy.graph.node:
        node.ClearField("device_configurations")
    return copy.SerializeToString(deterministic=True)


def outputs_of(path, feeds):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds_of(path, dims):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random, feeds = np.random.default_rng(5), {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else dims[d] for d in i.shape]
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}[i.type]
        feeds[i.name] = random.integers(0, 2, shape).astype(kind)
    return feeds


def check_oracle(path, model):
    if onnx_ir is None:
        return "onnx-ir is not installed: skipped"
    errors = _multi_device._check_device_configurations(onnx_ir.load(str(path)))
    assert not errors, errors[:3]
    # It does find what is wrong.
    broken = onnx.ModelProto()
    broken.CopyFrom(model)
    node = next(n for n in broken.graph.node if n.device_configurations)
    spec = node.device_configurations[0].sharding_spec[0]
    spec.device[0] = 4096
    assert _multi_device._check_device_configurations(onnx_ir.from_proto(broken)), "onnx-ir takes anything"
    return "onnx-ir agrees"


def check(what, source, folder, dims=None):
    """Everything that must hold for one annotated model; what was met on the way."""
    path = folder / (source.stem + ".annotated.onnx")
    strategy = json.loads((folder / "strategy.json").read_text())
    original, model = onnx.load(source, load_external_data=False), onnx.load(path, load_external_data=False)
    assert model.ir_version == max(11, original.ir_version)
    assert stripped(model, original.ir_version) == original.SerializeToString(deterministic=True), "the model has changed"
    onnx.checker.check_model(str(path))
    devices = int(np.prod([a["size"] for a in strategy["mesh"]]))
    configuration, = model.configuration
    assert configuration.name == "autopar" and configuration.num_devices == devices
    tensors, ops = strategy["tensors"], strategy["ops"]
    met = {"nodes": 0, "specs": 0, "split": 0, "replicated": 0, "partial": 0, "inputs": 0}
    for node in model.graph.node:
        if not node.device_configurations:
            continue
        met["nodes"] += 1
        configurations, = node.device_configurations
        assert configurations.configuration_id == "autopar" and not configurations.HasField("pipeline_stage")
        names = [s.tensor_name for s in configurations.sharding_spec]
        assert len(set(names)) == len(names) and set(names) <= set(node.input) | set(node.output), (node.name, names)
        for spec in configurations.sharding_spec:
            met["specs"] += 1
            met["split" if spec.sharded_dim else "replicated"] += 1
            if spec.tensor_name not in tensors:
                continue
            tensor = tensors[spec.tensor_name]
            held = held_by_metadata(spec, tensor["shape"], devices)
            if spec.tensor_name in node.output:
                wanted, partial = expected(tensor, strategy["mesh"])
                met["partial"] += partial
                assert held_equal(held, wanted), (what, node.name, spec, tensor)
            op = ops.get(node.name)
            if spec.tensor_name in node.input and op and op["type"] == node.op_type and len(op["in_strategy"]) == len(node.input):
                counts = [1] * len(tensor["shape"])
                for dim in spec.sharded_dim:
                    counts[dim.axis] = dim.simple_sharding[0].num_shards
                assert counts == op["in_strategy"][list(node.input).index(spec.tensor_name)], (what, node.name, spec, op)
                met["inputs"] += 1
    # What the strategy knows of by the user's names has its layout.
    for node in model.graph.node:
        names = {s.tensor_name for c in node.device_configurations for s in c.sharding_spec}
        if names or node.name in ops:
            assert not any(o in tensors and o not in names for o in node.output), (what, node.name)
        if node.name in ops:
            assert not any(i in tensors and i not in names for i in node.input), (what, node.name, names)
    feeds = feeds_of(source, dims or {})
    for a, b in zip(outputs_of(source, feeds), outputs_of(path, feeds)):
        assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), what
    print(f"{what}: {met}, {check_oracle(path, model)}")
    return met


def net(folder):
    """What import folds, splits, renames and merges; weights in a file of their own."""
    random = np.random.default_rng(3)

    def weight(name, *shape):
        return numpy_helper.from_array((random.standard_normal(shape) / 4).astype(np.float32), name)

    mask = np.arange(32).reshape(1, 32) % 3 == 0
    weights = [weight("w1", 48, 32), weight("b1", 48), weight("w2", 48, 32), numpy_helper.from_array(mask, "mask1"),
               numpy_helper.from_array(mask, "mask2"), numpy_helper.from_array(np.float32(0), "zero"),
               numpy_helper.from_array(np.array([0], np.int64), "zero_index"), numpy_helper.from_array(np.array([4, 8], np.int64), "tail"),
               numpy_helper.from_array(np.array(True), "always")]
    f = onnx.TensorProto.FLOAT
    double = helper.make_function("test", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])],
                                  [helper.make_opsetid("", 17)])
    branch = helper.make_graph([helper.make_node("Sigmoid", ["doubled"], ["chosen_t"])], "then", [], [helper.make_tensor_value_info("chosen_t", f, None)])
    other = helper.make_graph([helper.make_node("Tanh", ["doubled"], ["chosen_e"])], "else", [], [helper.make_tensor_value_info("chosen_e", f, None)])
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="up", transB=1, alpha=0.5),
             helper.make_node("Identity", ["h"], ["h_same"], name="same"),
             helper.make_node("Relu", ["h_same"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["y"], name="down"),
             helper.make_node("Where", ["mask1", "y", "zero"], ["m1"], name="where1"),
             helper.make_node("Where", ["mask2", "m1", "zero"], ["m2"], name="where2"),
             helper.make_node("Double", ["m2"], ["doubled"], name="double", domain="test"),
             helper.make_node("If", ["always"], ["chosen"], name="if", then_branch=branch, else_branch=other),
             helper.make_node("Shape", ["x"], ["extents"], name="shape"),
             helper.make_node("Gather", ["extents", "zero_index"], ["rows"], name="rows"),
             helper.make_node("Concat", ["rows", "tail"], ["target"], name="target", axis=0),
             helper.make_node("Reshape", ["chosen", "target"], ["cube"], name="cube"),
             helper.make_node("Softmax", ["cube"], ["p"], name="softmax", axis=-1),
             helper.make_node("Dropout", ["p"], ["out"], name="drop")]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", f, ["rows", 32])],
                              [helper.make_tensor_value_info("out", f, ["rows", 4, 8])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("test", 1)], ir_version=8, functions=[double])
    path = folder / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=256)
    return path


def test_net(folder):
    model, met = net(folder), {}
    pins = {"free": {}, "rows": {"up": {"in_strategy": [[4, 1], [1, 1]]}},
            "sums": {"down": {"assignment": {"t0": "k"}}}, "columns": {"down": {"assignment": {"t0": "n"}}, "where2": {"in_strategy": [[1, 4], [1, 4], []]}}}
    for name, ops in pins.items():
        pin, out = folder / f"{name}.json", folder / name
        pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops}))
        done = run("search", model, "--cluster", cluster(folder, 4, **SLOW), "--dim", "rows=16", "-o", out, "--pin", pin, "--annotate")
        met = check(f"net, {name}", model, out, {"rows": 16})
        assert met["nodes"] == 9, met  # all but same, shape, rows, target, drop
        assert ("partial sums" in done.stderr) == (met["partial"] > 0), (done.stderr, met)
        assert name != "sums" or met["partial"], met
        if name == "columns":
            # mask2 is mask1 with another name, which import merges.
            annotated = onnx.load(out / "net.annotated.onnx", load_external_data=False)
            node, = [n for n in annotated.graph.node if n.name == "where2"]
            specs = {s.tensor_name: s for s in node.device_configurations[0].sharding_spec}
            assert specs["mask2"].sharded_dim[0].simple_sharding[0].num_shards == 4, specs
    assert (folder / "free" / "weights.bin").stat().st_size > 0
    run("search", model, "--cluster", cluster(folder, 1, **SLOW), "--dim", "rows=16", "-o", folder / "one", "--annotate")
    assert check("net, one device", model, folder / "one", {"rows": 16})["split"] == 0


def test_again(folder):
    """A model that is annotated already gets the new annotations in the place of the old ones; others' stay."""
    source = folder / "again.onnx"
    model = onnx.load(SOURCE / "models" / "mlp.onnx")
    model.ir_version = 12
    model.configuration.add(name="theirs", num_devices=1)
    model.graph.node[0].device_configurations.add(configuration_id="theirs", pipeline_stage=0)
    onnx.save(model, source)
    run("search", source, "--cluster", cluster(folder, 2, 2, **SLOW), "-o", folder / "first", "--annotate")
    once = folder / "first" / "again.annotated.onnx"
    found = onnx.load(once)
    assert found.ir_version == 12 and [c.name for c in found.configuration] == ["theirs", "autopar"]
    run("search", once, "--cluster", cluster(folder, 2, **SLOW), "-o", folder / "second", "--annotate")
    twice = onnx.load(folder / "second" / "again.annotated.annotated.onnx")
    onnx.checker.check_model(twice)
    assert [(c.name, c.num_devices) for c in twice.configuration] == [("theirs", 1), ("autopar", 2)]
    assert [c.configuration_id for c in twice.graph.node[0].device_configurations] == ["theirs", "autopar"]
    keys = [p.key for p in twice.metadata_props]
    assert len(set(keys)) == len(keys), keys


def test_graph_json(folder):
    path = folder / "graph.json"
    path.write_text(json.dumps({"format": "autopar-graph", "version": 1, "name": "g", "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 4]}],
                                "parameters": [], "ops": [{"name": "r", "type": "Relu", "inputs": ["x"], "outputs": ["y"], "attributes": {}}], "outputs": ["y"]}))
    done = run("search", path, "--cluster", cluster(folder, 2, **SLOW), "-o", folder / "json", "--annotate", code=4)
    assert "sharding metadata is for ONNX models" in done.stderr and not (folder / "json").exists(), done.stderr


def test_pinned_hub(folder):
    """The op that shares what is resharded from a pinned hub is not in the user's model: its reader's layout is that of the tensor."""
    shapes = {"x": [8, 8], "w": [8, 8], "v": [8, 8], "b": [8]}
    inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [8, 8]) for n in ("y", "z", "t")]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc1"), helper.make_node("Gemm", ["x", "v", "b"], ["z"], name="fc2"),
             helper.make_node("Tanh", ["x"], ["t"], name="tanh")]
    model = helper.make_model(helper.make_graph(nodes, "hubs", inputs, outputs), opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    source = folder / "hubs.onnx"
    onnx.save(model, source)
    pin = folder / "hubs.json"
    pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1,
                               "ops": {"fc1": {"in_strategy": [[1, 1], [1, 4]]}, "fc2": {"in_strategy": [[1, 1], [1, 4]]}},
                               "tensors": {"b": {"hub_spec": "[{}]"}, "x": {"hub_spec": "[{},{t0}]"}}}))
    run("search", source, "--cluster", cluster(folder, 4, **SLOW), "-o", folder / "hubs", "--pin", pin, "--annotate")
    assert {"b.hub", "x.hub"} <= set(json.loads((folder / "hubs" / "strategy.json").read_text())["ops"])
    met = check("pinned hubs", source, folder / "hubs")
    assert met["nodes"] == 3 and met["specs"] == 10, met


def test_models(folder, models, meshes, *options):
    total = {}
    for model in models:
        for mesh in meshes:
            out = folder / f"{model.stem}_{mesh}"
            machine = cluster(folder, *reversed([int(n) for n in mesh.split("x")]), **SLOW)
            run("search", model, "--cluster", machine, "--mesh", mesh, "-o", out, "--annotate", *options)
            for key, count in check(f"{model.stem} on {mesh}", model, out).items():
                total[key] = total.get(key, 0) + count
    return total


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_net(folder)
        test_again(folder)
        test_graph_json(folder)
        test_pinned_hub(folder)
        total = test_models(folder, [SOURCE / "models" / "mlp.onnx", SOURCE / "models" / "llama_tiny.onnx"], ("4", "2x2"))
        assert total["split"] and total["inputs"], total
        if SHARED.exists():
            names = ("tiny_llama", "tiny_bert", "tiny_moe_gather", "tiny_train_llama_adamw", "functions_local")
            total = test_models(folder, [SHARED / f"{n}.onnx" for n in names], ("2x2",))
            repeated = test_models(folder, [SHARED / "tiny_train_llama_adamw.onnx"], ("4",), "--recompute", "products")
            assert repeated["split"] and repeated["inputs"], repeated
            assert total["split"] and total["inputs"] and total["partial"], total
        else:
            print("models outside the repository are not there: skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
