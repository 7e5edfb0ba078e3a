"""Op instances of the rule test: small enough to run under every assignment, large enough to be split by 2, 4 and 6."""
import dataclasses

import numpy as np


@dataclasses.dataclass
class Constant:
    """An input that is known at import."""
    array: np.ndarray


@dataclasses.dataclass
class Case:
    name: str
    type: str
    inputs: list
    factors: str  # that the rule must be able to split, separated by spaces
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: list = dataclasses.field(default_factory=lambda: [True])  # False: an optional output that is absent
    opset: int = 23
    meshes: list = None
    user_rule: str = None
    must_fail: bool = False


CASES = []
_random = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return _random.standard_normal(shape).astype(dtype)


def positive(*shape):
    return _random.uniform(0.5, 2.0, shape).astype(np.float32)


def unit(*shape):
    return _random.uniform(-0.9, 0.9, shape).astype(np.float32)


def ints(low, high, *shape, dtype=np.int64):
    return _random.integers(low, high, shape).astype(dtype)


def bools(*shape):
    return _random.random(shape) < 0.5


def const(values, dtype=np.int64):
    return Constant(np.array(values, dtype))


def scalar(value, dtype=np.float32):
    return Constant(np.array(value, dtype))


def add(op_type, inputs, factors, name="", outputs=1, **options):
    attributes = {key: value for key, value in options.items()
                  if key not in ("opset", "meshes", "user_rule", "must_fail")}
    rest = {key: value for key, value in options.items() if key not in attributes}
    if isinstance(outputs, int):
        outputs = [True] * outputs
    CASES.append(Case(op_type + ("/" + name if name else ""), op_type, inputs, factors.split(), attributes, outputs,
                      **rest))


def add_elementwise():
    for op in ("Abs Asin Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN "
               "LeakyRelu Mish Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh "
               "ThresholdedRelu Acos Atanh").split():
        add(op, [unit(4, 6)], "d0 d1", **({"lambd": 0.2} if op == "Shrink" else {}))
    add("Swish", [unit(4, 6)], "d0 d1", opset=24)
    add("BitCast", [normal(4, 6)], "d0 d1", opset=26, to=6)
    for op in "Log Sqrt".split():
        add(op, [positive(4, 6)], "d0 d1")
    add("Acosh", [positive(4, 6) + 1], "d0 d1")
    add("Neg", [normal(4, 6)], "d0 d1 partial0")
    add("Not", [bools(4, 6)], "d0 d1")
    add("BitwiseNot", [ints(0, 9, 4, 6)], "d0 d1")
    for op in "And Or Xor".split():
        add(op, [bools(4, 6), bools(4, 1)], "d0 d1")
    for op in "BitwiseAnd BitwiseOr BitwiseXor".split():
        add(op, [ints(0, 99, 4, 6), ints(0, 99, 6)], "d0 d1")
    for op in "Equal Greater GreaterOrEqual Less LessOrEqual".split():
        add(op, [ints(0, 3, 4, 6), ints(0, 3, 1, 6)], "d0 d1")
    add("BitShift", [ints(0, 9, 4, 6, dtype=np.uint32), ints(0, 3, 4, 6, dtype=np.uint32)], "d0 d1", direction="LEFT")
    add("Mod", [ints(0, 99, 4, 6), ints(1, 9, 4, 6)], "d0 d1")
    add("Mod", [normal(4, 6), positive(6)], "d0 d1", "float", fmod=1)
    add("Pow", [positive(4, 6), normal(4, 1)], "d0 d1")
    add("PRelu", [normal(2, 4, 6), normal(4, 1)], "d0 d1 d2")
    for op in "Max Min".split():
        add(op, [normal(4, 6), normal(6), normal(4, 1)], "d0 d1")
    for op in "Sum Mean".split():
        add(op, [normal(4, 6), normal(6), normal(4, 1)], "d0 d1 partial0")
    add("Clip", [normal(4, 6), scalar(-0.5), scalar(0.5)], "d0 d1")
    add("Clip", [normal(4, 6), None, scalar(0.5)], "d0 d1", "no-minimum")
    add("Add", [normal(4, 6), normal(4, 6)], "d0 d1 partial0")
    add("Add", [normal(2, 1, 4), normal(6, 1)], "d0 d1 d2 partial0", "both-broadcast")
    add("Add", [ints(0, 9, 4, 6), ints(0, 9, 6)], "d0 d1 partial0", "integers")
    add("Add", [normal(4, 6), scalar(2)], "d0 d1 partial0", "scalar")
    add("Sub", [normal(4, 6), normal(6)], "d0 d1 partial0")
    add("Mul", [normal(4, 6), normal(6)], "d0 d1 partial0 partial1")
    add("Mul", [ints(0, 9, 4, 6), ints(0, 9, 1, 6)], "d0 d1 partial0 partial1", "integers")
    add("Div", [normal(4, 6), positive(6)], "d0 d1 partial0")
    add("Div", [ints(0, 99, 4, 6), ints(1, 9, 6)], "d0 d1", "integers")
    add("Where", [bools(4, 6), normal(4, 6), normal(6)], "d0 d1 partial1")
    add("Where", [bools(4, 1), scalar(0), normal(4, 6)], "d0 d1 partial1", "scalar")
    add("Cast", [normal(4, 6)], "d0 d1 partial0", "narrower", to=11)
    add("Cast", [normal(4, 6) * 9], "d0 d1", "to-integers", to=7)
    add("CastLike", [normal(4, 6), normal(2, dtype=np.float64)], "d0 d1 partial0")
    add("Identity", [normal(4, 6)], "d0 d1 partial0")
    add("Dropout", [normal(4, 6)], "d0 d1 partial0")
    add("QuantizeLinear", [normal(4, 6), scalar(0.1), scalar(3, np.uint8)], "d0 d1", "tensor")
    add("QuantizeLinear", [normal(4, 6), positive(4), ints(0, 9, 4, dtype=np.uint8)], "d0 d1", "axis", axis=0)
    add("DequantizeLinear", [ints(0, 99, 4, 6, dtype=np.uint8), scalar(0.1), scalar(3, np.uint8)], "d0 d1", "tensor")
    add("DequantizeLinear", [ints(0, 99, 4, 6, dtype=np.uint8), positive(6), None], "d0 d1", "axis", axis=-1)


