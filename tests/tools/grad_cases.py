"""Further instances of ops for the test of gradients, beside those of rule_cases.py."""
import numpy as np

from rule_cases import Case, Constant, const, ints, normal, positive, scalar, unit  # noqa: F401

# Types without a derivative, or whose derivative nobody takes: asking for one is an error that says so.
WITHOUT_GRADIENT = set()

# The evaluators calculate these in float32 whatever the type of their inputs.
SINGLE_ONLY = {"Gelu", "Shrink", "GroupNormalization"}

# Those whose gradients are other ops in float32, and those that ONNX Runtime has in float32 alone.
SINGLE_TOO = {"AveragePool", "Conv", "ConvTranspose", "LayerNormalization", "LpPool", "LRN"}

# Inputs that are never trained where they are the model's own; these come out of a Mul.
STATISTICS = {"BatchNormalization": [3, 4]}

GRAD_CASES = []


def add(name, op_type, inputs, outputs=1, opset=23, **attributes):
    GRAD_CASES.append(Case(name, op_type, inputs, "", attributes, [True] * outputs, opset))


add("gelu tanh", "Gelu", [normal(3, 4)], approximate="tanh")
add("pow tensor", "Pow", [positive(3, 4), normal(4)])
add("slice steps", "Slice", [normal(7, 9), const([6, 1]), const([-9, 8]), const([0, 1]), const([-2, 3])])
add("einsum broadcast", "Einsum", [normal(3, 1, 4), normal(5, 4, 2)], equation="...ij,...jk->...ik")
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
        add(f"global lp pool {p}", "GlobalLpPool", [normal(2, 3, 5, 4)], p=p, opset=21)
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
    add("lp norm of zeros", "LpNormalization", [normal(3, 4, 5)], axis=-3)
    add("mean variance norm axes", "MeanVarianceNormalization", [normal(3, 4, 5)], axes=[0, -1])
    for size in (1, 2, 3, 4, 5):
        add(f"lrn {size}", "LRN", [normal(2, 5, 3, 2)], size=size, alpha=0.4, beta=0.6, bias=1.5)


def add_resizes():
    def scales(*values):
        return const(values, np.float32)

    for mode in "nearest linear cubic".split():
        for how in ("half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric").split():
            for form, factors in ("grows", (1.6, 2.5)), ("shrinks", (0.6, 0.4)):
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


add_convolutions()
add_resizes()
add_pools()
add_normalisations()
