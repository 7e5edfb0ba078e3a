"""bench/runs.py: where the stages of published runs begin, and which rows of a table are no runs; bench/truth.py, which says so."""
import argparse
import csv
import dataclasses
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench"))
import runs
import training
import truth

PLAYBOOK = {"1B": (16, 2048, 8192), "3B": (28, 3072, 8192), "8B": (32, 4096, 14336)}  # layers, width, inner width
WORDS = 131072


def cuts(model, stages, nodes=1):
    return runs.nanotron_cuts(*PLAYBOOK[model], WORDS, stages, nodes)


def test_nanotron():
    assert cuts("8B", 2) == (18,) and cuts("8B", 4) == (9, 18, 26) and cuts("3B", 2) == (16,)
    # The head of 1B is as four of its layers: half of the products end with a layer.
    assert cuts("1B", 2) == (10,) and cuts("1B", 4) == (5, 10, 15)
    # The cast of the logits is a block of its own, and so is the loss: each may be all that a stage has.
    assert cuts("3B", 16)[-2:] == ("head", "cast") and cuts("8B", 32)[-2:] == ("cast", "loss")
    assert len(set(cuts("8B", 32))) == 31 == len(set(cuts("8B", 32, 16)))
    # No cut is left for the last stages.
    assert cuts("1B", 16) == cuts("1B", 32) == cuts("8B", 64) == ()


def test_rows():
    row = {"model": "8B", "layers": "32", "hidden": "4096", "heads": "32", "ffn": "14336", "tied_embeddings": "untied", "nodes": "16", "gpus": "128", "dp": "1",
           "tp": "4", "pp": "32", "zero": "0", "mbs": "1", "grad_acc": "256", "gbs": "256", "memory_gb": "19.7", "iteration_s": "2.8239", "status": "ok", "note": ""}
    assert not runs.playbook(row).impossible
    assert runs.playbook({**row, "pp": "64", "tp": "2"}).impossible == "stages without ops"


def test_waiting():
    waits = lambda tensor, samples=8, stages=1, nodes=1, passes=8: runs.nanotron_waiting(2048, 8192, 4096, samples, tensor, stages, nodes, passes)
    whole = 8 * 4096 * 2048 * 2
    assert waits(1) == 0 and waits(4) == 55 * whole and waits(4, stages=2) == 65 * whole and waits(4, stages=2, nodes=4) == 46 * whole
    assert waits(4, passes=1) == 27.5 * whole and waits(4, stages=2, nodes=4, passes=2) == 23 * whole
    # The device waits for the host.
    assert waits(4, samples=1) == 55 * 0.35 * whole / 8
    # Logits of 8 sequences, a quarter of the words, in bfloat16.
    assert runs.kept_logits(WORDS, 4096, 8, 4) == 8 * 4096 * WORDS // 4 * 2