def add_contractions():
    add("MatMul", [normal(4, 6), normal(6, 4)], "m k n partial0 partial1 row col")
    add("MatMul", [normal(2, 4, 6), normal(6, 4)], "b m k n partial0 partial1 row col", "weight",
        meshes=[[2], [2, 2], [3, 2], [2, 2, 2]])
    add("MatMul", [normal(6, 3, dtype=np.float16), normal(3, 6, dtype=np.float16)], "m k n row col", "narrow",
        meshes=[[3, 3]])
    add("MatMul", [normal(2, 1, 4, 6), normal(6, 6, 2)], "b0 b1 m k n partial0 partial1", "broadcast")
    add("MatMul", [normal(6), normal(2, 6, 4)], "b k n partial0 partial1", "vector-left")
    add("MatMul", [normal(2, 4, 6), normal(6)], "b m k partial0 partial1", "vector-right")
    add("MatMul", [normal(6), normal(6)], "k partial0 partial1", "vectors")
    add("Gemm", [normal(4, 6), normal(6, 4), normal(4)], "m k n partial0 partial1", alpha=0.5, beta=2.0)
    add("Gemm", [normal(6, 4), normal(4, 6), normal(4, 1)], "m k n partial0 partial1", "transposed", transA=1, transB=1)
    add("Gemm", [normal(4, 6), normal(6, 4)], "m k n partial0 partial1", "no-bias")
    add("Gemm", [normal(6, 4), normal(6, 4)], "m k n partial0 partial1", "a-transposed", transA=1, alpha=0.5)
    add("Gemm", [normal(4, 6), normal(8, 6)], "m k n partial0 partial1", "b-transposed", transB=1)
    add("Einsum", [normal(2, 4, 6), normal(2, 6, 4)], "b i j k partial0 partial1", equation="bij,bjk->bik")
    add("Einsum", [normal(2, 4, 6), normal(6, 4)], "b i j k partial0 partial1", "ellipsis", equation="...ij,jk->...ik")
    add("Einsum", [normal(4, 6, 2), normal(4, 2)], "g s e c partial0 partial1", "moe", equation="gse,gc->egsc")
    add("Einsum", [normal(4, 4, 6)], "j partial0", "diagonal", equation="iij->ij")
    add("Einsum", [normal(4, 6), normal(6, 4)], "a b c partial0 partial1", "implicit", equation="ab,bc")
    add("Einsum", [normal(4, 6)], "i j partial0", "sum", equation="ij->i")
    add("Einsum", [normal(4), normal(6), normal(2)], "a b c partial0 partial1 partial2", "three", equation="a,b,c->ac")


def add_reductions():
    for op in "ReduceSum ReduceMean".split():
        add(op, [normal(4, 6, 2), const([1])], "d0 d1 d2 partial0", keepdims=1)
        add(op, [normal(4, 6, 2), const([-1, 0])], "d0 d1 d2 partial0", "dropped", keepdims=0)
        add(op, [normal(4, 6)], "d0 d1 partial0", "all", keepdims=0)
    add("ReduceSum", [normal(4, 6), const([])], "d0 d1 partial0", "noop", noop_with_empty_axes=1)
    add("ReduceSum", [ints(0, 9, 4, 6), const([0])], "d0 d1 partial0", "integers")
    add("ReduceMean", [ints(0, 99, 4, 6), const([0])], "d1", "integers")
    add("ReduceMean", [normal(4, 6, 2)], "d0 d1 d2 partial0", "attribute", axes=[1, 2], opset=17)
    for op in "ReduceMax ReduceMin ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp ReduceProd".split():
        add(op, [normal(4, 6, 2), const([1])], "d0 d1 d2")
        add(op, [normal(4, 6, 2), const([0, 2])], "d0 d1 d2", "dropped", keepdims=0)
        add(op, [normal(4, 6, 2)], "d0 d1 d2", "attribute", axes=[-1], keepdims=0, opset=17)
    add("ReduceLogSum", [positive(4, 6, 2), const([1])], "d0 d1 d2")
    add("ReduceLogSum", [positive(4, 6, 2)], "d0 d1 d2", "attribute", axes=[0, 1], opset=17)
    add("ReduceMax", [ints(-99, 99, 4, 6), const([1])], "d0 d1", "integers")
    for op in "ArgMax ArgMin".split():
        add(op, [normal(4, 6, 2)], "d0 d1 d2", axis=1)
        add(op, [normal(4, 6, 2)], "d0 d1 d2", "dropped", axis=0, keepdims=0)
        add(op, [ints(0, 2, 4, 6)], "d0 d1", "first", axis=-1)
        add(op, [ints(0, 2, 4, 6)], "d0 d1", "last", axis=-1, select_last_index=1)
        add(op, [ints(0, 2, 4, 6)], "d0 d1", "opset-13", axis=-1, opset=13)


