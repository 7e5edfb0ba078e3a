"""Tables of published training runs: each row as a run that can be priced, or why it cannot.

A table is known by its header: TABLES.
"""
import csv
import dataclasses
import gzip
import math
import pathlib
import zlib


@dataclasses.dataclass
class Run:
    """A measured run. `model`: options of scripts/make_models.py."""
    group: str
    label: str
    model: tuple
    cluster: str
    profile: str
    nodes: int
    per_node: int
    data: int
    tensor: int
    batch: int
    micro_batches: int
    stored: str
    sequence: bool
    seconds: float
    memory_bytes: float = 0
    recompute: str = "none"  # "unrecorded": nothing but what split sequences are gathered for; where that does not fit, everything
    precision: str = "mixed-bf16"
    reduce: str = "fp32"  # what gradients are in when replicas add them up
    failed: bool = False  # it was tried, and has no time
    stages: int = 1  # of a pipeline, by 1F1B
    chunks: int = 1  # of each stage; several: interleaved
    cuts: tuple = ()  # what each stage but the first begins with: a layer, "head" or "loss"; (): where the work is balanced
    context: int = 1  # parts of each sequence
    impossible: str = ""  # why the runtime cannot run it at all
    first_stage: bool = False  # whose memory was measured; else that of the fullest
    waiting_bytes: float = 0  # what the allocator keeps beside the plan as long as there is room for it
    logits_bytes: float = 0  # kept in the last stage alone


class Unsaid(Exception):
    """Why a row cannot be priced."""


def one_of(row, column, meanings):
    if row[column] not in meanings:
        raise Unsaid(f"column '{column}' is '{row[column]}', expected one of {', '.join(meanings)}")
    return meanings[row[column]]


def yes_or_no(row, column):
    found = row[column].strip().lower()
    if found not in ("true", "yes", "1", "false", "no", "0"):
        raise Unsaid(f"column '{column}' is '{row[column]}', expected yes or no")
    return found in ("true", "yes", "1")


def check_batch(batch, data, samples, passes):
    """`samples`: of a micro-batch of one replica."""
    if data * samples * passes != batch:
        raise Unsaid("the batch is not what micro-batches and devices make")


def nanotron_cuts(layers, hidden, feed_forward, vocabulary, stages, nodes):
    """What each stage but the first begins with: a layer's number, "head" (its norm), "cast" (the logits in float32) or "loss". nanotron
    (src/nanotron/models/base.py) goes to the next stage behind the block with which the products so far are more than an even split has;
    also where they are as many, by what 1B's first stages hold, whose head is as four layers. () where stages are left with nothing: of
    such runs 95 of 97 failed."""
    layer, head = 4 * hidden**2 + 3 * feed_forward * hidden, vocabulary * hidden
    blocks = [*((i, layer) for i in range(layers)), ("head", 0), ("head", head), ("cast", 0), ("loss", 0)]
    cuts, so_far = [], 0
    for (_, cost), after in zip(blocks, blocks[1:] + [None]):
        so_far += cost
        if after and len(cuts) < stages - 1 and so_far * stages >= (layers * layer + head) * (len(cuts) + 1):
            cuts.append(after[0])
    if len(cuts) != stages - 1 or len(set(cuts)) < len(cuts):
        return ()
    if nodes > 1 and cuts[-1] in ("cast", "loss"):
        # All logits go to the last stages, between machines faster than collectives go there, which no profile says: priced as if the
        # head were in the last one, and in the others a layer that shared its stage.
        begun = [cut for cut in cuts if cut not in ("head", "cast", "loss")]
        shared = [layer for layer in range(1, layers) if layer not in begun]
        missing = stages - 2 - len(begun)
        cuts = [*sorted(begun + shared[len(shared) - missing:]), "head"]
    return tuple(cuts)


