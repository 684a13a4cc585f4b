"""Lanes run along the last dimensions of every operand, or the nest is no instruction."""

import pytest

from tilewright.compiler import te
from tilewright.compiler.tensor import Kernel

from .scheduled import TARGET, refused


def product(left, right) -> Kernel:
    """A product of 4 x 8 by 8 x 8 elements; the two functions give the operands."""
    m, o = te.axes(m=4, o=8)
    (k,) = te.reduce_axes(k=8)
    total = te.compute("out", "int32", (m, o), te.sum(left(m, k, o) * right(m, k, o), over=k))
    return te.kernel("product", total)


def finish(first, second) -> Kernel:
    """A sum of two operands per row `m` and channel `c`."""
    m, c = te.axes(m=4, c=8)
    value = te.clamp(first(m, c) + second(m, c), -128, 127)
    return te.kernel("finish", te.compute("out", "int8", (m, c), value))


A, B = te.tensor("a", "int8", (4, 8)), te.tensor("b", "int8", (8, 8))
WIDE = te.tensor("wide", "int8", (4, 8, 8))
X, ROWS = te.tensor("x", "int8", (4, 8)), te.tensor("rows", "int8", (4,))
BIAS = te.tensor("bias", "int32", (4,))

REFUSALS = {
    "an activation that depends on the output": (
        product(lambda m, k, o: WIDE[m, o, k], lambda m, k, o: B[k, o]),
        {"wide": "ACT", "b": "WGT"},
        "gemm takes `act` as [.., i], but `o` does not move `wide.ACT[m, o, k]` like its lane "
        "`o`; give the tensor another order of dimensions",
    ),
    "weights with the outputs first": (
        product(lambda m, k, o: A[m, k], lambda m, k, o: B[o, k]),
        {"a": "ACT", "b": "WGT"},
        "gemm takes `wgt` as [.., i, o], but `k` does not move `b.WGT[o, k]` like its lane `i`; "
        "give the tensor another order of dimensions",
    ),
    "mirrored weights": (
        product(lambda m, k, o: A[m, k], lambda m, k, o: B[7 - k, o]),
        {"a": "ACT", "b": "WGT"},
        "gemm takes `wgt` as [.., i, o], but `k` does not move `b.WGT[-1*k + 7, o]` like its lane "
        "`i`; give the tensor another order of dimensions",
    ),
    "a bias per row": (
        finish(lambda m, c: X[m, c], lambda m, c: BIAS[m]),
        {"x": "ACT", "bias": "PARAM"},
        "vector takes `param.bias` as [.., v], but `c` does not move `bias.PARAM[m]` like its lane "
        "`v`; give the tensor another order of dimensions",
    ),
    "an operand per row": (
        finish(lambda m, c: X[m, c], lambda m, c: ROWS[m]),
        {"x": "ACT", "rows": "ACT"},
        "vector takes `b` as [.., v], but `c` does not move `rows.ACT[m]` like its lane `v`; give "
        "the tensor another order of dimensions",
    ),
    "a window over each channel": (
        product(lambda m, k, o: WIDE[0, m + k, o], lambda m, k, o: B[k, o]),
        {"wide": "ACT", "b": "WGT"},
        "the sums of a window that slides need rows of ACC between the outputs; add `arena()`, "
        "which leaves room for them",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_operand_that_lanes_cannot_follow_is_refused(name):
    kernel, scopes, message = REFUSALS[name]
    schedule = te.Schedule(kernel, TARGET)
    stage = schedule.cache_write("out", "ACC" if kernel.output.dtype == "int32" else "ACT")
    for tensor, scope in scopes.items():
        schedule.cache_read(tensor, scope, stage)
    step = f"tensorise({stage}, m)"
    assert refused(schedule, step) == f"{step}: {message}"
