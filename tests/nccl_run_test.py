"""Ranks as processes that communicate by NCCL, against the stand-in for CUDA and NCCL (tests/stand_in): the same bits as ranks
as threads, and what happens when something is missing, a rank is killed, or one does not come.

The processes are started with torchrun's variables, and by the MPI launchers that are here. Without the stand-in autopar says
what this machine lacks.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

import collectives_run_test

AUTOPAR = os.environ["AUTOPAR"]
OPS = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / "libautopar_ops.so"
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = pathlib.Path(os.environ.get("AUTOPAR_SHARED") or SOURCE.parent / "shared") / "data" / "models"
STAND_IN = {"AUTOPAR_NCCL": os.environ["AUTOPAR_STAND_IN_NCCL"], "AUTOPAR_CUDART": os.environ["AUTOPAR_STAND_IN_CUDART"]}
RANKS = 4


def run(*arguments, code=0, **options):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(*arguments, ranks=RANKS, **variables):
    return start_processes([AUTOPAR, *map(str, arguments), "--ranks-by", "nccl"], ranks, **variables)


def start_processes(command, ranks=RANKS, **variables):
    """One process per rank, as torchrun starts them; by rank."""
    port = free_port()
    common = os.environ | STAND_IN | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                                      "MASTER_PORT": str(port)} | variables
    return [subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]


def finish(processes, timeout=120):
    """Exit code, output and errors by rank."""
    try:
        return [(p.returncode, *texts) for p in processes for texts in [p.communicate(timeout=timeout)]]
    finally:
        for process in processes:
            process.kill()


def cluster(folder):
    """Slow devices, so that small models are worth cutting."""
    path = folder / "cluster.json"
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": f"{RANKS} slow devices",
        "device": {"name": "slow", "memory_bytes": 1 << 34, "memory_bandwidth_bytes_per_s": 2e9, "peak_flops_per_s": {"float32": 1e9}},
        "tiers": [{"name": "near", "size": RANKS // 2, "bandwidth_bytes_per_s": 3e11, "latency_s": 2e-6},
                  {"name": "far", "size": 2, "bandwidth_bytes_per_s": 2.5e10, "latency_s": 5e-6}]}))
    return path


def plan_of(folder, model):
    plan = folder / model.stem
    if not plan.exists():
        run(AUTOPAR, "search", model, "--cluster", cluster(folder), "--mesh", f"2x{RANKS // 2}", "-o", plan, "-q")
    return plan


def kinds_of(report):
    return {t["kind"]: t["calls_per_rank"] for t in report["times"] if t["sent_bytes_per_rank"] > 0}


def same_as_threads(folder, model, *options, **variables):
    plan = plan_of(folder, model)
    data = model.with_suffix(".npz")
    arguments = ["run", plan, *options] + (["--data", data] if data.exists() and not options else [])
    threads, saved = folder / "threads.npz", folder / "nccl.npz"
    kinds = kinds_of(json.loads(run(AUTOPAR, *arguments, "--json", "--save", threads).stdout))
    results = finish(start(*arguments, "--json", "--save", saved, **variables))
    assert [code for code, _, _ in results] == [0] * RANKS, results
    report = json.loads(results[0][1])
    assert report["passed"] and kinds_of(report) == kinds, report
    assert any("local ops run on the CPU" in warning for warning in report["warnings"]), report
    assert all(not output for _, output, _ in results[1:]), "only rank 0 prints"
    assert not any("stand-in:" in errors for _, _, errors in results), results
    expected, found = dict(np.load(threads)), dict(np.load(saved))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), f"{model.stem}: {name} differs from threads"
    print(f"{model.stem} {' '.join(options)}{variables or ''}: {len(expected)} outputs, the same bits as threads; {kinds}")
    return set(kinds)


def pipelines(folder):
    """Stages send to each other, those of the smaller meshes reduce among themselves."""
    for schedule, stages in (("1f1b", 2), ("zb-v", 4)):
        plan = folder / f"{schedule}-{stages}"
        run(AUTOPAR, "search", SOURCE / "models" / "llama_tiny.onnx", "--cluster", cluster(folder), "--train", "--optimizer", "adamw", "--loss", "cross_entropy",
            "--batch", 16, "--micro-batches", 4, "--stages", stages, "--schedule", schedule, "-q", "-o", plan)
        threads, saved = folder / "threads.npz", folder / "nccl.npz"
        run(AUTOPAR, "run", plan, "--steps", 3, "--save", threads, "-q")
        results = finish(start("run", plan, "--steps", 3, "--save", saved, "-q"))
        assert [code for code, _, _ in results] == [0] * RANKS, results
        assert not any("stand-in:" in errors for _, _, errors in results), results
        expected, found = dict(np.load(threads)), dict(np.load(saved))
        assert found.keys() == expected.keys() and len(found) > 1
        assert all(found[name].tobytes() == array.tobytes() for name, array in expected.items()), plan
        print(f"{stages} stages, {schedule}: {len(expected)} outputs, the same bits as threads")


def every_collective():
    """The programs of collectives_run_test, whose outputs are computed by numpy."""
    def check(what, save, names):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            save(folder)
            results = finish(start("run", folder, "--data", folder / "io.npz", "--rtol", "1e-6", "--atol", "2e-6", "--json"))
            assert [code for code, _, _ in results] == [0] * RANKS, results
            rows = json.loads(results[0][1])["outputs"]
            assert {r["name"] for r in rows} == set(names) and all(r["matches"] for r in rows), rows
            print(f"{what}: {len(rows)} outputs as expected")

    collectives_run_test.check = check
    collectives_run_test.main()


def under_mpi(plan):
    for mpi, launch in (("openmpi", ["--oversubscribe", "-n", str(RANKS)]), ("mpich", ["-n", str(RANKS)])):
        launcher = shutil.which(f"mpirun.{mpi}")
        library = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / f"libautopar_{mpi}.so"
        if launcher is None or not library.exists():
            print(f"skipped: {mpi}, which is not here")
            continue
        root = ["--allow-run-as-root"] if mpi == "openmpi" and os.getuid() == 0 else []
        done = run(launcher, *root, *launch, AUTOPAR, "run", plan, "--ranks-by", "nccl", env=os.environ | STAND_IN)
        assert done.stdout.splitlines()[-1] == "PASSED", done.stdout
        print(f"started by {mpi}: PASSED")


def errors_of(results):
    return [line for _, _, errors in results for line in errors.splitlines() if "autopar: error" in line]


def missing(folder, plan):
    """What is missing is said once, by rank 0 or by the rank that misses it."""
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")}
    done = run(AUTOPAR, "run", plan, "--ranks-by", "nccl", code=2, env=alone | STAND_IN)
    assert "no launcher has started this process" in done.stderr and "torchrun" in done.stderr, done.stderr

    for variables, told in (({"AUTOPAR_STAND_IN_GPUS": "2"}, "there is no GPU for local rank"),
                            ({"AUTOPAR_STAND_IN_GPUS": "0"}, "there is no GPU for this rank"),
                            ({"AUTOPAR_STAND_IN_NCCL_VERSION": "21000"}, "is NCCL 2.10.0; at least 2.18.1 is needed"),
                            ({"AUTOPAR_NCCL": str(folder / "libnccl.so.2")}, "need NCCL, which could not be opened")):
        results = finish(start("run", plan, **variables))
        errors = errors_of(results)
        assert all(code == 4 for code, _, _ in results), results
        assert len(errors) == 1 and told in errors[0], (variables, errors)
    print("no launcher, too few GPUs, none, an old NCCL, none: said")


def without_stand_in(plan):
    """autopar itself, with what this machine has."""
    own = {name: "" for name in STAND_IN}
    results = finish(start("run", plan, "--timeout", "30", **own))
    if results[0][0] == 0:
        print("autopar itself: PASSED, there are enough GPUs here")
        return
    errors = errors_of(results)
    known = ("need the CUDA runtime, which could not be opened", "need NCCL, which could not be opened",
             "there is no GPU for", "Duplicate GPU detected", "is no CUDA runtime", "is no NCCL library", "is needed")
    assert errors and any(text in errors[0] for text in known), results
    print(f"autopar itself: {errors[0]}")


def in_python(folder, model):
    """The plan in Python's onnxruntime, then ranks that do not come to a second collective."""
    script = [sys.executable, SOURCE / "scripts" / "run_with_onnxruntime.py", "--library", OPS, plan_of(folder, model) / "plan.onnx", "--model", model]
    results = finish(start_processes(script))
    assert [code for code, _, _ in results] == [0] * RANKS and results[0][1].splitlines()[-1] == "PASSED", results
    waits = "AllReduce 'sum' (seq 0, group [0,1,2,3], float32[4]): ranks 0, 1, 3 wait for rank 2; rank 2 "
    for instead, limit, told in (("sleeps", 4, f"nothing has happened for 4 s: {waits}is busy with local ops after AllReduce 'sum'"),
                                 ("exits", 60, f"rank 2 has left the run: {waits}has finished after AllReduce 'sum'"),
                                 ("throws", 60, f"rank 2 has left the run: {waits}has finished after AllReduce 'sum'")):
        began = time.monotonic()
        processes = start_processes([sys.executable, SOURCE / "tests" / "late_rank.py", OPS, instead], AUTOPAR_TIMEOUT=str(limit))
        results = finish([processes[rank] for rank in (0, 1, 3)] + [processes[2]])
        assert time.monotonic() - began < 50, "the end of the time limit was waited for"
        assert all(code != 0 and told in errors for code, _, errors in results[:3]), (instead, results)
    print(f"{model.stem} in Python: PASSED; a rank that sleeps, exits or throws is named")


