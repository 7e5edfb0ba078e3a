"""What a demanding user meets at the command line: files that hold what they say, layouts and pins kept or refused, messages, exit codes."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODEL = SOURCE / "models" / "llama_tiny.onnx"
MLP = SOURCE / "models" / "mlp.onnx"
Q = "layers.0.attn.q"


def run(*args, code=0, cwd=None):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, *tiers, bandwidth=1e11):
    """Slow devices, fast links: plans communicate."""
    path = folder / ("cluster_" + "x".join(map(str, tiers)) + f"_{bandwidth:g}.json")
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "test", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e9,
                   "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": bandwidth / 3 ** i, "latency_s": 1e-9}
                  for i, n in enumerate(tiers)],
        "host_link": {"bandwidth_bytes_per_s": 1e10}}))
    return path


def pins(folder, ops, **more):
    path = folder / "pins.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops, **more}))
    return path


def shape_of(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def axes_of(entry):
    return [[] if m == -1 else m if isinstance(m, list) else [m] for m in entry["tensor_map"]]


def test_files_hold_what_they_say(folder):
    for tiers in ((4,), (2, 3), (2, 2, 3)):
        machine, out = cluster(folder, *tiers), folder / "x".join(map(str, tiers))
        run("search", MODEL, "--cluster", machine, "-o", out)
        strategy, plan = json.loads((out / "strategy.json").read_text()), onnx.load(out / "plan.onnx")
        sizes, ranks = [a["size"] for a in strategy["mesh"]], int(np.prod(tiers))
        assert int(np.prod(sizes)) == ranks
        for name, tensor in strategy["tensors"].items():
            assert tensor["device_matrix"] == sizes
            slices = [int(np.prod([sizes[len(sizes) - 1 - m] for m in axes])) for axes in axes_of(tensor)]
            assert [n // s for n, s in zip(tensor["shape"], slices)] == tensor["local_shape"], (name, tensor)
        infos = {v.name: v for v in [*plan.graph.value_info, *plan.graph.input, *plan.graph.output]}
        seqs = []
        for node in plan.graph.node:
            for output in node.output:
                assert not output or all(isinstance(n, int) for n in shape_of(infos[output])), output
            if node.domain != "ai.autopar":
                continue
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            assert sorted(attributes["groups"]) == list(range(ranks)), node.name
            size = int(np.prod([a["size"] for a in strategy["mesh"] if a["name"].encode() in attributes["mesh_axes"]]))
            assert attributes["group_size"] == size, node.name
            if node.op_type != "ShardSlice":
                seqs.append(attributes["seq"])
        assert seqs and seqs == sorted(set(seqs)), seqs
        onnx.checker.check_model(plan)
        report = json.loads((out / "report.json").read_text())
        assert report["cost"]["seconds"] == strategy["cost"]["seconds"]


def test_same_bytes_elsewhere(folder):
    machine = cluster(folder, 2, 3)
    shutil.copy(MODEL, folder / "m.onnx")
    run("search", folder / "m.onnx", "--cluster", machine, "-o", folder / "a")
    run("search", "m.onnx", "--cluster", machine.name, "-o", "b", "--threads", 2, cwd=folder)
    for name in ("strategy.json", "plan.onnx", "report.json"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), name


def test_apply_of_a_complete_strategy(folder):
    machine, out, again = cluster(folder, 4), folder / "out", folder / "again"
    run("search", MODEL, "--cluster", machine, "-o", out)
    written = json.loads((out / "strategy.json").read_text())

    def apply(strategy, *options, code=0, machine=machine):
        (folder / "given.json").write_text(json.dumps(strategy))
        shutil.rmtree(again, ignore_errors=True)
        return run("apply", MODEL, "--cluster", machine, "--strategy", folder / "given.json", "-o", again, *options, code=code)

    # Another layout of the JSON and a made-up cost change nothing.
    apply({**written, "cost": {**written["cost"], "seconds": 1}})
    for name in ("strategy.json", "plan.onnx"):
        assert (out / name).read_bytes() == (again / name).read_bytes(), name
    # Another cluster: its own hash and cost, no bound that was proven elsewhere.
    apply(written, machine=cluster(folder, 4, bandwidth=1e10))
    elsewhere = json.loads((again / "strategy.json").read_text())
    assert elsewhere["cluster"]["sha256"] != written["cluster"]["sha256"]
    assert elsewhere["cost"]["seconds"] > written["cost"]["seconds"] and elsewhere["cost"]["lower_bound_seconds"] == 0
    # Layouts that are asked for win over the boundary of the file, the ops stay.
    apply(written, "--io", "full")
    plan = onnx.load(again / "plan.onnx").graph
    assert shape_of(plan.input[0]) == [4, 16] and shape_of(plan.output[0]) == [4, 16, 128]
    assert json.loads((again / "strategy.json").read_text())["ops"] == written["ops"]
    assert run("run", again).stdout.splitlines()[-1] == "PASSED"
    assert "more than its 100.00 KiB" in apply(written, "--memory", "100KiB").stderr
    # What contradicts itself or the model is refused.
    changed = json.loads(json.dumps(written))
    changed["ops"][Q]["in_strategy"] = [[1, 1, 4], [4, 1]]
    assert Q in apply(changed, code=4).stderr
    changed = json.loads(json.dumps(written))
    changed["ops"][Q]["type"] = "Conv"
    assert "MatMul" in apply(changed, code=4).stderr


def test_pins(folder):
    machine, out = cluster(folder, 4), folder / "out"

    def search(file, *options, code=0):
        return run("search", MODEL, "--cluster", machine, "-o", out, "--pin", file, *options, code=code)

    for counts in ([[1, 1, 1], [1, 4]], [[1, 1, 2], [2, 1]], [[2, 1, 1], [1, 2]]):
        search(pins(folder, {Q: {"in_strategy": counts}}))
        assert json.loads((out / "strategy.json").read_text())["ops"][Q]["in_strategy"] == counts
    both = {Q: {"in_strategy": [[1, 1, 1], [1, 4]], "assignment": {"t0": "k"}}}
    assert "give one of them only" in search(pins(folder, both), "--mesh", "4", code=4).stderr
    assert "pins.json" in search(pins(folder, {Q: {"in_strategy": [[3, 1, 1], [1, 1]]}}), code=4).stderr
    tensor = pins(folder, {}, mesh=[{"name": "t0", "size": 4}], tensors={"input_ids": {"spec": "[{t0},{}]"}})
    search(tensor)
    assert "input_ids" in search(tensor, "--inputs", "full", code=4).stderr
    for fill in ("data_parallel", "replicate", "search"):
        run("apply", MODEL, "--cluster", machine, "-o", out, "--fill", fill,
            "--strategy", pins(folder, {Q: {"in_strategy": [[1, 1, 4], [4, 1]]}}))
        assert json.loads((out / "strategy.json").read_text())["ops"][Q]["in_strategy"] == [[1, 1, 4], [4, 1]]
        assert run("run", out).stdout.splitlines()[-1] == "PASSED"


def test_show_and_json(folder):
    machine, out = cluster(folder, 4), folder / "out"
    table = run("search", MODEL, "--cluster", machine, "-o", out)
    assert not table.stderr
    assert table.stdout.startswith(run("show", out / "report.json").stdout)
    for file in (MODEL, machine, *out.iterdir()):
        assert run("show", file).stdout and json.loads(run("show", file, "--json").stdout), file
    given = ("--cluster", machine, "--strategy", out / "strategy.json", "--json")
    for command in (("search", MODEL, "--cluster", machine, "-o", folder / "again", "--json"), ("price", MODEL, *given),
                    ("apply", MODEL, *given, "-o", folder / "again"), ("run", out, "--json")):
        assert json.loads(run(*command).stdout), command
    quiet = run("search", MODEL, "--cluster", machine, "-o", out, "-q")
    assert quiet.stdout == quiet.stderr == ""


def test_run(folder):
    machine, out = cluster(folder, 4), folder / "out"
    run("search", MODEL, "--cluster", machine, "-o", out)
    output, ids = onnx.load(out / "plan.onnx").graph.output[0].name, np.zeros((4, 16), np.int64)

    def given(**arrays):
        np.savez(folder / "data.npz", **arrays)
        return folder / "data.npz"

    wrong = run("run", out, "--data", given(**{"out." + output: np.zeros((4, 16, 128), np.float32)}), code=1)
    assert wrong.stdout.splitlines()[-1] == "FAILED"
    assert "int64[4,16]" in run("run", out, "--data", given(**{"in.input_ids": ids[:, :3]}), code=4).stderr
    assert "SHA-256" in run("run", out, "--model", MLP, code=4).stderr
    run("run", out, "--rtol", "nan", code=2)
    # Data that the model itself cannot process is bad input; without the model it is the rank that fails on it.
    ids_too_large = given(**{"in.input_ids": ids + 99999})
    assert "on these inputs" in run("run", out, "--data", ids_too_large, code=4).stderr
    report = out / "report.json"
    report.write_text(report.read_text().replace('"version": 1', '"version": 2'))
    assert "--model" in run("run", out, code=4).stderr
    report.unlink()
    assert "--model" in run("run", out, code=4).stderr
    failed = run("run", out, code=5, *("--data", given(**{
        "in.input_ids": ids + 99999, "out." + output: np.zeros((4, 16, 128), np.float32)})))
    assert "rank" in failed.stderr and "embed" in failed.stderr, failed.stderr


def test_nothing_half_written(folder):
    machine = cluster(folder, 4)
    (folder / "file").write_text("x")
    run("search", MODEL, "--cluster", machine, "-o", folder / "file", code=4)
    # A folder in the place of a file: the plan is written before it, and must go again.
    for blocked in ("strategy.json", "report.json"):
        out = folder / ("blocked_" + blocked)
        (out / blocked / "x").mkdir(parents=True)
        run("search", MODEL, "--cluster", machine, "-o", out, code=4)
        assert [p.name for p in out.iterdir()] == [blocked]


def test_words(folder):
    machine = cluster(folder, 4)
    assert "'search'" in run("serch", MODEL, code=2).stderr
    assert "'--cluster'" in run("search", MODEL, "--clutser", machine, code=2).stderr
    search = ("search", MODEL, "--cluster", machine, "-o", folder / "out")
    # Common options stand before the command or after it.
    assert "'--nodes'" in run("--threads", 1, *search, "--nodes", 4, code=2).stderr
    run("--mesh", "0x4", *search, code=2)
    assert json.loads(run("--json", "show", machine).stdout)["format"] == "autopar-cluster"
    for option, value in (("--dim", "b=99999999999999999999"), ("--memory", "-1"), ("--memory", "nan"), ("--gap", "x"),
                          ("--seed", "-1"), ("--mesh", "0x4"), ("--threads", "-1"), ("--inputs", "nothing")):
        run(*search, option, value, code=2)
    run(*search, "--io", "full", "--inputs", "data_parallel", code=2)
    assert "combinations" in run(*search, "--searcher", "exhaustive", code=4).stderr
    (folder / "rules.txt").write_bytes(b'MatMul "\xa4 k, k n -> \xa4 n"')
    assert "UTF-8" in run(*search, "--rules", folder / "rules.txt", code=4).stderr
    model = onnx.load(MODEL).SerializeToString().replace(b"layers.0.attn.q", b"layers.0.attn.\xff")
    (folder / "bad.onnx").write_bytes(model)
    assert "UTF-8" in run("search", folder / "bad.onnx", "--cluster", machine, "-o", folder / "out", code=4).stderr
    assert not (folder / "out").exists()


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
