"""scripts/make_models.py writes transformers from a configuration: their parameters are as many as published, what they
calculate is what numpy does, for two batch sizes of one file, and they are planned, also as training steps."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
sys.path.insert(0, str(SOURCE / "scripts"))
from tools.program import AUTOPAR, run  # noqa: E402
from transformer import FAMILIES, PRESETS, Config, Unsuitable, transformer  # noqa: E402

SCRIPT = SOURCE / "scripts" / "make_models.py"
CLUSTER = "dgx-h100-8x8"

# The sums of the sizes of the weights in the published files, but for gpt3, whose are of the formula for its table.
PARAMETERS = {
    "gpt2": 124439808, "gpt2-medium": 354823168, "gpt2-large": 774030080, "gpt2-xl": 1557611200,
    "gpt3-6.7b": 6658404352, "gpt3-13b": 12853386240, "gpt3-175b": 174604259328,
    "llama2-7b": 6738415616, "llama2-13b": 13015864320, "llama2-70b": 68976648192,
    "llama3-8b": 8030261248, "llama3-70b": 70553706496, "llama3-405b": 405853388800,
    "mixtral-8x7b": 46702792704,
}

TINY = {"layers": 2, "hidden": 32, "heads": 4, "feed_forward": 48, "vocabulary": 40, "sequence": 8}
LLAMA, GPT = {**FAMILIES["llama"], **TINY, "kv_heads": 2}, {**FAMILIES["gpt"], **TINY}
MIXTRAL = {**LLAMA, "experts": 4, "top_k": 2}

# What is calculated, and whether the training step has to be planned: where the program may lack a gradient, it says so.
FORMS = {
    "llama": (LLAMA, True),
    "llama without groups, tied": ({**LLAMA, "kv_heads": 4, "tied": True}, True),
    "llama stored as in Hugging Face's files": ({**LLAMA, "layout": "hf"}, True),
    "llama with biases of q, k and v, heads of another size": ({**LLAMA, "bias": "qkv", "head_dim": 16}, True),
    "llama with ops of opset 23": ({**LLAMA, "attention": "op", "norm_as": "op"}, False),
    "gpt": (GPT, False),
    "gpt with normalisation decomposed": ({**GPT, "norm_as": "ops", "max_positions": 12}, True),
    "gpt with Attention": ({**GPT, "attention": "op"}, False),
    "gpt untied, without fused projection, groups, erf": ({**GPT, "tied": False, "fused_qkv": False, "kv_heads": 2, "activation": "gelu",
                                                           "norm_as": "ops", "layout": "hf"}, True),
    "gpt with relu and no positions": ({**GPT, "activation": "relu", "position": "none", "norm_as": "ops", "feed_forward": 0}, True),
    "experts": (MIXTRAL, True),
    "experts stored as in Hugging Face's files": ({**MIXTRAL, "layout": "hf"}, True),
    "stacked experts": ({**MIXTRAL, "routing": "stacked"}, True),
    "experts with room for all": ({**MIXTRAL, "routing": "capacity", "capacity_factor": 4.0}, True),
    "experts that are full": ({**MIXTRAL, "routing": "capacity", "capacity_factor": 0.6}, True),
    "experts of a gpt": ({**GPT, "experts": 3, "top_k": 1, "norm_as": "ops"}, True),
    "stacked experts of a gpt": ({**GPT, "experts": 3, "top_k": 1, "norm_as": "ops", "routing": "stacked"}, True),
}


class Numpy:
    """The same model in float64, from the configuration and the weights by name."""

    def __init__(self, config, weights):
        self.c, self.w = config.completed(), {name: value.astype(np.float64) for name, value in weights.items()}

    def linear(self, x, name):
        w = self.w[name + ".weight"]
        conv1d = self.c.family == "gpt" and name != "lm_head" and ".experts." not in name
        if self.c.layout == "hf" and w.ndim == 2 and not conv1d:
            w = w.T
        return x @ w + self.w.get(name + ".bias", 0.0)

    def norm(self, x, name):
        if self.c.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c.epsilon)
        return x * self.w[name + ".weight"] + self.w.get(name + ".bias", 0.0)

    def activation(self, x):
        if self.c.activation == "silu":
            return x / (1 + np.exp(-x))
        if self.c.activation == "relu":
            return np.maximum(x, 0)
        if self.c.activation == "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        from math import erf
        return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))

    def rotated(self, x):
        """[heads, sequence, head_dim]: pairs (i, i + head_dim / 2) turned as complex numbers."""
        d = self.c.head_dim
        angle = np.arange(x.shape[1])[:, None] * self.c.rotary_base ** (-np.arange(0, d, 2) / d)[None, :]
        z = (x[..., :d // 2] + 1j * x[..., d // 2:]) * np.exp(1j * angle)
        return np.concatenate([z.real, z.imag], -1)

    def attention(self, x, weights, gpt):
        c = self.c
        sizes = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        if c.fused_qkv:
            qkv = np.split(self.linear(x, weights + ("c_attn" if gpt else "qkv_proj")), np.cumsum(sizes)[:2], -1)
        else:
            qkv = [self.linear(x, f"{weights}{n}_proj") for n in "qkv"]
        q, k, v = (y.reshape(len(x), -1, c.head_dim).swapaxes(0, 1) for y in qkv)
        if c.position == "rotary":
            q, k = self.rotated(q), self.rotated(k)
        mixed = np.zeros_like(q)
        for h in range(c.heads):
            group = h // (c.heads // c.kv_heads)
            for s in range(len(x)):
                scores = k[group, :s + 1] @ q[h, s] / np.sqrt(c.head_dim)
                shares = np.exp(scores - scores.max())
                mixed[h, s] = shares / shares.sum() @ v[group, :s + 1]
        return self.linear(mixed.swapaxes(0, 1).reshape(len(x), -1), weights + ("c_proj" if gpt else "o_proj"))

    def feed_forward(self, x, weights, gate, up, down):
        inner = self.linear(x, weights + up)
        inner = self.activation(self.linear(x, weights + gate)) * inner if self.c.gated else self.activation(inner)
        return self.linear(inner, weights + down)

    def expert(self, x, weights, e):
        names = ("w1", "w3" if self.c.gated else "w1", "w2")
        if self.c.routing == "dense":
            return self.feed_forward(x, f"{weights}experts.{e}.", *names)
        prefix = weights + "experts."
        one = {"one." + key.removeprefix(prefix): np.squeeze(value[e]) for key, value in self.w.items() if key.startswith(prefix)}
        other = Numpy(self.c, one)
        other.c.layout = "in_out"
        return other.feed_forward(x, "one.", *names)

    def experts(self, x, weights):
        """Token by token: the top_k largest shares, scaled to a sum of 1, of experts that have room."""
        c = self.c
        logits = self.linear(x, weights + "gate")
        room = np.full(c.experts, c.sequence)
        if c.routing == "capacity":
            room[:] = max(1, np.ceil(c.capacity_factor * c.top_k * c.sequence / c.experts))
        total = np.zeros_like(x)
        for s, token in enumerate(x):
            best = np.argsort(-logits[s])[:c.top_k]
            shares = np.exp(logits[s][best]) / np.exp(logits[s][best]).sum()
            for e, share in zip(best, shares):
                if room[e] > 0:
                    total[s] += share * self.expert(token, weights, e)
                room[e] -= 1
        return total

    def logits(self, ids):
        c, gpt = self.c, self.c.family == "gpt"
        root = "transformer." if gpt else "model."
        table = self.w[root + ("wte" if gpt else "embed_tokens") + ".weight"]
        x = table[ids]
        if c.position == "learned":
            x = x + self.w[root + "wpe.weight"][:len(ids)]
        for i in range(c.layers):
            layer = f"{root}{'h' if gpt else 'layers'}.{i}."
            n = self.norm(x, layer + ("ln_1" if gpt else "input_layernorm"))
            x = x + self.attention(n, layer + ("attn." if gpt else "self_attn."), gpt)
            n = self.norm(x, layer + ("ln_2" if gpt else "post_attention_layernorm"))
            if c.experts:
                x = x + self.experts(n, layer + "block_sparse_moe.")
            else:
                x = x + self.feed_forward(n, layer + "mlp.", *(("c_gate", "c_fc", "c_proj") if gpt else ("gate_proj", "up_proj", "down_proj")))
        x = self.norm(x, root + ("ln_f" if gpt else "norm"))
        return x @ table.T if c.tied else self.linear(x, "lm_head")


def random_weights(model, rng):
    weights = {}
    for value in model.graph.input:
        if value.name == "input_ids":
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        around = 1.0 if re.search(r"(norm|ln_\w)\.weight$", value.name) else 0.0
        weights[value.name] = (around + rng.standard_normal(shape) * 0.3).astype(np.float32)
    return weights


def check_numbers(name, form):
    rng = np.random.default_rng(sum(map(ord, name)))
    config = Config(**form)
    model = transformer(config)
    weights = random_weights(model, rng)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = Numpy(config, weights)
    for batch in (3, 2):
        ids = rng.integers(0, form["vocabulary"], (batch, form["sequence"]))
        found, = session.run(["logits"], {"input_ids": ids, **weights})
        wanted = np.stack([expected.logits(sample) for sample in ids])
        assert found.shape == wanted.shape, (name, found.shape)
        assert np.abs(found - wanted).max() < 2e-4 * np.abs(wanted).max(), (name, batch, np.abs(found - wanted).max(), np.abs(wanted).max())


def test_numbers(_):
    for name, (form, _) in FORMS.items():
        check_numbers(name, form)


def test_full_experts_drop_tokens(_):
    """Otherwise the forms above would not differ."""
    config = FORMS["experts that are full"][0]
    outputs = []
    for factor in (0.6, 4.0):
        model = transformer(Config(**{**config, "capacity_factor": factor}))
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(1)
        outputs.append(session.run(["logits"], {"input_ids": rng.integers(0, 40, (2, 8)), **random_weights(model, rng)})[0])
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


def test_parameters(folder):
    """Counted here, from the inputs of the files."""
    assert set(PARAMETERS) == set(PRESETS)
    for name, count in PARAMETERS.items():
        model = transformer(Config(**PRESETS[name]))
        sizes = [np.prod([d.dim_value for d in i.type.tensor_type.shape.dim], dtype=np.int64) for i in model.graph.input if i.name != "input_ids"]
        assert sum(map(int, sizes)) == count, (name, sum(map(int, sizes)), count)
        props = {p.key: p.value for p in model.metadata_props}
        assert props == {"data_inputs": "input_ids", "parameters": str(count)}, props
        for info in (model.graph.input[0], model.graph.output[0]):
            assert info.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_names_of_a_llama(_):
    """One product for each projection, called as planners see it."""
    model = transformer(Config(**{**PRESETS["llama3-8b"], "layers": 2}))
    products = {n.name: n for n in model.graph.node if n.op_type == "MatMul"}
    for i in range(2):
        for op, weight in [*((f"attn.{p}_proj", f"self_attn.{p}_proj") for p in "qkvo"), *((f"mlp.{p}_proj",) * 2 for p in ("gate", "up", "down"))]:
            assert products[f"layers.{i}.{op}"].input[1] == f"model.layers.{i}.{weight}.weight", op
    assert len(products) == 2 * 9 + 2  # scores and mix, the angles of the rotary embedding, lm_head
    assert products["lm_head"].input[1] == "lm_head.weight" and not any(n.op_type == "Gemm" for n in model.graph.node)


def make(folder, *options, code=0):
    out = folder / "model.onnx"
    done = subprocess.run([sys.executable, SCRIPT, *map(str, options), "-o", out], capture_output=True, text=True)
    assert done.returncode == code, (options, done.stdout, done.stderr)
    return out, done


def test_command(folder):
    out, done = make(folder, "--preset", "llama3-8b", "--sequence", 128, "--layers", 3, "--dtype", "bfloat16", "--hidden", 2048, "--heads", 16)
    model = onnx.load(out)
    shapes = {i.name: [d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim] for i in [*model.graph.input, *model.graph.output]}
    assert shapes["input_ids"] == ["batch", 128] and shapes["logits"] == ["batch", 128, 128256], shapes
    assert shapes["model.layers.2.self_attn.k_proj.weight"] == [2048, 8 * 128] and "model.layers.3.mlp.up_proj.weight" not in shapes
    assert model.graph.input[1].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    assert "parameters" in done.stdout, done.stdout
    for options, words in ((("--preset", "gpt2", "--sequence", 2048), "--max-positions"),
                           (("--family", "llama", "--layers", 2), "--hidden is missing"),
                           (("--layers", 2), "--preset NAME or --family"), (("--preset", "llama3-8b", "--heads", 12), "evenly"),
                           (("--preset", "mixtral-8x7b", "--top-k", 9), "--top-k 9"), (("--preset", "gpt4"), "invalid choice")):
        done = make(folder, *options, code=2)[1]
        assert words in done.stderr, (options, done.stderr)
    assert {line.split()[0] for line in subprocess.run([sys.executable, SCRIPT, "--list"], capture_output=True, text=True, check=True)
            .stdout.splitlines()} == set(PRESETS)
    subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, check=True)  # as before: the files of models/
    for path in (SOURCE / "models").glob("*.onnx"):
        assert onnx.load(path).graph == onnx.load(folder / path.name).graph, path


def test_plans(folder):
    """Every form forward on the whole cluster, and as a training step."""
    path = folder / "form.onnx"
    for name, (form, trains) in FORMS.items():
        for dtype in ("float32", "bfloat16", "float16") if name in ("llama", "experts that are full") else ("float32",):
            onnx.save(transformer(Config(**{**form, "dtype": dtype})), path)
            run("search", path, "--dim", "batch=8", "--cluster", CLUSTER, "--mesh", "8x8", "-q", "-o", folder / "plan", "--searcher", "rec")
        onnx.save(transformer(Config(**form)), path)
        done = subprocess.run([AUTOPAR, "search", path, "--batch", "8", "--cluster", CLUSTER, "--mesh", "8x8", "-q", "-o", folder / "step", "--train",
                               "--loss", "cross_entropy", "--optimizer", "adamw", "--searcher", "rec"], capture_output=True, text=True)
        assert done.returncode == 0 or (not trains and done.returncode == 4 and "has no gradient" in done.stderr), (name, done.stderr)


def test_no_tables_are_trained(folder):
    """The parameters of the training step are the weights, and no constant."""
    path, step = folder / "form.onnx", folder / "step.onnx"
    for form in (LLAMA, {**MIXTRAL, "routing": "capacity"}):
        model = transformer(Config(**form))
        onnx.save(model, path)
        run("grad", path, "--batch", 8, "--loss", "cross_entropy", "-o", step)
        trained = {o.name[4:] for o in onnx.load(step).graph.output if o.name.startswith("new.")}
        assert trained == {i.name for i in model.graph.input} - {"input_ids"}, trained


def test_runs_on_ranks(folder):
    """A plan of the file calculates what the file does."""
    path = folder / "form.onnx"
    for form in (LLAMA, {**MIXTRAL, "routing": "capacity"}):
        onnx.save(transformer(Config(**form)), path)
        run("search", path, "--dim", "batch=4", "--cluster", "dgx-a100-1x8", "--mesh", "2x4", "-q", "-o", folder / "plan", "--searcher",
            "data_parallel")
        assert run("run", folder / "plan").stdout.splitlines()[-1] == "PASSED"


def main():
    wanted = sys.argv[1:]
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
