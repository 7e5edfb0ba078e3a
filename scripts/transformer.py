"""Forward graphs of decoder-only transformers from a configuration: the Llama and GPT families, with or without experts.

Weights are graph inputs without data, `logits` is the output, and the batch is the symbolic dimension `batch`: no constant
says its size. scripts/make_models.py is the command.
"""
import dataclasses
import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from graph_builder import F32, I64, Builder

DTYPES = {"float32": TensorProto.FLOAT, "bfloat16": TensorProto.BFLOAT16, "float16": TensorProto.FLOAT16}


class Unsuitable(ValueError):
    """A configuration that is no model."""


def field(default, text, **metadata):
    return dataclasses.field(default=default, metadata={"help": text, **metadata})


@dataclasses.dataclass
class Config:
    """Every field is an option of scripts/make_models.py; 0 stands for "from the others"."""
    family: str = field("llama", "names of ops and weights", choices=("llama", "gpt"))
    layers: int = field(0, "number of layers")
    hidden: int = field(0, "width of the residual stream")
    heads: int = field(0, "query heads")
    kv_heads: int = field(0, "key and value heads; fewer than heads: grouped query (default: heads)")
    head_dim: int = field(0, "size of a head (default: hidden / heads)")
    feed_forward: int = field(0, "inner width of the feed-forward part, or of one expert (default in the gpt family: 4 hidden)")
    vocabulary: int = field(0, "tokens")
    sequence: int = field(0, "tokens of a sample")
    max_positions: int = field(0, "rows of the table of learned positions (default: sequence)")
    tied: bool = field(False, "the output projection is the embedding, transposed")
    norm: str = field("rms", "normalisation", choices=("rms", "layer"))
    epsilon: float = field(1e-5, "epsilon of the normalisation")
    position: str = field("rotary", "positions", choices=("rotary", "learned", "none"))
    rotary_base: float = field(10000.0, "base of the rotary frequencies")
    activation: str = field("silu", "activation of the feed-forward part", choices=("silu", "gelu", "gelu_tanh", "relu"))
    gated: bool = field(True, "a gate beside the up projection; with silu: SwiGLU")
    bias: str = field("none", "which projections have a bias", choices=("none", "qkv", "all"))
    fused_qkv: bool = field(False, "one projection for query, key and value, then a Split")
    experts: int = field(0, "experts of a layer (0: one feed-forward part without a router)")
    top_k: int = field(2, "experts that a token is routed to")
    routing: str = field("dense", "how experts are computed: dense: every expert on every token, weighted by 0 where it is not chosen; "
                         "stacked: the same with the experts' weights stacked in one tensor; capacity: stacked, and an expert takes "
                         "at most capacity_factor * top_k * sequence / experts tokens of a sample", choices=("dense", "stacked", "capacity"))
    capacity_factor: float = field(1.25, "of routing capacity")
    dtype: str = field("float32", "of weights and activations", choices=tuple(DTYPES))
    attention: str = field("ops", "decomposed, or the op Attention of opset 23", choices=("ops", "op"))
    norm_as: str = field("", "normalisation decomposed, or an op: RMSNormalization of opset 23, LayerNormalization "
                         "(default: ops for rms, op for layer)", choices=("ops", "op"))
    layout: str = field("in_out", "how weights of projections are stored: in_out: [inputs, outputs], as MatMul takes them; hf: as "
                        "Hugging Face's files have them, [outputs, inputs] and a Transpose where the family has Linear layers",
                        choices=("in_out", "hf"))

    def completed(self):
        """With defaults in the place of zeros; raises Unsuitable."""
        c = dataclasses.replace(self)
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence"):
            if getattr(c, name) < 1:
                raise Unsuitable(f"{option(name)} is missing")
        c.kv_heads = c.kv_heads or c.heads
        if c.heads % c.kv_heads:
            raise Unsuitable(f"{c.heads} heads do not share {c.kv_heads} key and value heads evenly")
        if not c.head_dim and c.hidden % c.heads:
            raise Unsuitable(f"hidden size {c.hidden} is no multiple of {c.heads} heads: give --head-dim")
        c.head_dim = c.head_dim or c.hidden // c.heads
        if c.position == "rotary" and c.head_dim % 2:
            raise Unsuitable(f"rotary positions need heads of an even size, not {c.head_dim}")
        if not c.feed_forward and c.family != "gpt":
            raise Unsuitable("--feed-forward is missing")
        c.feed_forward = c.feed_forward or 4 * c.hidden
        c.max_positions = c.max_positions or c.sequence
        if c.position == "learned" and c.sequence > c.max_positions:
            raise Unsuitable(f"a sequence of {c.sequence} with {c.max_positions} learned positions: give --max-positions as well")
        if c.experts and not 1 <= c.top_k <= c.experts:
            raise Unsuitable(f"--top-k {c.top_k} of {c.experts} experts")
        c.norm_as = c.norm_as or ("ops" if c.norm == "rms" else "op")
        for f in dataclasses.fields(c):
            value = getattr(c, f.name)
            if "choices" in f.metadata and value not in f.metadata["choices"]:
                raise Unsuitable(f"{option(f.name)} {value}: not one of {', '.join(f.metadata['choices'])}")
            if f.type in (int, float) and value < 0:
                raise Unsuitable(f"{option(f.name)} {value} is negative")
        return c


