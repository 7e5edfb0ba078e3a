"""Further instances of ops for the test of gradients, beside those of rule_cases.py."""
from rule_cases import Case, Constant, const, ints, normal, positive, scalar, unit  # noqa: F401

# Types without a derivative, or whose derivative nobody takes: asking for one is an error that says so.
WITHOUT_GRADIENT = set()

# The evaluators calculate these in float32 whatever the type of their inputs.
SINGLE_ONLY = {"Gelu", "Shrink"}

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
