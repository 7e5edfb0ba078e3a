"""Where memory or disk of the machine do not suffice, every command says so and exits with 6, not with 4 (bad input), and leaves nothing half-written."""
import functools
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODEL = SOURCE / "models" / "llama_tiny.onnx"
CLUSTER = SOURCE / "models" / "clusters" / "pcie-8.json"
RESOURCE = 6
MIB = 1 << 20


def run(*args, limit=None, **options):
    """`limit`: (resource, bytes)."""
    if limit is not None:
        options["preexec_fn"] = functools.partial(resource.setrlimit, limit[0], (limit[1], limit[1]))
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([AUTOPAR, *map(str, args)], stderr=subprocess.PIPE, text=True, timeout=300, **options)


def good(*args, **options):
    done = run(*args, **options)
    assert done.returncode == 0, (args, done.returncode, done.stdout, done.stderr)
    return done


def weights_model(folder):
    """A model whose weights are a file of a few hundred KiB."""
    from onnx import TensorProto, helper, numpy_helper
    weight = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "weights.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def contents(folder):
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def check_memory(folder, plan, strategy, problem):
    """Whatever the address space allows, the answer is there or the exit code is 6."""
    commands = [("search", MODEL, "--cluster", CLUSTER, "-o", folder / "m"),
                ("search", MODEL, "--cluster", CLUSTER, "-o", folder / "m", "--threads", 4, "--time-limit", "20s"),
                ("apply", MODEL, "--cluster", CLUSTER, "--strategy", strategy, "-o", folder / "m"),
                ("price", MODEL, "--cluster", CLUSTER, "--strategy", strategy),
                ("show", MODEL), ("show", plan), ("solve", problem), ("export", plan, "--dialect", "trt", "-o", folder / "e")]
    # Not run: where the C library has no memory for a thread of ONNX Runtime's, it ends the process itself.
    least = next(size for size in range(16, 4096, 4) if run("--version", limit=(resource.RLIMIT_AS, size * MIB)).returncode == 0)
    refused = 0
    for command in commands:
        # Quick ones at many limits: each fails at another place, some in libraries that do not stand a std::bad_alloc.
        fine = [more / 16 for more in range(16 * 12)] if command[0] in ("export", "apply") else []
        for more in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 28, 36, 48, 64, 96, 160, 300, *fine):
            done = run(*command, limit=(resource.RLIMIT_AS, int((least + more) * MIB)))
            assert done.returncode in (0, RESOURCE), (command, least, more, done.returncode, done.stdout[-2000:], done.stderr)
            if done.returncode == RESOURCE:
                refused += 1
                assert any(word in done.stderr for word in ("memory", "thread", "map segment", "bad_alloc")), (command, more, done.stderr)
                assert not (folder / "m").exists() or not contents(folder / "m"), (command, more, contents(folder / "m"))
            else:
                for out in ("m", "e"):
                    subprocess.run(["rm", "-rf", folder / out], check=True)
    assert refused > 30, refused
    print(f"memory: {refused} runs without enough of it")


def check_file_sizes(folder, plan, model, sharded):
    """A limit on the size of files stands for a disk that is full; unlike that, it comes at any byte."""
    commands = {("search", MODEL, "--cluster", CLUSTER): "-o", ("search", model, "--cluster", CLUSTER, "--weights", "sharded"): "-o",
                ("search", model, "--cluster", CLUSTER): "-o", ("search", MODEL, "--cluster", CLUSTER, "--dialect", "trt", "--annotate"): "-o",
                ("export", plan, "--dialect", "trt"): "-o", ("merge", sharded): "-o", ("reshard-weights", "--from", sharded, "--to", sharded): "-o"}
    refused = 0
    for command, option in commands.items():
        for size in (0, 1000, 20_000, 60_000, 200_000):
            out = folder / "out"
            if command[0] == "merge":
                out = folder / "out" / "merged.onnx"
            done = run(*command, option, out, limit=(resource.RLIMIT_FSIZE, size))
            assert done.returncode in (0, RESOURCE), (command, size, done.returncode, done.stdout[-2000:], done.stderr)
            if done.returncode == RESOURCE:
                refused += 1
                assert "File too large" in done.stderr, (command, size, done.stderr)
                assert not (folder / "out").exists() or not contents(folder / "out"), (command, size, contents(folder / "out"))
            subprocess.run(["rm", "-rf", folder / "out"], check=True)
    for name, command in {"io.npz": ("run", plan, "--save"), "trace.json": ("run", plan, "--timeline"),
                          "dump.json": ("search", MODEL, "--cluster", CLUSTER, "--mesh", "8", "-o", folder / "out", "--dump-problem")}.items():
        done = run(*command, folder / name, limit=(resource.RLIMIT_FSIZE, 100))
        assert done.returncode == RESOURCE and name in done.stderr, (command, done.returncode, done.stderr)
        assert not (folder / name).exists(), name
        refused += 1
    assert refused > 15, refused
    print(f"file sizes: {refused} runs over the limit")


def check_full_devices(folder, plan, problem):
    with open("/dev/full", "w") as full:
        for command in (("show", plan), ("show", MODEL), ("run", plan), ("solve", problem), ("show", plan, "--json"),
                        ("search", MODEL, "--cluster", CLUSTER, "-o", folder / "out", "--json")):
            done = run(*command, stdout=full)
            assert done.returncode == RESOURCE and "standard output" in done.stderr, (command, done.returncode, done.stderr)
    subprocess.run(["rm", "-rf", folder / "out"], check=True)  # written before the output was
    done = run("solve", problem, "-o", "/dev/full")
    assert done.returncode == RESOURCE and "No space left" in done.stderr, (done.returncode, done.stderr)
    small = folder / "small"
    small.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True).returncode != 0:
        return print("skipped: a full disk, which needs the right to mount a tmpfs")
    try:
        done = run("search", MODEL, "--cluster", CLUSTER, "-o", small / "out")
        assert done.returncode == RESOURCE and "No space left" in done.stderr, (done.returncode, done.stderr)
        assert not contents(small), contents(small)
    finally:
        subprocess.run(["umount", small], check=True)


def check_bad_paths(folder):
    """What cannot be written because of its name is the user's: 4."""
    (folder / "file").write_text("in the way")
    for out in (folder / "file" / "out", pathlib.Path("/proc/nowhere")):
        done = run("search", MODEL, "--cluster", CLUSTER, "-o", out)
        assert done.returncode == 4, (out, done.returncode, done.stderr)
    assert run("show", folder / "absent.onnx").returncode == 4


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan, problem = folder / "plan", folder / "problem.json"
        good("search", MODEL, "--cluster", CLUSTER, "-o", plan, "--mesh", "8", "--dump-problem", problem)
        model = weights_model(folder)
        sharded = folder / "sharded"
        good("search", model, "--cluster", CLUSTER, "-o", sharded, "--weights", "sharded")
        check_full_devices(folder, plan, problem)
        check_bad_paths(folder)
        check_file_sizes(folder, plan, model, sharded)
        check_memory(folder, plan, plan / "strategy.json", problem)


if __name__ == "__main__":
    sys.exit(main())