def option(name):
    return "--" + name.replace("_", "-")


FAMILIES = {
    "llama": {"family": "llama"},
    "gpt": {"family": "gpt", "norm": "layer", "position": "learned", "activation": "gelu_tanh", "gated": False, "bias": "all", "tied": True,
            "fused_qkv": True},
}


def _gpt(layers, hidden, heads, sequence):
    return {**FAMILIES["gpt"], "layers": layers, "hidden": hidden, "heads": heads, "vocabulary": 50257, "sequence": sequence,
            "max_positions": sequence}


def _llama(layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence, rotary_base):
    return {**FAMILIES["llama"], "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "feed_forward": feed_forward,
            "vocabulary": vocabulary, "sequence": sequence, "rotary_base": rotary_base}


PRESETS = {
    # Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", table 2; heads and vocabulary from the
    # config.json of openai-community/gpt2, gpt2-medium, gpt2-large and gpt2-xl.
    "gpt2": _gpt(12, 768, 12, 1024),
    "gpt2-medium": _gpt(24, 1024, 16, 1024),
    "gpt2-large": _gpt(36, 1280, 20, 1024),
    "gpt2-xl": _gpt(48, 1600, 25, 1024),
    # Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1, with GPT-2's vocabulary. All attention is dense
    # here (the paper alternates with banded sparse attention); 13B is 40 heads of 128, 5120 wide (the table says 5140).
    "gpt3-6.7b": _gpt(32, 4096, 32, 2048),
    "gpt3-13b": _gpt(40, 5120, 40, 2048),
    "gpt3-175b": _gpt(96, 12288, 96, 2048),
    # Touvron et al. 2023, "Llama 2: Open Foundation and Fine-Tuned Chat Models", table 1; inner widths and vocabulary from the
    # config.json of meta-llama/Llama-2-7b-hf, 13b and 70b.
    "llama2-7b": _llama(32, 4096, 32, 0, 11008, 32000, 4096, 1e4),
    "llama2-13b": _llama(40, 5120, 40, 0, 13824, 32000, 4096, 1e4),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000, 4096, 1e4),
    # Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3: pre-training at 8192 tokens. The longer contexts of
    # Llama 3.1 scale the rotary frequencies, which changes numbers and no op; it is not done here.
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5),
    "llama3-405b": _llama(126, 16384, 128, 8, 53248, 128256, 8192, 5e5),
    # Jiang et al. 2024, "Mixtral of Experts", table 1 (its context of 32768 with --sequence); rotary base from the config.json
    # of mistralai/Mixtral-8x7B-v0.1. The loss that balances the experts is no part of the graph.
    "mixtral-8x7b": {**_llama(32, 4096, 32, 8, 14336, 32000, 4096, 1e6), "experts": 8, "top_k": 2},
}

