"""The archive that scripts/bundle makes: unpacked into another folder it searches and runs with an empty environment, on a
machine that has nothing but a C library, and by each MPI that is here.

For a machine with nothing but a C library a folder is made with glibc's files alone, which is the root of what runs there;
that takes the right to make a mount namespace (root, or user namespaces that are allowed), and is left out with a word
where it is not given.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

BUILD = pathlib.Path(os.environ["AUTOPAR_BUILD"])
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
RANKS = 4
# The C library and what comes with it.
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")


def run(*command, code=0, env=None, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env={} if env is None else env, **options)
    assert done.returncode == code, f"{command}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def unpack(folder):
    archive = folder / "autopar.tar.gz"
    run(SOURCE / "scripts" / "bundle", "--build", BUILD, "-o", archive, env=dict(os.environ))
    into = folder / "another place"
    into.mkdir()
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(into)
    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 1 and tops.pop().startswith("autopar-"), names[:3]
    print(f"{archive.stat().st_size >> 20} MiB, {len(names)} entries")
    return into / names[0].split("/")[0]


def what_is_in_it(top):
    needed = {"bin/autopar", "bin/gpu_check", "README.txt", "share/autopar/models/mlp.onnx", "share/autopar/models/clusters/dgx-a100-1x8.json",
              "licenses/autopar.txt", "licenses/onnxruntime.txt", "licenses/libprotobuf-dev.txt", "licenses/libstdc++6.txt"}
    missing = {name for name in needed if not (top / name).is_file()}
    assert not missing, missing
    libraries = {path.name for path in top.glob("lib/**/*.so*")}
    assert {"libonnxruntime.so.1", "libautopar_ops.so", "libstdc++.so.6", "libgcc_s.so.1"} <= libraries, libraries
    for path in top.rglob("*"):
        if path.is_file():
            contents = path.read_bytes()
            for place in (BUILD, SOURCE):
                assert str(place).encode() not in contents, f"{path} knows where it was built"
    glibc = (top / "README.txt").read_text().rsplit("glibc ", 1)[1].split()[0]
    assert tuple(map(int, glibc.split("."))) <= (2, 36) or "bookworm" not in pathlib.Path("/etc/os-release").read_text(), glibc
    print(f"{', '.join(sorted(libraries))}; needs glibc {glibc}")


def search_show_run(top, folder, started, **options):
    """What a person would do first. `started` is how the program is started."""
    plan = folder / "plan"
    models = top / "share" / "autopar" / "models"
    run(*started, "search", models / "gpt2_tiny.onnx", "--cluster", "dgx-a100-1x8", "--mesh", "2x4", "-o", plan, "-q", **options)
    assert "A100" in run(*started, "show", "dgx-a100-1x8", **options).stdout
    assert "plan for 8 ranks, mesh 2x4" in run(*started, "show", plan / "plan.onnx", **options).stdout
    assert run(*started, "run", plan, **options).stdout.splitlines()[-1] == "PASSED"


def with_an_empty_environment(top, folder):
    search_show_run(top, folder, [top / "bin" / "autopar"], cwd=folder)
    libraries = run(top / "bin" / "autopar", "run", folder / "plan", env={"LD_DEBUG": "libs"}, cwd=folder).stderr
    opened = {line.split("calling init: ")[1] for line in libraries.splitlines() if "calling init: " in line}
    ours = {path for path in opened if "libonnxruntime" in path}
    assert ours and all(path.startswith(str(top)) for path in ours), opened
    print("with an empty environment: search, show, run")


def with_a_c_library_only(top, folder):
    """In a root folder with glibc alone."""
    root = folder / "root"
    (root / "lib64").mkdir(parents=True)
    for name in ("proc", "tmp", "opt"):
        (root / name).mkdir()
    shutil.copy(LOADER, root / "lib64")
    found = run("/sbin/ldconfig", "-p", env={"LC_ALL": "C"}).stdout if pathlib.Path("/sbin/ldconfig").exists() else ""
    for name in GLIBC:
        lines = [line for line in found.splitlines() if line.strip().startswith(f"{name} (libc6,x86-64")]
        if lines:
            shutil.copy(lines[0].split(" => ")[1], root / "lib64")
    shutil.copytree(top, root / "opt" / "autopar", symlinks=True)
    enter = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"', root]
    program = [*enter, "/opt/autopar/bin/autopar"]
    path = {"PATH": os.environ["PATH"]}
    possible = subprocess.run(list(map(str, [*enter, "/lib64/ld-linux-x86-64.so.2", "--version"])), capture_output=True, text=True, env=path)
    if possible.returncode != 0:
        print(f"skipped: a root folder with a C library only, since no mount namespace can be made here: {possible.stderr.strip()}")
        return
    environment = {**path, "LD_LIBRARY_PATH": "/lib64"}
    search_show_run(pathlib.Path("/opt/autopar"), pathlib.Path("/tmp"), program, env=environment)
    print("with a C library only: search, show, run")


def by_mpi(top, folder):
    """Each MPI that is here, and MPICH under the name that it has everywhere but on Debian."""
    tried = 0
    for mpi in ("openmpi", "mpich"):
        launcher = shutil.which(f"mpirun.{mpi}")
        if launcher is None or not list(top.glob(f"lib/**/libautopar_{mpi}.so")):
            print(f"skipped: {mpi}, which is not here")
            continue
        root = ["--allow-run-as-root"] if mpi == "openmpi" and os.getuid() == 0 else []
        options = ["--oversubscribe"] if mpi == "openmpi" else []
        # --mesh 2x4 has 8 ranks; a plan for fewer is quicker.
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        plan = folder / "plan.mpi"
        if not plan.exists():
            run(top / "bin" / "autopar", "search", top / "share/autopar/models/mlp.onnx", "--cluster", cluster(folder), "-o", plan, "-q")
        started = [launcher, *root, *options, "-n", RANKS, top / "bin" / "autopar", "run", plan, "--ranks-by", "mpi"]
        done = run(*started, env=environment)
        assert done.stdout.splitlines()[-1] == "PASSED", done.stdout
        tried += 1
        debian = pathlib.Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
        if mpi == "mpich" and debian.exists():
            elsewhere = folder / "mpi"
            (elsewhere / "bin").mkdir(parents=True)
            (elsewhere / "lib").mkdir()
            (elsewhere / "lib" / "libmpi.so.12").symlink_to(debian)
            done = run(*started, env=environment | {"AUTOPAR_MPI_LIBRARY": str(elsewhere / "lib" / "libmpi.so.12")})
            assert done.stdout.splitlines()[-1] == "PASSED", done.stdout
            done = run(*started, code=4, env=environment | {"AUTOPAR_MPI_LIBRARY": str(elsewhere / "lib" / "none.so")})
            assert "none.so" in done.stderr and "AUTOPAR_MPI_LIBRARY" in done.stderr, done.stderr
        print(f"{RANKS} processes by {mpi}: PASSED")
    return tried


def cluster(folder):
    """Slow devices, so that a small model is worth cutting."""
    path = folder / "cluster.json"
    path.write_text('{"format": "autopar-cluster", "version": 1, "name": "slow", "device": {"name": "slow", "memory_bytes": 17179869184, '
                    '"memory_bandwidth_bytes_per_s": 2e9, "peak_flops_per_s": {"float32": 1e9}}, '
                    f'"tiers": [{{"name": "link", "size": {RANKS}, "bandwidth_bytes_per_s": 3e11, "latency_s": 2e-6}}]}}')
    return path


def without_gpus(top, folder):
    """The script for machines with GPUs says that there are none; tests/gpu_check_test.py runs the rest of it."""
    if pathlib.Path("/proc/driver/nvidia/version").exists():
        print("skipped: that there is no GPU, since there may be some")
        return
    done = run(top / "bin" / "gpu_check", "-o", folder / "report.txt", code=77, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)})
    assert "no GPU" in done.stdout and (folder / "report.txt").read_text().rstrip().endswith("skipped"), done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        top = unpack(folder)
        what_is_in_it(top)
        with_an_empty_environment(top, folder)
        with_a_c_library_only(top, folder)
        by_mpi(top, folder)
        without_gpus(top, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
