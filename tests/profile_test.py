"""--profile: what search, apply and price say of a plan on a runtime with a profile, and what they refuse."""
import hashlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import onnx

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
MODELS = SOURCE / "models"
CLUSTER = MODELS / "clusters" / "dgx-h100-8x8.json"
SMALL = ("--mesh", "8x8")


def run(*args, expect=0):
    done = subprocess.run([AUTOPAR, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def searched(folder, *more):
    cluster = () if "--cluster" in more else ("--cluster", CLUSTER)
    report = json.loads(run("search", MODELS / "llama_tiny.onnx", *cluster, *SMALL, "-o", folder, "--json", *more).stdout)
    del report["phase_seconds"], report["meshes"]  # with times of the search
    return report


def test_ideal(folder):
    plain, ideal = searched(folder / "a"), searched(folder / "b", "--profile", "ideal")
    assert plain == ideal and plain["profile"] == "ideal" and "streams" not in plain
    for name in ("strategy.json", "plan.onnx"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes(), name


def test_ready_made(folder):
    for path in sorted((MODELS / "profiles").glob("*.json")):
        report = searched(folder / path.stem, "--profile", path.stem)
        assert report["profile"] == path.stem
        streams = report["streams"]
        links = streams.pop("links")
        assert all(value >= 0 for value in [*streams.values(), *links.values()]) and list(links) == ["nvlink", "ib"], streams
        assert abs(sum(links.values()) - streams["communication_seconds"]) <= 1e-9 * sum(links.values()), streams
        busiest = max(streams["compute_seconds"] + streams["exposed_communication_seconds"], streams["host_seconds"])
        assert report["cost"]["seconds"] >= busiest * (1 - 1e-9), report["cost"]
        assert report["cost"]["lower_bound_seconds"] <= report["cost"]["seconds"]
        # Priced as it was claimed, by another command, to the last digit.
        strategy = json.loads((folder / path.stem / "strategy.json").read_text())
        run("apply", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, "--strategy", folder / path.stem / "strategy.json", "--profile", path.stem,
            "-o", folder / "again")
        again = json.loads((folder / "again" / "report.json").read_text())
        assert again["cost"]["seconds"] == report["cost"]["seconds"] == strategy["cost"]["seconds"]
        price = ("price", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, "--strategy", folder / path.stem / "strategy.json", "--profile", path.stem)
        assert json.loads(run(*price, "--json").stdout)["seconds"] == report["cost"]["seconds"]
        table = run("search", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, *SMALL, "-o", folder / "t", "--profile", path).stdout
        total = re.compile(r"^  (total|saved side by side|waiting for the host) +(-?[0-9.]+ \w+)$", re.MULTILINE)
        assert total.findall(table) == total.findall(re.sub(" +$", "", run(*price).stdout, flags=re.MULTILINE)) != [], table
        assert f"profile {path.stem}: compute is busy for" in table
    print(f"{len(list((MODELS / 'profiles').glob('*.json')))} ready-made profiles")


def test_in_cluster(folder):
    profile = json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text())
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps({**json.loads(CLUSTER.read_text()), "profile": profile}))
    named, within = searched(folder / "c", "--profile", "h100-nanotron"), searched(folder / "d", "--cluster", cluster)
    assert named["cost"] == within["cost"] and within["profile"] == "h100-nanotron"
    assert searched(folder / "e", "--cluster", cluster, "--profile", "ideal")["cost"] == searched(folder / "f")["cost"]
    cluster.write_text(json.dumps({**json.loads(CLUSTER.read_text()), "profile": {**profile, "launch_s": -1}}))
    said = run("search", MODELS / "mlp.onnx", "--cluster", cluster, "-o", folder / "g", expect=4).stderr
    assert str(cluster) in said and "profile" in said and "launch_s" in said, said
    run("price", folder / "d" / "plan.onnx", "--cluster", CLUSTER, "--profile", "h100-nanotron", expect=2)


def test_of_strategy(folder):
    """A strategy says by which profile it is priced, and is priced by it again; its bound is only claimed at these prices."""
    report = searched(folder / "h", "--profile", "h100-nanotron")
    path = folder / "h" / "strategy.json"
    profile = json.loads(path.read_text())["profile"]
    file = MODELS / "profiles" / "h100-nanotron.json"
    assert profile == {"name": "h100-nanotron", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    ask = ("--cluster", CLUSTER, "--strategy", path)
    assert json.loads(run("price", MODELS / "llama_tiny.onnx", *ask, "--json").stdout)["seconds"] == report["cost"]["seconds"]
    run("apply", MODELS / "llama_tiny.onnx", *ask, "-o", folder / "i")
    for name in ("strategy.json", "plan.onnx"):
        assert (folder / "h" / name).read_bytes() == (folder / "i" / name).read_bytes(), name
    run("apply", MODELS / "llama_tiny.onnx", *ask, "-o", folder / "j", "--profile", "ideal")
    ideal = json.loads((folder / "j" / "report.json").read_text())
    assert ideal["profile"] == "ideal" and not ideal["cost"].get("lower_bound_seconds"), ideal["cost"]
    assert "profile" not in json.loads((folder / "j" / "strategy.json").read_text())
    own = folder / "own.json"
    own.write_text(json.dumps({**json.loads(file.read_text()), "name": "own"}))
    searched(folder / "k", "--profile", own)
    said = run("apply", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, "--strategy", folder / "k" / "strategy.json", "-o", folder / "l").stderr
    assert "'own'" in said and "--profile" in said, said


def trained(folder, profile, *more, precision="mixed-bf16"):
    path = folder / "changed.json"
    path.write_text(json.dumps(profile))
    return json.loads(run("search", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, *SMALL, "--train", "--batch", 64, "--loss", "cross_entropy",
                          "--optimizer", "adamw", "--precision", precision, "--micro-batches", 2, "--searcher", "dp", "--profile", path, "-o", folder / "trained", "--json",
                          *more).stdout)


def test_deferred(folder):
    """What goes on beside compute is not waited for; what is waited for, and what is lost to it, makes a step longer. One plan for all."""
    profile = {**json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text()), "host_s": 0, "deferred": [], "slowdown": 0, "pipelined": 0}
    # Whole weights on all ranks, so that gradients are summed over both tiers, and optimizer states that are split.
    pins = folder / "pins.json"
    plain = trained(folder, profile, "--zero", "1")
    pins.write_bytes((folder / "trained" / "strategy.json").read_bytes())
    seconds = {}
    for name, change in (("none", {}), ("sums", {"deferred": ["all_reduce", "reduce_scatter"]}), ("updates", {"deferred": ["update"]}),
                         ("all", {"deferred": ["all_reduce", "reduce_scatter", "gather", "update"]}),
                         ("slow", {"deferred": ["all_reduce", "reduce_scatter", "gather", "update"], "slowdown": 0.5})):
        seconds[name] = trained(folder, {**profile, **change}, "--pin", pins)["cost"]["seconds"]
    assert seconds["none"] == plain["cost"]["seconds"]
    assert seconds["sums"] < seconds["none"] and seconds["updates"] < seconds["none"], seconds
    assert seconds["all"] < min(seconds["sums"], seconds["updates"]) and seconds["all"] < seconds["slow"] <= seconds["none"] * 1.5, seconds
    # Activations are exchanged in the plan in float32.
    blocked = trained(folder, profile, "--zero", "1", precision="fp32")["cost"]["seconds"]
    pins.write_bytes((folder / "trained" / "strategy.json").read_bytes())
    assert trained(folder, {**profile, "pipelined": 0.5}, "--pin", pins, precision="fp32")["cost"]["seconds"] < blocked


def test_room_for_the_runtime(folder):
    """Plans are offered that fit with what the runtime takes; where only others fit that is said, with both numbers."""
    profile = json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text())
    path = folder / "large.json"
    path.write_text(json.dumps({**profile, "reserved_bytes": 1 << 20, "fragmentation": 0.25}))
    asked = ("search", MODELS / "llama_tiny.onnx", "--cluster", CLUSTER, *SMALL, "--profile", path, "-o", folder / "room")
    report = json.loads(run(*asked, "--json").stdout)["memory"]
    assert abs(report["upper_bytes"] - (report["peak_bytes"] * 1.25 + (1 << 20))) <= 1, report
    least = json.loads(run(*asked, "--json", "--memory", 2 << 20).stdout)["memory"]
    assert least["upper_bytes"] <= 2 << 20, least
    between = run(*asked[:-2], "-o", folder / "none", "--memory", 1 << 20, expect=3).stderr
    assert "no plan surely fits" in between and "h100-nanotron" in between and not (folder / "none").exists(), between