def test_loss():
    """Of split words each rank sums up its own, whatever the host would rather do; a vocabulary that does not divide stays whole."""
    for words, split in ((128, True), (130, False)):
        with tempfile.TemporaryDirectory() as folder:
            model, path = pathlib.Path(folder) / "model.onnx", pathlib.Path(folder) / "step.onnx"
            subprocess.run([sys.executable, pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "scripts" / "make_models.py", "--family", "llama", "--layers", "1", "--hidden", "64", "--heads", "4", "--kv-heads", "4",
                            "--feed-forward", "128", "--vocabulary", str(words), "--sequence", "16", "-o", model], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([os.environ["AUTOPAR"], "grad", model, "--optimizer", "adamw", "--precision", "mixed-bf16", "--loss", "cross_entropy", "--batch", "8", "-q", "-o", path], check=True)
            step = training.Step(path)
        mesh = [("data", 2, "node"), ("tensor", 4, "node")]
        found = training.pins(step, training.Template(4, 2, "plain", True, mesh, ["tensor"], ["data"]), 2)
        assert len(step.losses) == 1
        for op in step.losses:
            assert found["ops"][op]["assignment"] == {"data": "d0", **({"tensor": "d2"} if split else {})}, found["ops"][op]


VTRAIN = "gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor_parallel,data_parallel,pipeline_parallel,iteration_ms"
GOOD = "2,16,8,256,4,2,128,1,2,1,12.5"
# Lines of that table that are no runs, and what is said of them.
BAD = {"2,16,8,256,4,2,128,1,0,1,12.5": "divided by is 0", "2,16,8,256,4,2,128,1,2,1,": "column 'iteration_ms' is ''",
       "2,16,8,256,4,2,128,1,2,1,nan": "a measured time of nan s", "2,16,8,256,4,2,128,1,2,1,0": "a measured time of 0.0 s",
       "2,16,8,256,4,2,128,1,2,1": "ends before column 'iteration_ms'", "2,16,8,256,4,2,128,1,2,1,3,4": "more fields",
       "2,16,8,256,x,2,128,2,1,1,3": "column 'heads' is 'x'", "2,15,8,256,4,2,128,1,2,1,3": "the batch is not what", "2,24,7,256,4,2,128,1,2,1,3": "the batch is not what",
       "4,16,8,256,4,2,128,1,2,1,3": "1 times 4 devices, which are not the 2 ranks", "-2,16,8,256,4,2,128,1,2,1,3": "below 1",
       "2,16,8,256,4,10000000000000,128,1,2,1,3": "column 'layers' is '10000000000000': more than 1,000", "2,16,8,256,4,2,128,1,2,1e13,3": "more than 1,000",
       "200000000,16,8,256,4,2,128,1,2,1,3": "column 'gpus' is '200000000': more than 100,000"}


def said_of(read, row):
    try:
        runs.run_of(read, row)
    except runs.Unsaid as why:
        return str(why)
    return ""


def test_bad_rows():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "runs.csv"
        path.write_text("\n".join(["# a remark", VTRAIN, GOOD, "", *BAD]))
        read, rows = runs.rows_of(path)
        assert [row.line for row in rows] == [3, *range(5, 5 + len(BAD))] and not said_of(read, rows[0])
        for row, (line, why) in zip(rows[1:], BAD.items()):
            assert why in said_of(read, row), (line, said_of(read, row))
        for text, why in (("", "no line of columns"), ("a,b\n1,2\n", "no known table")):
            path.write_text(text)
            try:
                runs.rows_of(path)
                assert False, text
            except runs.Unknown as error:
                assert why in str(error), error


def test_meanings():
    """What a column may say: anything else is not taken for one of these."""
    row = runs.Row({"model": "1B", "layers": "2", "hidden": "64", "heads": "4", "ffn": "128", "tied_embeddings": "tied", "nodes": "1", "gpus": "2", "dp": "2", "tp": "1",
                    "pp": "1", "zero": "1", "mbs": "1", "grad_acc": "2", "gbs": "4", "memory_gb": "", "iteration_s": "2", "status": "ok", "note": ""})
    assert not said_of(runs.playbook, row)
    for column, value in (("zero", "4"), ("status", "late"), ("tied_embeddings", "")):
        assert f"column '{column}' is '{value}'" in said_of(runs.playbook, runs.Row({**row, column: value}))
    assert [runs.run_of(runs.playbook, runs.Row({**row, "zero": level})).stored for level in "0123"] == ["plain", "ZeRO-1", "ZeRO-2", "ZeRO-3"]
    # A batch that divides, but not into these micro-batches.
    for column, value in (("gbs", "8"), ("mbs", "2"), ("grad_acc", "1")):
        assert "the batch is not what" in said_of(runs.playbook, runs.Row({**row, column: value}))
    row = runs.Row({"Model": "125m", "Precision": "amp_bf16", "Activation CPUOffload": "False", "GPU": "a100_80gb", "# GPUs": "8", "GlobalBatchSize": "64", "GradAccum": "2",
                    "SeqLen (T)": "2048", "Sharding Strategy": "NO_SHARD", "MicroBatchSize": "4", "GlobalBatchSize (T)": "131072", "Throughput (T/s)": "1000",
                    "Activation Checkpointing": "False", "MP Mode": "PURE"})
    assert runs.run_of(runs.foundry, row).stored == "plain"
    # What fits is judged by the memory of the row's devices.
    sizes = {gpu: json.loads((pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench" / "clusters" / f"{runs.run_of(runs.foundry, runs.Row({**row, 'GPU': gpu})).cluster}.json").read_text())["device"]["memory_bytes"] >> 30
             for gpu in ("a100_40gb", "a100_80gb")}
    assert sizes == {"a100_40gb": 40, "a100_80gb": 80}, sizes
    assert runs.run_of(runs.foundry, runs.Row({**row, "Sharding Strategy": "HYBRID_SHARD"})).stored == "hybrid"
    for value, recompute in (("True", "full"), ("yes", "full"), ("FALSE", "none"), ("no", "none")):
        assert runs.run_of(runs.foundry, runs.Row({**row, "Activation Checkpointing": value})).recompute == recompute
    for column, value, why in (("Activation Checkpointing", "maybe", "expected yes or no"), ("Activation CPUOffload", "", "expected yes or no"), ("Activation CPUOffload", "yes", "offloaded"),
                               ("MP Mode", "FULL", "expected one of DEFAULT, PURE"), ("MicroBatchSize", "5", "the batch is not what"), ("GlobalBatchSize (T)", "1", "the tokens of a batch")):
        assert why in said_of(runs.foundry, runs.Row({**row, column: value})), (column, value)
    assert "HYBRID" in said_of(runs.foundry, runs.Row({**row, "Sharding Strategy": "HYBRID"})) and "v100" in said_of(runs.foundry, runs.Row({**row, "GPU": "v100"}))


def test_columns():
    """What a table says of a run counts wherever it stands: sequences and replicas of dgxc, a header that begins like a remark, blanks around numbers."""
    row = runs.Row({"tag": "v1", "file": "", "title": "Llama 3.1 8b BF16 (TP=1)", "column": "", "gpu": "H100", "gpus": "8", "precision": "BF16", "step_s": "12.9", "seq": "", "layers": "", "tp": "1",
                    "pp": "1", "cp": "2", "ep": "", "dp": "", "vp": "", "mbs": "1", "ga": "32", "gbs": "128", "config_from": "title"})
    sequence = lambda **columns: (run := runs.run_of(runs.dgxc, runs.Row({**row, **columns}))).model[len(run.model) - run.model[::-1].index("--sequence")]
    assert sequence() == sequence(seq="8192", dp="4") == "8192" and sequence(seq="4096") == "4096"
    assert runs.run_of(runs.dgxc, runs.Row({**row, "seq": "4096"})).group != runs.run_of(runs.dgxc, row).group
    assert "dp is 8" in said_of(runs.dgxc, runs.Row({**row, "dp": "8"}))
    tokens = str(128 * 8192)
    assert "tokens of a step" in said_of(runs.dgxc, runs.Row({**row, "tokens_per_step": "999999"}))
    assert "seconds" in said_of(runs.dgxc, runs.Row({**row, "tokens_per_step": tokens, "tokens_per_s": "1e6"}))
    assert not said_of(runs.dgxc, runs.Row({**row, "tokens_per_step": tokens, "tokens_per_s": str(int(tokens) / 12.9)}))
    assert "chunks without stages" in said_of(runs.dgxc, runs.Row({**row, "vp": "2"}))
    assert "32 layers do not divide into 12 chunks" in said_of(runs.dgxc, runs.Row({**row, "pp": "4", "cp": "", "vp": "3", "ga": "64"}))
    columns = {"# GPUs": "8", "Model": "125m", "Precision": "amp_bf16", "Activation CPUOffload": "False", "GPU": "a100_80gb", "GlobalBatchSize": " 64 ", "GradAccum": "2", "SeqLen (T)": " 2048",
               "Sharding Strategy": "NO_SHARD", "MicroBatchSize": "4", "GlobalBatchSize (T)": "131072", "Throughput (T/s)": "1000", "Activation Checkpointing": "False", "MP Mode": "PURE"}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "runs.csv"
        path.write_text("# a remark\n" + ",".join(columns) + "\n# another, one\n" + ",".join(columns.values()) + "\n")
        read, rows = runs.rows_of(path)
        assert len(rows) == 1 and rows[0].line == 4 and not said_of(read, rows[0]), rows
        assert runs.run_of(read, rows[0]).group == "125m seq 2048 on 8 a100_80gb"


def test_hybrid():
    """What is stored is split inside a machine, and whole copies lie on the others; the batch is split over all."""
    step = argparse.Namespace(products={}, residuals=set(), gathered=set(), gradients={}, data=["input_ids"], shapes={"input_ids": [64, 16], "w": [64, 64], "adam.m.w": [64, 64]}, logits={}, losses={},
                              multiplied={"w"}, updates={}, stored=lambda: [("w", "w", True), ("adam.m.w", "w", False)], role=lambda name: 0)
    run = runs.Run("", "", (), "h100-ib", "h100-foundry", 2, 8, 16, 1, 64, 1, "hybrid", False, 1)
    tiers = [{"name": "node", "size": 8}, {"name": "ib", "size": 2}]
    for nodes, mesh, split in ((2, {"copies": 2, "data": 8}, "[{copies,data},{}]"), (1, {"data": 8}, "[{data},{}]")):
        found = truth.pinned(dataclasses.replace(run, nodes=nodes, data=8 * nodes), step, tiers[:nodes], False, "none")
        assert {axis["name"]: axis["size"] for axis in found["mesh"]} == mesh
        assert found["tensors"]["w"]["spec"] == "[{data},{}]" and found["tensors"]["input_ids"]["spec"] == split, found["tensors"]


def test_padded():
    """What replicas split that it does not divide into is split over those of a power of two; none of an odd number."""
    step = argparse.Namespace(products={}, residuals=set(), gathered=set(), gradients={}, data=["input_ids"], shapes={"input_ids": [48, 16], "w": [64, 64], "adam.m.w": [64, 64]}, logits={}, losses={},
                              multiplied={"w"}, updates={}, stored=lambda: [("w", "w", True), ("adam.m.w", "w", False)], role=lambda name: 0, divides_into=lambda parts: 64 % parts == 0)
    run = runs.Run("", "", (), "h100-ib", "h100-foundry", 3, 8, 24, 1, 48, 1, "ZeRO-3", False, 1)
    tiers = [{"name": "node", "size": 8}, {"name": "ib", "size": 3}]
    found = truth.pinned(run, step, tiers, False, "none")
    assert [(axis["name"], axis["size"], axis["tier"]) for axis in found["mesh"]] == [("data_outer", 3, "ib"), ("data", 8, "node")], found["mesh"]
    assert found["tensors"]["w"]["spec"] == "[{data},{}]" and found["tensors"]["input_ids"]["spec"] == "[{data_outer,data},{}]", found["tensors"]
    found = truth.pinned(dataclasses.replace(run, stored="plain"), step, tiers, False, "none")
    assert [axis["size"] for axis in found["mesh"]] == [24], found["mesh"]
    try:
        truth.pinned(dataclasses.replace(run, nodes=1, per_node=5, data=5), step, [{"name": "node", "size": 5}], False, "none")
        raise AssertionError("5 replicas")
    except runs.Unsaid as why:
        assert "5 replicas" in str(why)


def test_ends_as_layers():
    """Chunks of as many layers where what is before and behind the layers counts as one each: 405B in 8 x 8 chunks."""
    row = runs.Row({"tag": "v1", "file": "", "title": "Llama 3.1 405b BF16", "column": "", "gpu": "H100", "gpus": "512", "precision": "BF16", "step_s": "9", "seq": "", "layers": "", "tp": "8",
                    "pp": "8", "cp": "2", "ep": "", "dp": "", "vp": "8", "mbs": "1", "ga": "63", "gbs": "252", "config_from": "title", "tokens_per_step": "NA", "tokens_per_s": ""})
    cuts = runs.run_of(runs.dgxc, row).cuts
    assert len(cuts) == 63 and cuts[0] == 1 and cuts[-1] == 125 and {b - a for a, b in zip(cuts, cuts[1:])} == {2}, cuts
    slow = runs.Row({"model": "1B", "layers": "16", "hidden": "2048", "ffn": "8192", "heads": "32", "gpus": "8", "nodes": "1", "pp": "1", "dp": "8", "tp": "1", "mbs": "1", "grad_acc": "4", "gbs": "32",
                     "zero": "0", "tied_embeddings": "tied", "status": "ok", "note": "", "iteration_s": "2", "memory_gb": "", "tokens_per_s_per_gpu": str(32 * 4096 / 8 / 2)})
    assert not said_of(runs.playbook, slow) and "seconds" in said_of(runs.playbook, runs.Row({**slow, "iteration_s": "3"}))


def test_batches():
    """Runs of one group may have other batches: they are compared by what a token takes."""
    run = runs.Run("g", "", ("--sequence", "16"), "", "", 1, 1, 1, 1, 8, 1, "plain", False, 1.0)
    larger = dataclasses.replace(run, batch=80, seconds=9.0)
    other = dataclasses.replace(run, seconds=3.0)
    found = truth.summary([(r, {"seconds": r.seconds, "fits": True, "memory_bytes": 0}) for r in (run, larger, other)], [run, larger, other])
    assert found["n"] == 2 and found["far_from_best"] == 1, found


def test_torch():
    """A table of this repository: every row is a run that can be priced, on one device, with the profile of its runtime."""
    read, rows = runs.rows_of(pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench" / "measured" / "torch_h100.csv")
    found = [runs.run_of(read, row) for row in rows]
    assert len(found) == 17 and {run.profile for run in found} == {"h100-eager", "h100-compiled"}
    assert all(run.nodes == run.per_node == run.data == run.tensor == 1 and run.seconds > 0 for run in found)
    assert "no profile of cpu" in said_of(read, runs.Row({**rows[0], "gpu": "cpu"}))
    assert "runtime" in said_of(read, runs.Row({**rows[0], "runtime": "traced"}))


def test_ways():
    """One step in several ways is a group; what did not fit is a run that failed, and the memory of one pass is not compared."""
    read, rows = runs.rows_of(pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench" / "measured" / "torch_h100_ways.csv")
    found = [runs.run_of(read, row) for row in rows]
    assert len(found) == 12 and len({run.group for run in found}) == 2 and len({(run.group, run.label) for run in found}) == 12
    assert [(run.micro_batches, run.recompute) for run in found if run.failed] == [(1, "none")]
    assert all((run.memory_bytes > 0) == (run.micro_batches > 1) for run in found)


def test_truth():
    """A bad row, or a bad file, keeps nobody from the others."""
    with tempfile.TemporaryDirectory() as folder:
        path, other = pathlib.Path(folder) / "runs.csv", pathlib.Path(folder) / "other.csv"
        path.write_text("\n".join([VTRAIN, GOOD, "2,16,8,250,4,2,128,1,2,1,3", "2,16,8,256,4,2,128,1,2,1,nan", GOOD.replace("12.5", "13")]))
        other.write_text("a,b\n1,2\n")
        command = [sys.executable, pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench" / "truth.py", other, path, "--json"]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        assert f"{path}: 1 rows left out: a measured time of nan s (lines 4)" in done.stderr and "(lines 3)" in done.stderr, done.stderr
        assert f"{other}: left out: no known table" in done.stderr, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert told[str(path)]["n"] == 2 and sorted(sum(told[str(path)]["left_out_lines"].values(), [])) == [3, 4], told
        for options, why in ((["--profile", "h1000"], "no ready-made profile"), (["--every", "0"], "expected a number from 1 on")):
            refused = subprocess.run([*map(str, command), *options], capture_output=True, text=True)
            assert refused.returncode != 0 and why in refused.stderr and "Traceback" not in refused.stderr, refused.stderr


def test_files():
    """What is no table is named and counted, whatever it is, and the exit code is 1 where nothing could be read."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        bad = {"latin.csv": "a\xe9,b\n1,2\n".encode("latin-1"), "bytes.csv": bytes(range(256)) * 9, "short.csv.gz": gzip.compress(VTRAIN.encode())[:-9], "missing.csv": None, "folder.csv": None}
        for name, content in bad.items():
            if content:
                (folder / name).write_bytes(content)
        (folder / "folder.csv").mkdir()
        # Packed, of no known table, without rows; the last's stages have chunks, and no times of streams.
        table = folder / "runs.csv.gz"
        failing = [GOOD.replace("256", width) for width in ("250", "254")]
        table.write_bytes(gzip.compress("\n".join([VTRAIN, "2,16,8,256,4,2,128,1,1,2,12.5", *failing]).encode()))
        (folder / "other.csv").write_text("a,b\n1,2\n3,4\n")
        (folder / "empty.csv").write_text(VTRAIN + "\n")
        command = [sys.executable, str(pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "bench" / "truth.py"), "--json", *(str(folder / name) for name in bad)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and "Traceback" not in done.stderr and json.loads(done.stdout.splitlines()[-1]), done.stderr
        done = subprocess.run([*command, *(str(folder / name) for name in ("other.csv", "empty.csv", "runs.csv.gz"))], capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        told = {pathlib.Path(path).name: found for path, found in json.loads(done.stdout.splitlines()[-1]).items()}
        for name in bad:
            assert told[name]["n"] == 0 and "cannot be read" in told[name]["reason"] and f"{name}: left out: cannot be read" in done.stderr, told[name]
        assert list(told["other.csv"]["left_out"].values()) == [2] and "no known table" in told["other.csv"]["reason"], told["other.csv"]
        assert told["empty.csv"]["n"] == 0 and told["empty.csv"]["mape"] is None and told["empty.csv"]["reason"] is None, told["empty.csv"]
        assert len({tuple(found) for found in told.values()}) == 1, told
        priced = told["runs.csv.gz"]
        assert priced["n"] == 1 and list(priced["left_out"].values()) == [1, 1] and not any("/" in why for why in priced["left_out"]), priced
        row = next(csv.DictReader([line for line in done.stdout.splitlines() if line.startswith(("file,", "runs.csv.gz,")) and "width" not in line and "hidden" not in line]))
        assert float(row["predicted_s"]) > 0 and row["compute_s"] == row["exposed_s"] == row["host_s"] == "", row


def test_sources():
    """Whatever a ready-made profile says has a source, by its name or that of the object that it is in."""
    for path in sorted((pathlib.Path(os.environ["AUTOPAR_SOURCE"]) / "models" / "profiles").glob("*.json")):
        profile = json.loads(path.read_text())
        told = {name.strip() for names in profile.pop("sources") for name in names.split(",")}
        for name, value in profile.items():
            parts = {f"{name}.{part}" for part in value} if isinstance(value, dict) else {name}
            assert name in ("format", "version", "name") or name in told or parts <= told, (path.name, name, parts - told)
            told -= {name, *parts}
        assert not told, (path.name, told)


def test_reasons():
    """The same failure of two runs is one reason."""
    done = lambda folder, model: argparse.Namespace(stderr=f"autopar: error: {folder}/{model}.step.onnx: {folder}/pins.json: no op 'a/b'\n", returncode=1)
    assert truth.last_line(done("/tmp/a1", "0123456789ab")) == truth.last_line(done("/tmp/b2/c", "ba9876543210")) == "autopar: error: model.onnx: pins.json: no op 'a/b'"


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
