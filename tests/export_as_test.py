"""`export --as`: plans of known templates are said as exactly these settings of each training program, and what a plan does otherwise is named."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
CLUSTER = SOURCE / "models" / "clusters" / "dgx-a100-2x8.json"
TRAIN = ["--train", "--optimizer", "adamw", "--loss", "cross_entropy", "--precision", "mixed-bf16"]
SIZES = "--family llama --layers 4 --hidden 256 --heads 8 --kv-heads 8 --feed-forward 512 --vocabulary 1024 --sequence 64"
PROGRAMS = ["megatron", "deepspeed", "torchtitan", "nanotron", "mindspore"]


def called(*command):
    return subprocess.run([AUTOPAR, *map(str, command)], capture_output=True, text=True)


def made(folder):
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", *SIZES.split(), "-o", folder / "llama.onnx"], check=True, stdout=subprocess.DEVNULL)


def search(folder, *options):
    done = called("search", folder.parent / "llama.onnx", "--cluster", CLUSTER, *TRAIN, "-q", *options, "-o", folder)
    assert done.returncode == 0, done.stderr
    return folder


def said(plan, program, *options):
    done = called("export", plan, "--as", program, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def templates(folder):
    """Each is read back from the layouts alone, and said."""
    prices = {}
    cases = [(16, 1, 0, False), (16, 1, 3, False), (8, 2, 1, True), (4, 4, 3, True), (4, 4, 1, False)]
    for data, tensor, zero, sequence in cases:
        name = f"dp={data} tp={tensor}{' sp' if sequence else ''} zero={zero}"
        plan = search(folder / "plan", "--searcher", f"uniform:{name}", "--batch", 32, "--recompute", "none")
        for program in PROGRAMS:
            found = said(plan, program)
            assert found["template"] == name, (name, program, found["template"], found["unsaid"])
            settings = found["settings"]
            if program == "megatron":
                expected = {"--tensor-model-parallel-size": str(tensor), "--pipeline-model-parallel-size": "1", "--micro-batch-size": str(32 // data),
                            "--global-batch-size": "32", "--bf16": ""}
                expected |= {"--sequence-parallel": ""} if sequence else {}
                expected |= {"--use-distributed-optimizer": ""} if zero else {}
                if zero == 3:
                    expected |= {"--use-megatron-fsdp": "", "--data-parallel-sharding-strategy": "optim_grads_params",
                                 "--no-gradient-accumulation-fusion": "", "--ckpt-format": "fsdp_dtensor"}
                assert {k: v for k, v in settings.items() if k != "--seq-length"} == expected, (settings, expected)
                assert found["exact"], found["unsaid"]
            if program == "deepspeed":
                text = json.loads(found["text"])
                assert text["train_micro_batch_size_per_gpu"] == 32 // data and text["bf16"] == {"enabled": True}
                assert text["zero_optimization"]["stage"] == (2 if zero == 3 and tensor > 1 else zero), text
                assert found["exact"] == (not sequence and not (zero == 3 and tensor > 1)), found["unsaid"]
            if program == "nanotron":
                assert settings["parallelism.tp_mode"] == ("REDUCE_SCATTER" if sequence else "ALL_REDUCE")
                assert found["exact"] == (zero < 2), found["unsaid"]
            if program == "torchtitan":
                sharded = data if zero or tensor > 1 else 1
                assert settings["parallelism.data_parallel_shard_degree"] == str(sharded), settings
                assert settings["parallelism.tensor_parallel_degree"] == str(tensor)
            if program == "mindspore":
                ops = found["strategy"]["parallel_strategy_item"]
                assert any(item["parallel_strategy"] == [[data, 1, 1], [1, tensor]] for item in ops.values()), name
            if not found["exact"]:  # and the nearest that can be said is priced
                nearest = found["nearest"]
                prices.setdefault(nearest["template"], set()).add(nearest["seconds"])
                assert abs(nearest["seconds"] / nearest["plan_seconds"] - 1 - nearest["more"]) < 1e-9, (name, program, nearest)
        if tensor == 1:  # the same each time
            assert called("export", plan, "--as", program, "--json").stdout == json.dumps(found, indent=1, ensure_ascii=False) + "\n", program
    # They are what the searcher takes for that template.
    for name, seconds in prices.items():
        plan = search(folder / "nearest", "--searcher", f"uniform:{name}", "--batch", 32, "--recompute", "none")
        assert seconds == {json.loads((plan / "strategy.json").read_text())["cost"]["seconds"]}, (name, seconds)


def groups(folder):
    """States split over a part of data parallelism."""
    plan = search(folder / "groups", "--searcher", "uniform:dp=16 tp=1 zero=3/8", "--batch", 32, "--recompute", "none")
    found = said(plan, "torchtitan")
    settings = found["settings"]
    assert (settings["parallelism.data_parallel_replicate_degree"], settings["parallelism.data_parallel_shard_degree"]) == ("2", "8") and found["exact"], found
    settings = said(plan, "megatron")["settings"]
    assert settings["--num-distributed-optimizer-instances"] == "2" and settings["--outer-dp-sharding-strategy"] == "no_shard", settings
    found = said(plan, "deepspeed")
    assert not found["exact"] and any("8 of 16" in text for text in found["unsaid"]), found["unsaid"]


def accumulators(folder):
    """ZeRO 2 is told by how gradients are summed over the passes of a step."""
    plan = search(folder / "accumulators", "--searcher", "uniform:dp=16 zero=2", "--batch", 32, "--micro-batches", 2, "--recompute", "none")
    found = said(plan, "megatron", "--model", folder / "llama.onnx")
    assert found["template"] == "dp=16 tp=1 zero=2" and found["exact"], found["unsaid"]
    assert found["settings"]["--data-parallel-sharding-strategy"] == "optim_grads", found["settings"]
    assert json.loads(said(plan, "deepspeed", "--model", folder / "llama.onnx")["text"])["zero_optimization"]["stage"] == 2
    assert '"level2"' in said(plan, "mindspore", "--model", folder / "llama.onnx")["text"]


def activations(folder):
    """The sum inside GELU is no residual: it is on columns where tensor parallelism is."""
    model = folder / "gpt.onnx"
    sizes = "--family gpt --layers 2 --hidden 64 --heads 4 --vocabulary 128 --sequence 32 --feed-forward 256"
    subprocess.run([sys.executable, SOURCE / "scripts" / "make_models.py", *sizes.split(), "-o", model], check=True, stdout=subprocess.DEVNULL)
    for form in ("dp=4 tp=4 zero=1", "dp=4 tp=4 sp zero=1"):
        plan = folder / "gelu"
        done = called("search", model, "--cluster", CLUSTER, *TRAIN, "-q", "--searcher", f"uniform:{form}", "--batch", 32, "--recompute", "none", "-o", plan)
        assert done.returncode == 0, done.stderr
        found = said(plan, "megatron", "--model", model)
        assert found["template"] == form and found["exact"], found["unsaid"]


def deviations(folder):
    """A product of one layer that is split otherwise, and a state that is whole, are named, with what the template costs."""
    plan = search(folder / "odd", "--searcher", "uniform:dp=8 tp=2 sp zero=1", "--batch", 32, "--recompute", "none")
    strategy = json.loads((plan / "strategy.json").read_text())
    axes = {axis["size"]: axis["name"] for axis in strategy["mesh"]}
    name = next(n for n in reversed(strategy["ops"]) if ".grad" not in n and strategy["ops"][n]["in_strategy"] == [[8, 1, 2], [2, 1]])
    strategy["ops"][name] |= {"assignment": {axes[8]: "b"}, "in_strategy": [[8, 1, 1], [1, 1]], "out_strategy": [[8, 1, 1]]}
    state = next(n for n in strategy["tensors"] if n.startswith("adam.m.") and axes[8] in strategy["tensors"][n]["spec"])
    strategy["tensors"][state]["spec"] = "[{},{}]"
    (plan / "strategy.json").write_text(json.dumps(strategy))
    found = said(plan / "strategy.json", "megatron")
    assert not found["exact"] and found["template"] == "dp=8 tp=2 sp zero=1", found
    assert any(name in text for text in found["unsaid"]) and any(state in text for text in found["unsaid"]), found["unsaid"]
    assert found["nearest"]["seconds"] > 0, found["nearest"]
    # The other way round where most are whole.
    whole = search(folder / "whole", "--searcher", "uniform:dp=16 tp=1 zero=0", "--batch", 32, "--recompute", "none")
    strategy = json.loads((whole / "strategy.json").read_text())
    state = next(n for n, t in strategy["tensors"].items() if n.startswith("adam.m.") and t["spec"] == "[{},{}]")
    strategy["tensors"][state]["spec"] = "[{" + ",".join(axis["name"] for axis in strategy["mesh"]) + "},{}]"
    (whole / "strategy.json").write_text(json.dumps(strategy))
    unsaid = said(whole / "strategy.json", "megatron")["unsaid"]
    assert any(f"are split over devices of data parallelism, and most are whole on each: {state}" in text for text in unsaid), unsaid
    # Told op by op where a program has that.
    assert not any(name in text for text in said(plan, "mindspore")["unsaid"])
    text = called("export", plan, "--as", "megatron").stdout
    assert f"#   {name}" in text and "--tensor-model-parallel-size 2 \\\n" in text, text


def pipelines(folder):
    """Stages, chunks and schedules."""
    options = ["--searcher", "uniform:dp=4 tp=2 sp zero=1", "--batch", 32, "--micro-batches", 4, "--recompute", "none"]
    plan = search(folder / "stages", *options, "--stages", 2, "--schedule", "zb-h1")
    found = said(plan, "megatron", "--model", folder / "llama.onnx")
    assert found["template"] == "dp=4 tp=2 pp=2 sp zero=1" and found["settings"]["--pipeline-model-parallel-size"] == "2", found
    assert found["settings"]["--micro-batch-size"] == "2" and found["settings"]["--global-batch-size"] == "32"
    assert any("zb-h1" in text for text in found["unsaid"]), found["unsaid"]
    assert found["nearest"]["more"] > -0.01, found["nearest"]
    titan = said(plan, "torchtitan", "--model", folder / "llama.onnx")
    assert titan["settings"]["parallelism.pipeline_parallel_schedule_csv"] == '"schedule.csv"'
    assert "tok_embeddings" in titan["settings"]["parallelism.module_fqns_per_model_part"]
    assert said(plan, "nanotron", "--model", folder / "llama.onnx")["settings"]["parallelism.pp"] == "2"
    context = said(plan, "mindspore", "--model", folder / "llama.onnx")
    assert context["settings"]["pipeline_stages"] == "2"
    assert {item["stage"] for item in context["strategy"]["parallel_strategy_item"].values()} == {0, 1}


def refused(folder):
    done = called("export", folder, "--as", "megatron")
    assert done.returncode == 4 and "strategy.json" in done.stderr, done
    done = called("export", folder / "plan", "--as", "megatron", "--dialect", "trt")
    assert done.returncode == 2 and "--as" in done.stderr, done
    pins = folder / "pins.json"
    pins.write_text('{"format": "autopar-strategy", "version": 1, "ops": {}}')
    done = called("export", pins, "--as", "megatron")
    assert done.returncode == 4 and "mesh" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made(folder)
        for part in (templates, groups, accumulators, activations, deviations, pipelines, refused):
            part(folder)


if __name__ == "__main__":
    main()
