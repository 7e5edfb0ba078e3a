"""Ranks as processes of every MPI that is here: the same results as ranks as threads, and what happens when a rank ends.

Tiny models on 4 and 8 processes, outputs compared bit for bit; a training step three times over; the plan in Python's
onnxruntime with libautopar_ops.so; a rank that is killed, stopped, late or has left, a rank whose op fails, a disk that is full, wrong numbers of
processes.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
LIBRARY = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / "libautopar_ops.so"
MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared") / "data" / "models"
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK=")
BY_SRUN = {"none": None, "pmi2": "mpich", "pmix": "openmpi"}  # srun's ways to start an MPI


def launcher(mpi, ranks):
    if mpi == "openmpi":
        return ["mpirun.openmpi", "--oversubscribe", "-n", str(ranks)] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
    if mpi in BY_SRUN:
        return ["srun", f"--mpi={mpi}", "--overcommit", "--quiet", "-n", str(ranks)]
    return ["mpirun.mpich", "-n", str(ranks)]


def command(mpi, ranks, *arguments):
    return (launcher(mpi, ranks) if mpi else []) + [AUTOPAR, *map(str, arguments)]


def run(*arguments, code=0, **options):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, ranks):
    """Slow devices, so that small models are worth cutting."""
    path = folder / f"cluster{ranks}.json"
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": f"{ranks} slow devices",
        "device": {"name": "slow", "memory_bytes": 1 << 34, "memory_bandwidth_bytes_per_s": 2e9, "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": "near", "size": ranks // 2, "bandwidth_bytes_per_s": 3e11, "latency_s": 2e-6},
                  {"name": "far", "size": 2, "bandwidth_bytes_per_s": 2.5e10, "latency_s": 5e-6}]}))
    return path


def plan_of(folder, model, ranks):
    plan = folder / f"{model.stem}.{ranks}"
    if not plan.exists():
        run(AUTOPAR, "search", model, "--cluster", cluster(folder, ranks), "--mesh", f"2x{ranks // 2}", "-o", plan, "-q")
    return plan


def pipeline_of(folder, model):
    """Two stages of two ranks each."""
    plan = folder / f"{model.stem}.pipeline"
    run(AUTOPAR, "search", model, "--cluster", cluster(folder, 4), "--train", "--optimizer", "sgd", "--loss", "cross_entropy", "--batch", "16",
        "--micro-batches", "8", "--stages", "2", "--schedule", "zb-v", "-o", plan, "-q")
    return plan


def same_as_threads(folder, libraries, model, ranks, *options):
    plan = plan_of(folder, model, ranks)
    data = model.with_suffix(".npz")
    arguments = ["run", plan, "--data", data, *options] if data.exists() and not options else ["run", plan, *options]
    threads = folder / "threads.npz"
    collectives = [t for t in json.loads(run(AUTOPAR, *arguments, "--json", "--save", threads).stdout)["times"] if t["sent_bytes_per_rank"] > 0]
    expected = dict(np.load(threads))
    for mpi in libraries:
        saved = folder / f"{mpi}.npz"
        done = run(*command(mpi, ranks, *arguments, "--ranks-by", "mpi", "--save", saved))
        assert done.stdout.splitlines()[-1] == "PASSED" and done.stdout.count("PASSED") == 1, done.stdout
        found = dict(np.load(saved))
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), f"{model.stem} on {ranks} by {mpi}: {name} differs from threads"
    print(f"{model.stem} on {ranks} ranks {' '.join(options)}: {len(expected)} outputs, the same bits as threads by {', '.join(libraries)}; "
          f"{sum(t['calls_per_rank'] for t in collectives)} collectives of {len(collectives)} kinds")
    return len(collectives)


def in_python(folder, libraries, model, ranks):
    script = [sys.executable, SOURCE / "scripts" / "run_with_onnxruntime.py", "--library", LIBRARY]
    for mpi in libraries:
        done = run(*launcher(mpi, ranks), *script, plan_of(folder, model, ranks) / "plan.onnx", "--model", model)
        assert done.stdout.splitlines()[-1] == "PASSED", done.stdout
    print(f"{model.stem} on {ranks} processes of Python: PASSED by {', '.join(libraries)}")
    alone = subprocess.run([str(a) for a in script + [plan_of(folder, model, ranks) / "plan.onnx", "--model", model]],
                           capture_output=True, text=True, timeout=300)
    assert alone.returncode != 0 and "is the plan for 1 rank" in alone.stderr, alone.stderr


def rank_of(process):
    try:
        variables = pathlib.Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return None
    return next((int(v.split("=")[1]) for v in variables if v.startswith(RANK_VARIABLES)), None)


def processes_of(plan):
    """rank -> process, of those that run this plan."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if len(words) > 2 and words[0] == AUTOPAR.encode() and str(plan).encode() in words:
            rank = rank_of(entry.name)
            if rank is not None:
                found[rank] = int(entry.name)
    return found


