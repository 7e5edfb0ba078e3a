"""autopar fit: a profile that made the times is found again from plans' folders; bad tables are refused and leave nothing behind."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
MODELS = pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models"
CLUSTER = "dgx-a100-1x8"
# Of the same model plans of which another part of the profile decides each: small and large batches, on few and many devices.
PLANS = [(16, "8"), (512, "8"), (16384, "8"), (131072, "8"), (131072, "2x4")]


def run(*args, expect=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def profile_file(path, name, host, launch, matrix, memory):
    path.write_text(json.dumps({"format": "autopar-profile", "version": 1, "name": name, "launch_s": launch, "host_s": host,
                                "matrix": {"fraction": matrix}, "memory": {"fraction": memory}}))
    return path


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        truth = profile_file(folder / "truth.json", "truth", 1e-7, 4e-6, 0.35, 0.6)
        start = profile_file(folder / "start.json", "start", 1e-7, 1e-6, 0.35, 0.9)
        lines = ["# made by the test", "plan,seconds,batch"]
        for i, (batch, mesh) in enumerate(PLANS):
            plan = folder / f"plan{i}"
            run("search", MODELS / "mlp.onnx", "--batch", batch, "--cluster", CLUSTER, "--mesh", mesh, "--profile", truth, "-o", plan, "-q")
            lines.append(f"plan{i},{json.loads((plan / 'report.json').read_text())['cost']['seconds']},{batch}")
        table = folder / "runs.csv"
        table.write_text("\n".join(lines) + "\n")
        found = folder / "found.json"
        command = ["fit", table, "--cluster", CLUSTER, "--profile", start, "-o", found]
        done = json.loads(run(*command, "--only", "launch_s,memory.fraction", "--json").stdout)
        assert done["error_before"] > 0.2 and done["error_fitted"] < 0.01, done
        written = json.loads(found.read_text())
        for value, expected in ((written["launch_s"], 4e-6), (written["memory"]["fraction"], 0.6)):
            assert abs(value / expected - 1) < 0.04, written
        assert written["host_s"] == 1e-7 and written["matrix"]["fraction"] == 0.35 and written["name"] == "fitted"
        assert len(done["rows"]) == len(PLANS) and all(row["left_out_seconds"] > 0 for row in done["rows"])
        again = folder / "again.json"
        run(*command[:-1], again, "--only", "launch_s,memory.fraction", "-q")
        assert again.read_text() == found.read_text(), "not the same twice"
        # What is written is a profile that search takes, and predicts what was measured.
        run("search", MODELS / "mlp.onnx", "--batch", PLANS[2][0], "--cluster", CLUSTER, "--mesh", PLANS[2][1], "--profile", found, "-o", folder / "use", "-q")
        seconds = json.loads((folder / "use" / "report.json").read_text())["cost"]["seconds"]
        assert abs(seconds / done["rows"][2]["seconds"] - 1) < 0.05
        text = run(*command, "--only", "launch_s,bucket_bytes")
        assert "no row depends on bucket_bytes" in text.stderr and "left out" in text.stdout and "memory.fraction" not in text.stdout

        # What is right, and a number that is none, are not made worse.
        exact = run("fit", table, "--cluster", CLUSTER, "--profile", truth, "-o", found, "--only", "launch_s,host_s", "--json")
        assert "stays as it was" in exact.stderr and json.loads(exact.stdout)["error_fitted"] < 1e-6, exact.stderr
        ideal = folder / "ideal.csv"
        run("search", MODELS / "mlp.onnx", "--batch", 8, "--cluster", CLUSTER, "--profile", "ideal", "-o", folder / "ideal", "-q")
        ideal.write_text(f"plan,seconds,batch\nideal,{json.loads((folder / 'ideal' / 'report.json').read_text())['cost']['seconds'] / 1.01},8\n")
        kept = json.loads(run("fit", ideal, "--cluster", CLUSTER, "-o", folder / "kept.json", "--only", "launch_s", "--json").stdout)
        assert kept["error_fitted"] == kept["error_before"] < 0.02, kept

        def refused(content, message, *more, expect=4):
            table.write_text(content)
            bad = folder / "bad.json"
            failed = run("fit", table, "--cluster", CLUSTER, "-o", bad, *more, expect=expect)
            assert message in failed.stderr, failed.stderr
            assert not bad.exists() and not list(folder.glob("*.tmp*"))

        one = lines[2].rsplit(",", 1)[0] + "\n"
        table.write_text("plan,seconds\n" + one)
        run("fit", table, "--cluster", CLUSTER, "-o", folder / "of_batch.json", "--only", "host_s")
        refused("plan,seconds,batch\nplan0,1,-4\n", "batch: expected a positive integer, found '-4'", "--only", "host_s")
        refused("plan,seconds\n" + one, "1 rows for 4 parameters", expect=2)
        refused("plan,seconds,speed\n", "runs.csv:1: column 'speed' is unknown; columns are plan, seconds, model, cluster, batch")
        refused("plan\nplan0\n", "'seconds' is not among them")
        refused("plan,seconds\nplan0,fast\n", "runs.csv:2: seconds: expected a number from 1e-9 on, found 'fast'", "--only", "host_s")
        refused("plan,seconds\nplan0,-1\n", "expected a number from 1e-9 on", "--only", "host_s")
        refused("plan,seconds\nplan0\n", "runs.csv:2: expected 2 cells as in the first line, found 1", "--only", "host_s")
        refused("plan,seconds\nnowhere,1\n", "no plan is there", "--only", "host_s")
        refused("plan,seconds\n", "no measured times")
        refused("plan,seconds\n" + one, "'matrix.speed' is no number of a profile that can be fitted", "--only", "matrix.speed", expect=2)
        refused("plan,seconds\n" + one + one, "'host_s' is named twice", "--only", "host_s,host_s", expect=2)
        table.write_text("plan,seconds\n" + one)
        assert "which cluster" in run("fit", table, "--only", "host_s", "-o", folder / "bad.json", expect=2).stderr
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