def rank_that_stops(folder, model, how, victim, told, seconds):
    """A rank is killed, or does not come any more, among many steps; on a busy machine it may not be there yet."""
    saved = folder / "never.npz"
    alone = folder / f"{how.name}.{victim}"  # without the report that names the model, which rank 0 would run as often
    alone.mkdir()
    shutil.copy(plan_of(folder, model) / "plan.onnx", alone)
    for patience in (6, 20, 60):
        processes = start("run", alone, "--data", model.with_suffix(".npz"), "--steps", "1000000", "--timeout", "3", "--save", saved)
        time.sleep(patience)
        assert all(p.poll() is None for p in processes), finish(processes)
        began = time.monotonic()
        os.kill(processes[victim].pid, how)
        others = [rank for rank in range(RANKS) if rank != victim]
        try:
            for rank in others:
                processes[rank].wait(timeout=60)
        except subprocess.TimeoutExpired:
            finish_at_once(processes)
            continue
        ended = time.monotonic() - began
        processes[victim].kill()
        results = finish(processes)
        errors = "\n".join(errors_of(results))
        assert all(results[rank][0] == 5 for rank in others), results
        assert all(text in errors for text in told), errors
        assert ended < seconds and not saved.exists(), ended
        print(f"rank {victim} gets {how.name}: over after {ended:.1f} s: {errors.splitlines()[0]}")
        return
    assert False, f"the run does not end when rank {victim} gets {how.name}"


