"""Quantised operators: QDQ pairs as they are, QLinear forms as Dequantize, float, Quantize.

So there is one form for the passes to recognise, whoever quantised the model. Sources: ONNX
operators QLinearConv and QLinearMatMul; ONNX Runtime's contrib operators (`com.microsoft`).
"""

from collections.abc import Callable

import numpy as np

from ..graph import operators as ops
from ..graph.operators import GeneralDequantize, GeneralQuantize
from ..graph.types import FLOATS
from . import onnx_windows as windows
from .onnx_gemm import emit_gemm, emit_matmul
from .onnx_node import OnnxNode
from .onnx_tensors import ELEMENT_TYPES, ONNX_TYPES


def import_quantize(node: OnnxNode) -> str:
    """QuantizeLinear -> Quantize, or GeneralQuantize."""
    x = node.input(0)
    wished = ELEMENT_TYPES.get(node.attribute("output_dtype", 0), "uint8")
    dtype = node.type(2).dtype if node.has(2) else wished
    axis = node.attribute("axis", 1)
    plain = dtype in ("int8", "uint8") and not node.attribute("precision", 0)
    if not plain or not _is_plain(node, x, 1, 2):
        return emit_general_quantize(node, x, 1, 2, dtype)
    if not node.has(2):
        scales, points, along = node.quantised(x, node.constant(1), None, axis)
        return node.emit(ops.Quantize(scales, points, dtype, along), [x])
    return node.quantize(x, 1, 2, axis)


def import_dequantize(node: OnnxNode) -> str:
    """DequantizeLinear -> Dequantize, or GeneralDequantize."""
    x = node.input(0)
    if node.type(0).dtype not in ("int8", "uint8", "int32") or not _is_plain(node, x, 1, 2):
        return emit_general_dequantize(node, x, 1, 2, node.attribute("axis", 1))
    return node.dequantize(x, 1, 2, node.attribute("axis", 1))


def _is_plain(node: OnnxNode, x: str, scale: int, zero_point: int) -> bool:
    """Tell whether parameters are as Quantize and Dequantize have them: known and float32."""
    if not node.has(scale):
        return True  # and the importer says what is missing
    parameters = [scale, zero_point] if node.has(zero_point) else [scale]
    known = all(node.known(node.input(index)) is not None for index in parameters)
    wished = node.attribute("output_dtype", 0)
    types = (node.builder.types[x].dtype, node.type(scale).dtype)
    real = types[0] in ("float32", "int8", "uint8", "int32") and types[1] == "float32"
    usual = wished in (0, *(ONNX_TYPES[name] for name in ("int8", "uint8", "float32")))
    return known and real and usual and not node.attribute("block_size", 0)


def emit_general_quantize(
    node: OnnxNode, x: str, scale: int, zero_point: int, dtype: str, axis: int | None = None
) -> str:
    """Emit a GeneralQuantize of `x` with inputs number `scale` and, if given, `zero_point`."""
    rank = len(node.builder.types[x].shape)
    along = int(node.attribute("axis", 1)) if axis is None else axis
    operator = GeneralQuantize(
        node.normalise(along, rank) if node.type(scale).elements > 1 else 0,
        node.attribute("block_size", 0),
        dtype,
        bool(node.attribute("saturate", 1)),
        ELEMENT_TYPES.get(node.attribute("precision", 0), ""),
    )
    return node.emit(operator, _operands(node, x, scale, zero_point))


def _operands(node: OnnxNode, x: str, scale: int, zero_point: int) -> list[str]:
    given = [zero_point] if node.has(zero_point) else []
    return [x, *(node.input(index) for index in (scale, *given))]


def emit_general_dequantize(
    node: OnnxNode, x: str, scale: int, zero_point: int, axis: int = 1
) -> str:
    """Emit a GeneralDequantize of `x` with inputs number `scale` and, if given, `zero_point`."""
    rank = len(node.builder.types[x].shape)
    wished = ELEMENT_TYPES.get(node.attribute("output_dtype", 0), node.type(scale).dtype)
    operator = GeneralDequantize(
        node.normalise(axis, rank) if node.type(scale).elements > 1 else 0,
        node.attribute("block_size", 0),
        wished if wished in FLOATS else "float32",
    )
    name = f"{node.proto.output[0]}.{node.proto.input[scale]}"
    return node.emit(operator, _operands(node, x, scale, zero_point), name)


def _bias(node: OnnxNode, index: int, x_scale: int, w_scale: int) -> str:
    """Dequantise an int32 bias, whose scale is the product of input's and weights' scales."""
    scale = np.atleast_1d(node.constant(x_scale) * node.constant(w_scale)).astype(np.float32)
    bias = node.input(index)
    parameters = node.quantised(bias, scale if scale.size > 1 else scale[0], None, -1)
    return node.emit(ops.Dequantize(*parameters), [bias], f"{node.proto.output[0]}.bias")


def _all_plain(node: OnnxNode, *operands: int) -> bool:
    """Tell whether the operands' parameters, which follow them, are plain."""
    return all(_is_plain(node, node.input(0), index + 1, index + 2) for index in operands)


def import_qlinear_conv(node: OnnxNode) -> str:
    """QLinearConv -> Dequantize, Conv, Quantize."""
    if not _all_plain(node, 0, 3, 5):
        return _general_product(node, is_conv=True)
    x = node.dequantize(node.input(0), 1, 2)
    w = node.dequantize(node.input(3), 4, 5, axis=0)
    bias = [_bias(node, 8, 1, 4)] if node.has(8) else []
    return node.quantize(windows.emit_conv(node, [x, w, *bias]), 6, 7)


