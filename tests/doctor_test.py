"""autopar doctor: what is there is named with version and path, what is absent or broken says why, and nothing ends the program."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
LAUNCHERS = re.compile(r"(OMPI|PMI|PMIX|SLURM|TORCHELASTIC|MASTER|AUTOPAR)_|RANK$|WORLD_SIZE$")
BARE = {name: value for name, value in os.environ.items() if not LAUNCHERS.search(name)}


def doctor(*options, program=AUTOPAR, **variables):
    done = subprocess.run([program, "doctor", *options], capture_output=True, text=True, env=BARE | variables)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def findings(**variables):
    report = json.loads(doctor("--json", **variables))
    assert report["format"] == "autopar-doctor" and report["version"] == 1
    return report["findings"]


def test_of_this_machine(folder):
    found = findings()
    runtime = found["onnx_runtime"]
    assert runtime["state"] == "ok" and re.fullmatch(r"\d+\.\d+\.\d+", runtime["facts"]["version"]), runtime
    assert pathlib.Path(runtime["facts"]["path"]).name.startswith("libonnxruntime.so"), runtime
    for key in ("cores", "memory", "open_files", "port"):
        assert found[key]["state"] == "ok", found[key]
    assert found["launcher"]["state"] == "absent" and "torchrun" in found["launcher"]["without"]
    for finding in found.values():
        assert finding["what"] and (finding["state"] == "ok" or finding["without"]), finding
    text = doctor("-v")
    for finding in found.values():
        assert f"{finding['state']:8}{finding['name']}: " in text, finding
    assert runtime["facts"]["path"] in text and "compiler: " in text


def test_a_library_that_is_not_there(folder):
    found = findings(AUTOPAR_ORT=str(folder / "none.so"))
    assert found["onnx_runtime"]["state"] == "absent" and str(folder / "none.so") in found["onnx_runtime"]["what"]
    assert "run and calibrate" in found["onnx_runtime"]["without"] and found["cuda_provider"]["state"] == "absent"
    assert json.loads(doctor("--json", AUTOPAR_ORT="x"))["environment"] == {"AUTOPAR_ORT": "x"}
    assert "hush" not in doctor("-v", AUTOPAR_SECRET="hush") and "AUTOPAR_SECRET: (set, not shown)" in doctor(AUTOPAR_SECRET="hush")


def test_broken_libraries(folder):
    """No library at all; one of something else; one that crashes, one that ends the program, when it is opened."""
    (folder / "text.so").write_text("this is no library")
    found = findings(AUTOPAR_ORT=str(folder / "text.so"))
    assert found["onnx_runtime"]["state"] == "broken" and "text.so" in found["onnx_runtime"]["what"], found["onnx_runtime"]
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        print("no compiler: libraries that crash are not tried")
        return
    bodies = {"other": "", "crashes": "__builtin_trap();", "ends": "_exit(3);", "talks": 'write(1, "noise", 5); write(2, "noise", 5);'}
    says = {"other": "no ONNX Runtime library", "crashes": "crashes when it is opened (signal ", "ends": "exit code 3", "talks": "no ONNX Runtime library"}
    for name, body in bodies.items():
        source, library = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(f"#include <unistd.h>\n__attribute__((constructor)) static void opened(void) {{ {body} }}\n")
        subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", library, source], check=True)
        found = findings(AUTOPAR_ORT=str(library))  # the JSON is whole: what libraries say is kept from it
        assert found["onnx_runtime"]["state"] == "broken" and says[name] in found["onnx_runtime"]["what"], (name, found["onnx_runtime"])
        assert found["cores"]["state"] == "ok"


def test_launchers(folder):
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    torchrun = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    found = findings(**torchrun)
    assert found["launcher"]["what"].startswith("torchrun: this is rank 0 of 8, number 0 of 4 on this machine"), found["launcher"]
    assert found["launcher"]["facts"]["WORLD_SIZE"] == "8" and found["address"]["what"] == f"localhost, port {port}"
    assert found["port"]["what"].startswith(f"port {port} is free"), found["port"]
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) if socket.has_dualstack_ipv6() else socket.create_server(("", 0)) as taken:
        found = findings(**torchrun | {"AUTOPAR_PORT": str(taken.getsockname()[1])})
        assert found["port"]["state"] == "broken" and "AUTOPAR_PORT" in found["port"]["without"], found["port"]
    assert found["secret"]["state"] == "absent" and "MASTER_ADDR" in found["secret"]["without"], found["secret"]
    assert findings(**torchrun | {"AUTOPAR_SECRET": "hush"})["secret"]["state"] == "ok"
    assert findings(**torchrun | {"AUTOPAR_SECRET_FILE": str(folder / "none")})["secret"]["state"] == "broken"
    elsewhere = findings(**torchrun | {"MASTER_ADDR": "203.0.113.77"})["port"]  # an address of no machine
    assert elsewhere["state"] == "broken" and "203.0.113.77" in elsewhere["what"], elsewhere
    found = findings(OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="4")
    assert "Open MPI: this is rank 2 of 4" in found["launcher"]["what"] and "MPI carries it" in found["address"]["without"]
    found = findings(RANK="9", WORLD_SIZE="8")
    assert found["launcher"]["state"] == "broken" and "RANK is 9" in found["launcher"]["what"]
    assert "RANK = 9" in doctor(RANK="9", WORLD_SIZE="8")


def test_mpi(folder):
    found = findings()
    for name in ("openmpi", "mpich"):
        finding = found["mpi_" + name]
        built = (pathlib.Path(os.environ["AUTOPAR_BUILD"]) / "src" / f"libautopar_{name}.so").exists()
        assert (finding["state"] == "ok") == built, finding
        if built:
            assert ("MPI" in finding["facts"]["version"]) and "libmpi" in finding["facts"]["path"], finding
    nowhere = findings(AUTOPAR_MPI_LIBRARY=str(folder / "libmpi.so.40"))
    for name in ("openmpi", "mpich"):
        assert nowhere["mpi_" + name]["state"] == "absent", nowhere["mpi_" + name]


def test_gpus_by_the_stand_in(folder):
    """What takes the place of the libraries of CUDA and NCCL."""
    variables = {"AUTOPAR_CUDART": os.environ["AUTOPAR_STAND_IN_CUDART"], "AUTOPAR_NCCL": os.environ["AUTOPAR_STAND_IN_NCCL"]}
    found = json.loads(doctor("--json", **variables))["findings"]
    assert found["cuda_runtime"]["state"] == "ok" and found["cuda_runtime"]["facts"]["path"] == variables["AUTOPAR_CUDART"]
    assert found["nccl"]["state"] == "ok" and re.fullmatch(r"\d+\.\d+\.\d+", found["nccl"]["facts"]["version"]), found["nccl"]
    assert found["nccl_ranks"]["state"] == "ok" and found["nccl_ranks"]["what"].startswith("NCCL "), found["nccl_ranks"]
    lacking = json.loads(doctor("--json", AUTOPAR_CUDART=variables["AUTOPAR_CUDART"], AUTOPAR_NCCL=variables["AUTOPAR_CUDART"]))["findings"]
    assert lacking["nccl"]["state"] == "broken" and "has no entry ncclGetVersion" in lacking["nccl"]["what"], lacking["nccl"]
    assert lacking["nccl_ranks"]["state"] == "broken"


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
