"""Small training steps on four devices, for tests of how pipelines are planned."""
import json
import os
import pathlib
import subprocess
import sys

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CLUSTER = {"format": "autopar-cluster", "version": 1, "name": "4 devices",
           "device": {"name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}},
           "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6},
                     {"name": "outer", "size": 2, "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}]}


def called(command, *arguments, code=0):
    """`code`: the exit code that is expected, or several."""
    codes = code if isinstance(code, tuple) else (code,)
    done = subprocess.run([AUTOPAR, command, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode in codes, f"{command} {arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def small_model(path, *arguments):
    """Of make_models.py: 4 heads, a width of 32."""
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--hidden", "32", "--heads", "4", *arguments, "-o", path], check=True, timeout=120, stdout=subprocess.DEVNULL)
    return path


def with_cluster(folder):
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    return folder / "cluster.json"


def same_files(one, other, name):
    """But for the reports, which say how a plan was found."""
    for path in sorted(one.iterdir()):
        assert path.name == "report.json" or (other / path.name).read_bytes() == path.read_bytes(), f"{name}: apply writes another {path.name}"
