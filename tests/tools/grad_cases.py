"""Further instances of ops for the test of gradients, beside those of rule_cases.py."""
import numpy as np

from rule_cases import Case, Constant, bools, const, ints, normal, positive, scalar, unit  # noqa: F401

# Types without a derivative, or whose derivative nobody takes: asking for one is an error that says so.
WITHOUT_GRADIENT = {"DequantizeLinear", "DynamicQuantizeLinear", "MaxRoiPool"}

# The evaluators calculate these in float32 whatever the type of their inputs.
SINGLE_ONLY = {"Gelu", "GroupNormalization"}

# Those whose gradients are other ops in float32, and those that ONNX Runtime has in float32 alone.
SINGLE_TOO = {"AveragePool", "Conv", "ConvTranspose", "LayerNormalization", "LRN"}

# Masks of the lowest float32 absorb the scores beside them, of which differences in float64 say nothing, and the
# evaluator takes the mean of all values where the op gives 0.
ABSORBED = {"Attention/no-key-lowest-0", "Attention/no-key-lowest-1"}

# Inputs that are never trained where they are the model's own; these come out of a Mul.
STATISTICS = {"BatchNormalization": [3, 4]}

# Floating-point inputs that only describe the op, and keep their type.
OPERANDS = {("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Dropout", 1), ("Range", 0), ("Range", 1), ("Range", 2),
            ("OneHot", 2)}

GRAD_CASES = []


def add(name, op_type, inputs, outputs=1, opset=23, **attributes):
    """`outputs`: how many, or which of them are there."""
    there = [True] * outputs if isinstance(outputs, int) else outputs
    GRAD_CASES.append(Case(name, op_type, inputs, "", attributes, there, opset))


add("gelu tanh", "Gelu", [normal(3, 4)], approximate="tanh")
add("pow tensor", "Pow", [positive(3, 4), normal(4)])
add("slice steps", "Slice", [normal(7, 9), const([6, 1]), const([-9, 8]), const([0, 1]), const([-2, 3])])
add("einsum broadcast", "Einsum", [normal(3, 1, 2, 4), normal(1, 5, 4, 2)], equation="...ij,...jk->...ik")
add("einsum three", "Einsum", [normal(3, 4), normal(4, 5), normal(5)], equation="ab,bc,c->a")
add("einsum sum", "Einsum", [normal(3, 4), normal(5)], equation="ab,c->a")
add("matmul vector", "MatMul", [normal(4), normal(3, 4, 5)])
add("matmul broadcast", "MatMul", [normal(2, 1, 3, 4), normal(5, 4, 2)])
add("gemm", "Gemm", [normal(4, 3), normal(5, 4), normal(3, 1)], transA=1, transB=1, alpha=0.5, beta=2.0)


