"""The searcher `uniform`: templates found by the graph's structure cost what the same templates cost as pins made from parameters' names."""
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

OPTIONS = ["--optimizer", "adamw", "--precision", "mixed-bf16", "--loss", "cross_entropy"]
CLUSTER = SOURCE / "models" / "clusters" / "dgx-a100-2x8.json"
MODELS = {
    "llama": "--family llama --layers 2 --hidden 512 --heads 8 --kv-heads 8 --feed-forward 1408 --vocabulary 4096 --sequence 256",
    "gpt": "--family gpt --layers 2 --hidden 512 --heads 8 --no-fused-qkv --vocabulary 4096 --sequence 256",
}


def called(*command):
    return subprocess.run([AUTOPAR, *map(str, command)], capture_output=True, text=True)


def made(folder, name, options):
    model = folder / f"{name}.onnx"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", *options.split(), "-o", model], check=True, stdout=subprocess.DEVNULL)
    return model


def searched(folder, model, *options):
    done = called("search", model, "--cluster", CLUSTER, *options, "-q", "--json", "-o", folder / "plan")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fields(text):
    known = dict(part.split("=") for part in text.split() if "=" in part)
    return int(known["dp"]), int(known["tp"]), int(known["zero"]), " sp " in text, int(known.get("cp", 1))


def as_pins(folder, model, step, template):
    data, tensor, zero, sequence, context = template
    tiers = json.loads(CLUSTER.read_text())["tiers"]
    inner, outer = tiers[0]["name"], tiers[1]["name"]
    mesh, spans = [], 1
    for axis, size in (("tensor", tensor), ("context", context), ("data", data)):
        spans *= size
        mesh = [(axis, size, inner if spans <= 8 else outer)] * (size > 1) + mesh
    found = training.Template(tensor, data, {0: "plain", 1: "ZeRO-1", 3: "ZeRO-3"}[zero], sequence, mesh, ["tensor"] * (tensor > 1), ["data"] * (data > 1),
                              ["context"] * (context > 1))
    (folder / "pins.json").write_text(json.dumps(training.pins(step, found)))
    return folder / "pins.json"


