"""Training steps of forward models: planned, run against the unsharded step, written alike by apply."""
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import mpi_run_test
from tools.program import AUTOPAR, cluster, run
from tools.trained_steps import MACHINE, OWN, SHARED, check_independently, inputs_of, model, model_of, same_files

OTHERS = {"tiny_llama": "cross_entropy", "tiny_bert": "cross_entropy:logits", "tiny_resnet": "cross_entropy", "tiny_unet3d": "mse",
          "tiny_moe_gather": "cross_entropy", "tiny_dlrm": "loss"}


def pairwise(*columns):
    """Rows so that every pair of values of two columns stands in one of them: each begins with a pair that is left."""
    left = dict.fromkeys((i, a, j, b) for i, j in itertools.combinations(range(len(columns)), 2) for a in columns[i] for b in columns[j])
    rows = []
    while left:
        i, a, j, b = next(iter(left))
        row = {i: a, j: b}
        for k in sorted(set(range(len(columns))) - row.keys(), key=lambda k: -len(columns[k])):
            # The value with most of what is left; of equals another one in each row.
            turned = columns[k][len(rows) % len(columns[k]):] + columns[k][:len(rows) % len(columns[k])]
            row[k] = max(turned, key=lambda value: sum(((c, row[c], k, value) if c < k else (k, value, c, row[c])) in left for c in row))
        rows.append(tuple(row[k] for k in range(len(columns))))
        for c, d in itertools.combinations(range(len(columns)), 2):
            left.pop((c, rows[-1][c], d, rows[-1][d]), None)
    return rows


def batch_of(name):
    """As its file says."""
    return onnx.load(model_of(name), load_external_data=False).graph.input[0].type.tensor_type.shape.dim[0].dim_value


def samples_of(name, passes, number):
    """A batch for so many passes: of the file's own size each, or of fewer samples. Experts have room for the tokens of one of its own."""
    own = batch_of(name)
    return own * passes if number % 2 == 0 or name == "tiny_moe_gather" else max(own, passes)


