"""autopar solve, and the search problems that autopar search writes for it: the same optimum, up to the rounding of each cost to a picosecond."""
import gzip
import json
import os
import pathlib
import subprocess
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = os.environ.get("AUTOPAR_SHARED")


def run(*args, code=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}\n{done.stdout[:2000]}\n{done.stderr[:2000]}"
    return done


def evaluate(problem, choices):
    nodes, edges = problem["nodes"], problem["edges"]
    cost = sum(c[k] for c, k in zip(nodes["costs"], choices, strict=True))
    for (a, b), table in zip(edges["nodes"], edges["costs"]):
        cost += table[choices[a] * len(nodes["costs"][b]) + choices[b]]
    times = sorted({b for b, _ in nodes["intervals"]})
    peak = max((sum(u[k] for (b, e), u, k in zip(nodes["intervals"], nodes["usages"], choices) if b <= t < e) for t in times), default=0)
    return cost, peak


def test_example(folder):
    """The contest's own example, written here anew; its optimum by hand: tried over all 2 x 3 x 2 choices."""
    problem = {"problem": {
        "name": "example", "nodes": {
            "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
            "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
            "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]},
        "edges": {"nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
                  "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]},
        "usage_limit": 50}}
    path = folder / "example.json"
    path.write_text(json.dumps(problem))
    found = json.loads(run("solve", path, "--json", "-o", folder / "answer.json").stdout)
    best = min(evaluate(problem["problem"], [0, i, j, k, 0])[0] for i in range(2) for j in range(3) for k in range(2)
               if evaluate(problem["problem"], [0, i, j, k, 0])[1] <= 50)
    assert found["cost"] == found["lower_bound"] == best, found
    assert json.loads((folder / "answer.json").read_text()) == found["choices"] == json.loads(run("solve", path).stdout)
    zipped = folder / "example.json.gz"
    whole = gzip.compress(path.read_bytes())
    zipped.write_bytes(whole)
    assert json.loads(run("solve", zipped).stdout) == found["choices"]
    for damaged in (whole[:-12], whole[:20] + b"damage" + whole[26:], whole[:2]):
        zipped.write_bytes(damaged)
        assert "gzip data" in run("solve", zipped, code=4).stderr
    problem["problem"]["usage_limit"] = 49
    path.write_text(json.dumps(problem))
    assert "the smallest use of memory is 50 (at time 50)" in run("solve", path, code=3).stderr


def test_dumped_problem_has_the_same_optimum(folder):
    cluster = SOURCE / "models" / "clusters" / "pcie-8.json"
    for model, mesh, part in (("mlp", None, None), ("llama_tiny", None, None), ("llama_tiny", "4x2", None), ("mlp", "8", 0.7)):
        more = ["--mesh", mesh] if mesh else []
        search = lambda *further: json.loads(run("search", SOURCE / "models" / f"{model}.onnx", "--cluster", cluster, "-o", folder / "out",
                                                 "--json", *more, *further).stdout)
        report = search()
        if part:
            more += ["--memory", str(int(part * report["memory"]["peak_bytes"]))]
        report = search("--dump-problem", folder / "problem.json")
        problem = json.loads((folder / "problem.json").read_text())["problem"]
        found = json.loads(run("solve", folder / "problem.json", "--json", "--time-limit", 300).stdout)
        assert found["cost"] == evaluate(problem, found["choices"])[0] == found["lower_bound"], found
        terms = len(problem["nodes"]["costs"]) + len(problem["edges"]["costs"])
        expected = report["cost"]["seconds"] * 1e12
        assert abs(found["cost"] - expected) <= 0.5 * terms + 1e-9 * expected, (model, mesh, part, found["cost"], expected, terms)


def test_stages(folder):
    """Without any stage the answer is another one at most, and no less honest; --trace tells of those that ran."""
    cluster, model = SOURCE / "models" / "clusters" / "pcie-8.json", SOURCE / "models" / "llama_tiny.onnx"
    search = lambda *more: run("search", model, "--cluster", cluster, "-o", folder / "out", "--searcher", "dp", "--json", *more)
    memory = int(0.8 * json.loads(search().stdout)["memory"]["peak_bytes"])
    limited = ["--memory", memory, "--mesh", "4x2", "--dump-problem", folder / "problem.json"]
    best = json.loads(search(*limited).stdout)["cost"]
    problem = json.loads((folder / "problem.json").read_text())["problem"]
    whole = run("solve", folder / "problem.json", "--json", "--trace")
    optimum = json.loads(whole.stdout)["cost"]
    assert whole.stderr.startswith("  stage ") and "  look " in whole.stderr and "  ended: proven\n" in whole.stderr, whole.stderr
    for stage in ("fold", "columns", "mix", "windows", "fold,mix,windows,columns", "presolve"):
        found = json.loads(run("solve", folder / "problem.json", "--json", "--without", stage).stdout)
        cost, peak = evaluate(problem, found["choices"])
        assert cost == found["cost"] and peak <= problem["usage_limit"], (stage, found)
        assert found["lower_bound"] <= optimum <= found["cost"], (stage, found, optimum)
        again = json.loads(search("--memory", memory, "--mesh", "4x2", "--without", stage).stdout)["cost"]
        assert again["lower_bound_seconds"] <= best["seconds"] * (1 + 1e-9) and best["lower_bound_seconds"] <= again["seconds"] * (1 + 1e-9), (stage, again, best)
    traced = search("--memory", memory, "--trace").stderr
    assert "mesh 4x2: " in traced and "  look " in traced, traced
    refused = run("solve", folder / "problem.json", "--without", "mix,fuse", code=2).stderr
    assert "'fuse' is no stage of the search; there are presolve, " in refused, refused


def test_known_optima(folder):
    if not SHARED:
        return print("skipped: AUTOPAR_SHARED is not set")
    known = {"iopddl/asplos-2025-iopddl-A": 6548553650, "iopddl/asplos-2025-iopddl-G": 217039,
             "autoparallel/llama8b_2layers_mesh8x8": 53125340, "autoparallel/llama8b_32layers_mesh8": 2337294090}
    for name, cost in known.items():
        path = pathlib.Path(SHARED) / "data" / f"{name}.json.gz"
        if not path.exists():
            print(f"skipped: {path} is absent")
            continue
        (folder / "problem.json").write_bytes(gzip.open(path).read())
        found = json.loads(run("solve", folder / "problem.json", "--json", "--time-limit", 600).stdout)
        assert found["lower_bound"] == found["cost"], (name, found["cost"], found["lower_bound"])
        # What is tried follows from the limit, not from the clock.
        again = json.loads(run("solve", folder / "problem.json", "--json", "--time-limit", 600).stdout)
        assert again["choices"] == found["choices"], name
        # autoparallel's costs are nanoseconds that were rounded one by one.
        assert abs(found["cost"] - cost) <= (0 if "iopddl" in name else 1e-6 * cost), (name, found["cost"])


with tempfile.TemporaryDirectory() as temporary:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test(pathlib.Path(temporary))
