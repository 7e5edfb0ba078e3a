"""scripts/gpu_check, all of it, against the stand-in for CUDA and NCCL (tests/stand_in): on GPUs that work, where things go
wrong, and without a GPU. What the real ones do is for the script itself to find out, on a machine that has them.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
STAND_IN = {"AUTOPAR_NCCL": os.environ["AUTOPAR_STAND_IN_NCCL"], "AUTOPAR_CUDART": os.environ["AUTOPAR_STAND_IN_CUDART"]}
SCRIPT = SOURCE / "scripts" / "gpu_check"
NVIDIA_SMI = """#!/bin/sh
# What a machine with GPUs has beside them.
if [ "$1" = -L ]; then for gpu in $(seq "${AUTOPAR_STAND_IN_GPUS:-0}"); do echo "GPU $gpu: stand-in"; done; else echo "nvidia-smi $*"; fi
"""


def check(folder, *options, code, tools=True, **variables):
    """The states of the items by name, and the report."""
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    report = folder / "report.txt"
    path = (f"{tool.parent}:" if tools else "") + "/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(folder), "AUTOPAR": AUTOPAR} | variables
    done = subprocess.run([SCRIPT, "-o", report, "--quick", *options], capture_output=True, text=True, timeout=900, env=environment, cwd=folder)
    text = report.read_text() if report.exists() else ""
    assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}\n{text[-5000:]}"
    assert not done.stderr, done.stderr
    items = dict(reversed(pair) for pair in re.findall(r"^(PASS|FAIL|SKIPPED): ([^(\n]*[^( \n])", text, re.MULTILINE))
    states = list(items.values())
    last = f"{states.count('PASS')} passed, {states.count('FAIL')} failed, {states.count('SKIPPED')} skipped"
    assert text.splitlines()[-1] == done.stdout.splitlines()[-1] == last, (text[-500:], last)
    return items, text


def on_gpus_that_work(folder):
    items, text = check(folder, code=0, AUTOPAR_STAND_IN_GPUS="2", AUTOPAR_STAND_IN_NCCL_VERSION="23003", **STAND_IN)
    passed = {name for name, state in items.items() if state == "PASS"}
    wanted = {f"{plan} on {ranks} ranks, local ops on CPU" for ranks in (1, 2) for plan in ("mlp", "gpt2_tiny", "llama_tiny", "ten times gpt2_tiny with a timeline")}
    wanted |= {f"{kind} on 2 ranks, local ops on CPU" for kind in ("AllReduce", "ReduceScatter", "AllGather", "AllToAll")}
    wanted |= {"calibrate on 2 ranks, local ops on CPU", "gpt2_tiny as planned for this machine on 2 ranks, local ops on CPU",
               "one rank more than GPUs is refused", "ranks that share a GPU on 3 ranks, local ops on CPU", "a rank that gets SIGKILL is named and ends the others",
               "a rank that gets SIGSTOP is named and ends the others"}
    assert wanted <= passed, wanted - passed
    assert "FAIL" not in items.values(), items
    # Each plan has the collective that it is there for.
    for kind in ("AllReduce", "ReduceScatter", "AllGather", "AllToAll"):
        part = text.split(f"== {kind}, 2 ranks")[1].split("\n== ")[0]
        assert re.search(rf"^  \| +{kind} ", part, re.MULTILINE), part
    print(f"two GPUs: {len(passed)} items passed, {sorted(name for name, state in items.items() if state == 'SKIPPED')} skipped")


def ranks_that_share_a_gpu(folder):
    items, text = check(folder, "--ranks-per-gpu", "4", code=0, AUTOPAR_STAND_IN_GPUS="1", AUTOPAR_STAND_IN_NCCL_VERSION="23203", **STAND_IN)
    wanted = {f"{plan} on {ranks} ranks, local ops on CPU" for ranks in (1, 2, 4) for plan in ("mlp", "llama_tiny")}
    wanted |= {f"{plan} on 4 ranks, local ops on CPU" for plan in ("AllToAll", "pipeline-1f1b", "pipeline-zb-v")}
    wanted |= {"calibrate on 4 ranks, local ops on CPU", "one rank more than GPUs is refused", "a rank that gets SIGKILL is named and ends the others"}
    assert wanted <= {name for name, state in items.items() if state == "PASS"}, (wanted, items)
    items, text = check(folder, "--ranks-per-gpu", "4", code=0, AUTOPAR_STAND_IN_GPUS="1", AUTOPAR_STAND_IN_NCCL_VERSION="22809", **STAND_IN)
    assert items["4 ranks per GPU"] == "SKIPPED" and "needs NCCL 2.30.3, this is 2.28.9" in text, items
    print("one GPU: four ranks share it, with an older NCCL they are skipped")


def where_things_go_wrong(folder):
    """An ONNX Runtime that only seems to have a CUDA provider, and one GPU."""
    runtime = folder / "site-packages" / "onnxruntime" / "capi"
    runtime.mkdir(parents=True)
    shutil.copy((SOURCE / ".deps/ort/lib/libonnxruntime.so.1").resolve(), runtime / "libonnxruntime.so.1")
    (runtime / "libonnxruntime_providers_cuda.so").write_bytes(b"")
    (folder / "site-packages" / "nvidia" / "cudnn" / "lib").mkdir(parents=True)
    items, text = check(folder, code=1, AUTOPAR_STAND_IN_GPUS="1", AUTOPAR_ORT=str(runtime / "libonnxruntime.so.1"), **STAND_IN)
    assert items["mlp on 1 ranks, local ops on CPU"] == "PASS" and items["mlp on 1 ranks, local ops on CUDA"] == "FAIL", items
    assert "this ONNX Runtime has no CUDA provider" in text
    skipped = {name for name, state in items.items() if state == "SKIPPED"}
    assert "ranks that are killed or stopped" in skipped, items
    print("an ONNX Runtime without a CUDA provider: told")


def without_gpus(folder):
    items, text = check(folder, code=77, tools=False, AUTOPAR_STAND_IN_GPUS="0", **STAND_IN)
    assert "there is no GPU here" in text and "PASS" not in set(items.values()) - {items.get("doctor")}, text
    usage = subprocess.run([SCRIPT, "--nonsense"], capture_output=True, text=True)
    assert usage.returncode == 2 and "usage: gpu_check" in usage.stdout, usage
    nothing = subprocess.run([SCRIPT], capture_output=True, text=True, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "AUTOPAR": "/no/such/program"})
    assert nothing.returncode in (2, 77), nothing  # without the program it says so; in a built tree it takes that one
    print("no GPU: exit code 77, wrong usage: 2")


def main():
    for part in (without_gpus, on_gpus_that_work, ranks_that_share_a_gpu, where_things_go_wrong):
        with tempfile.TemporaryDirectory() as folder:
            part(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