def test_gradients(folder):
    """What a runtime holds for gradients counts on every device, also with one pass, accumulators among it."""
    profile = {**json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text()), "reserved_bytes": 0, "fragmentation": 0}
    pins = folder / "gradients.json"
    bytes_of = {}
    for held in (0, 4, 6):
        more = ("--pin", pins) if held else ("--zero", "1")
        bytes_of[held] = trained(folder, {**profile, "gradient_bytes": held}, *more)["memory"]
        if not held:
            pins.write_bytes((folder / "trained" / "strategy.json").read_bytes())
    # Two passes have float32 accumulators. Passes read 16-bit copies, and masters of which there is none; 2 bytes more of these are one more of each.
    strategy = json.loads(pins.read_text())
    sizes = {axis["name"]: axis["size"] for axis in strategy["mesh"]}
    assert bytes_of[4]["peak_bytes"] == bytes_of[0]["peak_bytes"], bytes_of
    more = bytes_of[6]["peak_bytes"] - bytes_of[0]["peak_bytes"]
    read = 0
    names = {value.name for value in onnx.load(folder / "trained" / "train.onnx", load_external_data=False).graph.input}
    for value in onnx.load(folder / "trained" / "train.onnx", load_external_data=False).graph.input:
        is_copy = value.name.startswith("bf16.")
        if not is_copy and (f"bf16.{value.name}" in names or f"adam.m.{value.name}" not in names):
            continue
        parts = 1
        for axis in re.findall(r"[a-z_0-9]+", strategy["tensors"][value.name]["spec"].split("+")[0]):
            parts *= sizes[axis]
        if parts == math.prod(sizes.values()):  # no other rank has it: nothing is added up
            continue
        read += (2 if is_copy else 4) * math.prod(d.dim_value for d in value.type.tensor_type.shape.dim) // parts
    assert read > 0 and more == read, (more, read)


