"""On random models, clusters and memory limits: what a search claims is what `price` finds, to the last digit."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
CASES = 40


def run(*args, codes=(0,)):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode in codes, f"{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def random_model(draw):
    """Matmuls, normalisations and elementwise ops over one stream, some values read twice."""
    batch, width = draw.choice([6, 8, 16]), draw.choice([8, 12, 24])
    model = {"format": "autopar-graph", "version": 1, "name": "random", "parameters": [], "ops": [],
             "inputs": [{"name": "X", "dtype": "float32", "shape": [batch, width]}]}
    values = ["X"]
    for i in range(draw.randint(2, 7)):
        kind, out = draw.choice(["MatMul", "MatMul", "Add", "Relu", "Softmax", "Mul"]), f"v{i}"
        inputs = [draw.choice(values[-2:])]
        if kind == "MatMul":
            inputs.append(f"W{i}")
            model["parameters"].append({"name": f"W{i}", "dtype": "float32", "shape": [width, width]})
        elif kind in ("Add", "Mul"):
            inputs.append(draw.choice(values))
        model["ops"].append({"name": f"op{i}", "type": kind, "inputs": inputs, "outputs": [out], "attributes": {}})
        values.append(out)
    model["outputs"] = sorted({values[-1], draw.choice(values[1:])})
    return model


def random_cluster(draw):
    tiers = draw.choice([[2], [4], [6], [2, 2], [4, 2], [2, 3], [2, 2, 2]])
    return {"format": "autopar-cluster", "version": 1, "name": "random",
            "device": {"name": "device", "memory_bytes": 1 << 30, "memory_bandwidth_bytes_per_s": 1e9,
                       "peak_flops_per_s": {"float32": 1e10}},
            "tiers": [{"name": f"t{i}", "size": n, "bandwidth_bytes_per_s": draw.uniform(1, 9) * 1e8 / 4 ** i,
                       "latency_s": draw.choice([0, 1e-7, 1e-6])} for i, n in enumerate(tiers)],
            "host_link": {"bandwidth_bytes_per_s": 1e10}}


def main():
    priced = limited = 0
    for seed in range(CASES):
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "model.json").write_text(json.dumps(random_model(draw)))
            (folder / "cluster.json").write_text(json.dumps(random_cluster(draw)))
            common = (folder / "model.json", "--cluster", folder / "cluster.json")
            options = ["--max-axes", 3]
            for memory in (None, draw.uniform(0.5, 0.95)):
                if memory:
                    options += ["--memory", int(claimed["memory_bytes"] * memory)]
                done = run("search", *common, "-o", folder / "out", "-q", *options, codes=(0, 3))
                if done.returncode == 3:
                    continue
                claimed = json.loads((folder / "out" / "strategy.json").read_text())["cost"]
                found = json.loads(run("price", *common, "--strategy", folder / "out" / "strategy.json", "--json").stdout)
                assert found["seconds"] == claimed["seconds"], (seed, memory, found["seconds"], claimed)
                assert found["memory_bytes"] == claimed["memory_bytes"], (seed, memory, claimed)
                assert claimed["lower_bound_seconds"] <= claimed["seconds"], (seed, claimed)
                priced += 1
                limited += memory is not None
    assert priced > CASES and limited > CASES // 4, (priced, limited)
    print(f"{priced} plans priced, {limited} of them under a memory limit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
