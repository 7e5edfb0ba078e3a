"""--cost-model mindspore as a user has it: search, units in table and JSON, the plan runs, price agrees."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE.parent / "shared"))
UNIT = "bytes of computation"
FILES = ("strategy.json", "plan.onnx", "report.json")


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def check(model, cluster, folder):
    common = ["--cluster", cluster, "--cost-model", "mindspore"]
    searcher = ["--searcher", "dp"]
    table = run("search", model, *common, *searcher, "-o", folder).stdout
    assert f"costs are in {UNIT}" in table, table
    again = folder.parent / (folder.name + "_again")
    run("search", model, *common, *searcher, "-o", again, "-q")
    for name in FILES:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name
    report = json.loads((folder / "report.json").read_text())
    assert report["cost_model"] == "mindspore" and report["cost_unit"] == UNIT
    assert report["cost"]["proven_optimal"] is True
    for baseline in report["baselines"]:
        assert not baseline["found"] or baseline["seconds"] >= report["cost"]["seconds"] * (1 - 1e-9), baseline
    price = json.loads(run("price", model, *common, "--strategy", folder / "strategy.json", "--json").stdout)
    assert price["cost_unit"] == UNIT
    assert price["seconds"] == report["cost"]["seconds"], (price["seconds"], report["cost"])
    assert abs(sum(t["seconds"] for t in price["terms"]) - price["seconds"]) <= 1e-9 * price["seconds"]
    text = run("price", model, *common, "--strategy", folder / "strategy.json").stdout
    assert " us" not in text and " ms" not in text, text
    assert run("run", folder).stdout.splitlines()[-1].startswith("PASSED")
    print(f"{pathlib.Path(model).name}: {report['cost']['seconds']:.10g} {UNIT}, mesh {report['mesh']}")


def main():
    models = [SOURCE / "models" / "mlp.onnx", SOURCE / "models" / "llama_tiny.onnx"]
    tiny_bert = SHARED / "data" / "models" / "tiny_bert.onnx"
    if tiny_bert.exists():
        models.append(tiny_bert)
    else:
        print("skipped: no data/models/tiny_bert.onnx below AUTOPAR_SHARED")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            check(model, "dgx-a100-1x8", pathlib.Path(folder) / model.stem)


if __name__ == "__main__":
    sys.exit(main())