def test_held_in_pass(folder):
    """Gradients of a pass are there to its end, and the piece in which queries, keys and values are made as long as the queries. On one device."""
    cluster = json.loads(CLUSTER.read_text())
    cluster["tiers"] = [{**cluster["tiers"][0], "size": 1}]
    path = folder / "one.json"
    path.write_text(json.dumps(cluster))
    profile = json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text())

    def held(model, joined, of_pass):
        changed = folder / "held.json"
        changed.write_text(json.dumps({**profile, "attention": {**profile["attention"], "joined": joined}, "pass_gradient_bytes": of_pass}))
        report = run("search", model, "--cluster", path, "--train", "--batch", 8, "--loss", "cross_entropy", "--optimizer", "adamw", "--precision", "mixed-bf16",
                     "--micro-batches", 2, "--recompute", "none", "--profile", changed, "-o", folder / "held", "--json").stdout
        return json.loads(report)["memory"]["peak_bytes"]

    # 2 layers, 4 sequences of 16 words at a time, width 64, in 16 bits.
    model = folder / "heads.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "4",
                    "--feed-forward", "128", "--vocabulary", "128", "--sequence", "16", "-o", model], check=True, stdout=subprocess.DEVNULL)
    plain, queries = held(model, 0, 0), 4 * 16 * 64 * 2
    more = held(model, 1, 0) - plain
    assert 0 < more <= 2 * 2 * queries and more % (2 * queries) == 0, (more, queries)
    # Keys and values of fewer heads are no part of such a piece.
    assert held(MODELS / "llama_tiny.onnx", 1, 0) == held(MODELS / "llama_tiny.onnx", 0, 0)
    weights = sum(math.prod(d.dim_value for d in i.type.tensor_type.shape.dim) for i in onnx.load(model, load_external_data=False).graph.input if i.name != "input_ids")
    # The peak may be elsewhere.
    assert plain <= held(model, 0, 2) <= plain + 2 * weights and plain < held(model, 0, 4) <= plain + 4 * weights, (plain, weights)