# Convolutions, poolings, normalisations, resampling.
def add_convolutions():
    for name, op, group, image, weight in (
            ("", "Conv", 1, normal(3, 4, 9, 8), normal(6, 4, 3, 2)),
            ("groups", "Conv", 2, normal(3, 4, 9, 8), normal(6, 2, 3, 2)),
            ("many groups", "Conv", 8, normal(2, 16, 9, 8), normal(24, 2, 3, 2)),
            ("depthwise", "Conv", 4, normal(3, 4, 9, 8), normal(8, 1, 3, 2)),
            ("", "ConvTranspose", 1, normal(3, 4, 5, 4), normal(4, 6, 3, 2)),
            ("groups", "ConvTranspose", 2, normal(3, 4, 5, 4), normal(4, 3, 3, 2)),
            ("many groups", "ConvTranspose", 8, normal(2, 16, 5, 4), normal(16, 2, 3, 2)),
            ("depthwise", "ConvTranspose", 4, normal(3, 4, 5, 4), normal(4, 1, 3, 2))):
        bias = normal(weight.shape[0] if op == "Conv" else weight.shape[1] * group)
        for form, attributes in (
                ("plain", {}), ("strides", {"strides": [3, 2]}), ("dilations", {"dilations": [2, 3]}),
                ("pads", {"pads": [2, 0, 1, 1]}),
                ("all", {"strides": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]}),
                ("odd", {"strides": [4, 2], "dilations": [1, 3], "pads": [0, 1, 3, 0]})):
            add(f"{op} {name} {form}", op, [image, weight, bias], group=group, **attributes)
    for automatic in "SAME_UPPER SAME_LOWER VALID".split():
        add("conv " + automatic, "Conv", [normal(2, 3, 9, 8), normal(4, 3, 4, 3)], auto_pad=automatic, strides=[2, 3])
        add("conv transpose " + automatic, "ConvTranspose", [normal(2, 3, 5, 4), normal(3, 4, 4, 4)], auto_pad=automatic,
            strides=[3, 1])
    for automatic in "NOTSET SAME_UPPER SAME_LOWER".split():
        add("conv transpose shape " + automatic, "ConvTranspose", [normal(2, 3, 5, 4), normal(3, 4, 4, 3)],
            auto_pad=automatic, strides=[2, 3], output_shape=[9, 10])
    add("conv transpose larger shape", "ConvTranspose", [normal(2, 3, 5), normal(3, 4, 2)], strides=[3], output_shape=[15])
    add("conv transpose more", "ConvTranspose", [normal(2, 3, 5, 4), normal(3, 4, 3, 3)], strides=[3, 2],
        output_padding=[2, 1], pads=[1, 1, 0, 2])
    add("conv transpose more than a stride", "ConvTranspose", [normal(2, 3, 5), normal(3, 4, 3)], dilations=[3],
        output_padding=[2])
    add("conv points strides", "Conv", [normal(2, 3, 9, 8), normal(4, 3, 1, 1)], strides=[2, 3])
    add("conv points groups", "Conv", [normal(2, 6, 9, 8), normal(4, 3, 1, 1)], strides=[2, 1], group=2)
    add("conv points pads", "Conv", [normal(2, 3, 9), normal(4, 3, 1)], strides=[2], pads=[1, 2])
    add("conv points depthwise", "Conv", [normal(2, 6, 9), normal(6, 1, 1)], group=6)
    add("conv transpose points", "ConvTranspose", [normal(2, 3, 4), normal(3, 4, 1)], strides=[2], output_padding=[1])
    add("conv 1d", "Conv", [normal(2, 3, 11), normal(4, 3, 3), normal(4)], strides=[2], pads=[1, 0])
    add("conv 3d", "Conv", [normal(2, 2, 5, 6, 7), normal(3, 2, 2, 3, 2)], strides=[2, 1, 3], dilations=[1, 2, 1],
        pads=[0, 1, 1, 1, 0, 2])
    add("conv transpose 3d", "ConvTranspose", [normal(2, 2, 3, 2, 3), normal(2, 3, 2, 3, 2)], strides=[2, 1, 3],
        dilations=[1, 2, 1], pads=[0, 1, 1, 1, 0, 0])
    add("conv one image", "Conv", [normal(1, 3, 8, 8), normal(4, 3, 3, 3)], pads=[1] * 4, opset=13)
    add("conv wide pads", "Conv", [normal(2, 3, 4), normal(4, 3, 2)], pads=[5, 6], strides=[2])