def import_qlinear_matmul(node: OnnxNode) -> str:
    """QLinearMatMul -> Dequantize, MatMul, Quantize."""
    if not _all_plain(node, 0, 3, 5) or min(node.rank(0), node.rank(3)) < 2:
        return _general_product(node, is_conv=False)
    a = node.dequantize(node.input(0), 1, 2)
    b = node.dequantize(node.input(3), 4, 5, axis=-1)
    return node.quantize(node.emit(ops.MatMul(), [a, b]), 6, 7)


def _general_product(node: OnnxNode, is_conv: bool) -> str:
    """Emit a quantised product with scales computed at run time."""
    last = max(node.rank(3) - 1, 0)
    x = emit_general_dequantize(
        node, node.input(0), 1, 2, 1 if is_conv else max(0, node.rank(0) - 2)
    )
    w = emit_general_dequantize(node, node.input(3), 4, 5, 0 if is_conv else last)
    if not is_conv:
        product = emit_matmul(node, x, w)
    else:
        operands = [x, w]
        if node.has(8):
            scale = node.binary("Mul", node.input(1), node.input(4), f"{x}.unit")
            bias = node.emit(ops.Cast("float32"), [node.input(8)], f"{x}.bias")
            operands.append(node.binary("Mul", bias, scale, f"{x}.real_bias"))
        product = windows.emit_conv(node, operands)
    axis = 1 if is_conv else max(0, len(node.builder.types[product].shape) - 2)
    return emit_general_quantize(node, product, 6, 7, node.type(7).dtype, axis)


def import_qgemm(node: OnnxNode) -> str:
    """QGemm, with or without quantised output -> Dequantize, Gemm, [Quantize]."""
    a = node.dequantize(node.input(0), 1, 2)
    b = node.dequantize(node.input(3), 4, 5, axis=0 if node.attribute("transB", 0) else 1)
    bias = _bias(node, 6, 1, 4) if node.has(6) else None
    result = emit_gemm(node, a, b, bias)
    return node.quantize(result, 7, 8) if node.has(7) else result


def import_qlinear_binary(node: OnnxNode) -> str:
    """QLinearAdd, QLinearMul -> Dequantize, Add or Mul, Quantize."""
    a = node.dequantize(node.input(0), 1, 2)
    b = node.dequantize(node.input(3), 4, 5)
    kind = node.proto.op_type.removeprefix("QLinear")
    return node.quantize(node.binary(kind, a, b), 6, 7)


def import_qlinear_unary(node: OnnxNode) -> str:
    """QLinearSigmoid, QLinearLeakyRelu -> Dequantize, Unary, Quantize."""
    kind = node.proto.op_type.removeprefix("QLinear")
    parameters = (node.attribute("alpha", float(np.float32(0.01))),) if kind == "LeakyRelu" else ()
    x = node.dequantize(node.input(0), 1, 2)
    return node.quantize(node.emit(ops.Unary(kind, parameters), [x]), 3, 4)


def import_qlinear_softmax(node: OnnxNode) -> str:
    """QLinearSoftmax, of the operator set in `opset` -> Dequantize, Softmax, Quantize."""
    x = node.dequantize(node.input(0), 1, 2)
    rank, modern = node.rank(0), node.attribute("opset", 0) >= 13
    axis = node.axis(-1, rank)
    softmax = ops.Softmax(axis, axis + 1 if modern else rank)
    return node.quantize(node.emit(softmax, [x]), 3, 4)


def import_qlinear_pool(node: OnnxNode) -> str:
    """QLinearAveragePool, QLinearGlobalAveragePool -> Dequantize, AveragePool, Quantize."""
    x = node.dequantize(node.input(0), 1, 2)
    last = node.attribute("channels_last", 0)
    if last:
        x = node.emit(ops.Transpose((0, 3, 1, 2)), [x], f"{x}.first")
    if "Global" in node.proto.op_type:
        result = windows.emit_global_pool(node, x, average=True)
    else:
        result = windows.emit_pool(node, x, average=True)
    if last:
        result = node.emit(ops.Transpose((0, 2, 3, 1)), [result], f"{result}.last")
    return node.quantize(result, 3, 4)


def import_qlinear_concat(node: OnnxNode) -> str:
    """QLinearConcat -> Dequantize of each, Concat, Quantize."""
    parts = [
        node.dequantize(node.input(index), index + 1, index + 2)
        for index in range(2, len(node.proto.input), 3)
    ]
    axis = node.axis(0, node.rank(2))
    return node.quantize(node.emit(ops.Concat(axis), parts), 0, 1)


QUANTISED_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], str]] = {
    **dict.fromkeys((("", "QuantizeLinear"), ("com.microsoft", "QuantizeLinear")), import_quantize),
    **dict.fromkeys(
        (("", "DequantizeLinear"), ("com.microsoft", "DequantizeLinear")), import_dequantize
    ),
    ("", "QLinearConv"): import_qlinear_conv,
    ("", "QLinearMatMul"): import_qlinear_matmul,
    ("com.microsoft", "QGemm"): import_qgemm,
    ("com.microsoft", "QLinearAdd"): import_qlinear_binary,
    ("com.microsoft", "QLinearMul"): import_qlinear_binary,
    ("com.microsoft", "QLinearSigmoid"): import_qlinear_unary,
    ("com.microsoft", "QLinearSoftmax"): import_qlinear_softmax,
    ("com.microsoft", "QLinearLeakyRelu"): import_qlinear_unary,
    ("com.microsoft", "QLinearAveragePool"): import_qlinear_pool,
    ("com.microsoft", "QLinearGlobalAveragePool"): import_qlinear_pool,
    ("com.microsoft", "QLinearConcat"): import_qlinear_concat,
}
"""(domain, operator) -> its importer."""
