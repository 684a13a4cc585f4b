"""For every element type that a type rule accepts, the kernel gives what the rule says."""

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.graph import TensorType, evaluate_outputs
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.functions import BINARY, UNARY
from tilewright.compiler.graph.operators import (
    OPERATORS,
    ConvTranspose,
    CumSum,
    Einsum,
    Expand,
    GatherElements,
    GatherND,
    GeneralDequantize,
    GeneralQuantize,
    GridSample,
    Interpolate,
    MaxPoolIndices,
    OnnxReference,
    Recurrent,
    RoiAlign,
    ScatterElements,
    ScatterND,
    TopK,
    Where,
)
from tilewright.compiler.graph.operators.indexing import COMBINE
from tilewright.compiler.graph.operators.reductions import POSITIONS, REDUCTIONS
from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.kernel_text import write_kernel
from tilewright.errors import CompileError


def _half() -> str:
    """The text of a kernel that halves a tensor of 2 by 3 numbers."""
    i, j = te.axes(i=2, j=3)
    x = te.tensor("x", "float32", (2, 3))
    return write_kernel(te.kernel("half", te.compute("y", "float32", (i, j), x[i, j] * 0.5)))


HALF = _half()
ANY = "any"
"""Stands for the element type at hand."""

PARAMETERS = {
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "Swish", "ThresholdedRelu"), (0.5,)),
    **dict.fromkeys(("Clip", "HardSigmoid", "IsInf", "Selu", "Shrink"), (0.25, 0.5)),
}
LINE = ((4,), (0,) * 2)
LSTM = (("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0), ("Tanh", 0.0, 0.0))
CASES: dict[str, tuple[ops.Operator, list[tuple[str, tuple[int, ...]]]]] = {
    **{kind: (ops.Unary(kind, PARAMETERS.get(kind, ())), [(ANY, (2, 3))]) for kind in UNARY},
    **{kind: (ops.Binary(kind), [(ANY, (2, 3)), (ANY, (3,))]) for kind in BINARY},
    **{kind: (ops.Reduce(kind, (1,), True), [(ANY, (2, 3))]) for kind in (*REDUCTIONS, *POSITIONS)},
    **{f"cast to {to}": (ops.Cast(to), [(ANY, (2, 3))]) for to in DTYPES},
    "quantise": (ops.Quantize((0.5,), (1,), "int8"), [(ANY, (2, 3))]),
    "dequantise channels": (ops.Dequantize((0.5, 2.0), (1, 0), 0), [(ANY, (2, 3))]),
    "shift": (ops.Shift(), [(ANY, (2, 3))]),
    "from bytes": (ops.FromBytes(), [(ANY, (2, 8))]),
    "image convolution": (
        ops.Conv((2, 1), (0, 1, 1, 0), (1, 1), 2),
        [(ANY, (1, 4, 6, 5)), (ANY, (2, 2, 3, 2)), (ANY, (2,))],
    ),
    **{
        f"image {kind.op}": (kind((2, 2), (2, 1), (0, 1, 1, 0)), [(ANY, (1, 2, 6, 5))])
        for kind in (ops.MaxPool, ops.AveragePool)
    },
    "softmax": (ops.Softmax(1, 2), [(ANY, (2, 3))]),
    "matmul": (ops.MatMul(), [(ANY, (2, 3)), (ANY, (3, 4))]),
    **{
        f"product with {kind}": (ops.IntegerMatMul(), [(ANY, (2, 3)), (kind, (3, 4)), (ANY, ())])
        for kind in ("int8", "int16")
    },
    "transpose": (ops.Transpose((1, 0)), [(ANY, (2, 3))]),
    "reshape": (ops.Reshape((3, 2)), [(ANY, (2, 3))]),
    "pad": (ops.Pad((1, 0), (0, 2), 1.0), [(ANY, (2, 3))]),
    "slice": (ops.Slice((0, 1), (2, 3), (1, 2)), [(ANY, (2, 3))]),
    "concat": (ops.Concat(1), [(ANY, (2, 3)), (ANY, (2, 1))]),
    "gather": (ops.Gather(1), [(ANY, (2, 3)), ("int64", (2, 2))]),
    "own function": (ops.OwnFunction("my.Twice", "2 * x", ("x",)), [(ANY, (2, 3))]),
    "own kernel": (ops.OwnKernel("my.Half", HALF), [("float32", (2, 3))]),
    "where": (Where(), [("bool", (2, 1)), (ANY, (3,)), (ANY, ())]),
    "einsum": (Einsum("ij,jk->ki"), [(ANY, (2, 3)), (ANY, (3, 4))]),
    "expand": (Expand((4, 2, 3)), [(ANY, (2, 1))]),
    "gather elements": (GatherElements(0), [(ANY, (2, 3)), ("int32", (4, 2))]),
    "gather nd": (GatherND(0), [(ANY, (2, 3)), ("int64", (4, 1))]),
    **{
        f"scatter elements, {how}": (
            ScatterElements(0, how),
            [(ANY, (3, 3)), ("int64", (2, 2)), (ANY, (2, 2))],
        )
        for how in COMBINE
    },
    "scatter nd": (ScatterND("add"), [(ANY, (3, 3)), ("int64", (2, 1)), (ANY, (2, 3))]),
    "interpolate": (Interpolate(0), [(ANY, (3, 2)), ("int64", (4, 2)), ("float32", (4, 2))]),
    **{
        f"grid sample by {mode}": (
            GridSample(mode, "zeros", False),
            [(ANY, (1, 2, 3, 4)), ("float16", (1, 5, 1, 2))],
        )
        for mode in ("nearest", "cubic")
    },
    **{
        f"roi align by {mode}": (
            RoiAlign(mode, (2, 1), 0, 0.5, True),
            [(ANY, (2, 3, 4, 5)), ("float32", (2, 4)), ("int64", (2,))],
        )
        for mode in ("avg", "max")
    },
    "cumsum": (CumSum(1, True, True), [(ANY, (2, 3))]),
    "top k": (TopK(1, 2), [(ANY, (2, 3))]),
    "convolution": (
        ops.Conv((2,), (1, 0), (1,), 2),
        [(ANY, (1, 4, 6)), (ANY, (2, 2, 3)), (ANY, (2,))],
    ),
    "transposed convolution": (
        ConvTranspose((2,), (1, -1), (1,), (1,), 1),
        [(ANY, (1, 4, 6)), (ANY, (4, 2, 3)), (ANY, (2,))],
    ),
    **{
        f"{pool.op}": (pool, [(ANY, (1, 2, 6))])
        for pool in (
            ops.MaxPool((3,), (2,), (1, 1), (1,)),
            ops.AveragePool((3,), (2,), (1, 0), False, (1,), dilations=(1,)),
            ops.LpPool((3,), (2,), (1, 0), (1,), (1,)),
        )
    },
    "indices of maxima": (MaxPoolIndices((3,), (2,), (1, 1), (1,)), [(ANY, (1, 2, 6))]),
    "maxima at indices": (
        ops.MaxUnpool((2,), (2,), (0, 0)),
        [(ANY, (1, 2, 3)), ("int64", (1, 2, 3))],
    ),
    "recurrent": (
        Recurrent("LSTM", "forward", LSTM),
        [
            *((ANY, (3, 2, 4)), (ANY, (1, 8, 4)), (ANY, (1, 8, 2)), (ANY, (1, 16))),
            *(("int32", (2,)), (ANY, (1, 2, 2)), (ANY, (1, 2, 2)), (ANY, (1, 6))),
        ],
    ),
    "recurrent of bytes": (
        Recurrent("LSTM", "forward", LSTM),
        [
            *((ANY, (3, 2, 4)), ("int8", (1, 8, 4)), ("int16", (1, 8, 2)), (ANY, (1, 16))),
            *(("int32", (2,)), (ANY, (1, 2, 2)), (ANY, (1, 2, 2)), (ANY, (1, 6))),
            *(("float32", (1, 8)), ("float32", (1, 8))),
        ],
    ),
    **{
        f"quantise to {to}": (GeneralQuantize(1, 2, to), [(ANY, (2, 4)), ("float32", (2, 2))])
        for to in DTYPES
    },
    "dequantise": (GeneralDequantize(1, 0, "float16"), [(ANY, (2, 4)), ("float16", (4,))]),
    "onnx reference": (
        OnnxReference("", "Not", 20, (), (True,), ((0, "bool", (2, 3)),)),
        [("bool", (2, 3))],
    ),
}


def operand(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, so that they are indices where need be, and 1 and 0."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(DTYPES[dtype])


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_the_type_rule_says(name: str) -> None:
    operator, operands = CASES[name]
    accepted = 0
    for dtype in DTYPES:
        kinds = [TensorType(dtype if kind == ANY else kind, shape) for kind, shape in operands]
        try:
            expected = operator.infer(kinds)
        except CompileError:
            continue
        accepted += 1
        results = evaluate_outputs(operator, [operand(kind.dtype, kind.shape) for kind in kinds])
        for result, kind in zip(results, expected, strict=True):
            assert (str(result.dtype), result.shape) == (kind.dtype, kind.shape), dtype
    refusals = {f"quantise to {to}" for to in DTYPES}
    assert accepted or name in refusals


def test_every_operator_stands_among_the_cases() -> None:
    tried = {type(operator) for operator, _ in CASES.values()}
    assert tried == {kind for kind in OPERATORS.values() if not issubclass(kind, ops.Accelerated)}