def add_shapes():
    add("Reshape", [normal(4, 6), const([2, 2, 6])], "d0 d1 d2 partial0", "split")
    add("Reshape", [normal(2, 4, 6), const([8, 6])], "d0 d1 d2 partial0", "merge")
    add("Reshape", [normal(2, 4, 6), const([0, -1])], "d0 d1 partial0", "zero-and-rest")
    add("Reshape", [normal(6, 4), const([4, 6])], "d0 partial0", "shared-major")
    add("Reshape", [normal(3, 4), const([2, 6])], "partial0", "nothing-shared", meshes=[[2]])
    add("Reshape", [normal(1, 4, 1, 6), const([4, 6, 1])], "d0 d1 partial0", "ones")
    add("Reshape", [normal(2, 2, 3, 2), const([4, 6])], "d0 d1 d2 d3 partial0", "pairs", meshes=[[2], [2, 2], [2, 3], [2, 2, 2]])
    add("Reshape", [normal(2, 6), const([12])], "d0 d1 partial0", "minor-after-major", meshes=[[2, 2], [2, 3], [4, 3]])
    add("Flatten", [normal(2, 4, 6)], "d0 d1 d2 partial0", axis=2)
    add("Squeeze", [normal(4, 1, 6, 1)], "d0 d1 partial0")
    add("Squeeze", [normal(4, 1, 6, 1), const([-1])], "d0 d1 partial0", "axes")
    add("Squeeze", [normal(2, 1, 6)], "d0 d1 partial0", "becomes-one")
    add("Unsqueeze", [normal(4, 6), const([0, -1])], "d0 d1 partial0")
    add("Transpose", [normal(2, 4, 6)], "d0 d1 d2 partial0", perm=[2, 0, 1])
    add("Transpose", [normal(4, 6)], "d0 d1 partial0", "default")
    add("DepthToSpace", [normal(4, 16, 2, 2)], "n h w partial0", blocksize=2)
    add("DepthToSpace", [normal(4, 16, 2, 2)], "n c h w partial0", "crd", blocksize=2, mode="CRD")
    add("SpaceToDepth", [normal(4, 2, 4, 8)], "n h w partial0", blocksize=2)
    add("Slice", [normal(4, 6, 2), const([1]), const([4]), const([1])], "d0 d2 partial0")
    add("Slice", [normal(4, 6, 2), const([0, 1, 0]), const([4, 4, 2**62])], "d0 d2 partial0", "all-dims")
    add("Slice", [normal(4, 6, 2), const([-6, -1]), const([6, -5]), const([1, 0]), const([1, -1])], "d1 d2 partial0",
        "steps")
    add("Concat", [normal(4, 2), normal(4, 6)], "d0 partial0", axis=1)
    add("Concat", [normal(4, 6), normal(2, 6), normal(2, 6)], "d1 partial0", "three", axis=-2)
    add("Split", [normal(4, 6), const([2, 4])], "d0 partial0", outputs=2, axis=1)
    add("Split", [normal(4, 6)], "d1 partial0", "equal", outputs=2, axis=0, num_outputs=2)
    add("Expand", [normal(4, 1, 6), const([4, 2, 6])], "d0 d1 d2 partial0")
    add("Expand", [normal(6), const([2, 4, 1])], "d0 d1 d2 partial0", "rank")
    add("Expand", [Constant(normal()), const([4, 6])], "d0 d1 partial0", "scalar")
    add("Tile", [normal(4, 6), const([1, 2])], "d0 d1 r1 partial0", meshes=[[2], [2, 2], [2, 3], [2, 6]])
    add("Pad", [normal(4, 6), const([0, 1, 0, 2])], "d0 partial0")
    add("Pad", [normal(4, 6), const([1, 1]), scalar(3), const([-1])], "d0", "constant")
    add("Pad", [normal(4, 6), const([1, 0, 2, 0])], "d1 partial0", "reflect", mode="reflect")
    add("Trilu", [normal(2, 4, 6)], "d0 partial0", upper=0)
    add("Trilu", [normal(4, 6, 4), scalar(1, np.int64)], "d0 partial0", "k")
    add("ReverseSequence", [normal(4, 6, 2), const([1, 2, 3, 4, 2, 1])], "d1 d2 partial0")
    add("Resize", [normal(2, 4, 3, 3), None, const([1, 1, 2, 2], np.float32)], "d0 d1 partial0", "scales", mode="linear")
    add("Resize", [normal(2, 4, 3, 3), None, None, const([2, 4, 6, 6])], "d0 d1 partial0", "sizes", mode="nearest")
    add("ConstantOfShape", [const([4, 6])], "d0 d1 partial")
    add("ConstantOfShape", [const([4, 6])], "d0 d1", "ones", value=np.array([1.0], np.float32))
    add("Range", [scalar(0, np.int64), scalar(6, np.int64), scalar(1, np.int64)], "")
    add("EyeLike", [normal(4, 6)], "")