def by_processes(out, ranks):
    """The MPIs by which the same step passes."""
    libraries = [mpi for mpi in ("openmpi", "mpich") if shutil.which(f"mpirun.{mpi}")]
    for mpi in libraries:
        done = subprocess.run(mpi_run_test.command(mpi, ranks, "run", out, "--steps", 3, "--ranks-by", "mpi"), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", (out, mpi, done.stdout, done.stderr)
    return libraries


OPTIMIZERS = {"first": ("sgd", "momentum"), "second": ("adam", "adamw"), "none": ("none",)}
STORED = {"as read": ("auto", "off"), "states cut": ("1", "2"), "cut": ("3",)}


def test_plans_run(folder):
    names = (*OWN, *(n for n in OTHERS if model_of(n).exists()))
    if len(names) == len(OWN):
        print(f"models outside the repository are not there: skipped ({SHARED}/data/models)")
    rows = pairwise(names, (4, 1, 2), tuple(OPTIMIZERS), ("fp32", "mixed-fp16", "fp16"), ((4,), (2, 2), (4, 2)),
                    ("auto", "data_parallel", "rec"), ((), ("--clip-norm", "0.5"), ("--gradients", "sum")), ("none", "cheap"),
                    tuple(STORED))
    checked, libraries, told = 0, [], 0
    for number, (name, passes, optimizer, precision, mesh, searcher, options, recompute, stored) in enumerate(rows):
        if name == "tiny_dlrm" and precision == "fp16":
            precision = "fp32"  # in float16 one unit in a twentieth of its weights moves its gradients by up to a fifth
        if optimizer == "none" and "--clip-norm" in options:
            options = ()  # that is about an update
        out, kinds = folder / f"plan{number}", OPTIMIZERS[optimizer]
        arguments = ["--loss", {**OWN, **OTHERS}[name], "--optimizer", kinds[number % len(kinds)], "--precision", precision, "--zero", STORED[stored][number // 2 % len(STORED[stored])], *options]
        if passes > 1:
            arguments += ["--micro-batches", passes, "--batch", samples_of(name, passes, number)]
        machine, what = cluster(folder, *mesh, **MACHINE), (name, mesh, searcher, recompute, *arguments)
        run("search", model_of(name), "--cluster", machine, "--train", *arguments, "--searcher", searcher,
            "--recompute", recompute, "-o", out, "-q")
        assert (out / "step.json").exists() == (passes > 1) == (not (out / "plan.onnx").exists()), what
        done = subprocess.run([AUTOPAR, "run", out, "--steps", "3"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "PASSED", (what, done.stdout, done.stderr)
        given = folder / f"given{number}"
        run("apply", model_of(name), "--cluster", machine, "--strategy", out / "strategy.json", "-o", given, "-q")
        same_files(out, given)
        if passes == 1:
            continue
        told += json.loads((out / "step.json").read_text()).get("reference") == "passes"
        if precision == "fp32":
            checked += check_independently(out)
        if number % 6 == 0:
            libraries = by_processes(out, int(np.prod(mesh)))
    print(f"{len(rows)} combinations, {told} of them compared with their unsharded passes; "
          + (f"{checked} by step_check.py too; " if checked else "skipped: step_check.py is not here; ")
          + (f"some by {', '.join(libraries)}" if libraries else "skipped: there is no mpirun.openmpi and no mpirun.mpich"))


def test_the_step_is_what_is_planned(folder):
    """grad writes what search --train plans, and the same bytes each time."""
    machine = cluster(folder, 2, **MACHINE)
    model = model_of("llama_tiny")
    options = ["--loss", "cross_entropy", "--optimizer", "adamw"]
    run("grad", model, *options, "-o", folder / "a.onnx", "-q")
    run("grad", model, *options, "-o", folder / "b.onnx", "-q")
    run("search", model, "--cluster", machine, "--train", *options, "-o", folder / "out", "-q")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes() == (folder / "out" / "train.onnx").read_bytes()
    step = onnx.load(folder / "a.onnx")
    facts = json.loads({p.key: p.value for p in step.metadata_props}["autopar.training"])
    inputs = [i.name for i in step.graph.input]
    assert inputs == facts["data"] + facts["parameters"] + facts["statistics"] + facts["states"], inputs
    outputs = [o.name for o in step.graph.output]
    changed = set(facts["parameters"]) | set(facts["states"]) - {"learning_rate"}
    assert outputs[0] == facts["loss"] == "loss" and {o[4:] for o in outputs[1:]} == changed, outputs


def test_bfloat16_is_float16_with_another_type(folder):
    for mixed in "", "mixed-":
        steps = {}
        for kind in "bf16", "fp16":
            path = folder / f"{kind}.onnx"
            run("grad", model_of("llama_tiny"), "--loss", "cross_entropy", "--optimizer", "none", "--precision", mixed + kind, "-o", path, "-q")
            steps[kind] = onnx.load(path)
            # Every input is one of what the metadata lists, copies in 16 bits too.
            facts = json.loads({p.key: p.value for p in steps[kind].metadata_props}["autopar.training"])
            assert [i.name for i in steps[kind].graph.input] == facts["data"] + facts["parameters"] + facts["statistics"] + facts["states"], facts
            assert any(state.startswith(f"{kind}.") for state in facts["states"]) == bool(mixed), facts["states"]
        # Loss scaling is fp16's alone: its ops are those that are more.
        def types(step, narrow):
            found = {}
            for value in list(step.graph.value_info) + list(step.graph.input):
                kind = value.type.tensor_type.elem_type
                found[value.name.replace("bf16.", "x.").replace("fp16.", "x.")] = "narrow" if kind == narrow else kind
            return found
        first, second = types(steps["bf16"], TensorProto.BFLOAT16), types(steps["fp16"], TensorProto.FLOAT16)
        forward = [n for n in first if ".grad" not in n and ".update" not in n and n in second and not n.startswith("loss")]
        assert len(forward) > 60 and all(first[n] == second[n] for n in forward)
        assert sum(kind == "narrow" for kind in first.values()) > 60


def test_extremes_in_16_bits(folder):
    """An extreme that the runtime rounds elsewhere than what it is one of leaves gradients as they are."""
    rng = np.random.default_rng(5)
    for op, more in (("ReduceMax", ["axes"]), ("ReduceMin", ["axes"]), ("Max", ["other"]), ("Min", ["other"])):
        net = model(folder, [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
                             helper.make_node(op, ["t", *more], ["m"], name="most"), helper.make_node("MatMul", ["t", "v"], ["u"], name="next"),
                             helper.make_node("Add", ["u", "m"], ["y"], name="add")],
                    [("x", TensorProto.FLOAT, [8, 6])], [("y", TensorProto.FLOAT, [8, 5])],
                    [("w", rng.standard_normal((6, 5)).astype(np.float32)), ("v", rng.standard_normal((5, 5)).astype(np.float32)),
                     ("axes", np.array([1], np.int64)) if more == ["axes"] else ("other", rng.standard_normal((1, 5)).astype(np.float32))])
        for precision in ("fp16", "mixed-fp16"):
            out = folder / f"{op}.{precision}"
            run("search", net, "--train", "--loss", "cross_entropy", "--precision", precision, "--cluster", cluster(folder, 2, **MACHINE), "-o", out, "-q")
            done = run("run", out, "--steps", 2, "--save", folder / "saved.npz")
            assert done.stdout.splitlines()[-1] == "PASSED", (op, precision, done.stdout)
            assert np.isfinite(np.load(folder / "saved.npz")["out.new.w"].astype(np.float32)).all()


def test_one_pass_chosen_of_several(folder):
    """--micro-batches auto may find one pass best, on a batch that the constants do not say; apply follows it there."""
    machine = cluster(folder, 2, **MACHINE)
    run("search", model_of("llama_tiny"), "--cluster", machine, "--train", "--loss", "cross_entropy", "--batch", 8, "--micro-batches", "auto",
        "--searcher", "data_parallel", "-o", folder / "out", "-q")
    assert (folder / "out" / "plan.onnx").exists(), "more passes only cost more where all fits"
    run("apply", model_of("llama_tiny"), "--cluster", machine, "--strategy", folder / "out" / "strategy.json", "-o", folder / "given", "-q")
    same_files(folder / "out", folder / "given")


def test_statistics_of_one_sample(folder):
    """A pass of one sample has statistics of its own too: the unsharded passes are what it is compared with."""
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
             helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["n", "new_mean", "new_variance"], name="norm", training_mode=1),
             helper.make_node("GlobalAveragePool", ["n"], ["p"], name="pool"), helper.make_node("Flatten", ["p"], ["y"], name="flat")]
    net = model(folder, nodes, [("x", TensorProto.FLOAT, ["batch", 3, 6, 6])], [("y", TensorProto.FLOAT, ["batch", 4])],
                [("w", np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)), ("scale", ones), ("bias", zeros), ("mean", zeros), ("variance", ones)])
    done = run("search", net, "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "mse", "--batch", 4, "--micro-batches", 4, "-o", folder / "out")
    assert "op 'norm' makes a sample depend on others" in done.stderr, done.stderr
    assert json.loads((folder / "out" / "step.json").read_text())["reference"] == "passes"
    assert run("run", folder / "out", "--steps", 2).stdout.splitlines()[-1] == "PASSED"
    check_independently(folder / "out")


def test_statistics_are_counted_once(folder):
    """What is repeated for the backward pass leaves running statistics alone: they are those of a step that repeats nothing."""
    random = np.random.default_rng(2)
    constants = [("w", random.standard_normal((4, 3, 3, 3)).astype(np.float32)), ("w2", random.standard_normal((4, 4, 3, 3)).astype(np.float32))]
    nodes, x = [], "x"
    for i, weight in enumerate(("w", "w2")):
        constants += [(f"{n}{i}", (np.ones if n in ("scale", "variance") else np.zeros)(4, np.float32)) for n in ("scale", "bias", "mean", "variance")]
        nodes += [helper.make_node("Conv", [x, weight], [f"c{i}"], name=f"conv{i}"),
                  helper.make_node("BatchNormalization", [f"c{i}", f"scale{i}", f"bias{i}", f"mean{i}", f"variance{i}"], [f"n{i}", f"m{i}", f"v{i}"], name=f"norm{i}", training_mode=1),
                  helper.make_node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}")]
        x = f"r{i}"
    nodes += [helper.make_node("GlobalAveragePool", [x], ["p"], name="pool"), helper.make_node("Flatten", ["p"], ["y"], name="flat")]
    net = model(folder, nodes, [("x", TensorProto.FLOAT, ["batch", 3, 8, 8])], [("y", TensorProto.FLOAT, ["batch", 4])], constants)
    (folder / "pins.json").write_text(json.dumps({"format": "autopar-strategy", "version": 1, "checkpoints": ["p"]}))
    machine, found = cluster(folder, 2, **MACHINE), {}
    for passes in (1, 2):
        for recompute in ("none", "full", "cheap"):
            run("search", net, "--cluster", machine, "--train", "--loss", "mse", "--batch", 8, "--micro-batches", passes, "--recompute", recompute, *(["--pin", folder / "pins.json"] if recompute == "full" else []), "--searcher",
                "replicate", "-o", folder / "out", "-q")
            data = []
            if passes > 1:
                np.savez(folder / "io.npz", **{"in." + n: np.abs(a) if n.startswith("variance") else a for n, a in inputs_of(folder / "out").items()})
                data = ["--data", folder / "io.npz"]
            assert run("run", folder / "out", *data, "--steps", 2, "--save", folder / "saved.npz").stdout.splitlines()[-1] == "PASSED"
            found[recompute] = dict(np.load(folder / "saved.npz"))
            names = [n.name for file in (folder / "out").glob("plan*.onnx") for n in onnx.load(file).graph.node]
            assert recompute != "full" or "norm0.again" in names, (passes, names)
        for recompute in ("full", "cheap"):
            for name, array in found["none"].items():
                assert np.allclose(array, found[recompute][name], rtol=1e-5, atol=1e-6), (passes, recompute, name)


def test_labels_that_do_not_count(folder):
    """The mean is over those of the whole batch that count, however they lie in its parts; without any it is 0."""
    out = folder / "out"
    run("search", model_of("gpt2_tiny"), "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "cross_entropy", "--optimizer", "sgd",
        "--micro-batches", 4, "--searcher", "data_parallel", "-o", out, "-q")
    arrays = inputs_of(out)
    labels = np.random.default_rng(4).integers(0, 128, arrays["labels"].shape)
    for case in "one part", "one label", "none":
        arrays["labels"] = np.full_like(labels, -100)
        if case == "one part":
            arrays["labels"][2] = labels[2]
            arrays["labels"][3, :5] = labels[3, :5]
        elif case == "one label":
            arrays["labels"][1, 3] = labels[1, 3]
        np.savez(folder / "io.npz", **{"in." + n: a for n, a in arrays.items()})
        done = run("run", out, "--data", folder / "io.npz", "--save", folder / "out.npz")
        saved = np.load(folder / "out.npz")
        assert done.stdout.splitlines()[-1] == "PASSED", (case, done.stdout)
        assert (saved["out.loss"] == 0) == (case == "none"), (case, saved["out.loss"])
        moved = np.abs(saved["out.new.wte.weight"] - arrays["wte.weight"]).max()
        assert (moved == 0) == (case == "none"), (case, moved)


def test_labels_that_do_not_count_of_impossible_classes(folder):
    """What stands in for a label that does not count may have an infinite loss, which nothing is added of."""
    mask = np.array([-np.inf, 0, 0, 0, 0, 0], np.float32)
    masked = model(folder, [helper.make_node("MatMul", ["x", "w"], ["z"], name="fc"), helper.make_node("Add", ["z", "mask"], ["y"], name="mask")],
                   [("x", TensorProto.FLOAT, [8, 4])], [("y", TensorProto.FLOAT, [8, 6])], [("w", np.ones((4, 6), np.float32)), ("mask", mask)])
    random, out = np.random.default_rng(5), folder / "out"
    x, w = random.standard_normal((8, 4)).astype(np.float32), random.standard_normal((4, 6)).astype(np.float32)
    labels = np.array([1, 2, -100, 3, 4, -100, 5, 1])
    logits, counted = x @ w + mask, labels >= 0
    loss = (np.log(np.exp(logits).sum(1))[counted] - logits[counted, labels[counted]]).mean()
    np.savez(folder / "io.npz", **{"in.x": x, "in.w": w, "in.labels": labels, "in.learning_rate": np.array(0.1, np.float32)})
    for options in ("--searcher", "replicate"), ("--searcher", "data_parallel"), ("--searcher", "data_parallel", "--micro-batches", 2):
        run("search", masked, "--cluster", cluster(folder, 2, **MACHINE), "--train", "--loss", "cross_entropy", "--optimizer", "sgd", "--data-inputs", "x",
            "--freeze", "mask", *options, "-o", out, "-q")
        done = run("run", out, "--data", folder / "io.npz", "--save", folder / "saved.npz")
        saved = np.load(folder / "saved.npz")
        assert done.stdout.splitlines()[-1] == "PASSED" and np.isfinite(saved["out.new.w"]).all(), (options, done.stdout)
        assert np.allclose(saved["out.loss"], loss, rtol=1e-5), (options, saved["out.loss"], loss)


def masked_attention_grads(q, k, v, shows):
    """Of the sum of the outputs, which are 0 for queries that see no key."""
    scale = q.shape[-1] ** -0.5
    scores = np.where(shows, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    powers = np.where(shows, np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30)), 0)
    shares = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)
    slopes = np.ones_like(q) @ v.swapaxes(-1, -2)
    slopes = shares * (slopes - (slopes * shares).sum(-1, keepdims=True)) * scale
    return {"grad.q": slopes @ k, "grad.k": slopes.swapaxes(-1, -2) @ q, "grad.v": shares.swapaxes(-1, -2) @ np.ones_like(q)}


def test_queries_that_see_no_key(folder):
    """Nothing flows back from their outputs, however the mask hides all keys."""
    shows = np.ones((2, 1, 4, 4), bool)
    shows[0, :, :, :2] = False
    shows[1, :, 0] = False
    random, shape = np.random.default_rng(6), [2, 2, 4, 3]
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name in "qkv"}
    for causal, hidden in itertools.product((0, 1), (None, -np.inf, np.finfo(np.float32).min)):
        feeds["m"] = shows if hidden is None else np.where(shows, 0, hidden).astype(np.float32)
        mask_type = helper.np_dtype_to_tensor_dtype(feeds["m"].dtype)
        attention = model(folder, [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"], name="attention", is_causal=causal)],
                          [(n, TensorProto.FLOAT, shape) for n in "qkv"] + [("m", mask_type, shows.shape)], [("y", TensorProto.FLOAT, shape)], [], opset=23)
        run("grad", attention, "--loss", "sum:y", "--parameters", "q,k,v", "--optimizer", "none", "-o", folder / "step.onnx")
        session = ort.InferenceSession(folder / "step.onnx")
        found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
        expected = masked_attention_grads(*(feeds[n].astype(np.float64) for n in "qkv"), shows & np.tri(4, dtype=bool) if causal else shows)
        for name, array in expected.items():
            assert np.allclose(found[name], array, rtol=1e-4, atol=1e-5), (causal, hidden, name, found[name], array)


def main():
    for test in (test_extremes_in_16_bits, test_one_pass_chosen_of_several, test_statistics_of_one_sample, test_statistics_are_counted_once,
                 test_labels_that_do_not_count, test_labels_that_do_not_count_of_impossible_classes, test_queries_that_see_no_key,
                 test_the_step_is_what_is_planned, test_bfloat16_is_float16_with_another_type, test_plans_run):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
