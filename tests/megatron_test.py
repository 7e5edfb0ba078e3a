"""Tensor parallelism with a split sequence, pinned as Megatron-LM has it (Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", 2022): what Q, K and V read, and what gate and up read, is kept split over the sequence and gathered once in each pass.
Priced as its collectives are by hand, written with them, run by `autopar run` and by an executor that shares no code with it."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from tools.program import cluster, run

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
SHARED = pathlib.Path(os.environ.get("AUTOPAR_SHARED", SOURCE / ".." / "shared"))
CHECK = SHARED / "tools" / "spmd_check.py"
RANKS = 4
SPLIT, WHOLE = "[{},{t0},{}]", "[{},{},{}]"
LINK, LATENCY = 1e11, 1e-6


def llama(folder, layers, hidden, sequence):
    path = folder / f"llama_{layers}_{hidden}.onnx"
    sizes = {"layers": layers, "hidden": hidden, "heads": 8, "kv-heads": 8, "feed-forward": 4 * hidden, "vocabulary": hidden,
             "sequence": sequence}
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", "-o", path,
                    *(str(word) for name, size in sizes.items() for word in (f"--{name}", size))], check=True, stdout=subprocess.DEVNULL)
    return path


def megatron(folder, layers, kept=SPLIT):
    ops, tensors = {}, {}
    for layer in (f"layers.{i}." for i in range(layers)):
        for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            ops[layer + name] = {"assignment": {"t0": "n"}}
        for name in ("attn.o_proj", "mlp.down_proj"):
            ops[layer + name] = {"assignment": {"t0": "k"}}
        for name in ("input_layernorm_out", "post_attention_layernorm_out"):
            tensors[layer + name] = {"spec": SPLIT, "hub_spec": WHOLE, "kept_spec": kept, "backward_hub_spec": WHOLE}
        for name in ("attn.residual_out", "mlp.residual_out"):
            tensors[layer + name] = {"spec": SPLIT}
    path = folder / f"pins_{layers}_{kept == SPLIT}.json"
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops, "tensors": tensors}))
    return path


def plan(folder, model, out, *options):
    run("search", model, "--cluster", cluster(folder, RANKS, memory=1 << 36, flops=1e14, memory_bandwidth=2e12, link=LINK, latency=LATENCY),
        "--train", "--loss", "cross_entropy", "--optimizer", "sgd", "--batch", "1", "--mesh", RANKS, "--searcher", "dp", "-q", "-o", out,
        *options)
    priced = run("price", out / "train.onnx", "--strategy", out / "strategy.json", "--cluster",
                 folder / f"cluster_{RANKS}_{1 << 36}.json", "--json")
    return json.loads(priced.stdout)


def test_priced_as_by_hand(folder):
    hidden, sequence = 1024, 2048
    sent = 4 * sequence * hidden * (RANKS - 1) // RANKS  # float32, batch 1
    seconds = 2 * LATENCY + sent / LINK  # of a gather or scatter in log2(4) rounds
    counts, times, prices = {}, {}, {}
    for layers in (2, 3):
        model = llama(folder, layers, hidden, sequence)
        prices[layers] = price = plan(folder, model, folder / f"plan{layers}", "--pin", megatron(folder, layers))
        terms = [t for t in price["terms"] if t["kind"] != "compute"]
        large = [t for t in terms if t["sent_bytes"] == sent]
        counts[layers] = collections.Counter(t["collective"]["kind"] for t in large)
        times[layers] = sum(t["seconds"] for t in large), sum(t["seconds"] for t in terms)
    # One block more. Forward: for attention and for the feed-forward part a gather before and a scatter of sums behind. Backward: what
    # comes in is gathered, what was kept is gathered, and what goes out is scattered.
    assert counts[3] - counts[2] == {"AllGather": 2 + 4, "ReduceScatter": 2 + 2}, counts
    more, of_all = (b - a for a, b in zip(times[2], times[3]))
    assert abs(more - 10 * seconds) < 1e-9 * seconds, (more, 10 * seconds)
    # What is left are the sums for the weights of two normalisations, and slices.
    assert more <= of_all < 1.05 * more, (more, of_all)

    # Kept whole: a gather per part less, more memory.
    whole = plan(folder, llama(folder, 3, hidden, sequence), folder / "whole", "--pin", megatron(folder, 3, WHOLE))
    assert abs(prices[3]["seconds"] - whole["seconds"] - 6 * seconds) < 1e-9 * seconds, (prices[3]["seconds"], whole["seconds"])
    assert whole["memory_bytes"] > prices[3]["memory_bytes"] + 4 * sent, (whole["memory_bytes"], prices[3]["memory_bytes"])
    free = plan(folder, llama(folder, 3, hidden, sequence), folder / "free")
    assert free["seconds"] <= whole["seconds"], (free["seconds"], whole["seconds"])


def test_executed(folder):
    layers, hidden, sequence = 2, 64, 32
    out, given = folder / "small", folder / "given"
    plan(folder, llama(folder, layers, hidden, sequence), out, "--pin", megatron(folder, layers))
    shape = [1, sequence, hidden]
    written = onnx.shape_inference.infer_shapes(onnx.load(out / "plan.onnx"))
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*written.graph.value_info, *written.graph.output]}
    readers = collections.defaultdict(set)
    for node in written.graph.node:
        for name in node.input if node.domain != "ai.autopar" else ():
            readers[name].add(node.name)
    # Each of the normalisations' outputs is gathered twice: for three or two products and for as many gradients.
    gathers = [n for n in written.graph.node if n.op_type == "AllGather" and shapes[n.output[0]] == shape]
    shared = sorted(len(readers[n.output[0]]) for n in gathers if "layernorm_out" in n.name)
    assert shared == [2, 2, 2, 2, 3, 3, 3, 3], [(n.name, sorted(readers[n.output[0]])) for n in gathers]

    strategy = json.loads((out / "strategy.json").read_text())
    for i in range(layers):
        for name in ("input_layernorm_out", "post_attention_layernorm_out"):
            entry = strategy["tensors"][f"layers.{i}.{name}"]
            assert (entry["spec"], entry["hub_spec"], entry["kept_spec"]) == (SPLIT, WHOLE, SPLIT), entry
    added = [name for name in [*strategy["ops"], *strategy["tensors"]] if name.endswith((".forward", ".backward", ".hub"))]
    assert not added, added
    run("apply", out / "train.onnx", "--strategy", out / "strategy.json", "--cluster", folder / f"cluster_{RANKS}_{1 << 36}.json",
        "-o", given, "-q")
    again = json.loads((given / "strategy.json").read_text())
    assert all(again[key] == strategy[key] for key in ("mesh", "cost", "ops", "tensors"))
    assert onnx.load(given / "plan.onnx").graph == onnx.load(out / "plan.onnx").graph
    last = run("run", out).stdout.splitlines()[-1]
    assert last == "PASSED", last
    if not CHECK.exists():
        print(f"no spmd_check.py below {SHARED} (AUTOPAR_SHARED): not run")
        return
    draw, data = np.random.default_rng(1), {}
    for value in onnx.load(out / "train.onnx").graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        data[value.name] = draw.integers(0, hidden, dims) if whole else np.array(0.1 * draw.standard_normal(dims), np.float32)
    np.savez(folder / "io.npz", **data)
    checked = subprocess.run([sys.executable, CHECK, out / "plan.onnx", str(RANKS), "--model", out / "train.onnx", "--data",
                              folder / "io.npz", "--min-collectives", "16"], capture_output=True, text=True)
    assert checked.returncode == 0 and "PASSED" in checked.stdout, (checked.stdout[-2000:], checked.stderr[-2000:])


def main():
    for test in (test_priced_as_by_hand, test_executed):
        with tempfile.TemporaryDirectory() as name:
            test(pathlib.Path(name))


main()
