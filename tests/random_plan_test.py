"""Strategies chosen at random among the valid ones, executed: whatever is valid must compute what the unsharded model does.

Runs `autopar run` on every plan and, where it is at hand, an executor that shares no code with autopar
(AUTOPAR_SHARED/tools/spmd_check.py). AUTOPAR_RANDOM_PLANS=N tries N seeds per model and mesh (default 1)."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared"))
CHECK = SHARED / "tools" / "spmd_check.py"
TOOL = pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "tests" / "random_plan"
SEEDS = int(os.environ.get("AUTOPAR_RANDOM_PLANS", "1"))
MESHES = {"2": 2, "4": 4, "2x2": 4, "2x3": 6, "2x2x2": 8}
TOLERANCE = ["--rtol", "2e-3", "--atol", "2e-4"]


def passed(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip().splitlines()[-1] == "PASSED", done.stdout[-2000:] + done.stderr[-2000:]


def main():
    models = [SOURCE / "models" / f"{name}.onnx" for name in ("mlp", "gpt2_tiny", "llama_tiny")]
    shared = sorted((SHARED / "data" / "models").glob("tiny_*.onnx"))
    if not shared:
        print("models outside the repository are not there: skipped")
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "plan.onnx"
        for model in models + shared:
            arrays = model.with_suffix(".npz")
            data = ["--data", arrays] if arrays.exists() else []
            for number, (mesh, ranks) in enumerate(MESHES.items()):
                for seed in range(SEEDS):
                    what = f"{model.name} on {mesh}, seed {seed}"
                    made = subprocess.run([TOOL, model, mesh, str(seed), plan, "moving"], capture_output=True, text=True)
                    assert made.returncode == 0, f"{what}: {made.stderr}"
                    checks = [[os.environ["AUTOPAR"], "run", plan, "--model", model, *data, *TOLERANCE]]
                    if CHECK.exists() and (number + seed) % 2 == 0:
                        checks.append([sys.executable, CHECK, plan, ranks, "--model", model, *data, *TOLERANCE])
                    for check in checks:
                        ok, text = passed(check)
                        failures += not ok
                        count += 1
                        if not ok:
                            print(f"FAILED {what}: {check[:2]}\n{text}")
    print(f"{count} executions, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
