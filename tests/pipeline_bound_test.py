"""The bound that a search over pipelines prints, against plans found by any means: each level of recomputation, other cuts,
with as much memory or less. What fits is a plan of the larger limit too, so none may be below the bound."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.chain_model import chain

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CLUSTER = {"format": "autopar-cluster", "version": 1, "name": "4 devices",
           "device": {"name": "device", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 1e11, "peak_flops_per_s": {"float32": 1e12}},
           "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6},
                     {"name": "outer", "size": 2, "bandwidth_bytes_per_s": 3e9, "latency_s": 1e-5}]}
LEVELS = ("auto", "cheap", "products", "full")


def searched(folder, model, *options, loss="cross_entropy"):
    """Its report; nothing where nothing fits."""
    out = folder / "plan"
    command = [AUTOPAR, "search", model, "--cluster", folder / "cluster.json", "--train", "--optimizer", "adamw", "--loss", loss, "--batch", 128,
               "-q", "-o", out, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    if done.returncode == 3:
        return None
    assert done.returncode == 0, f"{options}: exit {done.returncode}\n{done.stderr}"
    return json.loads((out / "report.json").read_text())


def compare(folder, model, options, shares, others):
    """`shares`: of what the plan takes that repeats most, as limits."""
    most = searched(folder, model, *options, "--recompute", "full")["memory"]["peak_bytes"]
    found = []  # level, bytes, seconds
    bounds = []  # level, limit, seconds
    for share in shares:
        limit = int(most * share)
        for level in LEVELS if share > 1 else ("auto", "full"):
            report = searched(folder, model, *options, "--recompute", level, "--memory", limit)
            if report is None:
                continue
            found.append((level, limit, report["cost"]["seconds"]))
            bounds.append((level, limit, report["cost"]["lower_bound_seconds"]))
        for other in others:
            report = searched(folder, model, *options, "--memory", limit, *other)
            if report is not None:
                found.append(("full", limit, report["cost"]["seconds"]))
    report = searched(folder, model, *options, "--recompute", "full")
    found.append(("full", report["memory"]["peak_bytes"], report["cost"]["seconds"]))
    # Where that fits just so, as much is found, whether it is searched or made of plans of units.
    just_so = [seconds for level, limit, seconds in found if level == "full" and limit == most]
    assert just_so[0] <= report["cost"]["seconds"] * 1.1, (just_so, report["cost"])
    assert len({limit for _, limit, _ in found}) >= len(shares) and len(bounds) > len(shares), (found, bounds)
    for level, limit, bound in bounds:
        least = min(seconds for other, bytes_, seconds in found if bytes_ <= limit and level in ("auto", other))
        assert bound <= least * (1 + 1e-9), f"no plan of level {level} within {limit} bytes is said to take less than {bound} s, and one takes {least} s: {found}"
        assert bound > 0.4 * least, f"{level}, {limit} bytes: a bound of {bound} s, and the best plan takes {least} s"


def counts(folder, model):
    """All numbers of micro-batches in one search, and each by itself."""
    of_each = {}
    for count in (1, 2, 4, 8, 16, 32, 64, 128):
        report = searched(folder, model, "--stages", 2, "--micro-batches", count)
        of_each[count] = report["cost"]["seconds"]
    report = searched(folder, model, "--stages", 2, "--micro-batches", "auto")
    taken = report["pipeline"]["micro_batches"]
    assert {trial["micro_batches"] for trial in report["pipeline"]["tried"]} == set(of_each), report["pipeline"]["tried"]
    assert report["cost"]["lower_bound_seconds"] <= min(of_each.values()) * (1 + 1e-9), (report["cost"], of_each)
    # What is not likely to be faster is not planned.
    assert min(of_each.values()) <= report["cost"]["seconds"] * (1 + 1e-9) <= min(of_each.values()) * 1.02, (report["cost"], of_each)
    assert report["cost"]["seconds"] < max(of_each.values()) / 1.2 and taken not in (1, 128), (taken, of_each)


def schedules(folder, model):
    """Stages with several chunks, and backward passes in two parts: no cuts take less than is said of all."""
    for schedule, cuts in (("zb-h1", 1), ("zb-v", 3), ("dualpipev", 3), ("interleaved", 3)):
        options = ["--stages", 2, "--micro-batches", 8, "--schedule", schedule]
        best = searched(folder, model, *options)
        places = [f"layers.{layer}.{part}.residual" for layer in range(4) for part in ("attn", "mlp")][:-1]
        found = []
        for first in range(len(places) - cuts + 1):
            for step in (1, 2, 3):
                names = places[first::step][:cuts]
                if len(names) == cuts:
                    found.append(searched(folder, model, *options, "--cuts", ",".join(names))["cost"]["seconds"])
        assert len(found) > 6, (schedule, found)
        bound = best["cost"]["lower_bound_seconds"]
        assert bound <= min(found + [best["cost"]["seconds"]]) * (1 + 1e-9), (schedule, bound, found)
        assert best["cost"]["seconds"] <= min(found) * 1.05, (schedule, best["cost"], found)


def stages_of_chunks(folder, model):
    """Chunks of one stage are not at their peaks at the same time."""
    for schedule in ("interleaved", "zb-v"):
        options = ["--stages", 2, "--micro-batches", 8, "--schedule", schedule, *(("--chunks", 2) if schedule == "interleaved" else ())]
        report = searched(folder, model, *options)
        of_stage = {}
        for chunk in report["pipeline"]["chunks"]:
            of_stage.setdefault(chunk["stage"], []).append(chunk["memory_bytes"])
        together, peak = max(map(sum, of_stage.values())), report["memory"]["peak_bytes"]
        assert max(max(chunks) for chunks in of_stage.values()) < peak, (schedule, peak, of_stage)
        assert peak < together, (schedule, peak, of_stage)
        # The plan that is written has the same account, and its programs, counted one by one, hold no more.
        priced = lambda *what: json.loads(subprocess.run(list(map(str, [AUTOPAR, "price", *what, "--cluster", folder / "cluster.json", "--json"])), capture_output=True, text=True, check=True, timeout=300).stdout)
        assert priced(model, "--strategy", folder / "plan" / "strategy.json")["memory_bytes"] == peak
        of_lines = [line["memory_bytes"] for line in priced(folder / "plan")["lines"]]
        assert 0.9 * peak < max(of_lines) <= peak, (schedule, of_lines, peak)
        # What fits just so is found again, as fast; and with less no more is taken than there is.
        again = searched(folder, model, *options, "--memory", peak)
        assert again["cost"]["seconds"] <= report["cost"]["seconds"] * 1.01 and again["memory"]["peak_bytes"] <= peak, (again["cost"], report["cost"])
        for share in (0.9, 0.75):
            less = searched(folder, model, *options, "--memory", int(share * peak))
            assert less["memory"]["peak_bytes"] <= share * peak and less["cost"]["lower_bound_seconds"] <= less["cost"]["seconds"], less["memory"]
            # Bounds with less memory are no lower than those with more.
            assert less["cost"]["seconds"] >= report["cost"]["lower_bound_seconds"], (less["cost"], report["cost"])
    # Also where chunks are planned anew more than once; nothing that does not fit is offered.
    for count, chunks, share in ((8, 4, 0.62), (32, 2, 0.45)):
        options = ["--stages", 2, "--micro-batches", count, "--schedule", "interleaved", "--chunks", chunks]
        limit = int(share * searched(folder, model, *options)["memory"]["peak_bytes"])
        less = searched(folder, model, *options, "--memory", limit)
        assert less is None or less["memory"]["peak_bytes"] <= limit, (count, chunks, limit, less["memory"])



def busy_hosts(folder):
    """Where the host is busier than compute, and a cut leaves a part of a unit to each stage: what is claimed before a plan is there."""
    model = folder / "attention.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "4", "--hidden", "64", "--heads", "4",
                    "--feed-forward", "32", "--vocabulary", "64", "--sequence", "1024", "-o", model], check=True, stdout=subprocess.DEVNULL)
    cluster = CLUSTER | {"name": "2 devices", "tiers": [{"name": "inner", "size": 2, "bandwidth_bytes_per_s": 1e10, "latency_s": 1e-9}]}
    (folder / "two.json").write_text(json.dumps(cluster))
    taken = []
    for host in (1e-6, 2.5e-5, 3e-5, 4e-5):
        profile = {"format": "autopar-profile", "version": 1, "name": "host", "fuses": ["attention", "normalisation", "elementwise", "optimizer"],
                   "strided_operands": 1, "launch_s": 0, "host_s": host, "matrix": {"fraction": 0.9}, "attention": {"forward": 0.6, "backward": 0.5},
                   "memory": {"fraction": 0.85}, "deferred": ["all_reduce", "reduce_scatter", "gather", "update"]}
        (folder / "host.json").write_text(json.dumps(profile))
        for cut in ("layers.2.mlp.residual", "layers.3.mlp.residual"):
            command = [AUTOPAR, "-v", "search", model, "--cluster", folder / "two.json", "--profile", folder / "host.json", "--train", "--optimizer", "adamw",
                       "--loss", "cross_entropy", "--batch", 128, "--micro-batches", 128, "--stages", 2, "--cuts", cut, "-o", folder / "plan"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            claimed = [float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]
                       for number, unit in re.findall(r"2 stages, 1f1b: no plan takes less than ([0-9.]+) (s|ms|us)", done.stderr)]
            seconds = json.loads((folder / "plan" / "report.json").read_text())["cost"]["seconds"]
            taken.append(seconds)
            # Printed with four digits.
            assert claimed and max(claimed) <= seconds * 1.001, f"host {host}, cut {cut}: no plan is said to take less than {claimed}, and one takes {seconds} s"
            assert max(claimed) > 0.75 * seconds, (host, cut, claimed, seconds)
    assert taken[-2] > 1.5 * taken[0], taken  # the host is what takes longest


def narrow_layers(folder):
    """Kernels of derivatives that have ops of two layers, and biases that are ops of their own."""
    folder /= "two"  # devices, one a stage: their plans are at the bound
    folder.mkdir()
    device = CLUSTER["device"] | {"memory_bandwidth_bytes_per_s": 4e9, "peak_flops_per_s": {"float32": 2e9}}
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"device": device, "tiers": [CLUSTER["tiers"][0] | {"latency_s": 1e-8}]}))
    rng, model = np.random.default_rng(5), folder / "narrow.onnx"
    for normalised in True, False:
        nodes, arrays, value = [], {}, "X"
        for layer in range(3):
            w, v, b = names = [f"l{layer}.{n}" for n in "wvb"]
            arrays |= {n: rng.normal(size=shape).astype(np.float32) / 4 for n, shape in zip(names, ((20, 10), (10, 20), (20,)))}
            if normalised:
                arrays |= {f"l{layer}.scale": np.ones(20, np.float32), f"l{layer}.shift": np.zeros(20, np.float32)}
                nodes.append(helper.make_node("LayerNormalization", [value, f"l{layer}.scale", f"l{layer}.shift"], [f"n{layer}"], name=f"n{layer}"))
                value = f"n{layer}"
            nodes += [helper.make_node("MatMul", [value, w], [f"h{layer}"], name=f"h{layer}"),
                      helper.make_node("Gemm", [f"h{layer}", v, b], [f"y{layer}"], name=f"y{layer}")]
            value = f"y{layer}"
            if not normalised:
                nodes.append(helper.make_node("Relu", [value], [f"r{layer}"], name=f"r{layer}"))
                value = f"r{layer}"
        arrays["head"] = rng.normal(size=(20, 10)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [value, "head"], ["logits"], name="logits"))
        graph = helper.make_graph(nodes, "narrow", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [16, 20])],
                                  [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [16, 10])], [numpy_helper.from_array(a, n) for n, a in arrays.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), model)
        for profile in "h100-nanotron", "a100-megatron", "ideal":
            for schedule in "1f1b", "zb-h1":
                report = searched(folder, model, "--micro-batches", 8, "--stages", 2, "--schedule", schedule, "--profile", profile, "--memory", "64GiB", loss="mse")
                cost = report["cost"]
                assert cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (normalised, profile, schedule, cost)


def transposed_between_units(folder):
    """Units end at a Transpose that a product writes: cuts elsewhere leave it one that moves nothing."""
    folder /= "transposed"
    folder.mkdir()
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"tiers": [CLUSTER["tiers"][0] | {"size": 3, "latency_s": 1e-8}]}))
    model = folder / "transposed.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "2", "--hidden", "8", "--heads", "2",
                    "--feed-forward", "8", "--vocabulary", "12", "--sequence", "4", "-o", model], check=True, stdout=subprocess.DEVNULL)
    # One device a stage: plans are as fast as their ops.
    for cuts in "layers.1.mlp.up_proj,norm.square", "layers.1.mlp.silu,norm.inverse", "layers.1.attn.mix,norm.unit":
        cost = searched(folder, model, "--stages", 3, "--micro-batches", 8, "--cuts", cuts)["cost"]
        assert 0.9 * cost["seconds"] < cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (cuts, cost)


def early_ops(folder):
    """Ops of the backward pass that read nothing of it, as BatchNormalizations have them, are kernels of their own in the step and not in each chunk."""
    folder /= "early"
    folder.mkdir()
    device = CLUSTER["device"] | {"memory_bandwidth_bytes_per_s": 2e6, "peak_flops_per_s": {"float32": 1e6, "bfloat16": 3e6}}
    tiers = [tier | {"latency_s": 1e-9, "bandwidth_bytes_per_s": 8e9} for tier in CLUSTER["tiers"]]
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"device": device, "tiers": tiers}))
    rng, nodes, arrays, value = np.random.default_rng(3), [], {}, "X"
    for layer in range(5):
        c, s, b, m, v = names = [f"l{layer}.{n}" for n in "csbmv"]
        shapes = ((8, 4 if layer == 0 else 8, 3, 3), (8,), (8,), (8,), (8,))
        arrays |= {n: rng.uniform(0.5, 1.5, shape).astype(np.float32) for n, shape in zip(names, shapes)}
        nodes += [helper.make_node("Conv", [value, c], [f"c{layer}"], name=f"c{layer}", pads=[1] * 4),
                  helper.make_node("BatchNormalization", [f"c{layer}", s, b, m, v], [f"n{layer}", f"m{layer}", f"v{layer}"], name=f"n{layer}", training_mode=1),
                  helper.make_node("Relu", [f"n{layer}"], [f"r{layer}"], name=f"r{layer}")]
        value = f"r{layer}"
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["Y"], name="pool"))
    graph = helper.make_graph(nodes, "early", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [24, 4, 6, 6])],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [24, 8, 1, 1])], [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    model = folder / "early.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    for cuts in "n1,n2,n3", "n0,n2,n4", "c1,c2,c3":
        command = [AUTOPAR, "search", model, "--cluster", folder / "cluster.json", "--train", "--optimizer", "adamw", "--loss", "mse", "--micro-batches", 8, "--stages", 4,
                   "--profile", "h100-compiled", "--precision", "mixed-bf16", "--cuts", cuts, "-q", "-o", folder / "plan"]
        subprocess.run(list(map(str, command)), check=True, timeout=300, capture_output=True)
        cost = json.loads((folder / "plan" / "report.json").read_text())["cost"]
        assert 0.9 * cost["seconds"] < cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (cuts, cost)


def numbers_of_units(folder):
    """Whether gradients are finite, and their norm, are summed over the devices once in a step, and by each unit that is searched by itself."""
    folder /= "numbers"
    folder.mkdir()
    device = {"name": "d", "memory_bytes": 80e9, "memory_bandwidth_bytes_per_s": 2e12, "peak_flops_per_s": {"float32": 19e12, "float16": 300e12}}
    tiers = [{"name": "t0", "size": 3, "bandwidth_bytes_per_s": 3e11, "latency_s": 1e-6}]
    (folder / "cluster.json").write_text(json.dumps({"format": "autopar-cluster", "version": 1, "name": "three", "device": device, "tiers": tiers}))
    for options in ["--precision", "fp16"], ["--clip-norm", "1"]:
        command = [AUTOPAR, "search", SOURCE / "models/llama_tiny.onnx", "--cluster", folder / "cluster.json", "--train", "--loss", "mse:logits", "--batch", 4, "--micro-batches", 4,
                   "--optimizer", "adam", "--zero", 2, "--stages", "auto", "--schedule", "interleaved", *options, "-q", "-o", folder / "plan"]
        subprocess.run(list(map(str, command)), check=True, timeout=300, capture_output=True)
        cost = json.loads((folder / "plan" / "report.json").read_text())["cost"]
        assert 0.5 * cost["seconds"] < cost["lower_bound_seconds"] <= cost["seconds"] * (1 + 1e-9), (options, cost)


def large_updates(folder):
    """Where the update of a few layers takes as long as passes: it counts in where the step is cut."""
    folder /= "updates"
    folder.mkdir()
    device = CLUSTER["device"] | {"memory_bandwidth_bytes_per_s": 1e9}
    tier = CLUSTER["tiers"][0] | {"latency_s": 1e-8}
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"device": device, "tiers": [tier]}))
    widths = (32, 32, 32, 32, 1024, 32, 32, 32)  # the updates of the fifth and the sixth are long
    nodes, arrays, value = [], {}, "X"
    for layer, (before, behind) in enumerate(zip((32, *widths), widths)):
        arrays[f"w{layer}"] = np.zeros((before, behind), np.float32)
        nodes += [helper.make_node("MatMul", [value, f"w{layer}"], [f"h{layer}"], name=f"h{layer}"), helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"], name=f"r{layer}")]
        value = f"r{layer}"
    graph = helper.make_graph(nodes, "updates", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [128, 4, 32])],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, [128, 4, 32])], [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    model = folder / "updates.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), model)
    for schedule, cuts in ("1f1b", [(f"h{cut}",) for cut in range(1, 8)]), ("interleaved", [(f"h{a}", f"h{b}", f"h{c}") for a in range(1, 6) for b in range(a + 1, 7)
                                                                                           for c in range(b + 1, 8)]):
        options = ("--micro-batches", 2, "--stages", 2, "--schedule", schedule)
        taken = searched(folder, model, *options, loss="mse")["cost"]["seconds"]
        by_hand = {cut: searched(folder, model, *options, "--cuts", ",".join(cut), loss="mse")["cost"]["seconds"] for cut in cuts}
        best = min(by_hand, key=by_hand.get)
        assert taken <= by_hand[best] * 1.01, (schedule, taken, best, by_hand[best])


def slow_devices(folder):
    """Where single numbers take time: those of an update, which each unit counts, and sums of all gradients, which units add up in another order."""
    model, devices = folder / "chain.onnx", folder / "slow.json"
    chain(model)
    device = {"name": "slow", "memory_bytes": 2**33, "memory_bandwidth_bytes_per_s": 2e7, "peak_flops_per_s": {"float32": 1e7}}
    devices.write_text(json.dumps(CLUSTER | {"device": device, "tiers": [{"name": "a", "size": 8, "bandwidth_bytes_per_s": 9e9, "latency_s": 1e-8}]}))
    for options in ("--optimizer", "adam"), ("--optimizer", "sgd", "--clip-norm", 1), ("--optimizer", "adamw", "--clip-norm", 1):
        for count in 2, 4, 6:
            command = [AUTOPAR, "search", model, "--cluster", devices, "--train", "--loss", "mse", "--stages", "auto", "--micro-batches", count, *options, "-q", "-o", folder / "plan"]
            subprocess.run(list(map(str, command)), check=True, timeout=300)
            cost = json.loads((folder / "plan" / "report.json").read_text())["cost"]
            assert 0.5 * cost["seconds"] < cost["lower_bound_seconds"] <= cost["seconds"], (options, count, cost)


def least_memory(folder):
    """What a pipeline holds at most, it finds again with no more than that, though other cuts take less time."""
    model = folder / "chain.onnx"
    chain(model, layers=7, width=16, batch=128)
    for stages, count in (2, 2), (2, 8), (4, 2), (4, 4):
        options = ["--stages", stages, "--micro-batches", count]
        limit = searched(folder, model, *options, loss="mse")["memory"]["peak_bytes"]
        report = searched(folder, model, *options, "--memory", limit, loss="mse")
        assert report is not None and report["memory"]["peak_bytes"] <= limit, (stages, count, limit)
    # And as fast, where layers are not alike and say little of each other.
    for widths, stages, count, schedule in (([128, 8, 16, 8, 64, 32, 8], 4, 4, "gpipe"), ([32, 16, 16, 64, 128, 32, 128, 32], 4, 8, "zb-h1"), ([32, 32, 128, 8, 128], 4, 2, "1f1b")):
        chain(model, batch=128, widths=widths)
        options = ["--stages", stages, "--micro-batches", count, "--schedule", schedule]
        first = searched(folder, model, *options, loss="mse")
        again = searched(folder, model, *options, "--memory", first["memory"]["peak_bytes"], loss="mse")
        assert again is not None and again["cost"]["seconds"] <= first["cost"]["seconds"] * (1 + 1e-9), (widths, first["cost"], again and again["cost"])
        assert again["memory"]["peak_bytes"] <= first["memory"]["peak_bytes"] and again["cost"]["lower_bound_seconds"] >= first["cost"]["lower_bound_seconds"] * (1 - 1e-9)


def numbers_of_threads(folder, model):
    """The same files whatever the number of threads: chunks are planned beside each other, and programs made."""
    most = searched(folder, model, "--micro-batches", 8, "--stages", 4)["memory"]["peak_bytes"]
    for options in ("--stages", 4, "--memory", int(most * 0.8)), ("--stages", 2, "--schedule", "zb-v"):
        written = []
        for threads in 1, 2, 4:
            searched(folder, model, "--micro-batches", 8, *options, "--threads", threads)
            written.append({path.name: path.read_bytes() for path in sorted((folder / "plan").iterdir())})
            assert "step.json" in written[-1], options
        assert written[0] == written[1] == written[2], options


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        model = folder / "model.onnx"
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "24", "--hidden", "64", "--heads", "4",
                        "--feed-forward", "192", "--vocabulary", "256", "--sequence", "256", "-o", model], check=True, stdout=subprocess.DEVNULL)
        cuts = ("--recompute", "full", "--cuts", "layers.11.attn.residual")
        compare(folder, model, ["--micro-batches", 32, "--stages", 2], (3.3, 1, 0.9), [cuts])
        small = folder / "small.onnx"
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "--layers", "4", "--hidden", "128", "--heads", "4",
                        "--feed-forward", "384", "--vocabulary", "256", "--sequence", "256", "-o", small], check=True, stdout=subprocess.DEVNULL)
        slow_devices(folder)
        least_memory(folder)
        narrow_layers(folder)
        transposed_between_units(folder)
        early_ops(folder)
        numbers_of_units(folder)
        large_updates(folder)
        busy_hosts(folder)
        numbers_of_threads(folder, model)
        counts(folder, small)
        schedules(folder, small)
        stages_of_chunks(folder, small)
    print("no plan is below a bound")


main()