# Ops and weights of a layer by family. Experts are named after Mixtral in both.
NAMES = {
    "llama": {"layer": "layers", "root": "model.", "attn_weights": "self_attn", "embed": "embed_tokens", "final": "norm",
              "norms": ("input_layernorm", "post_attention_layernorm"), "o": "o_proj", "fused": "qkv_proj",
              "gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
    "gpt": {"layer": "h", "root": "transformer.", "attn_weights": "attn", "embed": "wte", "final": "ln_f",
            "norms": ("ln_1", "ln_2"), "o": "c_proj", "fused": "c_attn", "gate": "c_gate", "up": "c_fc", "down": "c_proj"},
}


class Transformer(Builder):
    """The ops of one model. `scope` is before the names of ops, `weights` before those of weights."""

    def __init__(self, config):
        self.c = config
        self.names = NAMES[config.family]
        newer = config.attention == "op" or (config.norm == "rms" and config.norm_as == "op")
        super().__init__("transformer", 23 if newer else 18)
        self.dtype = DTYPES[config.dtype]
        self.weights = ""
        self.known = {}
        self.count = 0

    def constant(self, array):
        """Constants of the same value are one. Initializers that could pass for weights are Constant ops: they are not trained."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.known and array.ndim > 0 and array.dtype == np.float32:
            self.known[key] = f"table_{len(self.known)}"
            self.nodes.append(helper.make_node("Constant", [], [self.known[key]], name=self.known[key],
                                               value=numpy_helper.from_array(array, self.known[key])))
        elif key not in self.known:
            self.known[key] = super().constant(array)
        return self.known[key]

    def number(self, value, dtype=None):
        return self.constant(np.array(value, dtype=helper.tensor_dtype_to_np_dtype(dtype or self.dtype)))

    def weight(self, name, shape):
        self.count += math.prod(shape)
        name = self.weights + name
        self.inputs.append(helper.make_tensor_value_info(name, self.dtype, shape))
        return name

    def cast(self, x, dtype, was, name):
        return x if dtype == was else self.op("Cast", [x], name, to=dtype)

    def projection(self, x, name, fan_in, fan_out, weight=None, bias=False):
        """One MatMul, and an Add where there is a bias."""
        weight = weight or name
        if self.c.layout == "hf" and (self.c.family == "llama" or name == "lm_head" or ".experts." in name):
            w = self.op("Transpose", [self.weight(f"{weight}.weight", [fan_out, fan_in])], f"{name}.transpose", perm=[1, 0])
        else:
            w = self.weight(f"{weight}.weight", [fan_in, fan_out])
        y = self.op("MatMul", [x, w], name)
        return self.op("Add", [y, self.weight(f"{weight}.bias", [fan_out])], f"{name}.bias") if bias else y

    def norm(self, x, name):
        c = self.c
        weight = self.weight(f"{name}.weight", [c.hidden])
        bias = [self.weight(f"{name}.bias", [c.hidden])] if c.norm == "layer" else []
        if c.norm_as == "op":
            return self.op("LayerNormalization" if bias else "RMSNormalization", [x, weight, *bias], name, axis=-1, epsilon=c.epsilon)
        wide = self.cast(x, F32, self.dtype, f"{name}.wide")
        if bias:
            wide = self.op("Sub", [wide, self.op("ReduceMean", [wide, self.ints([-1])], f"{name}.mean", keepdims=1)], f"{name}.centred")
        square = self.op("Mul", [wide, wide], f"{name}.square")
        variance = self.op("ReduceMean", [square, self.ints([-1])], f"{name}.variance", keepdims=1)
        root = self.op("Sqrt", [self.op("Add", [variance, self.number(c.epsilon, F32)], f"{name}.epsilon")], f"{name}.root")
        unit = self.op("Mul", [wide, self.op("Reciprocal", [root], f"{name}.inverse")], f"{name}.unit")
        unit = self.cast(unit, self.dtype, F32, f"{name}.narrow")
        y = self.op("Mul", [unit, weight], f"{name}.weigh" if bias else name)
        return self.op("Add", [y, *bias], name) if bias else y

    def rotary(self, x, tables, name):
        half = self.c.head_dim // 2
        low = self.op("Slice", [x, self.ints([0]), self.ints([half]), self.ints([3])], f"{name}.low")
        high = self.op("Slice", [x, self.ints([half]), self.ints([2 * half]), self.ints([3])], f"{name}.high")
        turned = self.op("Concat", [self.op("Neg", [high], f"{name}.neg"), low], f"{name}.turn", axis=3)
        return self.op("Add", [self.op("Mul", [x, tables[0]], f"{name}.cos"), self.op("Mul", [turned, tables[1]], f"{name}.sin")], name)

    def split_heads(self, x, name, count):
        y = self.op("Reshape", [x, self.ints([0, 0, count, self.c.head_dim])], f"{name}.split")
        return self.op("Transpose", [y], f"{name}.heads", perm=[0, 2, 1, 3])

    def shared(self, x, name):
        """Key or value heads, each for its group of query heads."""
        c = self.c
        if c.kv_heads == c.heads:
            return x
        x = self.op("Unsqueeze", [x, self.ints([2])], f"{name}.unsqueeze")
        x = self.op("Expand", [x, self.ints([1, 1, c.heads // c.kv_heads, 1, 1])], f"{name}.expand")
        return self.op("Reshape", [x, self.ints([0, c.heads, c.sequence, c.head_dim])], f"{name}.repeat")

    def attention(self, x, mask, tables):
        c, names = self.c, self.names
        weights, biased = names["attn_weights"], c.bias in ("qkv", "all")
        parts = (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads))
        if c.fused_qkv:
            sizes = [count * c.head_dim for _, count in parts]
            y = self.projection(x, f"attn.{names['fused']}", c.hidden, sum(sizes), f"{weights}.{names['fused']}", biased)
            split = self.op("Split", [y, self.ints(sizes)], "attn.split", outputs=3, axis=-1)
        else:
            split = [self.projection(x, f"attn.{n}_proj", c.hidden, count * c.head_dim, f"{weights}.{n}_proj", biased) for n, count in parts]
        q, k, v = (self.split_heads(y, f"attn.{n}", count) for y, (n, count) in zip(split, parts))
        if tables:
            q, k = self.rotary(q, tables, "attn.q_rotary"), self.rotary(k, tables, "attn.k_rotary")
        if c.attention == "op":
            mixed = self.op("Attention", [q, k, v], "attn", is_causal=1)
        else:
            k_t = self.op("Transpose", [self.shared(k, "attn.k")], "attn.k_t", perm=[0, 1, 3, 2])
            scaled = self.op("Mul", [q, self.number(c.head_dim ** -0.5)], "attn.scale")
            scores = self.op("MatMul", [scaled, k_t], "attn.scores")
            masked = self.op("Where", [mask, scores, self.number(-65504.0 if c.dtype == "float16" else -1e9)], "attn.mask")
            mixed = self.op("MatMul", [self.op("Softmax", [masked], "attn.softmax", axis=-1), self.shared(v, "attn.v")], "attn.mix")
        merged = self.op("Transpose", [mixed], "attn.merge", perm=[0, 2, 1, 3])
        joined = self.op("Reshape", [merged, self.ints([0, 0, c.heads * c.head_dim])], "attn.join")
        return self.projection(joined, f"attn.{names['o']}", c.heads * c.head_dim, c.hidden, f"{weights}.{names['o']}", c.bias == "all")

    def activated(self, x, name):
        kind = self.c.activation
        if kind == "relu":
            return self.op("Relu", [x], f"{name}.relu")
        if kind == "silu":
            return self.op("Mul", [x, self.op("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.silu")
        if kind == "gelu":
            inner = self.op("Erf", [self.op("Mul", [x, self.number(0.5 ** 0.5)], f"{name}.scaled")], f"{name}.erf")
        else:
            cube = self.op("Mul", [self.op("Pow", [x, self.number(3.0)], f"{name}.cube"), self.number(0.044715)], f"{name}.cubed")
            scaled = self.op("Mul", [self.op("Add", [x, cube], f"{name}.inner"), self.number((2 / np.pi) ** 0.5)], f"{name}.scaled")
            inner = self.op("Tanh", [scaled], f"{name}.tanh")
        half = self.op("Mul", [x, self.number(0.5)], f"{name}.half")
        return self.op("Mul", [half, self.op("Add", [inner, self.number(1.0)], f"{name}.one")], f"{name}.gelu")

    def gate(self, up, gate, name):
        """`gate` is None where there is none."""
        if gate is None:
            return self.activated(up, name)
        return self.op("Mul", [self.activated(gate, name), up], f"{name}.mul")

    def feed_forward(self, x, name, weights, gate, up, down):
        c = self.c
        biased = c.bias == "all"
        gated = self.projection(x, f"{name}.{gate}", c.hidden, c.feed_forward, f"{weights}.{gate}", biased) if c.gated else None
        inner = self.gate(self.projection(x, f"{name}.{up}", c.hidden, c.feed_forward, f"{weights}.{up}", biased), gated, name)
        return self.projection(inner, f"{name}.{down}", c.feed_forward, c.hidden, f"{weights}.{down}", biased)

    def routed(self, x):
        """The router's weights [batch, sequence, experts]: shares of the top_k chosen, 0 elsewhere; and which were chosen, in float32."""
        c = self.c
        logits = self.projection(x, "moe.gate", c.hidden, c.experts, "block_sparse_moe.gate")
        shares = self.op("Softmax", [self.cast(logits, F32, self.dtype, "moe.gate.wide")], "moe.softmax", axis=-1)
        # Only the indices are used, so that the gradient goes through the shares.
        _, chosen = self.op("TopK", [shares, self.ints([c.top_k])], "moe.top_k", outputs=2, axis=-1)
        values = self.constant(np.array([0, 1], dtype=np.float32))
        hot = self.op("OneHot", [chosen, self.ints(c.experts), values], "moe.one_hot", axis=-1)
        mask = self.op("ReduceSum", [hot, self.ints([2])], "moe.chosen", keepdims=0)
        kept = self.op("Mul", [shares, mask], "moe.kept")
        total = self.op("ReduceSum", [kept, self.ints([-1])], "moe.total", keepdims=1)
        return self.cast(self.op("Div", [kept, total], "moe.weights"), self.dtype, F32, "moe.weights.narrow"), mask

    def experts_one_by_one(self, x):
        c = self.c
        weights, _ = self.routed(x)
        columns = self.op("Split", [weights, self.ints([1] * c.experts)], "moe.split", outputs=c.experts, axis=-1) if c.experts > 1 else [weights]
        total = None
        for e, column in enumerate(columns):
            y = self.feed_forward(x, f"moe.experts.{e}", f"block_sparse_moe.experts.{e}", "w1", "w3" if c.gated else "w1", "w2")
            y = self.op("Mul", [y, column], f"moe.experts.{e}.weigh")
            total = y if total is None else self.op("Add", [total, y], f"moe.sum.{e}")
        return total

    def stacked_projection(self, x, name, fan_in, fan_out):
        c = self.c
        y = self.op("MatMul", [x, self.weight(f"block_sparse_moe.experts.{name}.weight", [c.experts, fan_in, fan_out])], f"moe.experts.{name}")
        if c.bias != "all":
            return y
        return self.op("Add", [y, self.weight(f"block_sparse_moe.experts.{name}.bias", [c.experts, 1, fan_out])], f"moe.experts.{name}.bias")

    def stacked_experts(self, x):
        """[batch, experts or 1, tokens, hidden] to [batch, experts, tokens, hidden]."""
        c = self.c
        gated = self.stacked_projection(x, "w1", c.hidden, c.feed_forward) if c.gated else None
        inner = self.gate(self.stacked_projection(x, "w3" if c.gated else "w1", c.hidden, c.feed_forward), gated, "moe.experts")
        return self.stacked_projection(inner, "w2", c.feed_forward, c.hidden)

    def experts_at_once(self, x):
        weights, _ = self.routed(x)
        y = self.stacked_experts(self.op("Unsqueeze", [x, self.ints([1])], "moe.unsqueeze"))
        by_expert = self.op("Transpose", [weights], "moe.by_expert", perm=[0, 2, 1])
        y = self.op("Mul", [y, self.op("Unsqueeze", [by_expert, self.ints([3])], "moe.columns")], "moe.weigh")
        return self.op("ReduceSum", [y, self.ints([1])], "moe.sum", keepdims=0)

    def experts_with_capacity(self, x):
        """As in GShard (Lepikhin et al. 2021), a sample being a group: tokens beyond an expert's capacity pass it by."""
        c = self.c
        capacity = max(1, math.ceil(c.capacity_factor * c.top_k * c.sequence / c.experts))
        weights, mask = self.routed(x)
        place = self.op("CumSum", [mask, self.ints(1)], "moe.place", exclusive=1)
        values = self.constant(np.array([0, 1], dtype=np.float32))
        # A place of the capacity or more is out of range: all zeros.
        slot = self.op("OneHot", [self.op("Cast", [place], "moe.place.int", to=I64), self.ints(capacity), values], "moe.slots", axis=-1)
        dispatch = self.op("Mul", [slot, self.op("Unsqueeze", [mask, self.ints([3])], "moe.chosen.column")], "moe.dispatch")
        dispatch = self.cast(dispatch, self.dtype, F32, "moe.dispatch.narrow")
        combine = self.op("Mul", [dispatch, self.op("Unsqueeze", [weights, self.ints([3])], "moe.columns")], "moe.combine")
        # Products in place of Einsum, which ONNX does not define on bfloat16.
        by_expert = self.op("Transpose", [dispatch], "moe.by_expert", perm=[0, 2, 3, 1])
        sent = self.op("MatMul", [by_expert, self.op("Unsqueeze", [x, self.ints([1])], "moe.unsqueeze")], "moe.send")
        slots = self.ints([0, c.experts * capacity, c.hidden])
        y = self.op("Reshape", [self.stacked_experts(sent), slots], "moe.slots.joined")
        combine = self.op("Reshape", [combine, self.ints([0, 0, c.experts * capacity])], "moe.combine.joined")
        return self.op("MatMul", [combine, y], "moe.receive")

    def mixed_experts(self, x):
        return {"dense": self.experts_one_by_one, "stacked": self.experts_at_once, "capacity": self.experts_with_capacity}[self.c.routing](x)

    def rotary_cosines(self):
        c = self.c
        frequencies = c.rotary_base ** (-np.arange(0, c.head_dim, 2, dtype=np.float64) / c.head_dim)
        positions = self.constant(np.arange(c.sequence, dtype=np.float32)[:, None])
        half = self.op("MatMul", [positions, self.constant(frequencies.astype(np.float32)[None, :])], "rotary.angle")
        angles = self.op("Concat", [half, half], "rotary.angles", axis=1)
        return [self.cast(self.op(f, [angles], f"rotary.{f.lower()}"), self.dtype, F32, f"rotary.{f.lower()}.narrow") for f in ("Cos", "Sin")]

    def built(self):
        c, names = self.c, self.names
        ids = self.input("input_ids", ["batch", c.sequence], I64)
        self.weights = names["root"]
        embedding = self.weight(f"{names['embed']}.weight", [c.vocabulary, c.hidden])
        x = self.op("Gather", [embedding, ids], names["embed"])
        if c.position == "learned":
            table = self.weight("wpe.weight", [c.max_positions, c.hidden])
            x = self.op("Add", [x, self.op("Gather", [table, self.constant(np.arange(c.sequence))], "wpe")], "embed")
        mask = self.causal_mask(c.sequence) if c.attention == "ops" else None
        tables = self.rotary_cosines() if c.position == "rotary" else None
        for i in range(c.layers):
            self.scope = f"{names['layer']}.{i}."
            self.weights = names["root"] + self.scope
            first, second = names["norms"]
            x = self.op("Add", [x, self.attention(self.norm(x, first), mask, tables)], "attn.residual")
            n = self.norm(x, second)
            y = self.mixed_experts(n) if c.experts else self.feed_forward(n, "mlp", "mlp", names["gate"], names["up"], names["down"])
            x = self.op("Add", [x, y], "moe.residual" if c.experts else "mlp.residual")
        self.scope, self.weights = "", names["root"]
        x = self.norm(x, names["final"])
        self.weights = ""
        if c.tied:
            self.op("MatMul", [x, self.op("Transpose", [embedding], "lm_head.transpose", perm=[1, 0])], "lm_head")
        else:
            self.projection(x, "lm_head", c.hidden, c.vocabulary)
        self.nodes[-1].output[0] = "logits"
        logits = helper.make_tensor_value_info("logits", self.dtype, ["batch", c.sequence, c.vocabulary])
        return self.pack([logits], 11 if self.opset >= 23 else 9, parameters=str(self.count))


def transformer(config):
    """The ONNX model; metadata_props.parameters is the number of its parameters. Raises Unsuitable."""
    return Transformer(config.completed()).built()
