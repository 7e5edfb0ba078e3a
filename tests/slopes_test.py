"""Published decisions as inequalities: the ready-made profiles must have their sign. Each says where it is from."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench"))
import training  # noqa: E402

H100 = SOURCE / "models" / "clusters" / "dgx-h100-8x8.json"
EFA = SOURCE / "bench" / "clusters" / "h100-efa.json"
OPTIONS = ["--optimizer", "adamw", "--precision", "mixed-bf16", "--loss", "cross_entropy"]


class Model:
    """A Llama of a few layers, and its training step for batches of one size."""

    def __init__(self, folder, name, batch, *shape):
        self.folder, self.batch, self.path = folder, batch, folder / f"{name}.onnx"
        subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", "--family", "llama", *map(str, shape), "-o", self.path],
                       check=True, stdout=subprocess.DEVNULL)
        step = folder / f"{name}.step.onnx"
        subprocess.run([AUTOPAR, "grad", self.path, *OPTIONS, "--batch", str(batch), "-q", "-o", step], check=True)
        self.step = training.Step(step)

    def price(self, data, tensor, nodes=8, stored="ZeRO-1", sequence=True, passes=1, recompute="none", profile="h100-nanotron", in_node=False, machine=H100, **changes):
        """Seconds and bytes of one way to run it on `nodes` nodes of 8. `in_node`: what is stored is split inside nodes alone. `changes` of the profile."""
        cluster = json.loads(machine.read_text())
        cluster["tiers"][1]["size"] = nodes
        if nodes == 1:
            cluster["tiers"].pop()
        inner, outer = (t["name"] for t in (cluster["tiers"] * 2)[:2])
        mesh = [("data", data, inner if data * tensor <= 8 else outer)] * (data > 1) + [("tensor", tensor, inner if tensor <= 8 else outer)] * (tensor > 1)
        template = training.Template(tensor, data, stored, sequence and tensor > 1, mesh, ["tensor"] * (tensor > 1), ["data"] * (data > 1))
        found = json.loads((SOURCE / "models" / "profiles" / f"{profile}.json").read_text())
        if in_node:
            template = dataclasses.replace(template, mesh=[("far", data // 8, outer), ("near", 8, inner)], data_axes=["far", "near"])
        pins = training.pins(self.step, template)
        for name, _, _ in self.step.stored() if in_node else ():
            pins["tensors"][name]["spec"] = pins["tensors"][name]["spec"].replace("far,near", "near")
        files = {"cluster": cluster, "pins": pins, "profile": {**found, **changes}}
        for name, content in files.items():
            (self.folder / f"{name}.json").write_text(json.dumps(content))
        done = subprocess.run([AUTOPAR, "search", self.path, "--cluster", self.folder / "cluster.json", "--profile", self.folder / "profile.json", "--train",
                               *OPTIONS, "--batch", str(self.batch), "--micro-batches", str(passes), "--pin", self.folder / "pins.json", "--memory",
                               "1000TiB", "--recompute", recompute, "--searcher", "dp", "-q", "--json", "-o", self.folder / "plan"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        return report["cost"]["seconds"], report["memory"]["peak_bytes"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        wide = Model(folder, "wide", 128, "--layers", 8, "--hidden", 4096, "--heads", 32, "--feed-forward", 14336, "--vocabulary", 32000, "--sequence", 4096)
        small = Model(folder, "small", 64, "--layers", 2, "--hidden", 1024, "--heads", 16, "--feed-forward", 4096, "--vocabulary", 8192, "--sequence", 1024)

        def holds(what, source, ratio, least=1.0, most=float("inf")):
            print(f"{'ok  ' if least < ratio < most else 'FAIL'} {ratio:6.3f} in ({least:g}, {most:g}): {what} [{source}]")
            return least < ratio < most

        inside, memory_split = wide.price(16, 8, 16)
        good = holds("tensor parallelism beyond a node costs", "Narayanan et al. 2021, section 3.2; playbook rows with tp 16", wide.price(8, 16, 16)[0] / inside, 1.1)
        whole, memory_whole = wide.price(16, 8, 16, sequence=False)
        good &= holds("split sequences take less memory", "Korthikanti et al. 2022, table 2", memory_whole / memory_split, 1.05)
        good &= holds("and about the same time", "Korthikanti et al. 2022, section 4.2.2", whole / inside, 0.95, 1.25)
        plain, memory_plain = wide.price(64, 1, passes=2)
        again, memory_again = wide.price(64, 1, passes=2, recompute="full")
        good &= holds("computing everything again costs 25 to 35 % where compute binds", "Korthikanti et al. 2022: 30 to 40 %; Chen et al. 2016: about 30 %",
                      again / plain, 1.15, 1.4)
        good &= holds("and saves memory", "Chen et al. 2016", memory_plain / memory_again, 1.1)
        good &= holds("captured graphs help small micro-batches", "PyTorch's blog on CUDA graphs, 2021",
                      small.price(8, 1, 1, passes=8)[0] / small.price(8, 1, 1, passes=8, host_s=0)[0], 1.2)
        good &= holds("and not large ones", "the same", plain / wide.price(64, 1, passes=2, host_s=0)[0], 0.999, 1.05)
        good &= holds("micro-batches of half the size are no faster", "playbook", wide.price(64, 1, passes=2, stored="plain")[0] / wide.price(64, 1, stored="plain")[0], 0.999)
        good &= holds("fused attention is faster than scores in memory", "Dao 2023: 3 to 10 times in attention alone",
                      wide.price(64, 1, passes=2, fuses=["normalisation", "optimizer"])[0] / plain, 1.1)
        many = Model(folder, "many", 1024, "--layers", 4, "--hidden", 4096, "--heads", 32, "--feed-forward", 14336, "--vocabulary", 32000, "--sequence", 2048)
        good &= holds("weights split over 1,024 devices cost more than split inside nodes", "MiCS, Zhang et al. 2022, on EFA; Zhao et al. 2023, hybrid sharding",
                      many.price(1024, 1, 128, stored="ZeRO-3", machine=EFA)[0] / many.price(1024, 1, 128, stored="ZeRO-3", in_node=True, machine=EFA)[0], 1.02)
    return 0 if good else 1


sys.exit(main())