def has_nameless_trace(process):
    """Whether its session is made, whose trace has lost its name (for a moment before, a kill leaves that file)."""
    try:
        targets = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return False
    return any("autopar-trace-" in target and target.endswith("(deleted)") for target in targets)


def wait_for_sessions(running, plan, ranks):
    deadline = time.monotonic() + 240
    while sum(has_nameless_trace(process) for process in processes_of(plan).values()) < ranks:
        assert time.monotonic() < deadline and running.poll() is None, processes_of(plan)
        time.sleep(0.1)


def killed_rank(folder, mpi, plan, ranks, victim):
    """Names the rank, ends, leaves nothing behind. A launcher may still be faster than the message on a busy machine, though
    hardly three times."""
    for attempt in range(3):
        errors = kill_one(folder, mpi, plan, ranks, victim, attempt)
        if f"rank {victim}" in errors and "ended without a word" in errors:
            return
    assert False, errors


def kill_one(folder, mpi, plan, ranks, victim, attempt):
    temporary = folder / f"tmp.{mpi}.{victim}.{attempt}"
    temporary.mkdir()
    saved = folder / f"never.{mpi}.{victim}.npz"
    running = subprocess.Popen(command(mpi, ranks, "run", plan, "--ranks-by", "mpi", "--repeat", "1000000", "--save", saved),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)})
    wait_for_sessions(running, plan, ranks)
    time.sleep(1)  # most often among the steps
    os.kill(processes_of(plan)[victim], signal.SIGKILL)
    began = time.monotonic()
    output, errors = running.communicate(timeout=120)
    ended = time.monotonic() - began
    assert running.returncode != 0
    assert "PASSED" not in output and not saved.exists()
    assert not list(folder.glob(f"never.{mpi}.{victim}*")), list(folder.iterdir())
    left = [p for p in temporary.rglob("*") if "autopar" in p.name]
    assert not left, left
    print(f"{mpi}: rank {victim} of {ranks} killed; over after {ended:.1f} s")
    return errors


