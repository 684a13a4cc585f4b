"""ONNX's float operators: the table of everything that can be imported.

An operator is supported if it is in `HANDLERS`; the importer lists all others in one error.
"""

from collections.abc import Callable

import numpy as np

from ..graph import operators as ops
from . import onnx_shapes as shapes
from . import onnx_windows as windows
from .onnx_gemm import import_gemm, import_matmul
from .onnx_node import OnnxNode
from .onnx_quantised import QUANTISED_HANDLERS

Handler = Callable[[OnnxNode], str | list[str]]
"""Emits a node and returns the value of each of its outputs."""

LARGEST = float(np.finfo(np.float32).max)

PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", float(np.float32(0.2))), ("beta", 0.5)),
    "LeakyRelu": (("alpha", float(np.float32(0.01))),),
    "Selu": (
        ("alpha", float(np.float32(1.6732632423543772))),
        ("gamma", float(np.float32(1.0507009873554805))),
    ),
}
"""Attributes of elementwise functions and their defaults, in the kernels' order."""

PLAIN_UNARY = (
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish", "Neg"),
    *("Reciprocal", "Relu", "Round", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh"),
)


def import_unary(node: OnnxNode) -> str:
    """Elementwise functions of one tensor -> Unary."""
    kind = node.proto.op_type
    parameters = tuple(node.attribute(name, value) for name, value in PARAMETERS.get(kind, ()))
    return node.emit(ops.Unary(kind, parameters), [node.input(0)])


def import_gelu(node: OnnxNode) -> str:
    """Gelu by the error function -> Unary."""
    if node.attribute("approximate", "none") != "none":
        node.fail("`approximate` none", "tanh", "export the exact function")
    return node.emit(ops.Unary("Gelu"), [node.input(0)])


def import_clip(node: OnnxNode) -> str:
    """Clip, its limits as attributes (operator set 6) or inputs (11) -> Unary."""
    if node.opset < 11:
        low, high = node.attribute("min", -LARGEST), node.attribute("max", LARGEST)
    else:
        low, high = node.scalar(1, -LARGEST), node.scalar(2, LARGEST)
    low, high = max(low, -LARGEST), min(high, LARGEST)
    return node.emit(ops.Unary("Clip", (low, high)), [node.input(0)])


def import_binary(node: OnnxNode) -> str:
    """Elementwise functions of two (or more, for Max, Min and Sum) tensors -> Binary."""
    kind = {"Sum": "Add"}.get(node.proto.op_type, node.proto.op_type)
    result = node.input(0)
    for index in range(1, len(node.proto.input)):
        result = node.emit(ops.Binary(kind), [result, node.input(index)])
    return result


def import_softmax(node: OnnxNode) -> str:
    """Softmax, LogSoftmax; before operator set 13 over all axes from `axis` on -> Softmax."""
    rank = node.rank(0)
    axis = node.axis(-1 if node.opset >= 13 else 1, rank)
    stop = axis + 1 if node.opset >= 13 else rank
    operator = ops.Softmax(axis, stop, node.proto.op_type == "LogSoftmax")
    return node.emit(operator, [node.input(0)])


def import_batch_normalisation(node: OnnxNode) -> str:
    """BatchNormalization at inference -> Mul, Add with constants."""
    shape = (-1,) + (1,) * (node.rank(0) - 2)
    gamma, beta, mean, variance = (node.constant(i).reshape(shape) for i in range(1, 5))
    factor = gamma / np.sqrt(variance + np.float32(node.attribute("epsilon", 1e-5)))
    base = node.proto.output[0]
    factors = node.builder.constant(factor.astype(np.float32), f"{base}.factor")
    offsets = node.builder.constant((beta - mean * factor).astype(np.float32), f"{base}.offset")
    product = node.emit(ops.Binary("Mul"), [node.input(0), factors], f"{base}.scaled")
    return node.emit(ops.Binary("Add"), [product, offsets])


def import_reduce(node: OnnxNode) -> str:
    """ReduceMean, ReduceSum, ReduceMax, ReduceMin -> Reduce; a mean over an image -> a pool."""
    shape = node.type(0).shape
    axes = shapes.axes_of(node, 1, len(shape), range(len(shape)))
    keep = bool(node.attribute("keepdims", 1))
    if node.proto.op_type != "ReduceMean" or axes != (2, 3) or len(shape) != 4:
        return node.emit(ops.Reduce(node.proto.op_type, axes, keep), [node.input(0)])
    pooled = windows.emit_global_pool(node, node.input(0), average=True)
    return pooled if keep else node.emit(ops.Reshape(shape[:2]), [pooled], f"{pooled}.flat")


def import_arg_max(node: OnnxNode) -> str:
    """ArgMax, the first of equals -> Reduce."""
    if node.attribute("select_last_index", 0):
        node.fail("`select_last_index` = 0", "1", "take the first of equal values")
    operator = ops.Reduce(
        "ArgMax", (node.axis(0, node.rank(0)),), bool(node.attribute("keepdims", 1))
    )
    return node.emit(operator, [node.input(0)])


FLOAT_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((*PLAIN_UNARY, *PARAMETERS), import_unary),
    **dict.fromkeys(
        ("Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"), import_binary
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), import_softmax),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), import_reduce),
    **dict.fromkeys(("MaxPool", "AveragePool"), windows.import_pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool"), windows.import_global_pool),
    **dict.fromkeys(("Identity", "Dropout"), shapes.import_identity),
    "ArgMax": import_arg_max,
    "BatchNormalization": import_batch_normalisation,
    "Cast": shapes.import_cast,
    "Clip": import_clip,
    "Concat": shapes.import_concat,
    "Constant": shapes.import_constant,
    "Conv": windows.import_conv,
    "Flatten": shapes.import_flatten,
    "Gather": shapes.import_gather,
    "Gelu": import_gelu,
    "Gemm": import_gemm,
    "MatMul": import_matmul,
    "Pad": shapes.import_pad,
    "Reshape": shapes.import_reshape,
    "Shape": shapes.import_shape,
    "Slice": shapes.import_slice,
    "Split": shapes.import_split,
    "Squeeze": shapes.import_squeeze,
    "Transpose": shapes.import_transpose,
    "Unsqueeze": shapes.import_unsqueeze,
}

HANDLERS: dict[tuple[str, str], Handler] = {
    **{("", kind): handler for kind, handler in FLOAT_HANDLERS.items()},
    ("com.microsoft", "Gelu"): import_gelu,
    **QUANTISED_HANDLERS,
}
"""(domain, operator) -> its importer."""