def rank_that_stops_between_runs(folder):
    """Of a plan without collectives: the others can only wait for it where all meet between two runs."""
    plan = folder / "replicated"
    run(AUTOPAR, "search", SOURCE / "models" / "mlp.onnx", "--cluster", cluster(folder), "--mesh", str(RANKS), "--searcher", "replicate", "-o", plan, "-q")
    told = "nothing has happened for 3 s: the meeting between two runs: "
    for patience in (2, 20, 60):  # on a busy machine it may not be there yet
        processes = start("run", plan, "--repeat", "1000000000", "--timeout", "3")
        time.sleep(patience)
        os.kill(processes[2].pid, signal.SIGSTOP)
        try:
            for rank in (0, 1, 3):
                processes[rank].wait(timeout=60)
        except subprocess.TimeoutExpired:
            pass
        processes[2].kill()
        results = finish(processes)
        errors = "\n".join(errors_of(results))
        if told in errors:
            break
    assert all(results[rank][0] == 5 for rank in (0, 1, 3)), results
    assert told in errors, errors
    assert "rank 2" in errors.split(told)[1] and "rank 2 (process " in errors and "does not answer" in errors, errors
    print(f"rank 2 stops between two runs: {errors.splitlines()[0]}")


def finish_at_once(processes):
    for process in processes:
        process.kill()
    finish(processes)


def main():
    every_collective()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        repository = SOURCE / "models" / "gpt2_tiny.onnx"
        kinds = same_as_threads(folder, repository)
        kinds |= same_as_threads(folder, repository, AUTOPAR_STAND_IN_NCCL_VERSION="22705")
        assert "AllToAll" in kinds, kinds
        plan = plan_of(folder, repository)
        under_mpi(plan)
        pipelines(folder)
        missing(folder, plan)
        without_stand_in(plan)
        rank_that_stops_between_runs(folder)
        if not (MODELS / "tiny_llama.onnx").exists():
            print(f"skipped: everything else, there is no {MODELS}")
            return 0
        for model in ("tiny_llama", "tiny_moe_gather", "tiny_resnet", "tiny_train_llama_adamw"):
            kinds |= same_as_threads(folder, MODELS / f"{model}.onnx")
        kinds |= same_as_threads(folder, MODELS / "tiny_train_llama_adamw.onnx", "--steps", "3")
        assert {"AllToAll", "AllGather", "ReduceScatter"} <= kinds, kinds
        training = MODELS / "tiny_train_llama_adamw.onnx"
        in_python(folder, training)
        rank_that_stops(folder, training, signal.SIGKILL, 2, ("rank 2 (process", "ended without a word"), 30)
        rank_that_stops(folder, training, signal.SIGSTOP, 2, ("nothing has happened for 3 s: ", "wait", "rank 2 (process ", "does not answer"), 60)
        rank_that_stops(folder, training, signal.SIGSTOP, 0, ("nothing has happened for 3 s: ", " waits in ", "rank 0, which would know for whom, does not answer"), 60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