def compare(folder, name):
    """Of every template: the same price as pins, to what the searches leave open."""
    model = made(folder, name, MODELS[name])
    train = ["--train", *OPTIONS, "--batch", 32, "--micro-batches", 1, "--recompute", "none"]
    report = searched(folder, model, *train, "--searcher", "uniform")
    tried = report["picked"]["tried"]
    assert report["picked"]["searcher"] == tried[0]["searcher"] and report["cost"]["seconds"] == tried[0]["seconds"], tried[:2]
    assert [t["seconds"] for t in tried] == sorted(t["seconds"] for t in tried)
    # dp 16, 8 x 2, 4 x 4, 2 x 8 and, where the sizes divide, 1 x 16; without dp no ZeRO, without tp no split sequence.
    names = {fields(t["searcher"]) for t in tried}
    assert any(template[4] > 1 for template in names), names
    names = {template for template in names if template[4] == 1}
    expected = {(16 // t, t, z, s, 1) for t in (1, 2, 4, 8, 16) for z in ((0, 1, 3) if t < 16 else (0,)) for s in ((False, True) if t > 1 else (False,))}
    assert names == expected, (sorted(names - expected), sorted(expected - names))
    step_file = folder / "step.onnx"
    done = called("grad", model, *OPTIONS, "--batch", 32, "-q", "-o", step_file)
    assert done.returncode == 0, done.stderr
    step = training.Step(step_file)
    ratios = []
    for trial in tried:
        template = fields(trial["searcher"])
        if template[2] == 0 and template[0] > 1 and template[1] > 1:
            continue  # training.Template has no plain storage of split weights
        pins = as_pins(folder, model, step, template)
        apart = searched(folder, model, *train, "--pin", pins, "--searcher", "dp")["cost"]["seconds"]
        ratio = trial["seconds"] / apart
        assert 0.9 < ratio < 1.1, (trial, apart, ratio)
        ratios.append(ratio)
    assert abs(sum(ratios) / len(ratios) - 1) < 0.03, ratios
    best = searched(folder, model, *train, "--searcher", "dp")["cost"]
    assert best["seconds"] <= report["cost"]["seconds"] * 1.01, (best, report["cost"])
    print(f"{name}: {len(tried)} templates, {len(ratios)} of them as pins too, on average {sum(ratios) / len(ratios):.3f} of their time; best {tried[0]['searcher']}, {tried[0]['seconds'] / best['seconds']:.3f} of the exact plan's time")


def limits(folder):
    """Under a memory limit only what fits is offered, and nothing fits with a reason and exit code 3."""
    model = folder / "llama.onnx"
    train = ["--train", *OPTIONS, "--batch", 32, "--micro-batches", 1, "--recompute", "none", "--searcher", "uniform"]
    free = searched(folder, model, *train)
    sizes = sorted(t["memory_bytes"] for t in free["picked"]["tried"] if t["found"])
    limit = (sizes[0] + sizes[len(sizes) // 2]) // 2
    tight = searched(folder, model, *train, "--memory", limit)
    assert tight["memory"]["peak_bytes"] <= limit
    assert any(not t["found"] and "does not fit" in t["error"] for t in tight["picked"]["tried"]), tight["picked"]
    for trial in tight["picked"]["tried"]:
        assert not trial["found"] or trial["memory_bytes"] <= limit, trial
    done = called("search", model, "--cluster", CLUSTER, *train, "--memory", sizes[0] // 4, "-q", "-o", folder / "none")
    assert done.returncode == 3 and not (folder / "none").exists(), done
    # A batch that no part of the devices divides, and a model without products in rows.
    done = called("search", SOURCE / "models" / "mlp.onnx", "--cluster", CLUSTER, "--searcher", "uniform", "-q", "--json", "-o", folder / "mlp")
    assert done.returncode == 0, done.stderr
    only = [fields(t["searcher"]) for t in json.loads(done.stdout)["picked"]["tried"]]
    assert all(t[1] == 1 for t in only), only


def uneven(folder):
    """Replicas whose number divides no weight split what is stored over the inner ones of them."""
    model = made(folder, "six", "--family llama --layers 1 --hidden 64 --heads 4 --kv-heads 4 --feed-forward 128 --vocabulary 128 --sequence 16")
    cluster = folder / "six.json"
    tiers = [dict(tier, size=size) for tier, size in zip(json.loads(CLUSTER.read_text())["tiers"], (2, 3))]
    cluster.write_text(json.dumps({**json.loads(CLUSTER.read_text()), "tiers": tiers}))
    held = {}
    for template in ("dp=6 tp=1 zero=0", "dp=6 tp=1 zero=1", "dp=6 tp=1 zero=3", "dp=3 tp=1 cp=2 zero=1", "dp=6 tp=1 zero=1/2"):
        done = called("search", model, "--cluster", cluster, "--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 6, "--micro-batches", 1,
                      "--recompute", "none", "--searcher", f"uniform:{template}", "-q", "--json", "-o", folder / "six")
        assert done.returncode == 0, (template, done.stderr)
        held[template] = json.loads(done.stdout)["memory"]["peak_bytes"]
        done = called("run", folder / "six")
        assert done.stdout.splitlines()[-1] == "PASSED", (template, done.stdout, done.stderr)
        said = called("export", folder / "six", "--as", "megatron").stdout.splitlines()
        # What the plan is: of weights of powers of two six replicas have three copies.
        as_split = template if template.endswith(("/2", "zero=0")) else template + "/2"
        told = said[0].split("strategy.json: ")[1].split(" on 6 devices")[0]
        assert told == as_split, (template, said)
    assert held["dp=6 tp=1 zero=3"] < held["dp=6 tp=1 zero=1"] == held["dp=6 tp=1 zero=1/2"] < 0.9 * held["dp=6 tp=1 zero=0"], held
    # In stages of six, whose units store unlike much, all units and chunks have one mesh.
    cluster.write_text(json.dumps({**json.loads(CLUSTER.read_text()), "tiers": [dict(tiers[0], size=6), dict(tiers[1], size=2)]}))
    model = made(folder, "six", "--family llama --layers 4 --hidden 64 --heads 4 --kv-heads 4 --feed-forward 128 --vocabulary 128 --sequence 16")
    for template in ("uniform", "uniform:dp=6 tp=1 zero=1"):
        done = called("search", model, "--cluster", cluster, "--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 24, "--micro-batches", 4, "--stages", 2,
                      "--searcher", template, "-q", "-o", folder / "six")
        assert done.returncode == 0, (template, done.stderr)
        assert called("run", folder / "six").stdout.splitlines()[-1] == "PASSED", template


def experts(folder):
    """Experts in parts: tokens go there and back by AllToAll, the plan is executed, and read back as its template."""
    model = made(folder, "moe", "--family llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --feed-forward 64 --experts 8 --top-k 2 --routing capacity "
                                "--vocabulary 128 --sequence 32")
    cluster = SOURCE / "models" / "clusters" / "dgx-a100-1x8.json"
    options = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 8, "--recompute", "none"]
    search = lambda template, passes=1: called("search", model, "--cluster", cluster, *options, "--micro-batches", passes, "--searcher", template, "-q", "--json",
                                               "-o", folder / "moe")
    for template in ("dp=8 tp=1 ep=4 zero=1", "dp=4 tp=2 ep=4 sp zero=1", "dp=4 tp=1 cp=2 ep=2 zero=3", "dp=2 tp=2 cp=2 sp zero=1", "dp=4 tp=1 cp=2 zero=3/4",
                     "dp=4 tp=2 ep=4 zero=1/2", "dp=8 tp=1 ep=8 zero=0"):
        done = search(f"uniform:{template}")
        assert done.returncode == 0, (template, done.stderr)
        kinds = {c["kind"] for c in json.loads(done.stdout)["collectives"]}
        assert " ep=" not in template or "AllToAll" in kinds, (template, kinds)
        done = called("run", folder / "moe")
        assert done.stdout.splitlines()[-1] == "PASSED", (template, done.stdout, done.stderr)
        done = called("export", folder / "moe", "--as", "megatron")
        said = done.stdout.splitlines()
        assert f"strategy.json: {template} on 8 devices" in said[0] and said[1] == "# the plan is this template", (template, said)
        for word, flag in ((" cp=", "--context-parallel-size"), (" ep=", "--expert-model-parallel-size")):
            degree = template.split(word)[1].split()[0] if word in template else None
            assert (f"{flag} {degree}" in done.stdout) if degree else (flag not in done.stdout), (template, done.stdout)
    # Experts that are split over the devices of tensor parallelism, too: the default of one program, and not of the other.
    done = search("uniform:dp=4 tp=2 ep=4 zero=1")
    assert done.returncode == 0, done.stderr
    said = called("export", folder / "moe", "--as", "torchtitan").stdout
    assert "expert_parallel_degree = 4" in said and "expert_tensor_parallel_degree = 2" in said, said
    assert "--expert-tensor-parallel-size" not in called("export", folder / "moe", "--as", "megatron").stdout
    # What --zero says is the templates' level, and no other one goes with it.
    levels = called("search", model, "--cluster", cluster, *options, "--zero", 3, "--searcher", "uniform", "-q", "--json", "-o", folder / "levels")
    assert levels.returncode == 0, levels.stderr
    tried = json.loads(levels.stdout)["picked"]["tried"]
    assert tried and all("zero=3" in t["searcher"] for t in tried), tried
    done = called("search", model, "--cluster", cluster, *options, "--zero", 1, "--searcher", "uniform:dp=8 zero=3", "-q", "-o", folder / "none")
    assert done.returncode == 2 and "so does --zero 1" in done.stderr, done.stderr
    report = search("uniform")
    assert report.returncode == 0, report.stderr
    names = [t["searcher"] for t in json.loads(report.stdout)["picked"]["tried"]]
    assert any(" ep=" in n for n in names) and any(" cp=" in n for n in names) and len(names) == len(set(names)), names
    for template, told in (("dp=4 tp=2 ep=3 zero=1", "3 does not divide dp=4"), ("dp=16 tp=1 zero=1", "is of 16 devices, and there are 8"),
                           ("dp=8 tp=1 zero=1/3", "3 does not divide dp=8"), ("dp=8 zero=4", "'zero=4': expected words such as"), ("dp=8 zero=1 dp=8", "each once"),
                           ("", "expected words such as")):
        done = search(f"uniform:{template}")
        assert done.returncode == 2 and told in done.stderr, (template, done.returncode, done.stderr)
    # In any order; a degree that is not there is 1, a level of ZeRO 0.
    searches = [search(f"uniform:{t}") for t in ("dp=8 tp=1 ep=4 zero=0", "ep=4 dp=8", "zero=0  dp=8 ep=4")]
    assert len({s.stdout.split('"phase_seconds"')[0] for s in searches}) == 1 and all(s.returncode == 0 for s in searches), [s.stderr for s in searches]
    done = search("uniform:dp=8 tp=1 zero=1", passes=2)
    assert done.returncode == 2 and "of 4 does not divide into 8" in done.stderr, done.stderr
    done = called("search", folder / "llama.onnx", "--cluster", CLUSTER, "--train", *OPTIONS, "--batch", 32, "--searcher", "uniform:dp=16 tp=1 ep=2 zero=1",
                  "-q", "-o", folder / "none")
    assert done.returncode == 2 and "no group of experts" in done.stderr, done.stderr
    print(f"experts: executed, and read back; best of {len(names)}: {names[0]}")


def stages(folder):
    """Templates of whole pipelines: the fastest by its units is planned in whole, takes what was listed, and is no slower than others are."""
    model = folder / "llama.onnx"
    train = ["--train", *OPTIONS, "--batch", 64, "--micro-batches", 4, "--recompute", "none"]
    best = searched(folder, model, *train, "--stages", 2, "--searcher", "uniform")
    tried = [t for t in best["pipeline"]["tried"] if t["seconds"]]
    assert 0 < len(tried) <= 10 and [t["seconds"] for t in tried] == sorted(t["seconds"] for t in tried), tried
    assert all(t["memory_bytes"] > 0 for t in tried), tried
    other = searched(folder, model, *train, "--stages", 2, "--searcher", f"uniform:{tried[-1]['why']}")
    assert best["cost"]["seconds"] <= other["cost"]["seconds"] * 1.01, (best["cost"], other["cost"])
    done = called("search", model, "--cluster", CLUSTER, *train, "--stages", 2, "--searcher", "uniform", "--memory", "2MiB", "-q", "-o", folder / "none")
    assert done.returncode == 3 and "template" in done.stderr, done


def as_listed(folder):
    """What templates are listed with is what they take when they are planned chunk by chunk; under a memory limit only what fits is offered."""
    deep = made(folder, "deep", "--family llama --layers 12 --hidden 512 --heads 8 --kv-heads 4 --feed-forward 1536 --vocabulary 8192 --sequence 512")
    train = ["--train", *OPTIONS, "--batch", 64, "--micro-batches", 8, "--profile", "h100-megatron"]
    free = searched(folder, deep, *train, "--stages", 4, "--searcher", "uniform")
    tried = [t for t in free["pipeline"]["tried"] if t["seconds"]]
    ratios = []
    for trial in tried[:4]:
        template, _, level = trial["why"].partition(" recompute=")
        whole = searched(folder, deep, *train, "--recompute", level or "none", "--stages", 4, "--searcher", f"uniform:{template}")
        ratios.append((whole["cost"]["seconds"] / trial["seconds"], whole["memory"]["peak_bytes"] / trial["memory_bytes"]))
    assert all(0.93 < time < 1.07 and 0.85 < memory < 1.1 for time, memory in ratios), (tried, ratios)
    # Where all is repeated, what each layer hands on is kept, as its unit by itself has it.
    whole = searched(folder, deep, "--train", *OPTIONS, "--batch", 256, *train[-4:], "--recompute", "full", "--stages", 4, "--searcher", "uniform:dp=4 zero=1")
    unit = next(t for t in whole["pipeline"]["tried"] if t["seconds"])
    assert 0.8 < whole["memory"]["peak_bytes"] / unit["memory_bytes"] < 1.1, (whole["memory"], unit)
    kept = json.loads((folder / "plan" / "strategy.json").read_text())["checkpoints"]
    assert len(kept) >= 11 and all("residual" in name for name in kept), kept
    sizes = sorted(t["memory_bytes"] for t in tried)
    limit = (sizes[0] + sizes[len(sizes) // 2]) // 2
    tight = searched(folder, deep, *train, "--stages", "auto", "--searcher", "uniform", "--memory", limit)
    assert tight["memory"]["peak_bytes"] <= limit, (tight["memory"], limit)
    listed = [t for t in tight["pipeline"]["tried"] if t["seconds"]]
    assert all(t["memory_bytes"] <= limit for t in listed), (limit, listed)
    assert len({(t["stages"], t["why"]) for t in listed}) == len(listed), listed
    again = searched(folder, deep, *train, "--stages", "auto", "--searcher", "uniform", "--memory", limit, "--threads", 1)
    assert again["pipeline"] == tight["pipeline"], "the same command made another plan"
    print(f"as listed: {', '.join(f'{t:.3f} of the time, {m:.3f} of the memory' for t, m in ratios)}")


def parts_of_stages(folder):
    """Context and expert parallelism inside stages: chunks of whole layers, executed, and read back as their template."""
    model = made(folder, "experts", "--family llama --layers 4 --hidden 64 --heads 4 --kv-heads 2 --feed-forward 64 --experts 8 --top-k 2 --routing capacity "
                                    "--vocabulary 128 --sequence 32")
    cluster = SOURCE / "models" / "clusters" / "dgx-a100-1x8.json"
    train = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--batch", 8, "--micro-batches", 2]
    search = lambda template, *more: called("search", model, "--cluster", cluster, *train, "--stages", 2, "--searcher", template, *more, "-q", "--json",
                                            "-o", folder / "stages")
    done = search("uniform", "--recompute", "none")
    assert done.returncode == 0, done.stderr
    names = [t["why"] for t in json.loads(done.stdout)["pipeline"]["tried"] if t["seconds"]]
    assert any(" ep=" in name for name in names), names
    for template, level in (("dp=4 tp=1 ep=4 zero=1", "none"), ("dp=2 tp=2 ep=2 sp zero=1", "none"), ("dp=2 tp=1 cp=2 ep=2 zero=3", "full"),
                            ("dp=1 tp=2 cp=2 sp zero=1", "products"), ("dp=4 tp=1 zero=1/2", "none")):
        done = search(f"uniform:{template}", "--recompute", level)
        assert done.returncode == 0, (template, done.stderr)
        done = called("run", folder / "stages")
        assert done.stdout.splitlines()[-1] == "PASSED", (template, done.stdout, done.stderr)
        said = called("export", folder / "stages", "--as", "megatron").stdout.splitlines()
        degrees, _, rest = template.partition(" sp" if " sp" in template else " zero")
        assert f"{degrees} pp=2" in said[0] and (level == "products" or said[1] == "# the plan is this template"), (template, said)
    for template, told in (("dp=8 zero=1", "a stage has 4"), ("dp=4 ep=3 zero=1", "3 does not divide dp=4"), ("dp=4 zero=7", "expected words such as"),
                           ("dp=1 tp=1 cp=4 ep=1", None)):
        done = search(f"uniform:{template}")
        assert (done.returncode == 0) if told is None else (done.returncode != 0 and told in done.stderr), (template, done.returncode, done.stderr)
    # With fewer samples than devices of a stage a part of the sequence takes their place.
    long = made(folder, "long", "--family llama --layers 4 --hidden 64 --heads 2 --kv-heads 2 --feed-forward 128 --vocabulary 128 --sequence 64")
    done = called("search", long, "--cluster", cluster, *train[:-4], "--batch", 4, "--micro-batches", 4, "--stages", 2, "--searcher", "uniform", "-q", "--json",
                  "-o", folder / "long")
    assert done.returncode == 0, done.stderr
    names = [t["why"] for t in json.loads(done.stdout)["pipeline"]["tried"] if t["seconds"]]
    assert any(" cp=" in name for name in names), names
    done = called("run", folder / "long")
    assert done.stdout.splitlines()[-1] == "PASSED", (done.stdout, done.stderr)
    print("inside stages: context and expert parallelism executed, and read back")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in MODELS:
            compare(folder, name)
        limits(folder)
        uneven(folder)
        experts(folder)
        stages(folder)
        as_listed(folder)
        parts_of_stages(folder)


if __name__ == "__main__":
    main()
