"""OneHot with its depth split: by out_strategy, by an assignment, and in MindSpore's notation, whose first counts are the output's."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
    return done


def graph(folder, axis, indices):
    """Indices that are read from an input, so that ranks meet classes of all others."""
    path = folder / f"one_hot_{axis}_{len(indices)}.json"
    path.write_text(json.dumps({
        "format": "autopar-graph", "version": 1, "name": "one_hot",
        "inputs": [{"name": "ids", "dtype": "int64", "shape": indices}],
        "constants": [{"name": "depth", "dtype": "int64", "shape": [1], "data": [16]},
                      {"name": "values", "dtype": "float32", "shape": [2], "data": [-1, 3]}],
        "ops": [{"name": "hot", "type": "OneHot", "inputs": ["ids", "depth", "values"], "outputs": ["h"], "attributes": {"axis": axis}},
                {"name": "act", "type": "Tanh", "inputs": ["h"], "outputs": ["y"]}],
        "outputs": ["y"]}))
    return path


def check(folder, axis, indices, counts, *options):
    """The same plan, whichever way the split is said, and ranks that compute what it means."""
    model, depth = graph(folder, axis, indices), axis % (len(indices) + 1)
    own = counts[:depth] + counts[depth + 1:]
    wishes = [{"out_strategy": [counts]}, {"in_strategy": [own], "out_strategy": [counts]}, {"in_strategy": [counts]},
              {"in_strategy": [counts, [], []]}, {"in_strategy": [counts, [1], [1]]}]
    plans = set()
    for wish in wishes:
        pins = folder / "pins.json"
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"hot": wish}}))
        run("search", model, "--cluster", "dgx-a100-1x8", "--pin", pins, "-o", folder / "out", *options)
        strategy = json.loads((folder / "out" / "strategy.json").read_text())
        hot = strategy["ops"]["hot"]
        assert hot["out_strategy"] == [counts] and hot["in_strategy"][0] == own, (wish, hot)
        plans.add((folder / "out" / "plan.onnx").read_bytes())
        assert run("run", folder / "out").stdout.splitlines()[-1] == "PASSED", wish
    assert len(plans) == 1, (axis, indices, counts, len(plans))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check(folder, -1, [8], [2, 4])
        check(folder, -1, [8], [2, 4], "--cost-model", "mindspore")
        check(folder, 0, [8], [8, 1])
        check(folder, 1, [4, 8], [2, 4, 1])
        # Counts of neither the indices nor the output.
        pins = folder / "pins.json"
        pins.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": {"hot": {"in_strategy": [[2, 2, 2]]}}}))
        told = run("search", graph(folder, -1, [8]), "--cluster", "dgx-a100-1x8", "--pin", pins, "-o", folder / "out", code=4).stderr
        assert "'hot' (OneHot)" in told and "[2,2,2]" in told, told


if __name__ == "__main__":
    sys.exit(main())