def add_normalisations():
    for op in "Softmax LogSoftmax".split():
        add(op, [normal(4, 6) * 5], "d0 d1")
        add(op, [normal(2, 6, 4)], "d0 d1 d2", "middle", axis=1)
        add(op, [normal(4, 6).astype(np.float16)], "d0 d1", "half")
    add("Hardmax", [normal(4, 6)], "d0")
    add("LayerNormalization", [normal(2, 4, 6) + 9, normal(6), normal(6)], "d0 d1 d2")
    add("LayerNormalization", [normal(2, 4, 6), normal(4, 6)], "d0 d1 d2", "two-dims", axis=1, outputs=3)
    add("LayerNormalization", [normal(2, 4, 6), normal(1, 6), normal(6)], "d0 d1 d2", "mean", axis=-1, outputs=[True, True])
    add("LayerNormalization", [normal(2, 4, 6), normal(6)], "d0 d1 d2", "deviation", outputs=[True, False, True])
    add("LayerNormalization", [normal(2, 4, 6).astype(np.float16), normal(6).astype(np.float16)], "d0 d1 d2", "half")
    add("RMSNormalization", [normal(2, 4, 6), normal(6)], "d0 d1 d2")
    add("BatchNormalization", [normal(2, 4, 6, 2), normal(4), normal(4), normal(4), positive(4)], "n c s0 s1")
    add("BatchNormalization", [normal(4, 4), normal(4), normal(4), normal(4), positive(4)], "n c", "rank-2")
    add("BatchNormalization", [normal(6, 4, 2), normal(4), normal(4), normal(4), positive(4)], "n c s0", "training",
        outputs=3, training_mode=1, momentum=0.7)
    add("InstanceNormalization", [normal(2, 4, 6, 4), normal(4), normal(4)], "n c s0 s1")
    # Parts of different means; a mean far from 0.
    add("InstanceNormalization", [normal(2, 2, 12) + np.arange(12, dtype=np.float32) + 100, normal(2), normal(2)],
        "n c s0", "means", epsilon=0.01)
    add("GroupNormalization", [normal(2, 8, 3), normal(8), normal(8)], "n g", num_groups=4)
    add("GroupNormalization", [normal(2, 8, 3), normal(4), normal(4)], "n g", "opset-18", num_groups=4, opset=18)
    add("LpNormalization", [normal(4, 6)], "d0")
    add("MeanVarianceNormalization", [normal(2, 4, 3, 3)], "d1")
    add("LRN", [normal(4, 3, 2, 2)], "n b0 b1", size=3)


def add_indexing():
    add("Gather", [normal(12, 4), ints(-12, 12, 4, 6)], "v d1 i0 i1 partial0")
    add("Gather", [normal(4, 12, 2), ints(0, 12, 6, dtype=np.int32)], "d0 v d2 i0 partial0", "axis", axis=1)
    add("Gather", [normal(12, 4), ints(0, 12)], "v d1 partial0", "scalar")
    add("Gather", [normal(4, 3, 6), const(1)], "d0 d2 partial0", "known", axis=1)
    add("Gather", [ints(0, 99, 12, 4), ints(0, 12, 6)], "v d1 i0 partial0", "integers")
    add("Gather", [bools(12, 4), ints(0, 12, 6)], "d1 i0", "bools")
    add("GatherElements", [normal(4, 12), ints(-12, 12, 4, 6)], "d0 v i partial0", axis=1)
    add("GatherElements", [normal(12, 6), ints(0, 12, 2, 4)], "v i partial0", "fewer")
    add("GatherND", [normal(12, 4), ints(-12, 12, 6, 1)], "v d1 i0 partial0")
    add("GatherND", [normal(4, 6, 2), ints(0, 4, 4, 2, 2)], "i0 i1 d2 partial0", "deep")
    add("GatherND", [normal(4, 12, 2), ints(0, 12, 4, 6, 1)], "d0 v i1 d2 partial0", "batch", batch_dims=1)
    for reduction in "none add max".split():
        indices = np.array([[0, 5, 11, -2], [3, 4, 9, 7]])
        factors = {"none": "v d0 partial0", "add": "v d0 u partial0", "max": "v d0"}[reduction]
        add("ScatterElements", [normal(2, 12), indices, normal(2, 4)], factors, reduction, axis=1, reduction=reduction,
            opset=18)
        rows = np.array([[3], [-1], [0], [7]])
        factors = {"none": "v d1 partial0", "add": "v d1 u0 partial0", "max": "v d1"}[reduction]
        add("ScatterND", [normal(12, 4), rows, normal(4, 4)], factors, reduction, reduction=reduction, opset=18)
    add("ScatterND", [normal(12, 4), ints(0, 12, 2, 6, 1), normal(2, 6, 4)], "v d1 u0 u1 partial0", "embedding-gradient",
        reduction="add", opset=18)
    add("ScatterND", [normal(4, 6, 2), np.array([[0, 1], [3, 5]]), normal(2, 2)], "d2 partial0", "deep")
    add("ScatterElements", [normal(12, 6), ints(0, 12, 4, 6), normal(4, 6)], "v d1 u partial0", "repeated",
        reduction="add", opset=18)
    add("TopK", [normal(4, 12), const([3])], "d0", outputs=2)
    add("CumSum", [normal(4, 6, 2), scalar(1, np.int64)], "d0 d1 d2 partial0", exclusive=1)
    add("CumSum", [ints(0, 9, 4, 12), const([-1])], "d0 d1 partial0", "reverse", reverse=1)
    add("CumSum", [normal(12), scalar(0, np.int32)], "d0 partial0", "vector", opset=14)
    add("CumProd", [positive(4, 6), scalar(1, np.int64)], "d0", opset=26)
    add("TensorScatter", [normal(4, 2, 6, 2), normal(4, 2, 3, 2), ints(0, 3, 4)], "d0 d1 d3", opset=24)
    add("OneHot", [ints(-12, 14, 4, 6), scalar(12, np.int64), const([0, 1], np.float32)], "d0 d1 v")
    add("OneHot", [ints(0, 12, 4), const([12]), const([2, 5], np.float32)], "d0 v", "axis", axis=0)


