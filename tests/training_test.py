"""Training steps: activations repeated in the backward pass change nothing but the memory, and claims stay exact."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tools.program import AUTOPAR, cluster, run

MACHINE = {"flops": 1e9, "memory_bandwidth": 1e9, "link": 1e9, "slower": 4}
MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or pathlib.Path(os.environ["AUTOPAR_SOURCE"]).parent / "shared") / "data" / "models"


def found(folder):
    return json.loads((folder / "report.json").read_text())


def test_repeated_ops_run(folder):
    for name in ("tiny_train_llama_adamw", "train_gpt_sgd"):
        model, machine = MODELS / f"{name}.onnx", cluster(folder, 2, 2, **MACHINE)
        ops = {}
        for recompute in ("none", "cheap", "products"):
            out, given = folder / f"{name}_{recompute}", folder / f"{name}_{recompute}_given"
            run("search", model, "--cluster", machine, "-o", out, "--recompute", recompute)
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", (name, recompute)
            strategy = json.loads((out / "strategy.json").read_text())
            assert strategy.get("recompute", "none") == recompute
            ops[recompute] = len(strategy["ops"])
            # The strategy says what is repeated: it gives the same plan again.
            run("apply", model, "--cluster", machine, "-o", given, "--strategy", out / "strategy.json")
            assert (out / "plan.onnx").read_bytes() == (given / "plan.onnx").read_bytes(), (name, recompute)
            priced = json.loads(run("price", model, "--cluster", machine, "--json", "--strategy", out / "strategy.json").stdout)
            assert priced["seconds"] == strategy["cost"]["seconds"]
            assert priced["memory_bytes"] == strategy["cost"]["memory_bytes"]
        assert ops["none"] < ops["cheap"] < ops["products"], ops


def check_pinned_hubs(folder, model, out, memory):
    """Ops are repeated first, then readers of pinned hubs share: in the search that finds out that they must be, and in apply."""
    import onnx
    machine, readers, pin = cluster(folder, 2, **MACHINE), {}, folder / "hubs.json"
    for node in onnx.load(model).graph.node:
        for name in set(node.input):
            readers[name] = readers.get(name, 0) + 1
    strategy = json.loads((out / "strategy.json").read_text())
    tensors = {name: {"hub_spec": tensor.get("hub_spec", tensor["spec"])} for name, tensor in strategy["tensors"].items() if readers.get(name, 0) > 1}
    pin.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "mesh": strategy["mesh"], "tensors": tensors}))
    run("search", model, "--cluster", machine, "-o", out, "--memory", memory, "--pin", pin)
    strategy = json.loads((out / "strategy.json").read_text())
    assert strategy["recompute"] != "none" and sum(name.endswith(".hub") for name in strategy["ops"]) > 5, list(strategy["ops"])
    run("apply", model, "--cluster", machine, "-o", folder / "given", "--strategy", out / "strategy.json")
    for name in ("plan.onnx", "strategy.json"):
        assert (folder / "given" / name).read_bytes() == (out / name).read_bytes(), name
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"


def test_given_checkpoints(folder):
    """A pin file says what full recomputation keeps between segments; the strategy hands it on, also that of a pipeline."""
    model, pins, machine = folder / "deep.onnx", folder / "pins.json", cluster(folder, 4, **MACHINE)
    subprocess.run([sys.executable, pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "scripts" / "make_models.py", "--family", "llama", "--layers", "4", "--hidden", "64",
                    "--heads", "4", "--feed-forward", "128", "--vocabulary", "256", "--sequence", "32", "-o", model], check=True, stdout=subprocess.DEVNULL)
    train = ["--train", "--optimizer", "sgd", "--loss", "cross_entropy", "--batch", 8, "--micro-batches", 4]
    kept = "layers.*.mlp.residual_out"
    for stages in (1, 2):
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "checkpoints": [kept]}))
        out = folder / f"deep{stages}"
        run("search", model, "--cluster", machine, *train, "--stages", stages, "--recompute", "full", "--pin", pins, "-o", out, "-q")
        strategy = json.loads((out / "strategy.json").read_text())
        assert strategy["checkpoints"] == [kept], strategy.keys()
        repeated = [name for name in strategy["ops"] if name.endswith(".again")]
        assert any(".attn.residual" in name for name in repeated), repeated
        assert not any(".mlp.residual" in name for name in repeated), repeated
        run("apply", model, "--cluster", machine, "-o", folder / "applied", "--strategy", out / "strategy.json", "-q")
        names = [path.name for path in out.glob("plan*.onnx")]
        assert names and all((out / name).read_bytes() == (folder / "applied" / name).read_bytes() for name in names), names
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "checkpoints": ["layers.*.no_such"]}))
        done = subprocess.run([AUTOPAR, "search", str(model), "--cluster", str(machine), *map(str, train), "--pin", str(pins), "-o", str(out)],
                              capture_output=True, text=True)
        assert done.returncode == 4 and "layers.*.no_such" in done.stderr, done.stderr


def test_bias_of_two_precisions(folder):
    """A bias that a convolution adds in float32, as there is none for bfloat16, and an Add reads in 16 bits."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    random, info = np.random.default_rng(3), helper.make_tensor_value_info
    weights = {"w": random.standard_normal((4, 3, 3, 3)), "b": random.standard_normal(4), "v": random.standard_normal((4, 4))}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"), helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
             helper.make_node("Flatten", ["p"], ["f"], "flat"), helper.make_node("MatMul", ["f", "v"], ["m"], "fc"), helper.make_node("Add", ["m", "b"], ["y"], "add")]
    graph = helper.make_graph(nodes, "shared", [info("x", TensorProto.FLOAT, [8, 3, 6, 6])], [info("y", TensorProto.FLOAT, [8, 4])],
                              [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()])
    model, out = folder / "shared.onnx", folder / "shared"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    for precision in ("bf16", "fp16", "mixed-fp16"):
        run("search", model, "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "sum", "--precision", precision, "-o", out)
        assert run("verify", out).stdout.splitlines()[-1] == "PASSED", precision
        if precision != "bf16":  # which ONNX Runtime has few kernels of
            assert run("run", out).stdout.splitlines()[-1] == "PASSED", precision


def test_repeats_where_nothing_fits(folder):
    model, out = MODELS / "train_gpt_sgd.onnx", folder / "out"
    kept = {}
    for recompute in ("none", "products"):
        run("search", model, "--cluster", cluster(folder, 2, **MACHINE), "-o", out, "--recompute", recompute, "--searcher", "data_parallel")
        kept[recompute] = found(out)["memory"]["peak_bytes"]
    assert kept["products"] < kept["none"], kept
    # Between what the two need: only with repeated ops does a plan fit, and it is found without being asked for.
    low, high = 1 << 20, kept["none"]
    while high - low > 1 << 18:
        middle = (low + high) // 2
        done = subprocess.run([AUTOPAR, "search", str(model), "--cluster", str(cluster(folder, 2, **MACHINE)), "-o", str(out), "--recompute", "none",
                               "--memory", str(middle)], capture_output=True, text=True)
        low, high = (low, middle) if done.returncode == 0 else (middle, high)
    run("search", model, "--cluster", cluster(folder, 2, **MACHINE), "-o", out, "--memory", low)
    memory = found(out)["memory"]
    assert memory["recompute"] != "none" and memory["repeated_ops"] > 0 and memory["peak_bytes"] <= low, memory
    # With all memory nothing is repeated: no bound on that comes from forms that repeat.
    without_limit = found(out)["cost"]["unlimited_lower_bound_seconds"]
    run("search", model, "--cluster", cluster(folder, 2, **MACHINE), "-o", out)
    assert without_limit <= found(out)["cost"]["seconds"], without_limit
    assert run("run", out).stdout.splitlines()[-1] == "PASSED"
    check_pinned_hubs(folder, model, out, low)
    assert "--recompute full, and more with others" in run("search", model, "--cluster", cluster(folder, 2, **MACHINE), "-o", out, "--memory", "1MiB", code=3).stderr


def test_wrong_sums_fail(folder):
    """A plan in which one sum over ranks is the largest of the summands is found out, whichever sum it is."""
    import onnx
    model, machine, out = MODELS / "tiny_train_llama_adamw.onnx", cluster(folder, 2, 2, **MACHINE), folder / "sums"
    run("search", model, "--cluster", machine, "-o", out)
    report = json.loads(run("run", out, "--json", "--steps", 2).stdout)
    assert report["passed"] and all(output["nan_elements"] == 0 for output in report["outputs"]), report["outputs"]
    plan = onnx.load(out / "plan.onnx")
    sums = [n for n in plan.graph.node for a in n.attribute if n.domain == "ai.autopar" and a.name == "reduce_op" and a.s == b"sum"]
    assert len(sums) >= 10, len(sums)
    for node in sums:
        attribute = next(a for a in node.attribute if a.name == "reduce_op")
        attribute.s = b"max"
        onnx.save(plan, folder / "plan.onnx")
        attribute.s = b"sum"
        assert run("run", folder / "plan.onnx", "--model", model, code=1).stdout.splitlines()[-1] == "FAILED", node.name


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_given_checkpoints(pathlib.Path(folder))
        test_bias_of_two_precisions(pathlib.Path(folder))
    print("ok test_given_checkpoints, test_bias_of_two_precisions")
    if not (MODELS / "train_gpt_sgd.onnx").exists():
        print(f"skipped: no training steps in {MODELS} (set AUTOPAR_SHARED)")
        return 0
    for test in (test_repeated_ops_run, test_repeats_where_nothing_fits, test_wrong_sums_fail):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