def test_repeated_attention(folder):
    """The op Attention with its sequence in parts costs as much in the backward phase, where it is repeated, as in the forward one."""
    folder.mkdir()
    model, cluster = folder / "attention.onnx", folder / "two.json"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "1", "--hidden", "16", "--heads", "4", "--kv-heads", "1",
                    "--feed-forward", "48", "--vocabulary", "64", "--sequence", "16", "--attention", "op", "-o", model], check=True, stdout=subprocess.DEVNULL)
    cluster.write_text(json.dumps({"format": "autopar-cluster", "version": 1, "name": "two", "tiers": [
        {"name": "link", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6}], "device": {
            "name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}}}))
    for searcher in ("dp", "rec", "auto"):
        run("search", model, "--cluster", cluster, "--train", "--optimizer", "adam", "--loss", "cross_entropy", "--batch", 24, "--micro-batches", 4,
            "--recompute", "products", "--searcher", searcher, "--profile", "h100-megatron", "-o", folder / "plan")
        run("verify", folder / "plan")


def test_whole_segments(folder):
    """Where whole segments are repeated, what ends them runs twice, and nothing else changes; what a search claims is what is priced."""
    folder.mkdir()
    model, cluster, strategy, checkpoints = folder / "llama.onnx", folder / "four.json", folder / "plan" / "strategy.json", folder / "checkpoints.json"
    cluster.write_text(json.dumps({"format": "autopar-cluster", "version": 1, "name": "four", "tiers": [
        {"name": name, "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6} for name in ("link", "net")], "device": {
            "name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}}}))
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2",
                    "--feed-forward", "96", "--vocabulary", "64", "--sequence", "32", "-o", model], check=True, stdout=subprocess.DEVNULL)
    checkpoints.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "checkpoints": ["layers.*.mlp.residual_out"]}))
    good = json.loads((MODELS / "profiles" / "h100-megatron.json").read_text())
    terms = {}
    for mesh, recompute in (("1", "full"), ("1", "none"), ("2x2", "full")):
        for whole in (0, 1):
            profile = folder / "profile.json"
            profile.write_text(json.dumps({**good, "whole_segments": whole}))
            options = ("--cluster", cluster, "--train", "--optimizer", "adam", "--loss", "cross_entropy", "--batch", 8, "--micro-batches", 2, "--profile", profile)
            pins = ("--pin", checkpoints) if recompute == "full" else ()
            devices = ("--mesh", mesh) if mesh != "1" else ("--searcher", "replicate")
            run("search", model, *options, *pins, *devices, "--recompute", recompute, "-o", folder / "plan", "-q")
            claimed = json.loads(strategy.read_text())["cost"]
            priced = json.loads(run("price", model, "--cluster", cluster, "--profile", profile, "--strategy", strategy, "--json").stdout)
            assert priced["seconds"] == claimed["seconds"] and claimed.get("lower_bound_seconds", 0) <= claimed["seconds"], (mesh, recompute, whole, claimed)
            terms[mesh, recompute, whole] = priced
    assert terms["1", "none", 0]["seconds"] == terms["1", "none", 1]["seconds"]
    assert terms["2x2", "full", 0]["seconds"] < terms["2x2", "full", 1]["seconds"]
    # Of one device: the last product of each layer, and what adds it to the residual.
    ends = [sum(term["seconds"] for term in terms["1", "full", whole]["terms"] if re.fullmatch(r"layers\.\d\.mlp\.(down_proj|residual)", term["op"])) for whole in (0, 1)]
    more = terms["1", "full", 1]["seconds"] - terms["1", "full", 0]["seconds"]
    assert ends[0] > 0 and abs(ends[1] - 2 * ends[0]) < 1e-12 and abs(more - ends[0]) < 1e-12, (ends, more)


def test_refused(folder):
    model = ("search", MODELS / "mlp.onnx", "--cluster", CLUSTER, "-o", folder / "refused")
    unknown = run(*model, "--profile", "h100-nanotrom", expect=4).stderr
    assert "h100-nanotrom" in unknown and "ideal" in unknown and "h100-nanotron" in unknown
    good = json.loads((MODELS / "profiles" / "h100-nanotron.json").read_text())
    path = folder / "profile.json"
    for change, words in (({"matrix": {"fraction": 2}}, "matrix.fraction"), ({"fuses": ["loops"]}, "fuses[0]"), ({"lunch_s": 1}, "lunch_s"),
                          ({"host_s": "fast"}, "host_s"), ({"stage_collective": {"each_s": -1}}, "stage_collective.each_s"), ({"stage_collective": {"ms": 1}}, "ms"), ({"deferred": ["sums"]}, "deferred[0]"), ({"pipelined": 1.5}, "pipelined"),
                          ({"pass_gradient_bytes": 65}, "pass_gradient_bytes"), ({"attention": {"joint": 1}}, "joint"),
                          ({"attention": {"half_length": -1}}, "attention.half_length"), ({"memory": {"gather": 1.01}}, "memory.gather"),
                          ({"memory": {"norm": 0.5}}, "norm"), ({"matrix": {"least_k": -1}}, "matrix.least_k"),
                          ({"slowdown": -0.1}, "slowdown"), ({"name": ""}, "name"), ({"format": "autopar-cluster"}, "format")):
        path.write_text(json.dumps({**good, **change}))
        said = run(*model, "--profile", path, expect=4).stderr
        assert str(path) in said and words in said, (change, said)
    assert not (folder / "refused").exists()
    hint = run("run", folder / "a", "--profile", "t.json", expect=2).stderr
    assert "--timeline t.json" in hint


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_ideal(folder)
        test_ready_made(folder)
        test_in_cluster(folder)
        test_of_strategy(folder)
        test_deferred(folder)
        test_room_for_the_runtime(folder)
        test_gradients(folder)
        test_held_in_pass(folder)
        test_repeated_attention(folder / "repeated")
        test_whole_segments(folder / "whole")
        test_refused(folder)


if __name__ == "__main__":
    sys.exit(main())
