"""What `run` and `calibrate` do with the threads that they may take, and who speaks where processes cannot join.

--threads is for a machine: its ranks share them. Threads are counted in /proc while the program runs.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tools.program import AUTOPAR, cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
RANKS = 2


def launchers():
    """Commands that start RANKS processes, one for every MPI that is here."""
    found = {}
    if shutil.which("mpirun.openmpi"):
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        found["openmpi"] = ["mpirun.openmpi", "--oversubscribe", "-n", str(RANKS), *root]
    if shutil.which("mpirun.mpich"):
        found["mpich"] = ["mpirun.mpich", "-n", str(RANKS)]
    return found


def plan_of(folder):
    plan = folder / "plan"
    run("search", SOURCE / "models" / "mlp.onnx", "--cluster", cluster(folder, RANKS), "--mesh", RANKS, "-o", plan, "-q")
    return plan


def ranks_of(root):
    """The processes of this program below that one; a process that only waits for another is none."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line)
            children.setdefault(int(status["PPid"]), []).append((int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")[0]))
        except (OSError, ValueError, KeyError):
            continue
    found, pending = [], [(root, b"")]
    while pending:
        process, word = pending.pop()
        if word == AUTOPAR.encode():
            found.append(process)
        pending += children.get(process, [])
    return found


def computing_seconds(process):
    """Its CPU time since ONNX Runtime is there; 0 before."""
    if "libonnxruntime" not in pathlib.Path(f"/proc/{process}/maps").read_text():
        return 0
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_threads(command, ranks):
    """Of one of its ranks, once they are all there and compute."""
    running = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            assert running.poll() is None, running.communicate()
            processes = [running.pid] if ranks == 1 else ranks_of(running.pid)
            try:
                if len(processes) == ranks and max(map(computing_seconds, processes)) > 2:
                    return max(len(os.listdir(f"/proc/{process}/task")) for process in processes)
            except OSError:
                pass
            time.sleep(0.05)
    finally:
        running.terminate()
        running.communicate()


def threads_are_those_asked_for(plan):
    endless = ["run", plan, "--steps", "1000000000"]
    by_asked = {asked: most_threads([AUTOPAR, *endless, "--threads", asked], 1) for asked in (1, 5)}
    assert by_asked[5] - by_asked[1] == 4, by_asked
    for mpi, launcher in launchers().items():
        by_asked = {asked: most_threads([*launcher, AUTOPAR, *endless, "--ranks-by", "mpi", "--threads", asked], RANKS)
                    for asked in (RANKS, 5 * RANKS)}
        assert by_asked[5 * RANKS] - by_asked[RANKS] == 4, (mpi, by_asked)
    print(f"--threads 1 takes one thread; the ranks of a machine share them, by {', '.join(launchers())}")


def one_rank_speaks(plan):
    for mpi, launcher in launchers().items():
        done = subprocess.run([*launcher, AUTOPAR, "run", plan, "--ranks-by", "mpi"], capture_output=True, text=True,
                              env=os.environ | {"AUTOPAR_MPI": "another"})
        assert done.returncode == 2 and done.stderr.count("autopar: error") == 1, (mpi, done.returncode, done.stderr)
    print(f"one rank says why none can join, by {', '.join(launchers())}")


def the_program_comes_with_what_it_opens():
    """`scripts/autopar` builds src/autopar alone."""
    build = pathlib.Path(os.environ["AUTOPAR_BUILD"])
    needs = subprocess.run(["ninja", "-C", build, "-t", "inputs", "src/autopar"], capture_output=True, text=True, check=True).stdout.split()
    shims = [path.name for path in (build / "src").glob("libautopar_*mpi*.so")]
    assert not launchers() or shims
    assert all(f"src/{name}" in needs for name in shims), (shims, [n for n in needs if n.endswith(".so")])
    print(f"src/autopar is built with {', '.join(shims)}")


def main():
    the_program_comes_with_what_it_opens()
    with tempfile.TemporaryDirectory() as name:
        plan = plan_of(pathlib.Path(name))
        one_rank_speaks(plan)
        threads_are_those_asked_for(plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