def nanotron_waiting(hidden, feed_forward, sequence, samples, tensor, stages, nodes, passes):
    """Bytes that PyTorch's allocator holds for nanotron's tensor parallelism while the host is ahead of the device. Collectives run on
    a stream of their own, so what they read and write is only free when the device has passed it. Counted in inputs of a layer, whole and
    in bfloat16: about 55, which is three to four in each of 16 layers, or 1,000 launches; in stages on one machine 65, on several 46, since
    there the host waits for what other stages send. It is a half in the first passes, and a third where the device waits for the host, as
    it does with less than about half of the work of which the host's launches take as long (4.7 ms for a layer, 5.5 + 2.2 per rank for
    one of a stage on several machines). Set by hand to 122 runs of 1B and 3B; `samples`: of a micro-batch of one replica."""
    if tensor == 1:
        return 0
    between = stages > 1 and nodes > 1
    tokens = samples * sequence
    products = 6 * tokens * (4 * hidden**2 + 3 * hidden * feed_forward + sequence * hidden) / tensor
    device_s, host_s = products / (0.55 * 989e12), 1e-3 * (5.5 + 2.2 * tensor if between else 4.7)
    held = 46 if between else 65 if stages > 1 else 55
    if device_s < 0.45 * host_s:
        held *= 0.35
    elif passes <= (2 if between else 1):
        held *= 0.5
    return held * tokens * hidden * 2


def kept_logits(vocabulary, sequence, samples, tensor):
    """Bytes that PyTorch's allocator keeps of the logits of a rank in bfloat16: they are cast to float32 before the loss, and their place is
    too small for what comes then, as large in float32, until the backward pass makes their gradient. `samples`: of a micro-batch of one replica."""
    return 2 * samples * sequence * vocabulary / tensor


def check_rate(seconds, tokens_per_s, tokens):
    if abs(float(seconds) * float(tokens_per_s) / tokens - 1) > 0.02:
        raise Unsaid("a step's tokens and those of a second do not go with its seconds")


def check_chunks(layers, stages, chunks):
    """Megatron's stages have as many chunks each, and chunks as many layers."""
    if stages == 1 and chunks > 1:
        raise Unsaid("chunks without stages")
    if layers % (stages * chunks):
        raise Unsaid(f"{layers} layers do not divide into {stages * chunks} chunks")


