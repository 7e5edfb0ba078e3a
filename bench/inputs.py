"""Models and clusters that the measurements are made on, written when they are needed: small files, but many."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))


def cluster(folder, devices):
    """DGX A100 machines as in models/clusters, grown: up to 32 machines behind a leaf switch, leaves joined by spines.

    The spine's figures are those of the InfiniBand port at half its bandwidth (2:1), with a higher latency; both are assumed.
    """
    path = folder / f"a100-{devices}.json"
    known = json.loads((ROOT / "models" / "clusters" / "dgx-a100-8x8.json").read_text())
    nvlink, ib = known["tiers"]
    machines = max(1, devices // 8)
    tiers = [{**nvlink, "size": min(8, devices)}]
    if machines > 1:
        tiers.append({**ib, "size": min(32, machines)})
    if machines > 32:
        tiers.append({"name": "spine", "size": machines // 32, "bandwidth_bytes_per_s": ib["bandwidth_bytes_per_s"] / 2, "latency_s": 8e-6})
    known.update(name=f"{machines} x DGX A100", tiers=tiers)
    path.write_text(json.dumps(known))
    return path


def _write(path, make):
    from onnx import save

    if not path.exists():
        save(make(), path)
    return path


def gpt(folder, layers, width):
    """Forward, batch 64, sequence 1024."""
    from make_models import gpt2

    heads = width // 64
    return _write(folder / f"gpt_{layers}x{width}.onnx", lambda: gpt2(layers=layers, width=width, heads=heads, batch=64, seq=1024))


def llama(folder, layers):
    """The 8B model of models/ with another number of layers."""
    from make_models import llama as make

    return _write(folder / f"llama_{layers}.onnx", lambda: make(layers=layers))


def mlp(folder, layers):
    """MatMul and Relu, batch 1024, all layers 4096 wide."""
    from make_models import Builder

    def make():
        b = Builder("mlp")
        x = b.input("X", [1024, 4096])
        for i in range(layers):
            x = b.op("Relu", [b.linear(x, f"fc{i}", 4096, 4096, bias=False)], f"relu{i}")
        return b.model([("Y", x, [1024, 4096])])

    return _write(folder / f"mlp_{layers}.onnx", make)


def pins(folder, devices):
    """The first layer's query-key-value product split by columns over a machine's devices, by batch over the machines."""
    path = folder / f"pins-{devices}.json"
    columns = min(8, devices)
    batch = min(32, devices // columns)
    ops = {"h.0.attn.qkv": {"in_strategy": [[batch, 1, 1], [1, columns]]}}
    path.write_text(json.dumps({"format": "autopar-strategy", "version": 1, "ops": ops}))
    return path
