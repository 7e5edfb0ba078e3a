"""autopar calibrate: what it writes is a cluster that search reads and that its own table says; on threads, and on each MPI that is here."""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
RANKS = 4
KINDS = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast"}
FACTOR = {"AllReduce": lambda n: 2 * (n - 1) / n, "AllGather": lambda n: (n - 1) / n, "ReduceScatter": lambda n: (n - 1) / n,
          "AllToAll": lambda n: (n - 1) / n, "Broadcast": lambda n: 1}
# What a rank that is a process needs besides mpirun: Open MPI refuses to run for root or on fewer cores than ranks.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(*command, expect=0):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == expect, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def launchers():
    """Command prefixes: threads, then each MPI that this build and machine have."""
    yield "threads", []
    build = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src"
    for name in ("openmpi", "mpich"):
        mpirun = shutil.which(f"mpirun.{name}")
        if mpirun is None or not (build / f"libautopar_{name}.so").exists():
            print(f"{name}: not here, skipped")
            continue
        yield "mpi", [mpirun, "-n", str(RANKS)]


def check(document, cluster, what):
    assert document["cluster"]["tiers"] == cluster["tiers"] and document["cluster"]["device"] == cluster["device"], what
    assert len(document["hosts"]) == RANKS
    assert [t["size"] for t in cluster["tiers"]] == [RANKS], what
    seen = set()
    for row in document["collectives"]:
        n = row["group_size"]
        seen.add((row["kind"], n, row["bytes"]))
        seconds = row["seconds"]
        assert 0 < seconds["minimum"] <= seconds["median"], row
        assert abs(row["algorithm_bandwidth_bytes_per_s"] * seconds["median"] - row["bytes"]) <= 1e-9 * row["bytes"], row
        assert abs(row["bus_bandwidth_bytes_per_s"] - FACTOR[row["kind"]](n) * row["algorithm_bandwidth_bytes_per_s"]) <= 1e-6 * row["bus_bandwidth_bytes_per_s"], row
        assert row["fitted_seconds"] > 0
    assert seen == {(k, n, s) for k in KINDS for n in (RANKS, 2) for s in (1024, 16384, 262144)}, f"{what}: {sorted(seen)}"
    # The root mean square of what the table says.
    errors = [math.log(row["fitted_seconds"] / row["seconds"]["median"]) for row in document["collectives"]]
    assert abs((sum(e * e for e in errors) / len(errors)) ** 0.5 - document["residual"]) < 1e-9
    products = [row for row in document["ops"] if row["type"] == "MatMul"]
    fastest = max(row["flops"] / row["seconds"]["median"] for row in products)
    assert abs(cluster["device"]["peak_flops_per_s"]["float32"] / fastest - 1) < 1e-3
    sums = max((row for row in document["ops"] if row["type"] == "Add"), key=lambda row: row["bytes"])
    assert abs(cluster["device"]["memory_bandwidth_bytes_per_s"] * sums["seconds"]["median"] / sums["bytes"] - 1) < 1e-3
    assert cluster["device"]["memory_bytes"] > 1 << 20


def check_profile(folder):
    """With a model the file has a profile, by which predictions of other models go up to the order of what runs take."""
    path, plan = folder / "model.json", folder / "model.plan"
    done = run(AUTOPAR, "calibrate", "--ranks", 2, "--quick", "--model", SOURCE / "models/llama_tiny.onnx", "-o", path, "--json")
    rows = json.loads(done.stdout)["ops"]
    assert rows[-1]["type"] == "whole model" and rows[-1]["fitted_seconds"] > 0, rows[-1]
    types = {row["type"] for row in rows}
    assert {"Softmax", "Transpose", "Gather", "MatMul"} <= types and "Reshape" not in types, types
    assert not [row for row in rows if row["problem"] and row["type"] in ("MatMul", "Softmax", "Transpose", "whole model")]
    profile = json.loads(path.read_text())["profile"]
    assert profile["name"] == "calibrated" and 1e-8 < profile["launch_s"] < 1e-3, profile
    assert 0 < profile["matrix"]["fraction"] <= 1 and 0 < profile["memory"]["fraction"] <= 1
    # As `run` has it: ops one after the other, and no collective beside them.
    assert profile["op_by_op"] == 1 and profile["deferred"] == [], profile
    overlap = json.loads(done.stdout)["overlap"]
    assert overlap["alone_seconds"] > 0 and 0 <= overlap["slowdown"] == max(0, 1 - overlap["alone_seconds"] / overlap["beside_seconds"]) < 1, overlap
    assert abs(profile["slowdown"] - overlap["slowdown"]) <= 5e-4
    ratios = {}
    for name, more in (("calibrated", ()), ("ideal", ("--profile", "ideal"))):
        run(AUTOPAR, "search", SOURCE / "models/gpt2_tiny.onnx", "--cluster", path, *more, "-o", plan)
        prediction = json.loads(run(AUTOPAR, "run", plan, "--repeat", 9, "--json").stdout)["prediction"]
        ratios[name] = prediction["kinds"][0]["ratio"]
    # Other processes may take the cores, so no more than this is held: nearer than without a profile.
    assert abs(math.log(ratios["calibrated"])) < abs(math.log(ratios["ideal"])), ratios
    table = run(AUTOPAR, "calibrate", "--ranks", 2, "--quick", "--model", SOURCE / "models/mlp.onnx", "-o", folder / "m.json").stdout
    assert "profile: launch" in table and "whole model" in table, table
    assert "nowhere.onnx" in run(AUTOPAR, "calibrate", "--model", folder / "nowhere.onnx", "-o", folder / "no.json", expect=4).stderr
    assert not (folder / "no.json").exists()


