"""Operators of the graph IR that passes know: frozen dataclasses, their fields are the attributes.

`integer_operators` are the accelerator's, `host_operators` the others; both are named from here.
What an operator's output looks like stands in `infer`. Operators that no pass looks at are in files
of their own (`families`).
"""

from .host_operators import (
    AveragePool,
    Binary,
    Cast,
    Concat,
    Conv,
    Dequantize,
    Gather,
    MatMul,
    MaxPool,
    Pad,
    Quantize,
    Reduce,
    Reshape,
    Shift,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from .integer_operators import (
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QLut,
    QMatMul,
    QMaxPool,
    QResize,
    QSlice,
)
from .operator import Operator

MOVEMENTS: tuple[type[Operator], ...] = (QConcat, QResize, QSlice)
"""Operators of the accelerator that compute nothing: only the place of an element changes."""

ACCELERATED: tuple[type[Operator], ...] = (
    *(QConv, QAdd, QAvgPool, QMaxPool, QLut, QMatMul),
    *MOVEMENTS,
)
"""Operators that have an integer meaning and may run on the accelerator."""

CLAMPING = (QConv, QAdd, QAvgPool, QMaxPool, QMatMul)
"""Those of them that clamp their results, between `low` and `high`."""

OPERATORS: dict[str, type[Operator]] = {
    operator.op: operator
    for operator in (
        *ACCELERATED,
        *(Quantize, Dequantize, Shift, Reshape, Transpose, Pad, Slice, Concat, Gather, Cast),
        *(Conv, MatMul, MaxPool, AveragePool, Unary, Binary, Softmax, Reduce),
    )
}
"""Every operator by its name."""
