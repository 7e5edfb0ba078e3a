"""Plans of rec and of auto on meshes of several axes run: by `autopar run`, and by an executor that shares no code with it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tools.program import cluster, run

# Slow devices beside fast links, the outer ones a bit slower: so that small models are split, too.
MACHINE = {"flops": 1e10, "memory_bandwidth": 1e9, "slower": 3, "latency": 1e-9}
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared"))
MODELS = SHARED / "data" / "models"
CHECK = SHARED / "tools" / "spmd_check.py"
NAMES = ("tiny_llama", "tiny_moe_gather", "tiny_train_llama_adamw")


def is_split(assignment):
    return bool(assignment)


def check(folder, name, model, tiers, *options):
    out, devices = folder / name, 1
    for n in tiers:
        devices *= n
    run("search", MODELS / f"{model}.onnx", "--cluster", cluster(folder, *tiers, **MACHINE), "-o", out, *options)
    strategy = json.loads((out / "strategy.json").read_text())
    axes = len(strategy["mesh"])
    split = sum(is_split(op["assignment"]) for op in strategy["ops"].values())
    assert split > 0.3 * len(strategy["ops"]), f"{name}: {split} of {len(strategy['ops'])} ops are split"
    done = run("run", out, "--data", MODELS / f"{model}.npz")
    assert done.stdout.splitlines()[-1].startswith("PASSED"), (name, done.stdout)
    checked = subprocess.run([sys.executable, CHECK, out / "plan.onnx", str(devices), "--model", MODELS / f"{model}.onnx",
                              "--data", MODELS / f"{model}.npz"], capture_output=True, text=True)
    assert checked.returncode == 0 and "PASSED" in checked.stdout, (name, checked.stdout[-2000:], checked.stderr[-2000:])
    collectives = json.loads((out / "report.json").read_text())["collectives"]
    print(f"{name}: {axes} axes, {split} of {len(strategy['ops'])} ops split, {sum(c['count'] for c in collectives)} collectives")
    return axes


def main():
    if not MODELS.is_dir() or not CHECK.exists():
        print(f"skipped: no models or no spmd_check.py below {SHARED} (AUTOPAR_SHARED)")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in NAMES:
            most = 0
            for tiers in ((4,), (3, 2), (4, 2)):
                ranks = "x".join(map(str, tiers))
                most = max(most, check(folder, f"{model}_rec_{ranks}", model, tiers, "--searcher", "rec"))
            most = max(most, check(folder, f"{model}_auto_2x2x2", model, (2, 2, 2), "--searcher", "auto", "--max-axes", "3"))
            # More tiers than axes: one of these has two.
            axes = check(folder, f"{model}_dp_2x2x2x2", model, (2, 2, 2, 2), "--searcher", "dp")
            assert axes <= 3, f"{model}: {axes} axes on four tiers"
            # A limit that the plan above does not keep: rec's repaired plans run, too.
            report = json.loads((folder / f"{model}_rec_4x2" / "report.json").read_text())
            memory = int(report["memory"]["peak_bytes"] * 0.96)
            check(folder, f"{model}_limited_4x2", model, (4, 2), "--searcher", "rec", "--memory", f"{memory}B")
            assert most > 2, f"{model}: no plan on more than 2 axes"
    return 0


if __name__ == "__main__":
    sys.exit(main())