def check_given_cluster(folder):
    """The profile goes with links and a device that are given; its kernels are those of that cluster's meshes."""
    path = folder / "given.json"
    mlp = SOURCE / "models/mlp.onnx"
    done = run(AUTOPAR, "calibrate", "--cluster", "pcie-8", "--quick", "--model", mlp, "-o", path, "--json")
    given, found = json.loads((SOURCE / "models/clusters/pcie-8.json").read_text()), json.loads(path.read_text())
    assert found["profile"]["op_by_op"] == 1 and found["device"]["peak_flops_per_s"] == given["device"]["peak_flops_per_s"]
    assert [(t["name"], t["bandwidth_bytes_per_s"]) for t in found["tiers"]] == [(t["name"], t["bandwidth_bytes_per_s"]) for t in given["tiers"]]
    document = json.loads(done.stdout)
    assert not document["collectives"] and len(document["hosts"]) == 8
    assert any(row["left"][-1] == 16 or row["right"][-1] in (2, 32) for row in document["ops"] if row["type"] == "MatMul"), "a product split over eight devices"
    run(AUTOPAR, "search", mlp, "--cluster", path, "-o", folder / "given.plan")
    assert "--model" in run(AUTOPAR, "calibrate", "--cluster", "pcie-8", "-o", path, expect=2).stderr
    said = run(AUTOPAR, "calibrate", "--cluster", path, "--quick", "--model", mlp, "-o", path, expect=4).stderr
    assert str(path) in said, said
    assert "ready-made" in run(AUTOPAR, "calibrate", "--cluster", "nowhere", "--model", mlp, "-o", path, expect=4).stderr


def check_step(folder):
    """Of a training step the kernels that the forward model has not."""
    path = folder / "step.json"
    mlp = ("--model", SOURCE / "models/mlp.onnx", "-o", path)
    done = run(AUTOPAR, "calibrate", "--ranks", 2, "--quick", "--train", "--loss", "mse", "--optimizer", "adamw", *mlp, "--json")
    rows = json.loads(done.stdout)["ops"]
    # Square roots are the update's alone.
    assert {"MatMul", "Sqrt", "Div", "whole model"} <= {row["type"] for row in rows if not row["problem"]}, rows
    assert json.loads(path.read_text())["profile"]["op_by_op"] == 1
    path.unlink()
    assert "--train" in run(AUTOPAR, "calibrate", "--loss", "mse", *mlp, expect=2).stderr
    assert "--model" in run(AUTOPAR, "calibrate", "--train", "-o", path, expect=2).stderr
    assert "no_such" in run(AUTOPAR, "calibrate", "--train", "--loss", "no_such", *mlp, expect=2).stderr
    assert not path.exists()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks_by, prefix in launchers():
            path = folder / f"{ranks_by}.json"
            done = run(*prefix, AUTOPAR, "calibrate", "--ranks-by", ranks_by, *([] if prefix else ["--ranks", RANKS]), "--quick", "-o", path, "--json",
                       "--name", "here")
            cluster = json.loads(path.read_text())
            assert cluster["name"] == "here"
            check(json.loads(done.stdout), cluster, ranks_by)
            plan = folder / f"{ranks_by}.plan"
            run(AUTOPAR, "search", SOURCE / "models/mlp.onnx", "--cluster", path, "-o", plan)
            result = json.loads(run(*prefix, AUTOPAR, "run", plan, "--ranks-by", ranks_by, "--repeat", 1, "--json").stdout)
            assert result["passed"] and result["prediction"]["cluster"] == "here"
        table = run(AUTOPAR, "calibrate", "--ranks", 2, "--quick", "-o", folder / "two.json").stdout
        assert "busbw" in table and "2 of 2" in table and "node" in table, table
        assert "threads" in json.loads((folder / "two.json").read_text())["name"]
        assert not list(folder.glob("*.tmp*")), "a temporary file is left"
        check_profile(folder)
        check_given_cluster(folder)
        check_step(folder)
        run(AUTOPAR, "calibrate", "--ranks", 1, "-o", folder / "no.json", expect=2)
        failed = run(AUTOPAR, "calibrate", "--ranks", 2, "--quick", "-o", "/dev/null/no.json", expect=4)
        assert "/dev/null" in failed.stderr
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