def even_cuts(layers, chunks):
    """Megatron's: each chunk has as many layers, the first the embedding too, the last the head."""
    return tuple(range(layers // chunks, layers, layers // chunks)) if layers % chunks == 0 else ()


def playbook(row):
    if row["note"]:
        raise Unsaid(f"note: {row['note']}")
    failed = one_of(row, "status", {"ok": False, "failed": True})
    stored, tied = one_of(row, "zero", {"0": "plain", "1": "ZeRO-1", "2": "ZeRO-2", "3": "ZeRO-3"}), one_of(row, "tied_embeddings", {"tied": True, "untied": False})
    stages = int(row["pp"])
    if not failed and row.get("tokens_per_s_per_gpu"):
        check_rate(row["iteration_s"], row["tokens_per_s_per_gpu"], int(row["gbs"]) * 4096 / int(row["gpus"]))
    check_batch(*(int(row[k]) for k in ("gbs", "dp", "mbs", "grad_acc")))
    cuts = nanotron_cuts(int(row["layers"]), int(row["hidden"]), int(row["ffn"]), 131072, stages, int(row["nodes"])) if stages > 1 else ()
    model = ("--family", "llama", "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], "--kv-heads", row["heads"],
             "--feed-forward", row["ffn"], "--vocabulary", "131072", "--sequence", "4096",
             "--tied" if tied and stages == 1 else "--no-tied")  # of several stages two have a copy each
    tensor = int(row["tp"])
    return Run(f"{row['model']} on {row['gpus']}", f"dp={row['dp']} tp={tensor}{f' pp={stages}' * (stages > 1)} zero={row['zero']} mbs={row['mbs']} ga={row['grad_acc']}", model,
               "h100-efa", "h100-nanotron", int(row["nodes"]), int(row["gpus"]) // int(row["nodes"]), int(row["dp"]), tensor, int(row["gbs"]),
               int(row["grad_acc"]), stored, tensor > 1, 0 if failed else float(row["iteration_s"]),
               0 if failed or not row["memory_gb"] else float(row["memory_gb"]) * 2**30, recompute="unrecorded", failed=failed, stages=stages,
               cuts=cuts, impossible="stages without ops" if stages > 1 and not cuts else "", first_stage=True,
               waiting_bytes=nanotron_waiting(int(row["hidden"]), int(row["ffn"]), 4096, int(row["mbs"]), tensor, stages, int(row["nodes"]),
                                              int(row["grad_acc"])),
               logits_bytes=kept_logits(131072, 4096, int(row["mbs"]), tensor))


def vtrain(row):
    """Megatron-DeepSpeed on A100, full recomputation, gradients in float16 (a layer's share of the step's end, by rows that differ in their
    layers and passes alone, is that of 2 bytes for a gradient: 0.09 ms for 6.3 M parameters on a rank); the times are milliseconds. GPT-2's vocabulary of 50,257, not padded, of which each
    rank has as many as divide evenly (vTrain, src/config.py and src/model/gpt_modeling.py)."""
    data, tensor, gpus, stages = (int(row[k]) for k in ("data_parallel", "tensor_parallel", "gpus", "pipeline_parallel"))
    if tensor > 1 and int(row["heads"]) % tensor:
        raise Unsaid("heads do not divide")
    batch, samples = int(row["global_batch"]), int(row["micro_batch"])
    passes = batch // (data * samples)
    check_batch(batch, data, samples, passes)
    check_chunks(int(row["layers"]), stages, 1)
    model = ("--family", "gpt", "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], "--vocabulary",
             str(50257 // tensor * tensor), "--sequence", row["sequence"], "--no-fused-qkv")
    per_node = min(8, gpus)
    return Run(f"h{row['hidden']} l{row['layers']} b{row['global_batch']} on {gpus}", f"dp={data} tp={tensor}{f' pp={stages}' * (stages > 1)} mbs={row['micro_batch']}", model,
               "a100-ib", "a100-megatron", gpus // per_node, per_node, data, tensor, int(row["global_batch"]), passes, "plain", False,
               float(row["iteration_ms"]) / 1e3, recompute="full", precision="mixed-fp16", reduce="fp16", stages=stages, cuts=even_cuts(int(row["layers"]), stages))


def megatron(row):
    """Papers on Megatron-LM (bench/published/megatron.csv)."""
    gpus, tensor, stages, batch = (int(row[k]) for k in ("gpus", "tensor_parallel", "pipeline_stages", "batch_size"))
    data, samples = gpus // (tensor * stages), int(row["micro_batch_size"])
    passes = batch // (data * samples)
    check_batch(batch, data, samples, passes)
    per_node = min(8, gpus)
    check_chunks(int(row["layers"]), stages, int(row["chunks"]))
    model = ("--family", "gpt", "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], "--vocabulary", "51200", "--sequence", "2048",
             "--no-fused-qkv")
    return Run(f"{row['paper']} {row['params_b']}B on {gpus}", f"dp={data} tp={tensor} pp={stages}x{row['chunks']} {row['recompute']}", model, "a100-selene", "a100-megatron",
               gpus // per_node, per_node, data, tensor, batch, passes, "plain", one_of(row, "sequence_parallel", {"1": True, "0": False}),
               float(row["iteration_seconds"]), recompute=one_of(row, "recompute", {"full": "full", "selective": "products", "none": "none"}), precision="mixed-fp16", reduce="fp16", stages=stages,
               chunks=int(row["chunks"]), cuts=even_cuts(int(row["layers"]), stages * int(row["chunks"])))


# llm-foundry's MPT: width, heads, layers. Source: mosaicml/llm-foundry, scripts/train/benchmarking.
MPT = {"125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24), "3b": (2560, 20, 32), "7b": (4096, 32, 32),
       "13b": (5120, 40, 40), "30b": (7168, 56, 48), "70b": (8192, 64, 80)}


FOUNDRY_CLUSTERS = {"a100_40gb": "a100-40gb-ib", "a100_80gb": "a100-ib", "h100_80gb": "h100-ib"}


def foundry(row):
    """FSDP in eager mode, with FlashAttention of 2023; throughput is in tokens. Sums of gradients are priced in float32 in both of its modes of
    mixed precision. HYBRID_SHARD splits inside a machine, and keeps whole copies across machines."""
    if row["Model"] not in MPT:
        raise Unsaid(f"model {row['Model']}")
    if "bf16" not in row["Precision"]:
        raise Unsaid(f"precision {row['Precision']}")
    if yes_or_no(row, "Activation CPUOffload"):
        raise Unsaid("activations offloaded to the host")
    one_of(row, "MP Mode", {"DEFAULT": 0, "PURE": 0})
    gpu = row["GPU"].split("_")[0]
    cluster = FOUNDRY_CLUSTERS.get(row["GPU"])
    if cluster is None:
        raise Unsaid(f"no profile of GPU '{row['GPU']}'")
    gpus, width, = int(row["# GPUs"]), MPT[row["Model"]]
    hidden, heads, layers = width
    batch, passes = int(row["GlobalBatchSize"]), int(row["GradAccum"])
    check_batch(batch, gpus, int(row["MicroBatchSize"]), passes)
    if batch * int(row["SeqLen (T)"]) != float(row["GlobalBatchSize (T)"]):
        raise Unsaid("the tokens of a batch are not its samples times their length")
    model = ("--family", "gpt", "--layers", str(layers), "--hidden", str(hidden), "--heads", str(heads), "--vocabulary", "50368",
             "--sequence", row["SeqLen (T)"], "--no-fused-qkv", "--bias", "none")
    per_node = min(8, gpus)
    return Run(f"{row['Model']} seq {row['SeqLen (T)']} on {gpus} {row['GPU']}", f"{row['Sharding Strategy']} mbs={row['MicroBatchSize']} ga={passes}", model,
               cluster, f"{gpu}-foundry", gpus // per_node, per_node, gpus, 1, batch, passes,
               one_of(row, "Sharding Strategy", {"FULL_SHARD": "ZeRO-3", "SHARD_GRAD_OP": "ZeRO-2", "NO_SHARD": "plain", "HYBRID_SHARD": "hybrid"}), False, float(row["GlobalBatchSize (T)"]) / float(row["Throughput (T/s)"]),
               recompute="full" if yes_or_no(row, "Activation Checkpointing") else "none")


def nemotron(layers, hidden, heads):
    return ("--family", "gpt", "--layers", layers, "--hidden", hidden, "--heads", heads, "--kv-heads", "8", "--feed-forward", str(4 * int(hidden)), "--vocabulary",
            "256000", "--sequence", "4096", "--no-fused-qkv", "--bias", "none", "--position", "rotary", "--no-tied")


# Of the titles: options and layers. Sources: NVIDIA's technical reports of Nemotron-4 15B and 340B; Meta's Llama 3.
DGXC = {"nemotron4 15b": (nemotron("32", "6144", "48"), 32), "nemotron4 340b": (nemotron("96", "18432", "96"), 96),
        **{f"llama 3.1 {size}": (("--preset", f"llama3-{size}", "--sequence", "8192"), layers) for size, layers in (("8b", 32), ("70b", 80), ("405b", 126))}}


def dgxc(row):
    """NeMo and Megatron on DGX H100, with a distributed optimizer."""
    model, layers = next((found for name, found in DGXC.items() if row["title"].lower().startswith(name)), (None, 0))
    if model is None:
        raise Unsaid("another model: " + row["title"].split("(")[0].strip())
    if row["gpu"] != "H100" or row["precision"] != "BF16":
        raise Unsaid(f"{row['gpu']} {row['precision']}")
    number = lambda key: int(float(row[key])) if row[key] not in ("", "NA", "None") else 1
    if number("ep") > 1 or not row["mbs"]:
        raise Unsaid("expert parallelism" if row["mbs"] else "no configuration")
    gpus, tensor, context, stages, passes, batch = (number(key) for key in ("gpus", "tp", "cp", "pp", "ga", "gbs"))
    data = gpus // (tensor * context * stages)
    check_batch(batch, data, number("mbs"), passes)
    if row["layers"] and int(float(row["layers"])) != layers:  # a part of the model
        layers = int(float(row["layers"]))
        model += ("--layers", str(layers))
    own = model[model.index("--sequence") + 1]
    sequence = str(number("seq")) if number("seq") > 1 else own
    if row["dp"] not in ("", "NA", "None") and number("dp") != data:
        raise Unsaid(f"{gpus} GPUs are {data} replicas by tp, cp and pp, and dp is {row['dp']}")
    if sequence != own:
        model += ("--sequence", sequence)
    told = {key: float(row[key]) for key in ("tokens_per_step", "tokens_per_s") if row.get(key) not in (None, "", "NA", "None")}
    tokens = told.get("tokens_per_step", 0)
    if tokens and abs(tokens / (batch * int(sequence)) - 1) > 0.02:
        raise Unsaid("the tokens of a step are not its samples times their length")
    if len(told) == 2:
        check_rate(row["step_s"], told["tokens_per_s"], tokens)
    chunks = stages * number("vp")
    # The largest count what is before and behind the layers as one each (Megatron's account_for_embedding_in_pipeline_split).
    counts_ends = layers % chunks and (layers + 2) % chunks == 0 and layers + 2 > chunks
    check_chunks(layers + 2 * counts_ends, stages, number("vp"))
    of_sequence = f" seq {sequence}" if sequence != own else ""
    return Run(f"{row['title'].split('(')[0].strip()}{of_sequence} on {gpus}", f"{row['tag']} tp={tensor}{f' cp={context}' * (context > 1)}{f' pp={stages}' * (stages > 1)} mbs={row['mbs']} ga={passes}", model, "h100-ib", "h100-megatron",
               gpus // min(8, gpus), min(8, gpus), data, tensor, batch, passes, "ZeRO-1", tensor > 1, float(row["step_s"]), stages=stages, chunks=number("vp"), context=context,
               cuts=() if chunks == 1 else tuple(cut - 1 for cut in even_cuts(layers + 2, chunks)) if counts_ends else even_cuts(layers, chunks))


def bridge(row):
    """Megatron-Bridge: its models are mixtures of experts, split by expert and pipelines. There tokens are sorted by expert without a
    product. scripts/make_models.py sends them by products with zeros and ones (Lepikhin et al. 2021), which of GPT OSS 120B, 128 experts
    of which a token takes four, are 0.77 TFLOP for a sample of 4,096 tokens, and the experts themselves 0.82."""
    if "H100" not in row["system"] or row["precision"] != "BF16":
        raise Unsaid(f"{row['system']} {row['precision']}")
    raise Unsaid(f"{row['model']}: experts, whose tokens would be sent by products as large as theirs")


def sailor(row):
    """No cluster or profile of this project is of these machines: rows are only told apart."""
    if int(row["stages"]) > 1:
        raise Unsaid("pipeline stages")
    if "&" in row["replicas_per_stage"]:
        raise Unsaid("replicas on different devices")
    raise Unsaid(f"no profile of {row['cluster']}")


def torch_step(row):
    """bench/torch_steps.py: PyTorch on one GPU; gradients in bfloat16. Its tables of steps of one pass do not say that they are."""
    gpus = {"NVIDIA H100 80GB HBM3": "h100"}
    if row["gpu"] not in gpus:
        raise Unsaid(f"no profile of {row['gpu']}")
    runtime = one_of(row, "runtime", {"eager": "eager", "compiled": "compiled"})
    family = one_of(row, "family", {"llama": ("--kv-heads", row["kv_heads"], "--feed-forward", row["feed_forward"]), "gpt": ("--no-fused-qkv", "--feed-forward", row["feed_forward"])})
    model = ("--family", row["family"], "--layers", row["layers"], "--hidden", row["hidden"], "--heads", row["heads"], *family, "--vocabulary", row["vocabulary"],
             "--sequence", row["sequence"], "--no-tied")
    step = f"{row['family']} {row['layers']}x{row['hidden']} sequence={row['sequence']} batch={row['batch']}"
    run = Run(step, runtime, model, f"{gpus[row['gpu']]}-ib", f"{gpus[row['gpu']]}-{runtime}", 1, 1, 1, 1, int(row["batch"]), 1, "plain", False,
              float(row["torch_step_s"] or 0), failed=not row["torch_step_s"], reduce="bf16")
    if "micro_batches" not in row:
        return run
    passes = int(row["micro_batches"])
    one_of(row, "recompute", {level: level for level in ("none", "cheap", "products", "full")})
    # With one pass its Adam's float32 gradients stay, which is its own affair.
    return dataclasses.replace(run, group=f"{step} {runtime}", label=f"passes={passes} recompute={row['recompute']}", micro_batches=passes, recompute=row["recompute"],
                               memory_bytes=float(row["memory_bytes"] or 0) if passes > 1 else 0)


# Columns that only this table has -> how its rows are read.
TABLES = [({"tokens_per_s_per_gpu", "grad_acc", "zero", "memory_gb"}, playbook), ({"pipeline_parallel", "iteration_ms"}, vtrain),
          ({"pipeline_stages", "chunks", "iteration_seconds"}, megatron), ({"Throughput (T/s)", "Sharding Strategy"}, foundry), ({"step_s", "config_from"}, dgxc),
          ({"container", "tflops_raw"}, bridge), ({"torch_step_s", "update_s"}, torch_step), ({"replicas_per_stage", "real_s"}, sailor)]


LARGEST_FILE = 1 << 28
# The most that columns may say.
LARGEST = {1_000: {"layers", "ep", "pp", "pipeline_parallel", "pipeline_stages", "vp", "chunks"},
           100_000: {"gpus", "# GPUs", "nodes", "dp", "data_parallel", "tp", "tensor_parallel", "cp", "heads", "kv_heads", "grad_acc", "ga", "GradAccum",
                     "micro_batches"},
           10_000_000: {"hidden", "ffn", "feed_forward", "vocabulary", "sequence", "seq", "SeqLen (T)", "gbs", "global_batch", "GlobalBatchSize", "batch_size",
                        "batch", "mbs", "micro_batch", "micro_batch_size", "MicroBatchSize"}}


class Row(dict):
    """A line of a table, which knows what was last asked of it: that is what an error is about."""
    line, asked = 0, None

    def __getitem__(self, column):
        self.asked = column
        return super().__getitem__(column)


class Unknown(Exception):
    """Why a file is no table of runs. `rows`: how many it has, where that can be told."""
    rows = 0


class Unreadable(Unknown):
    """Why nothing can be read of a file."""


def text_of(path):
    """Of a file as it is, or packed by gzip."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise Unreadable(f"cannot be read: more than {LARGEST_FILE >> 20} MiB")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(f"cannot be read: {why}") from None


def is_header(line):
    """Of a known table: its first column may be "# GPUs", which is no comment."""
    names = {name.strip() for name in next(csv.reader([line]), [])}
    return any(columns <= names for columns, _ in TABLES)


def rows_of(path):
    """What reads a row, and the rows of a table, each with its line in the file."""
    lines = [(number, line) for number, line in enumerate(text_of(path).split("\n"), 1) if line and (not line.startswith("#") or is_header(line))]
    reader = csv.DictReader([line for _, line in lines], skipinitialspace=True)
    try:
        found = reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        for columns, read in TABLES:
            if columns <= set(found):
                rows = []
                for values in reader:
                    row = Row({name: value.strip() if isinstance(value, str) else value for name, value in values.items()})
                    row.line = lines[reader.line_num - 1][0]
                    rows.append(row)
                return read, rows
    except csv.Error as error:
        raise Unknown(f"line {lines[max(reader.line_num, 1) - 1][0]}: {error}") from None
    unknown = Unknown(f"no known table of runs has the columns {', '.join(found)}" if found else "it has no line of columns")
    unknown.rows = max(len(lines) - 1, 0)
    raise unknown


def run_of(read, row):
    """A row as a run. Raises Unsaid where it is none that can be priced, with the column where that is known."""
    if None in row:
        raise Unsaid("has more fields than the table has columns")
    if None in row.values():
        raise Unsaid(f"ends before column '{next(name for name, value in row.items() if value is None)}'")
    check_sizes(row)
    try:
        run = read(row)
    except ArithmeticError:
        raise Unsaid("a number that others are divided by is 0") from None
    except (KeyError, ValueError, TypeError) as error:
        raise Unsaid(f"column '{row.asked}' is '{row.get(row.asked)}': {error}") from None
    check(run)
    return run


def check_sizes(row):
    """No number is so large that only a mistake makes it, and that pricing it would not end."""
    for most, columns in LARGEST.items():
        for column in columns & row.keys():
            try:
                found = float(row[column])
            except ValueError:
                continue  # whoever reads it says what is wrong
            if found > most:
                raise Unsaid(f"column '{column}' is '{row[column]}': more than {most:,}")


def check(run):
    """What every run must be."""
    devices, ranks = run.nodes * run.per_node, run.data * run.tensor * run.context * run.stages
    if min(run.nodes, run.per_node, run.data, run.tensor, run.context, run.stages, run.chunks, run.batch, run.micro_batches) < 1:
        raise Unsaid("a number of devices, ranks, samples or passes is below 1")
    if devices != ranks:
        raise Unsaid(f"{run.nodes} times {run.per_node} devices, which are not the {ranks} ranks of its configuration")
    if run.batch % (run.data * run.micro_batches):
        raise Unsaid("the batch is not what micro-batches and devices make")
    if not run.failed and not (math.isfinite(run.seconds) and run.seconds > 0):
        raise Unsaid(f"a measured time of {run.seconds} s")
    if not (math.isfinite(run.memory_bytes) and run.memory_bytes >= 0):
        raise Unsaid(f"a measured memory of {run.memory_bytes} bytes")