def stopped_rank(folder, mpi, model, victim, told):
    """A rank that is stopped among the steps: the time-out names it. Stopped earlier, when no other waits for it in a collective,
    it is missed later and with other words: then it is tried again, with more patience."""
    alone = folder / f"alone.{mpi}"  # without the report that names the model, which rank 0 would run as often
    alone.mkdir()
    shutil.copy(plan_of(folder, model, 4) / "plan.onnx", alone)
    for patience in (1, 10, 30):
        running = subprocess.Popen(command(mpi, 4, "run", alone, "--data", model.with_suffix(".npz"), "--ranks-by", "mpi", "--steps", "1000000",
                                           "--timeout", "3"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for_sessions(running, alone, 4)
        time.sleep(patience)
        processes = processes_of(alone)
        os.kill(processes[victim], signal.SIGSTOP)
        began = time.monotonic()
        try:
            output, errors = running.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            running.terminate()
            running.communicate(timeout=60)
            continue
        finally:
            if processes_of(alone).get(victim) == processes[victim]:
                os.kill(processes[victim], signal.SIGKILL)
        assert running.returncode != 0 and "PASSED" not in output
        if f"nothing was heard of rank {victim} (process " in errors:
            continue
        assert all(text in errors for text in ("nothing has happened for 3 s: ", *told)), errors
        print(f"{mpi}: rank {victim} of 4 stopped; over after {time.monotonic() - began:.1f} s")
        return
    assert False, f"{mpi}: the run does not end, or does not say for whom it waited, when rank {victim} is stopped"


def late_rank(libraries):
    """Who waits for a rank that does something else, or has left, says what that one is doing."""
    waits = "AllReduce 'sum' (seq 0, group [0,1,2,3], float32[4]): ranks 0, 1, 3 wait for rank 2; rank 2 "
    for mpi in libraries:
        for instead, limit, told in (("sleeps", 4, f"nothing has happened for 4 s: {waits}is busy with local ops after AllReduce 'sum'"),
                                     ("exits", 60, f"rank 2 has left the run: {waits}has finished after AllReduce 'sum'"),
                                     ("throws", 60, f"rank 2 has left the run: {waits}has finished after AllReduce 'sum'")):
            done = subprocess.run([*launcher(mpi, 4), sys.executable, str(SOURCE / "tests" / "late_rank.py"), str(LIBRARY), instead],
                                  capture_output=True, text=True, timeout=120, env=os.environ | {"AUTOPAR_TIMEOUT": str(limit)})
            assert told in done.stderr, (mpi, instead, done.returncode, done.stderr)
            # the program is the user's: where its first rank to end says 0, MPICH's launcher says 0 one time in forty
            assert done.returncode != 0 or instead == "exits", (mpi, instead, done.stderr)
    print(f"rank 2 sleeps, exits or throws in Python: the others say so, by {', '.join(libraries)}")


def failing_rank(folder, libraries):
    """Rank 2's slice holds an index that does not exist: its Gather throws, the others wait in the AllReduce."""
    import onnx
    from onnx import TensorProto, helper
    info = helper.make_tensor_value_info
    common = {"groups": [0, 1, 2, 3], "group_size": 4, "mesh_axes": ["a"], "domain": "ai.autopar"}
    nodes = [helper.make_node("Gather", ["T", "I"], ["G"], name="lookup"),
             helper.make_node("AllReduce", ["G"], ["Y"], name="sum", reduce_op="sum", seq=0, **common)]
    graph = helper.make_graph(nodes, "failing", [info("T", TensorProto.FLOAT, [4]), info("I", TensorProto.INT64, [1])],
                              [info("Y", TensorProto.FLOAT, [1])], value_info=[info("G", TensorProto.FLOAT, [1])])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.autopar", 1)])
    whole = lambda shape, spec, axis: {"shape": shape, "spec": spec, "device_matrix": [4], "tensor_map": axis}
    helper.set_model_props(model, {
        "autopar.version": "0.1.0", "autopar.world_size": "4", "autopar.model_sha256": "", "autopar.strategy_sha256": "",
        "autopar.mesh": json.dumps([{"name": "a", "size": 4, "tier": "t"}]),
        "autopar.io": json.dumps({"T": whole([4], "[{}]", [-1]), "I": whole([4], "[{a}]", [0]), "Y": whole([1], "[{}]", [-1])})})
    plan = folder / "failing"
    plan.mkdir()
    onnx.save(model, plan / "plan.onnx")
    np.savez(plan / "io.npz", **{"in.T": np.ones(4, np.float32), "in.I": np.array([0, 1, 99, 3]), "out.Y": np.ones(1, np.float32)})
    for mpi in libraries:
        done = subprocess.run(command(mpi, 4, "run", plan, "--ranks-by", "mpi", "--data", plan / "io.npz"), capture_output=True, text=True, timeout=120)
        assert done.returncode == 5, (done.returncode, done.stderr)
        errors = [line for line in done.stderr.splitlines() if "autopar: error" in line]
        assert len(errors) == 1 and "rank 2 failed" in errors[0] and "lookup" in errors[0], done.stderr
    print(f"rank 2 throws: named, by {', '.join(libraries)}")


def refusals(folder, libraries, plan):
    for mpi in libraries:
        done = subprocess.run(command(mpi, 3, "run", plan, "--ranks-by", "mpi"), capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "is for 4 ranks, but 3 processes were started" in done.stderr, done.stderr
        assert done.stderr.count("autopar: error") == 1, done.stderr
        done = subprocess.run(command(mpi, 4, "run", folder / "absent", "--ranks-by", "mpi"), capture_output=True, text=True, timeout=120)
        assert done.returncode == 4 and done.stderr.count("autopar: error") == 1, done.stderr
        full = subprocess.run(command(mpi, 4, "run", plan, "--ranks-by", "mpi", "--save", "/dev/full/out.npz"), capture_output=True, text=True, timeout=120)
        assert full.returncode != 0 and "/dev/full" in full.stderr and "PASSED" not in full.stdout, full.stderr
    print(f"wrong number of processes, no such plan, no place for the outputs: refused, by {', '.join(libraries)}")


def full_disk(folder, libraries, plan):
    """A file system of 64 KiB, where this user may make one."""
    small = folder / "small"
    small.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True).returncode != 0:
        print("skipped: a full disk, which needs the right to mount a tmpfs")
        return
    try:
        for mpi in libraries:
            done = subprocess.run(command(mpi, 4, "run", plan, "--ranks-by", "mpi", "--save", small / "out.npz"), capture_output=True, text=True, timeout=120)
            assert done.returncode == 6 and "out.npz" in done.stderr and "No space left" in done.stderr, (done.returncode, done.stderr)
            assert not list(small.iterdir()), list(small.iterdir())
    finally:
        subprocess.run(["umount", small])
    print(f"a full disk: said, nothing half-written, by {', '.join(libraries)}")


def ways_of_srun(libraries):
    """Those that can start an MPI that is here, where this machine is a node of a Slurm that runs."""
    answers = shutil.which("srun") and shutil.which("timeout") and subprocess.run(["timeout", "20", "sinfo"], capture_output=True).returncode == 0
    if not answers:
        print("skipped: srun, there is no Slurm that runs")
        return []
    listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=60)
    return [way for way, mpi in BY_SRUN.items() if mpi in libraries and way in (listed.stdout + listed.stderr).split()]


def by_srun(folder, ways, model):
    plan = plan_of(folder, model, 4)
    for way in ways:
        assert run(*command(way, 4, "run", plan, "--ranks-by", "mpi")).stdout.splitlines()[-1] == "PASSED"
        killed_rank(folder, way, plan, 4, 2)
        stopped_rank(folder, way, model, 2, ("rank 2 (process ", "does not answer"))
        done = subprocess.run(command(way, 3, "run", plan, "--ranks-by", "mpi"), capture_output=True, text=True, timeout=120)
        assert done.returncode != 0 and "is for 4 ranks, but 3 processes were started" in done.stderr, done.stderr
    if ways:
        done = subprocess.run(command("none", 4, "run", plan, "--ranks-by", "mpi"), capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "srun --mpi=pmi2 for MPICH, --mpi=pmix for Open MPI" in done.stderr, done.stderr
        print(f"by srun --mpi={', '.join(ways)}: PASSED; killed, stopped and too few ranks are named")


def main():
    libraries = [mpi for mpi in ("openmpi", "mpich") if shutil.which(f"mpirun.{mpi}")]
    if not libraries:
        print("skipped: there is no mpirun.openmpi and no mpirun.mpich")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        failing_rank(folder, libraries)
        late_rank(libraries)
        if not (MODELS / "tiny_llama.onnx").exists():
            print(f"skipped: everything else, there is no {MODELS}")
            return 0
        kinds = 0
        for ranks in (4, 8):
            for model in ("tiny_llama", "tiny_moe_gather", "tiny_resnet", "tiny_train_llama_adamw"):
                kinds += same_as_threads(folder, libraries, MODELS / f"{model}.onnx", ranks)
            same_as_threads(folder, libraries, MODELS / "tiny_train_llama_adamw.onnx", ranks, "--steps", "3")
        assert kinds > 0, "no plan had a collective"
        in_python(folder, libraries, MODELS / "tiny_moe_gather.onnx", 4)
        training = plan_of(folder, MODELS / "tiny_train_llama_adamw.onnx", 4)
        pipeline = pipeline_of(folder, MODELS / "tiny_llama.onnx")
        refusals(folder, libraries, training)
        full_disk(folder, libraries, training)
        for mpi in libraries:
            killed_rank(folder, mpi, training, 4, 0)
            killed_rank(folder, mpi, pipeline, 4, 2)
            stopped_rank(folder, mpi, MODELS / "tiny_train_llama_adamw.onnx", 2, ("rank 2 (process ", "does not answer"))
        by_srun(folder, ways_of_srun(libraries), MODELS / "tiny_train_llama_adamw.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
