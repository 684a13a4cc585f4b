"""The operators of the graph IR, one file for each family, one definition for each operator.

To add an operator, write one class here: its attributes, its type rule and its computation.
`OPERATORS` finds it by its name. The text form, verifier and evaluator need no change.
"""

from ..operator import OPERATORS, Operator
from .convolutions import Conv, ConvTranspose
from .elementwise import Binary, Cast, Pointwise, Unary, Where
from .indexing import Gather, GatherElements, GatherND, Interpolate, ScatterElements, ScatterND
from .integer import Accelerated, Clamping, QAdd, QAvgPool, QLut, QMaxPool, QMul
from .integer_layers import Convolving, FromBytes, QConv, QSums
from .integer_movement import QConcat, QInterleave, QReshape, QResize, QSlice, Rearranging
from .integer_products import Multiplying, QMatMul, QMatMulSums
from .integer_rows import QNorm, QRotate, QSoftmax
from .integer_states import QBlend
from .movement import Concat, Expand, Pad, Reshape, Shift, Slice, Transpose
from .onnx_reference import OnnxReference
from .own import OwnFunction, OwnKernel, QKernel
from .pooling import AveragePool, LpPool, MaxPool, MaxPoolIndices, MaxUnpool
from .products import Einsum, IntegerMatMul, MatMul
from .quantisation import Dequantize, GeneralDequantize, GeneralQuantize, Quantize
from .recurrent import Recurrent
from .reductions import CumSum, Reduce, Softmax, TopK
from .sampling import GridSample, RoiAlign

__all__ = [
    "OPERATORS", "Accelerated", "AveragePool", "Binary", "Cast", "Clamping", "Concat", "Conv",
    "ConvTranspose", "Convolving", "CumSum", "Dequantize", "Einsum", "Expand", "FromBytes",
    "Gather", "GatherElements", "GatherND", "GeneralDequantize", "GeneralQuantize", "GridSample",
    "IntegerMatMul", "Interpolate", "LpPool", "MatMul", "MaxPool", "MaxPoolIndices", "MaxUnpool",
    "Multiplying", "OnnxReference", "Operator", "OwnFunction", "OwnKernel", "Pad", "Pointwise",
    "QAdd", "QAvgPool", "QBlend", "QConcat", "QConv", "QInterleave", "QKernel", "QLut", "QMatMul",
    "QMatMulSums", "QMaxPool", "QMul", "QNorm", "QReshape", "QResize", "QRotate", "QSlice",
    "QSoftmax", "QSums", "Quantize", "Rearranging", "Recurrent", "Reduce", "Reshape", "RoiAlign",
    "ScatterElements", "ScatterND", "Shift", "Slice", "Softmax", "TopK", "Transpose", "Unary",
    "Where",
]  # fmt: skip
