"""The program as its users call it, and clusters that make small models worth splitting."""
import json
import os
import subprocess

AUTOPAR = os.environ["AUTOPAR"]


def run(*args, code=0, cwd=None):
    """One command; its exit status has to be `code`."""
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def cluster(folder, *tiers, memory=1 << 30, flops=1e13, memory_bandwidth=1e12, link=1e11, slower=10, latency=1e-6):
    """Tiers from the innermost on, each `slower` than the one before; bytes, flop/s, bytes/s and seconds."""
    path = folder / f"cluster_{'x'.join(map(str, tiers))}_{memory}.json"
    path.write_text(json.dumps({
        "format": "autopar-cluster", "version": 1, "name": path.stem,
        "device": {"name": "test", "memory_bytes": memory, "memory_bandwidth_bytes_per_s": memory_bandwidth,
                   "peak_flops_per_s": {"float32": flops}},
        "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": link / slower ** i, "latency_s": latency}
                  for i, n in enumerate(tiers)],
        "host_link": {"bandwidth_bytes_per_s": 1e10}}))
    return path