def add_convolutions():
    add("Conv", [normal(2, 4, 5, 5), normal(6, 4, 3, 3), normal(6)], "n c m partial0 partial1", pads=[1, 1, 1, 1])
    add("Conv", [normal(2, 4, 6), normal(6, 4, 1)], "n c m s0 partial0 partial1", "point")
    add("Conv", [normal(2, 4, 6), normal(6, 4, 1), normal(6)], "n c m s0 partial0 partial1", "point-bias")
    add("Conv", [normal(2, 8, 5), normal(4, 2, 3), normal(4)], "n g c partial0 partial1", "groups", group=4,
        meshes=[[2], [2, 2], [4, 2]])
    add("Conv", [normal(2, 4, 5), normal(4, 1, 3), normal(4)], "n g partial0 partial1", "depthwise", group=4)
    add("Conv", [normal(2, 4, 4, 6), normal(2, 4, 4, 6), normal(2)], "n c m s0 s1 partial0 partial1", "whole-image")
    add("ConvTranspose", [normal(2, 4, 5), normal(4, 6, 3), normal(6)], "n c m partial0 partial1", strides=[2])
    add("ConvTranspose", [normal(2, 4, 5), normal(4, 3, 3), normal(6)], "n g partial0 partial1", "groups", group=2,
        meshes=[[2], [2, 2]])
    add("MaxPool", [normal(2, 4, 12, 12)], "n c s0 s1", kernel_shape=[2, 2], strides=[2, 2])
    add("MaxPool", [normal(4, 6, 6, 6)], "n c", "indices", outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    add("AveragePool", [normal(2, 4, 6)], "n c s0 partial0", kernel_shape=[3], pads=[1, 1])
    add("LpPool", [normal(2, 4, 6)], "n c", kernel_shape=[2])
    add_halos()
    add("GlobalAveragePool", [normal(2, 4, 6, 6)], "n c s0 s1 partial0")
    add("GlobalMaxPool", [normal(2, 4, 6, 6)], "n c s0 s1")
    add("GlobalLpPool", [normal(2, 4, 6, 6)], "n c", opset=21)
    add("GridSample", [normal(2, 4, 5, 5), unit(2, 6, 4, 2)], "n c p0 p1 partial0")
    add("AffineGrid", [normal(4, 2, 3), const([4, 3, 2, 6])], "n")
    add("RoiAlign", [normal(2, 4, 6, 6), positive(6, 4), ints(0, 2, 6)], "c r", output_height=2, output_width=2)
    add("MaxRoiPool", [normal(2, 4, 6, 6), np.abs(ints(0, 2, 6, 5)).astype(np.float32)], "c r", pooled_shape=[2, 2], opset=21)


def add_halos():
    """Images whose parts need rows of their neighbours, and windows that need none."""
    three = [[2], [3], [4], [2, 2], [3, 2]]
    rows = [[2], [3], [2, 2]]
    same = normal(2, 2, 12), normal(2, 2, 3), normal(2)
    partial = "partial0 partial1"
    add("Conv", same, "n c m s0 " + partial, "halo", pads=[1, 1], meshes=three)
    add("Conv", [normal(1, 2, 12, 8), normal(2, 2, 3, 5)], "c m s0 s1 " + partial, "halo-2d", pads=[1, 2, 1, 2],
        meshes=three)
    add("Conv", [normal(1, 2, 4, 6, 4), normal(2, 2, 3, 3, 3)], "c m s0 s1 s2 " + partial, "halo-3d", pads=[1] * 6,
        meshes=rows)
    add("Conv", [normal(1, 2, 24), normal(2, 2, 7), normal(2)], "c m s0 " + partial, "halo-strides", strides=[2],
        pads=[3, 3], meshes=three)
    add("Conv", [normal(1, 2, 12, 12), normal(2, 2, 3, 3)], "c m s0 s1 " + partial, "halo-strides-2d", strides=[2, 3],
        pads=[1, 0, 1, 0], meshes=rows)
    add("Conv", [normal(1, 2, 12), normal(2, 2, 3)], "c m s0 " + partial, "halo-before", pads=[2, 0], meshes=three)
    add("Conv", [normal(1, 2, 12), normal(2, 2, 3)], "c m s0 " + partial, "halo-after", pads=[0, 1], strides=[2],
        meshes=three)
    add("Conv", [normal(1, 2, 12, 6), normal(2, 2, 4, 2)], "c m s0 s1 " + partial, "halo-asymmetric",
        pads=[1, 1, 2, 0], meshes=rows)
    add("Conv", [normal(1, 2, 24), normal(2, 2, 3)], "c m s0 " + partial, "halo-dilations", dilations=[3], pads=[3, 3],
        meshes=three)
    add("Conv", [normal(1, 2, 24), normal(2, 2, 5)], "c m s0 " + partial, "halo-dilations-strides", dilations=[2],
        strides=[2], pads=[3, 5], meshes=rows)
    add("Conv", [normal(1, 4, 12), normal(8, 2, 3), normal(8)], "g c m s0 " + partial, "halo-groups", group=2,
        pads=[1, 1], meshes=rows)
    add("Conv", [normal(1, 2, 12, 8), normal(2, 2, 4, 3)], "c m s0 s1 " + partial, "halo-same-upper",
        auto_pad="SAME_UPPER", meshes=rows)
    add("Conv", [normal(1, 2, 12, 8), normal(2, 2, 4, 3)], "c m s0 s1 " + partial, "halo-same-lower",
        auto_pad="SAME_LOWER", strides=[2, 1], meshes=rows)
    # A part of two rows has no three for its neighbour; 12 = 2 * 6 = 3 * 4 has.
    add("Conv", [normal(1, 2, 12), normal(2, 2, 7)], "c m s0 " + partial, "halo-of-part", pads=[3, 3],
        meshes=[[2], [3], [4], [6], [2, 2], [3, 2]])
    # Windows that do not begin at the same rows of all parts.
    add("Conv", [normal(1, 2, 12), normal(2, 2, 3)], "c m s0 " + partial, "shrinks", meshes=[[2]])
    add("Conv", [normal(1, 2, 24), normal(2, 2, 5)], "c m s0 " + partial, "shrinks-by-4", meshes=three)
    add("Conv", [normal(1, 2, 18, 12), normal(2, 2, 7, 4)], "c m s0 s1 " + partial, "shrinks-2d", meshes=rows)
    add("Conv", [normal(1, 2, 12), normal(2, 2, 5)], "c m s0 " + partial, "grows", pads=[4, 4], meshes=three)
    add("Conv", [normal(1, 2, 20), normal(2, 2, 2)], "c m s0 " + partial, "shrinks-with-gaps", strides=[3], pads=[0, 0],
        dilations=[4], meshes=[[2], [3]])
    add("Conv", [normal(1, 2, 12), normal(2, 2, 2)], "c m s0 " + partial, "grows-with-gaps", strides=[4], pads=[1, 2],
        meshes=[[2], [4], [2, 2]])
    add("MaxPool", [-positive(2, 2, 12)], "n c s0", "shrinks", kernel_shape=[4], meshes=rows)
    add("AveragePool", [normal(2, 2, 16)], "n c s0 partial0", "grows", kernel_shape=[5], pads=[4, 4], meshes=three)
    add("Conv", [normal(2, 4, 12, 6), normal(2, 4, 2, 3)], "n c m s0 s1 " + partial, "patches", strides=[2, 3],
        kernel_shape=[2, 3])
    add("Conv", [normal(2, 4, 12), normal(2, 4, 1)], "n c m s0 " + partial, "gaps", strides=[2])
    add("ConvTranspose", [normal(1, 2, 6), normal(2, 2, 4), normal(2)], "c m s0 " + partial, "halo", strides=[2],
        pads=[1, 1], meshes=[[2], [3], [6], [2, 2], [3, 2]])
    add("ConvTranspose", [normal(1, 2, 6, 4), normal(2, 2, 3, 3)], "c m s0 s1 " + partial, "halo-2d", strides=[2, 1],
        pads=[1, 1, 1, 1], output_padding=[1, 0], meshes=rows)
    add("ConvTranspose", [normal(1, 2, 12), normal(2, 2, 5)], "c m s0 " + partial, "halo-asymmetric", strides=[3],
        pads=[2, 0], meshes=three)
    add("ConvTranspose", [normal(1, 2, 12), normal(2, 2, 3)], "c m s0 " + partial, "halo-dilations", dilations=[2],
        pads=[1, 3], meshes=three)
    add("ConvTranspose", [normal(1, 4, 12), normal(4, 2, 3), normal(4)], "g c m s0 " + partial, "halo-groups", group=2,
        pads=[1, 1], meshes=rows)
    add("ConvTranspose", [normal(2, 2, 4, 6), normal(2, 2, 2, 3)], "n c m s0 s1 " + partial, "patches", strides=[2, 3])
    add("ConvTranspose", [normal(2, 2, 6), normal(2, 2, 1)], "n c m s0 " + partial, "gaps", strides=[2],
        output_padding=[1])
    add("ConvTranspose", [normal(1, 2, 6), normal(2, 2, 4)], "c m " + partial, "shape", strides=[2],
        output_shape=[12], meshes=[[2]])
    add("MaxPool", [-positive(2, 2, 12)], "n c s0", "halo", kernel_shape=[3], pads=[1, 1], meshes=three)
    add("MaxPool", [-positive(1, 2, 12, 12)], "c s0 s1", "halo-2d", kernel_shape=[3, 3], strides=[2, 2],
        pads=[1, 1, 1, 1], meshes=three)
    add("MaxPool", [-positive(1, 2, 24)], "c s0", "halo-dilations", kernel_shape=[3], strides=[2], dilations=[2],
        pads=[2, 1], meshes=three)
    add("MaxPool", [ints(-128, -100, 2, 2, 12, dtype=np.int8)], "n c s0", "halo-integers", kernel_shape=[3],
        auto_pad="SAME_UPPER", meshes=rows)
    add("MaxPool", [normal(2, 2, 12)], "n c s0", "ceil-exact", kernel_shape=[3], pads=[1, 1], ceil_mode=1)
    add("MaxPool", [normal(2, 2, 12)], "n c", "ceil", kernel_shape=[3], strides=[2], ceil_mode=1)
    add("MaxPool", [normal(2, 2, 12, 6)], "n c s0 s1", "patches", kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1)
    for counted in 0, 1:
        name = "halo-counted" if counted else "halo"
        add("AveragePool", [normal(2, 2, 12)], "n c s0 partial0", name, kernel_shape=[3], pads=[1, 1],
            count_include_pad=counted, meshes=three)
        add("AveragePool", [normal(1, 2, 12, 6)], "c s0 s1 partial0", name + "-2d", kernel_shape=[4, 3], strides=[2, 1],
            pads=[2, 1, 1, 1], count_include_pad=counted, meshes=three)
    add("AveragePool", [normal(1, 2, 12)], "c s0 partial0", "halo-dilations", kernel_shape=[3], dilations=[2],
        pads=[2, 2], meshes=three)
    add("AveragePool", [normal(2, 2, 12)], "n c s0 partial0", "patches", kernel_shape=[2], strides=[2])
    add("LpPool", [normal(2, 2, 12)], "n c s0", "halo", kernel_shape=[3], pads=[1, 1], meshes=rows)


def add_attention():
    add("Attention", [normal(2, 4, 6, 2), normal(2, 4, 3, 2), normal(2, 4, 3, 2)], "b kv s ring")
    add("Attention", [normal(2, 4, 6, 2), normal(2, 2, 3, 2), normal(2, 2, 3, 4), bools(6, 3) | np.array([1, 0, 0], bool)],
        "b kv g s ring", "grouped", meshes=[[2], [2, 2], [2, 3], [2, 2, 2]])
    add("Attention", [normal(2, 4, 6, 2), normal(2, 4, 6, 2), normal(2, 4, 6, 2)], "b kv s ring", "causal", is_causal=1)
    add("Attention", [normal(2, 4, 6, 2), normal(2, 4, 8, 2), normal(2, 4, 8, 2), normal(2, 1, 6, 8)], "b kv s ring",
        "causal-mask", is_causal=1)
    add("Attention", [normal(2, 6, 8), normal(2, 6, 4), normal(2, 6, 4), bools(6, 6) | np.eye(6, dtype=bool)],
        "b kv g s ring", "causal-flat", is_causal=1, q_num_heads=4, kv_num_heads=2, meshes=[[2], [2, 2], [2, 3]])
    add("Attention", [normal(2, 2, 6, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4),
                      np.where(bools(1, 2, 6, 6) | np.eye(6, dtype=bool), 0, -np.inf).astype(np.float32)],
        "b kv s ring", "softcap", softcap=2.0, scale=0.3, meshes=[[3], [2, 3]])
    add("Attention", [normal(2, 6, 8), normal(2, 3, 4), normal(2, 3, 4), normal(2, 4, 6, 3)], "b kv g s", "flat",
        q_num_heads=4, kv_num_heads=2, meshes=[[2], [2, 2], [2, 3]])
    add("Attention", [normal(2, 4, 6, 2), normal(2, 2, 1, 2), normal(2, 2, 1, 2), None, normal(2, 2, 2, 2),
                      normal(2, 2, 2, 2)], "b kv g s", "past", outputs=3, meshes=[[2], [2, 2]])
    add("Attention", [normal(4, 2, 6, 2), normal(4, 2, 6, 2), normal(4, 2, 6, 2), None, None, None, ints(1, 6, 4)],
        "b kv s", "lengths", opset=24)
    add("RotaryEmbedding", [normal(2, 4, 6, 4), normal(2, 6, 2), normal(2, 6, 2)], "b h s partial0")
    add("RotaryEmbedding", [normal(2, 6, 16), normal(9, 2), normal(9, 2), ints(0, 9, 2, 6)], "b h s partial0", "flat",
        num_heads=4)


def add_quantised():
    a, b, zero = ints(0, 9, 4, 6, dtype=np.uint8), ints(0, 9, 6, 4, dtype=np.uint8), scalar(3, np.uint8)
    add("MatMulInteger", [a, b, zero, zero], "m k n")
    add("MatMulInteger", [a, ints(-9, 9, 6, 4, dtype=np.int8), zero, ints(-3, 3, 4, dtype=np.int8)], "m k n", "columns")
    add("QLinearMatMul", [a, scalar(0.1), zero, b, scalar(0.2), zero, scalar(0.5), zero], "m n")
    image, kernel = ints(0, 9, 2, 3, 5, 5, dtype=np.uint8), ints(0, 9, 4, 3, 3, 3, dtype=np.uint8)
    add("ConvInteger", [image, kernel, zero], "n m")
    add("QLinearConv", [image, scalar(0.1), zero, kernel, scalar(0.2), zero, scalar(0.5), zero,
                        ints(0, 9, 4, dtype=np.int32)], "n m")
    add("QLinearConv", [image, scalar(0.1), zero, ints(-9, 9, 4, 3, 3, 3, dtype=np.int8), positive(4),
                        Constant(np.zeros(4, np.int8)), scalar(0.5), zero], "n m", "channels")
    add("DynamicQuantizeLinear", [normal(4, 6)], "", outputs=3)


def add_losses():
    scores, labels = normal(4, 12) * 3, ints(0, 12, 4)
    ignoring = np.array([0, -100, 11, 7])
    for reduction in "none sum mean".split():
        add("SoftmaxCrossEntropyLoss", [scores, labels], "n c", reduction, reduction=reduction)
        add("SoftmaxCrossEntropyLoss", [scores, ignoring, positive(12)], "n c", reduction + "-weights",
            reduction=reduction, ignore_index=-100)
        add("NegativeLogLikelihoodLoss", [scores, labels], "n c", reduction, reduction=reduction)
    add("SoftmaxCrossEntropyLoss", [scores, ignoring], "n c", "ignoring", outputs=2, ignore_index=-100)
    add("SoftmaxCrossEntropyLoss", [normal(2, 6, 4), ints(0, 6, 2, 4)], "n c s0", "dims", outputs=2)
    add("NegativeLogLikelihoodLoss", [normal(2, 6, 4), ints(0, 6, 2, 4), positive(6)], "n c s0", "dims")


def add_others():
    add("LSTM", [normal(3, 4, 2), normal(1, 20, 2), normal(1, 20, 5)], "b", outputs=3, hidden_size=5)
    add("GRU", [normal(3, 4, 2), normal(1, 15, 2), normal(1, 15, 5), normal(1, 30), None, normal(1, 4, 5)], "b",
        outputs=2, hidden_size=5)
    add("RNN", [normal(3, 4, 2), normal(1, 5, 2), normal(1, 5, 5)], "b", outputs=2, hidden_size=5)
    add("DFT", [normal(4, 6, 1), None, scalar(1, np.int64)], "d0", opset=20)
    add("STFT", [normal(4, 12, 1), scalar(2, np.int64), Constant(positive(4))], "b", opset=17)
    add("Col2Im", [normal(4, 12, 4), const([3, 3]), const([2, 2])], "n c partial0")
    add("CenterCropPad", [normal(4, 6, 2), const([4, 4])], "d0 partial0", axes=[1, 2])
    add("DeformConv", [normal(4, 2, 4, 4), normal(2, 2, 2, 2), normal(4, 8, 3, 3)], "n")
    add("Det", [normal(4, 3, 3)], "d0")


def add_old_opsets():
    """Where axes moved from attributes to inputs, local forms differ by opset."""
    for opset in (13, 17):
        add("Softmax", [normal(4, 6)], "d0 d1", f"opset-{opset}", opset=opset)
        add("LogSoftmax", [normal(4, 6)], "d0 d1", f"opset-{opset}", opset=opset)
        add("SoftmaxCrossEntropyLoss", [normal(4, 12), ints(0, 12, 4)], "n c", f"opset-{opset}", opset=opset, outputs=2)
        add("ReduceLogSumExp", [normal(4, 6)], "d0 d1", f"opset-{opset}", opset=opset, axes=[1])
        add("Gather", [normal(12, 4), ints(0, 12, 6)], "v d1 i0 partial0", f"opset-{opset}", opset=opset)
    add("LayerNormalization", [normal(2, 4, 6), normal(6), normal(6)], "d0 d1 d2", "opset-17", opset=17)
    add("BatchNormalization", [normal(6, 4, 2), normal(4), normal(4), normal(4), positive(4)], "n c s0", "opset-15",
        outputs=3, training_mode=1, opset=15)
    add("Split", [normal(4, 6), const([2, 4])], "d0 partial0", "opset-13", outputs=2, axis=1, opset=13)
    add("MaxPool", [normal(4, 6, 6)], "n c", "opset-13", outputs=2, kernel_shape=[2], opset=13)


def waves(*shape):
    """Numbers between -1 and 1, each time the same."""
    return np.sin(np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(np.float32)


def add_losses_of_impossible_classes():
    """An ignored sample adds nothing where class 0, too, has no chance."""
    scores, ignoring = waves(4, 12), np.array([5, -100, 11, 7])
    scores[:, 0] = -np.inf
    for reduction in "none sum mean".split():
        for op in "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss".split():
            add(op, [scores, ignoring], "n c", reduction + "-ignoring-impossible", reduction=reduction, ignore_index=-100)
            add(op, [scores, ignoring, np.abs(waves(12))], "n c", reduction + "-weights-ignoring-impossible",
                reduction=reduction, ignore_index=-100)


def add_not_finite():
    """What is infinite, or no number, changes no more than in the whole op."""
    infinity, nan = np.float32(np.inf), np.float32(np.nan)
    for place in 0, 5, 11:
        x = waves(2, 12)
        x[0, place], x[1, place] = infinity, -infinity
        for reverse in 0, 1:
            add("CumSum", [x, scalar(1, np.int64)], "d0 d1 partial0", f"infinite-{place}-{reverse}", reverse=reverse)
    x = waves(2, 12)
    x[0, :7] = infinity
    x[1] = -infinity
    add("ReduceLogSumExp", [x, const([1])], "d0 d1", "infinite")
    add("ReduceLogSumExp", [x], "d0 d1", "infinite-opset-13", opset=13, axes=[1])
    add("ReduceLogSumExp", [x.astype(np.float64), const([1])], "d0 d1", "infinite-wide")
    rows = np.array([[nan, 3, 9, nan, 9, 1], [2, nan, nan, 5, 5, nan], [-infinity, nan, -infinity, nan, nan, nan],
                     [nan] * 6, [infinity, nan, nan, infinity, nan, infinity], [7, 1, 1, 2, nan, 0]], np.float32)
    for op in "ArgMax ArgMin".split():
        for last in 0, 1:
            add(op, [rows], "d0 d1", f"nan-{last}", axis=1, select_last_index=last)
            for i, row in enumerate(rows):
                add(op, [row], "d0", f"nan-vector-{i}-{last}", axis=0, select_last_index=last)
            add(op, [rows.T.astype(np.float64)], "d0 d1", f"nan-wide-{last}", axis=0, keepdims=0, select_last_index=last)


def add_attention_without_keys():
    """Queries that see no key: left padding, a row of the mask, and keys that only come later."""
    shows = np.ones((2, 1, 6, 6), bool)
    shows[0, :, :, :2] = False
    shows[1, :, 0] = False
    shows[1, :, 3, :4] = False
    for causal in 0, 1:
        for name, hidden, dtype in (("bool", None, np.float32), ("infinite", -np.inf, np.float32),
                                    ("lowest", np.finfo(np.float32).min, np.float32), ("bool-narrow", None, np.float16),
                                    ("lowest-narrow", np.finfo(np.float16).min, np.float16)):
            mask = shows if hidden is None else np.where(shows, 0, hidden).astype(dtype)
            queries, keys, values = (waves(2, 2, 6, 2).astype(dtype) + by for by in np.array([0, 0.25, 0.5], dtype))
            add("Attention", [queries, keys, values, mask], "b kv s ring", f"no-key-{name}-{causal}", is_causal=causal)


def add_wrong_rules():
    """The test notices what is wrong."""
    add("Softmax", [normal(4, 6)], "", "wrong", user_rule="a b -> a b", must_fail=True)
    add("Relu", [normal(4, 6)], "", "wrong-partial", user_rule="a b -> a b | partial: 0", must_fail=True)
    add("ReduceMax", [normal(4, 6), const([1])], "", "wrong-reduction", user_rule="a b+, _ -> a _", must_fail=True)
    add("CumSum", [normal(4, 6), scalar(1, np.int64)], "", "wrong-scan", user_rule="a b, -> a b", must_fail=True)
    add("MatMul", [normal(4, 6), normal(6, 4)], "", "user", user_rule="i k+, k+ j -> i j | partial: 0, 1")


add_elementwise()
add_contractions()
add_reductions()
add_shapes()
add_normalisations()
add_indexing()
add_convolutions()
add_attention()
add_quantised()
add_losses()
add_others()
add_old_opsets()
add_losses_of_impossible_classes()
add_not_finite()
add_attention_without_keys()
add_wrong_rules()