def add_pools():
    for op, extras in (("AveragePool", [{"count_include_pad": 0}, {"count_include_pad": 1}]), ("MaxPool", [{}]),
                       ("LpPool", [{"p": 1}, {"p": 2}, {"p": 3}])):
        for extra in extras:
            name = f"{op} {' '.join(map(str, extra.values()))} "
            image = normal(2, 3, 9, 8)
            for form, attributes in (
                    ("plain", {}), ("strides", {"strides": [2, 3]}), ("pads", {"pads": [1, 0, 2, 1]}),
                    ("all", {"strides": [2, 2], "pads": [1, 1, 0, 1], "dilations": [2, 3]}),
                    ("ceil", {"strides": [2, 3], "ceil_mode": 1}),
                    ("ceil pads", {"strides": [2, 3], "ceil_mode": 1, "pads": [1, 0, 1, 1]}),
                    ("upper", {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
                    ("lower", {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
                    ("valid", {"strides": [2, 1], "auto_pad": "VALID"}),
                    ("tiles", {"strides": [3, 2]})):
                add(name + form, op, [image], kernel_shape=[3, 2], **extra, **attributes)
            add(name + "1d", op, [normal(2, 3, 9)], kernel_shape=[3], strides=[2], **extra)
            add(name + "3d", op, [normal(2, 2, 4, 5, 6)], kernel_shape=[2, 3, 2], strides=[1, 2, 1], **extra)
    for opset in (13, 17, 18, 21):
        add(f"average pool opset {opset}", "AveragePool", [normal(2, 3, 9)], opset=opset, kernel_shape=[3], pads=[1, 1])
        add(f"lp pool opset {opset}", "LpPool", [normal(2, 3, 9)], opset=opset, kernel_shape=[3], pads=[1, 1])
        add(f"max pool opset {opset}", "MaxPool", [normal(2, 3, 9)], opset=opset, kernel_shape=[3], strides=[3])
    add("max pool columns", "MaxPool", [normal(2, 3, 7, 6)], outputs=2, kernel_shape=[3, 2], storage_order=1)
    add("max pool columns 3d", "MaxPool", [normal(2, 3, 4, 5, 6)], outputs=2, kernel_shape=[3, 2, 2], storage_order=1)
    add("max pool indices", "MaxPool", [normal(2, 3, 7, 6)], outputs=2, kernel_shape=[3, 2], pads=[1, 1, 1, 0])
    for p in (1, 2, 3):
        x = normal(2, 3, 5, 4)
        add(f"global lp pool {p}", "GlobalLpPool", [x + np.sign(x) * 0.1], p=p, opset=21)
    add("global max pool 1d", "GlobalMaxPool", [normal(2, 3, 5)])
    add("global average pool 3d", "GlobalAveragePool", [normal(2, 3, 5, 2, 3)])


def add_normalisations():
    for outputs in (1, 2, 3):
        add(f"layer norm {outputs}", "LayerNormalization", [normal(2, 4, 5), normal(4, 5), normal(4, 5)], outputs,
            axis=1, epsilon=0.1)
    add("layer norm all", "LayerNormalization", [normal(2, 4, 5), normal(1), normal(5)], axis=0)
    add("layer norm no bias", "LayerNormalization", [normal(2, 4, 5), normal(5)], opset=17)
    add("rms norm", "RMSNormalization", [normal(2, 4, 5), normal(4, 5)], axis=-2, epsilon=0.1)
    add("rms norm one", "RMSNormalization", [normal(2, 4, 5), normal(1)], axis=0)
    for opset in (13, 14, 15, 23):
        add(f"batch norm opset {opset}", "BatchNormalization",
            [normal(3, 4, 5), normal(4), normal(4), normal(4), positive(4)], opset=opset, epsilon=0.1)
    add("batch norm training", "BatchNormalization",
        [normal(3, 4, 5, 2), normal(4), normal(4), normal(4), positive(4)], 3, training_mode=1, epsilon=0.1, momentum=0.6)
    add("batch norm training rank 2", "BatchNormalization",
        [normal(6, 4), normal(4), normal(4), normal(4), positive(4)], 3, training_mode=1, opset=14)
    add("instance norm 1d", "InstanceNormalization", [normal(2, 3, 7), normal(3), normal(3)], epsilon=0.1)
    add("instance norm 3d", "InstanceNormalization", [normal(2, 3, 2, 3, 4), normal(3), normal(3)], opset=13)
    add("group norm 2d", "GroupNormalization", [normal(2, 6, 3, 4), normal(6), normal(6)], num_groups=3, epsilon=0.1)
    add("group norm channels", "GroupNormalization", [normal(2, 4, 3), normal(4), normal(4)], num_groups=4, opset=21)
    add("group norm one", "GroupNormalization", [normal(2, 4, 3), normal(4), normal(4)], num_groups=1, stash_type=1)
    for p in (1, 2):
        add(f"lp norm {p}", "LpNormalization", [normal(3, 4, 5)], axis=1, p=p)
    add("lp norm first axis", "LpNormalization", [normal(3, 4, 5)], axis=-3)
    add("mean variance norm axes", "MeanVarianceNormalization", [normal(3, 4, 5)], axes=[0, -1])
    for size in (1, 2, 3, 4, 5):
        add(f"lrn {size}", "LRN", [normal(2, 5, 3, 2)], size=size, alpha=0.4, beta=0.6, bias=1.5)


def add_resizes():
    def scales(*values):
        return const(values, np.float32)

    for mode in "nearest linear cubic".split():
        for how in ("half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric").split():
            # Evaluators disagree about corners where an extent is no whole number.
            for form, factors in ("grows", (1.6, 2.5)), ("shrinks", (0.6, 0.5 if how == "align_corners" else 0.4)):
                add(f"resize {mode} {how} {form}", "Resize", [normal(2, 2, 5, 8), None, scales(1, 1, *factors)], mode=mode,
                    coordinate_transformation_mode=how)
        add(f"resize {mode} crop", "Resize",
            [normal(2, 2, 5, 8), const([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.2], np.float32), None, const([2, 2, 4, 6])], mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=3.0)
        add(f"resize {mode} axes", "Resize", [normal(2, 5, 8, 2), None, None, const([9, 6])], mode=mode, axes=[2, 1])
        for policy in "not_larger not_smaller".split():
            add(f"resize {mode} {policy}", "Resize", [normal(2, 2, 5, 8), None, None, const([9, 11])], mode=mode,
                axes=[2, 3], keep_aspect_ratio_policy=policy)
        add(f"resize {mode} opset 13", "Resize", [normal(2, 2, 5), const([], np.float32), scales(1, 1, 2)], mode=mode,
            opset=13)
        add(f"resize {mode} twice", "Resize", [normal(2, 2, 4, 5), None, scales(1, 1, 2, 3)], mode=mode,
            coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    for rounds in "round_prefer_floor round_prefer_ceil floor ceil".split():
        add(f"resize nearest {rounds}", "Resize", [normal(2, 2, 6, 4), None, scales(1, 1, 0.5, 1.5)], nearest_mode=rounds)
    for how in ({}, {"exclude_outside": 1}, {"cubic_coeff_a": -0.5}):
        add(f"resize cubic {how}", "Resize", [normal(2, 2, 5, 8), None, scales(1, 1, 1.6, 0.7)], mode="cubic", **how)
    for mode in "linear cubic".split():
        add(f"resize {mode} antialias", "Resize", [normal(2, 2, 9, 8), None, scales(1, 1, 0.4, 0.6)], mode=mode, antialias=1)


def add_samplings():
    def wide(*shape):
        return unit(*shape) * np.float32(2)

    for mode in "linear nearest cubic".split():
        for padding in "zeros border reflection".split():
            for align in 0, 1:
                add(f"grid sample {mode} {padding} {align}", "GridSample", [normal(2, 3, 4, 5), wide(2, 3, 4, 2)], mode=mode,
                    padding_mode=padding, align_corners=align)
    add("grid sample volume", "GridSample", [normal(2, 2, 3, 4, 5), wide(2, 2, 3, 2, 3)])
    middles = ((2 * ints(0, 3, 2, 3, 4, 2) + 2) / np.array([5, 4]) - 1).astype(np.float32)
    add("grid sample opset 16", "GridSample", [normal(2, 3, 4, 5), middles], opset=16, mode="bilinear")
    add("grid sample opset 16 cubic", "GridSample", [normal(2, 3, 4, 5), wide(2, 3, 4, 2)], opset=16, mode="bicubic")
    add("deform conv", "DeformConv", [normal(2, 4, 5, 6), normal(3, 4, 2, 3), normal(2, 12, 4, 4), normal(3),
                                      normal(2, 6, 4, 4)])
    add("deform conv groups", "DeformConv", [normal(2, 4, 6, 5), normal(6, 2, 2, 2), normal(2, 16, 3, 3), normal(6),
                                             normal(2, 8, 3, 3)], group=2, offset_group=2, strides=[2, 1], pads=[1, 0, 0, 0],
        dilations=[1, 2])
    boxes = np.array([[0.3, 0.6, 3.1, 4.2], [-1.2, 1.1, 2.7, 9.3], [2.2, 0.4, 7.9, 1.3], [1.3, 1.4, 1.6, 1.7]], np.float32)
    for how in "half_pixel output_half_pixel".split():
        for ratio in 0, 1, 2, 3:
            add(f"roi align {how} {ratio}", "RoiAlign", [normal(2, 3, 5, 6), boxes, np.array([1, 0, 1, 1])],
                coordinate_transformation_mode=how, sampling_ratio=ratio, output_height=2, output_width=3, spatial_scale=0.9)
    add("roi align opset 13", "RoiAlign", [normal(2, 3, 5, 6), boxes, np.array([1, 0, 1, 1])], opset=13, output_height=2,
        output_width=2)
    add("deform conv no mask", "DeformConv", [normal(1, 2, 5, 5), normal(2, 2, 2, 2), normal(1, 8, 4, 4)], opset=19)


add_convolutions()
add_resizes()
add_samplings()
add_pools()
add_normalisations()


# Losses, attention, recurrent nets, writing by index, padding, scans and what regroups elements.

def add_losses():
    ignoring = np.array([[0, -1, 3], [5, 2, -1]])
    for kind in "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss":
        scores = normal(2, 6, 3)
        for reduction in "none", "sum", "mean":
            add(f"{kind} weights {reduction}", kind, [scores, ints(0, 6, 2, 3), positive(6)], reduction=reduction)
            add(f"{kind} ignoring {reduction}", kind, [scores, ignoring], reduction=reduction, ignore_index=-1)
            add(f"{kind} both {reduction}", kind, [scores, ignoring, positive(6)], reduction=reduction, ignore_index=-1)
        add(f"{kind} int32", kind, [normal(4, 6), ints(0, 6, 4, dtype=np.int32)])
        add(f"{kind} image", kind, [normal(2, 3, 2, 4), ints(0, 3, 2, 2, 4)])
        add(f"{kind} one of them", kind, [normal(4, 6), np.array([1, 2, 2, 5]), positive(6)], ignore_index=2)
    scores = normal(4, 6)
    add("log-probabilities", "SoftmaxCrossEntropyLoss", [scores, ints(0, 6, 4), positive(6)], outputs=2)
    add("log-probabilities none", "SoftmaxCrossEntropyLoss", [scores, ints(0, 6, 4)], outputs=2, reduction="none")


def add_attention():
    def qkv(b=2, heads=4, kv=2, s=3, t=5, head=4, value=6):
        return [normal(b, heads, s, head), normal(b, kv, t, head), normal(b, kv, t, value)]

    def flat(b=2, heads=4, kv=2, s=3, t=5, head=4, value=6):
        return [normal(b, s, heads * head), normal(b, t, kv * head), normal(b, t, kv * value)]

    some = bools(3, 5) | np.eye(3, 5, dtype=bool)
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    for opset in 23, 24:
        def case(name, inputs, outputs=1, **attributes):
            add(f"attention {opset} {name}", "Attention", inputs, outputs, opset, **attributes)

        case("grouped", qkv())
        case("one key head", qkv(kv=1))
        case("flat", flat(), **heads)
        case("flat causal", flat(), is_causal=1, **heads)
        case("bool mask", qkv() + [some])
        case("bool mask of 4", qkv() + [bools(2, 1, 3, 5) | np.eye(3, 5, dtype=bool)])
        case("float mask", qkv() + [normal(3, 5)])
        case("float mask of heads", qkv() + [normal(2, 4, 3, 5)])
        case("float mask of 3", qkv() + [normal(4, 3, 5)])
        case("float mask, one row", qkv() + [normal(2, 1, 1, 5)])
        case("scale and cap", qkv() + [normal(3, 5)], scale=0.7, softcap=1.5)
        case("cap and causal", qkv(), softcap=0.5, is_causal=1)
        case("more queries, causal", qkv(s=5, t=3), is_causal=1)
        past = [normal(2, 2, 2, 4), normal(2, 2, 2, 6)]
        case("past", qkv() + [None] + past, 3)
        case("past, flat", flat() + [None] + past, 3, **heads)
        case("past, causal", qkv(t=3) + [None] + past, 3, is_causal=1)
        case("past, causal, flat", flat(t=3) + [None] + past, 3, is_causal=1, **heads)
        case("past and mask", qkv() + [normal(3, 7)] + past, 3)
        case("precision", qkv(), softmax_precision=11)
        for mode in range(4):
            case(f"scores of mode {mode}", qkv() + [normal(3, 5)], [True, False, False, True], qk_matmul_output_mode=mode,
                 softcap=2.0)
            case(f"flat scores of mode {mode}", flat(), [True, False, False, True], qk_matmul_output_mode=mode, **heads)
        case("one head", [normal(1, 1, 3, 4), normal(1, 1, 5, 4), normal(1, 1, 5, 4)])
    add("attention shorter mask", "Attention", qkv() + [normal(3, 4)], opset=24)
    add("attention shorter bool mask", "Attention", qkv() + [some[:, :4] | np.eye(3, 4, dtype=bool)], opset=24)
    add("attention lengths", "Attention", qkv() + [normal(3, 5), None, None, np.array([2, 5])], opset=24)
    add("attention lengths causal", "Attention", qkv() + [None, None, None, np.array([2, 5])], opset=24, is_causal=1)
    for interleaved in 0, 1:
        cache = [normal(2, 3, 2), normal(2, 3, 2)]
        table = [normal(7, 2), normal(7, 2), ints(0, 7, 2, 3)]
        name = "rotary interleaved" if interleaved else "rotary"
        add(name, "RotaryEmbedding", [normal(2, 4, 3, 4)] + cache, interleaved=interleaved)
        add(name + " table", "RotaryEmbedding", [normal(2, 4, 3, 4)] + table, interleaved=interleaved)
        add(name + " flat", "RotaryEmbedding", [normal(2, 3, 16)] + table, interleaved=interleaved, num_heads=4)
        add(name + " part", "RotaryEmbedding", [normal(2, 4, 3, 8)] + cache, interleaved=interleaved,
            rotary_embedding_dim=4)


def add_recurrent():
    time, batch, size, hidden = 4, 3, 2, 3
    lengths = np.array([2, 4, 1], np.int32)
    for kind, gates, states, outputs in ("RNN", 1, 1, 2), ("GRU", 3, 1, 2), ("LSTM", 4, 2, 3):
        def case(name, directions=1, bias=True, lens=None, state=True, peepholes=False, there=None, steps=time, **attributes):
            inputs = [normal(steps, batch, size), normal(directions, gates * hidden, size),
                      normal(directions, gates * hidden, hidden),
                      normal(directions, 2 * gates * hidden) if bias else None, lens]
            inputs += [normal(directions, batch, hidden) if state else None for _ in range(states)]
            inputs += [normal(directions, 3 * hidden)] if peepholes else []
            add(f"{kind} {name}", kind, inputs, there or outputs, opset=22, hidden_size=hidden, **attributes)

        case("plain", bias=False, state=False)
        case("states")
        case("reverse", direction="reverse")
        case("both ways", 2, direction="bidirectional")
        case("lengths", lens=lengths)
        case("reverse lengths", lens=lengths, direction="reverse")
        case("both ways lengths", 2, lens=lengths, direction="bidirectional")
        case("last state alone", there=[False, True])
        case("lengths, last state alone", lens=lengths, there=[False, True])
        case("outputs alone", there=1)
        case("one step", steps=1)
        case("clip", clip=0.6)
        if kind != "RNN":
            names = ["HardSigmoid", "Softsign"] if kind == "GRU" else ["HardSigmoid", "Softsign", "Softsign"]
            case("activations", activations=names, activation_alpha=[0.3], activation_beta=[0.4])
            names = ["Sigmoid", "Elu"] if kind == "GRU" else ["Sigmoid", "ScaledTanh", "Affine"]
            case("activations with numbers", activations=names, activation_alpha=[0.7, 1.3], activation_beta=[0.8, 0.1])
        else:
            for name in "Relu", "LeakyRelu", "Sigmoid", "Elu", "Softsign", "Softplus", "ThresholdedRelu":
                case(name, activations=[name], **({"activation_alpha": [0.3]} if "Relu" in name[1:] else {}))
        if kind == "GRU":
            case("linear", linear_before_reset=1)
            case("linear both ways lengths", 2, lens=lengths, direction="bidirectional", linear_before_reset=1)
            case("linear clip", linear_before_reset=1, clip=0.6)
        if kind == "LSTM":
            case("peepholes", peepholes=True)
            case("peepholes both ways lengths", 2, lens=lengths, peepholes=True, direction="bidirectional")
            case("peepholes clip", peepholes=True, clip=0.6)
            case("cell alone", there=[False, False, True])


def add_indexing():
    add("dropout", "Dropout", [normal(4, 6), scalar(0.3), scalar(True, bool)], seed=3)
    add("dropout mask", "Dropout", [normal(4, 6), scalar(0.3), scalar(True, bool)], outputs=2, seed=3)
    add("dropout off", "Dropout", [normal(4, 6), scalar(0.3), scalar(False, bool)])
    for largest in 0, 1:
        add(f"top {largest}", "TopK", [normal(4, 6, 3), const([2])], outputs=2, axis=1, largest=largest)
        add(f"top {largest}, last", "TopK", [normal(4, 6), const([3])], outputs=2, largest=largest, sorted=0)
    add("gather-nd batch 1", "GatherND", [normal(2, 4, 3, 5), ints(-3, 3, 2, 3, 2)], batch_dims=1)
    add("gather-nd batch 2", "GatherND", [normal(2, 3, 4, 5), ints(-4, 4, 2, 3, 2, 1)], batch_dims=2)
    add("gather-nd batch, one place", "GatherND", [normal(2, 4, 3), ints(0, 3, 2, 2)], batch_dims=1)
    add("gather-nd all", "GatherND", [normal(4, 3), ints(-3, 3, 6, 2)])
    places = np.array([[0, 2, 1], [3, 1, 4]])
    twice = np.array([[0, 2, 0], [3, 3, 3]])
    zero = normal(2, 3)
    zero[0, 1] = zero[1, 0] = 0
    for reduction, indices, updates in (("none", places, normal(2, 3)), ("add", twice, normal(2, 3)),
                                        ("mul", twice, normal(2, 3)), ("mul", twice, zero),
                                        ("max", twice, normal(2, 3)), ("min", twice, normal(2, 3))):
        name = reduction + (" of zeros" if updates is zero else "")
        add("scatter " + name, "ScatterElements", [normal(2, 5), indices, updates], axis=-1, reduction=reduction)
        add("scatter-nd " + name, "ScatterND", [normal(5, 2), np.array([[[0], [2]], [[3], [2 if indices is twice else 1]]]),
                                                normal(2, 2, 2)], reduction=reduction)
    for mode, first in ("linear", [0, 2, 3]), ("circular", [4, 2, 3]):
        add("tensor-scatter " + mode, "TensorScatter", [normal(3, 2, 5, 4), normal(3, 2, 2, 4), np.array(first)], opset=24,
            mode=mode)
        add("tensor-scatter axis " + mode, "TensorScatter", [normal(3, 5, 4), normal(3, 2, 4), np.array(first)], opset=24,
            mode=mode, axis=1)
    add("tensor-scatter begin", "TensorScatter", [normal(3, 5, 4), normal(3, 2, 4)], opset=24)
    add("one-hot", "OneHot", [ints(-6, 8, 4, 3), scalar(6, np.int64), normal(2)])
    add("one-hot axis", "OneHot", [ints(0, 6, 4), const([6]), normal(2)], axis=0)


def add_movement():
    add("split uneven", "Split", [normal(4, 7)], 3, axis=1, num_outputs=3)
    x = normal(5, 6)
    add("pad value", "Pad", [x, const([1, 0, 2, 3]), normal(1)[0:1].reshape(())])
    add("pad value input", "Pad", [x, const([1, 2]), normal(1), const([-1])])
    add("pad cut", "Pad", [x, const([-1, 2, 1, -3])])
    for mode in "edge", "reflect", "wrap":
        add("pad " + mode, "Pad", [x, const([2, 1, 3, 4])], mode=mode)
        add("pad axes " + mode, "Pad", [x, const([2, 3]), None, const([-1])], mode=mode)
        add("pad cut " + mode, "Pad", [x, const([-1, 2, 1, -2])], mode=mode)
    add("tile", "Tile", [normal(2, 3, 1), const([3, 1, 2])])
    add("trilu upper", "Trilu", [normal(4, 5), scalar(-1, np.int64)], upper=1)
    add("trilu k", "Trilu", [normal(2, 4, 4), np.array(1)], upper=0)
    add("reverse batch", "ReverseSequence", [normal(3, 4, 2), np.array([2, 4, 1])], batch_axis=0, time_axis=1)
    for exclusive in 0, 1:
        for reverse in 0, 1:
            flags = {"exclusive": exclusive, "reverse": reverse}
            zeros = normal(3, 6)
            zeros[0, 2] = zeros[1, 1] = zeros[1, 4] = zeros[2, 0] = zeros[2, 5] = 0
            add(f"cumsum {exclusive} {reverse}", "CumSum", [normal(3, 6), scalar(-1, np.int64)], **flags)
            add(f"cumprod {exclusive} {reverse}", "CumProd", [normal(3, 6), scalar(1, np.int64)], opset=26, **flags)
            add(f"cumprod zeros {exclusive} {reverse}", "CumProd", [zeros, scalar(1, np.int64)], opset=26, **flags)
    add("depth-to-space 3", "DepthToSpace", [normal(2, 18, 2, 3)], blocksize=3)
    add("depth-to-space 3 crd", "DepthToSpace", [normal(2, 18, 2, 3)], blocksize=3, mode="CRD")
    add("space-to-depth 3", "SpaceToDepth", [normal(2, 2, 6, 3)], blocksize=3)
    add("center crop", "CenterCropPad", [normal(5, 8, 3), const([2, 5, 6])])
    add("center pad", "CenterCropPad", [normal(5, 4), const([8, 7])], axes=[0, 1])
    add("col2im", "Col2Im", [normal(1, 8, 9), const([5, 6]), const([2, 2])], strides=[2, 2], pads=[1, 0, 0, 0],
        dilations=[1, 1])
    add("col2im dilated", "Col2Im", [normal(2, 6, 12), const([5, 6]), const([3, 1])], dilations=[1, 2], strides=[2, 1])
    add("col2im line", "Col2Im", [normal(2, 6, 4), const([6]), const([3])])
    add("det 1", "Det", [normal(2, 1, 1)])
    add("det 2", "Det", [normal(2, 2)])
    add("det 4", "Det", [normal(2, 3, 4, 4)])
    singular = normal(4, 4)
    singular[2] = singular[0] * 2
    add("det singular", "Det", [singular])
    for corners in 0, 1:
        add(f"grid {corners}", "AffineGrid", [normal(2, 2, 3), const([2, 3, 4, 5])], align_corners=corners)
        add(f"grid of volumes {corners}", "AffineGrid", [normal(2, 3, 4), const([2, 3, 4, 5, 2])], align_corners=corners)
    add("mod", "Mod", [normal(4, 6) * 5, normal(6)], fmod=1)
    add("einsum trace", "Einsum", [normal(4, 4)], equation="ii->")
    add("einsum diagonal of batch", "Einsum", [normal(3, 4, 4), normal(4, 2)], equation="bii,ik->bk")
    add("einsum diagonals", "Einsum", [normal(3, 3, 3), normal(3, 3)], equation="iii,ii->i")
    add("unpool", "MaxUnpool", [normal(1, 1, 2, 2), np.array([[[[1, 3], [8, 15]]]])], kernel_shape=[2, 2],
        strides=[2, 2], opset=22)
    for opset, axis in (17, {"axis": 1}), (20, {}):
        more = [] if opset == 17 else [scalar(1, np.int64)]
        length = [scalar(7, np.int64)]
        shorter = [scalar(4, np.int64)]
        for parts in 1, 2:
            for inverse in (0, 1) if parts == 2 else (0,):
                name = f"dft {opset} {parts} {inverse}"
                add(name, "DFT", [normal(2, 6, parts), None] + more, opset=opset, inverse=inverse, **axis)
                add(name + " longer", "DFT", [normal(2, 6, parts)] + length + more, opset=opset, inverse=inverse, **axis)
                add(name + " shorter", "DFT", [normal(2, 6, parts)] + shorter + more, opset=opset, inverse=inverse, **axis)
        add(f"dft {opset} one-sided", "DFT", [normal(2, 6, 1), None] + more, opset=opset, onesided=1, **axis)
        add(f"dft {opset} one-sided odd", "DFT", [normal(2, 6, 1)] + length + more, opset=opset, onesided=1, **axis)
    for onesided in 0, 1:
        add(f"stft {onesided}", "STFT", [normal(2, 12, 1), scalar(2, np.int64), positive(6), scalar(6, np.int64)], opset=17,
            onesided=onesided)
        add(f"stft {onesided} no window", "STFT", [normal(2, 12, 1), scalar(3, np.int64), None, scalar(5, np.int64)],
            opset=17, onesided=onesided)


add_losses()
add_attention()
add_recurrent()
add_indexing()
add_movement()
