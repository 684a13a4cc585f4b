"""Operators of the graph IR, one family to a file, each operator one definition.

A new operator is one class here: its attributes, the rule for its outputs' types, and what it
computes. `OPERATORS` finds it by its name; text form, verifier and evaluator follow.
"""

from ..operator import OPERATORS, Operator
from .convolutions import Conv, ConvTranspose, VolumeConv
from .elementwise import Binary, Cast, Unary, Where
from .indexing import (
    Gather,
    GatherElements,
    GatherND,
    Interpolate,
    ScatterElements,
    ScatterND,
)
from .integer import (
    Accelerated,
    Clamping,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QLut,
    QMatMul,
    QMaxPool,
    QResize,
    QSlice,
    Rearranging,
)
from .movement import (
    Concat,
    Expand,
    Flip,
    Pad,
    PadByElements,
    PadByInput,
    Reshape,
    Shift,
    Slice,
    Tile,
    Transpose,
)
from .onnx_reference import OnnxReference
from .pooling import AveragePool, MaxPool, MaxPoolIndices, VolumePool
from .products import Einsum, MatMul
from .quantisation import (
    Dequantize,
    GeneralDequantize,
    GeneralQuantize,
    Quantize,
    SaturatingCast,
)
from .recurrent import Recurrent
from .reductions import Cumulate, Reduce, Softmax, TopK

__all__ = [
    "OPERATORS",
    "Accelerated",
    "AveragePool",
    "Binary",
    "Cast",
    "Clamping",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cumulate",
    "Dequantize",
    "Einsum",
    "Expand",
    "Flip",
    "Gather",
    "GatherElements",
    "GatherND",
    "GeneralDequantize",
    "GeneralQuantize",
    "Interpolate",
    "MatMul",
    "MaxPool",
    "MaxPoolIndices",
    "OnnxReference",
    "Operator",
    "Pad",
    "PadByElements",
    "PadByInput",
    "QAdd",
    "QAvgPool",
    "QConcat",
    "QConv",
    "QLut",
    "QMatMul",
    "QMaxPool",
    "QResize",
    "QSlice",
    "Quantize",
    "Rearranging",
    "Recurrent",
    "Reduce",
    "Reshape",
    "SaturatingCast",
    "ScatterElements",
    "ScatterND",
    "Shift",
    "Slice",
    "Softmax",
    "Tile",
    "TopK",
    "Transpose",
    "Unary",
    "VolumeConv",
    "VolumePool",
    "Where",
]  # fmt: skip
