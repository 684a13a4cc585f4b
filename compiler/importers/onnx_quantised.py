"""Quantised operators: QDQ pairs as they are, QLinear forms as Dequantize, float, Quantize.

So there is one form for the passes to recognise, whoever quantised the model. Sources: ONNX
operators QLinearConv and QLinearMatMul; ONNX Runtime's contrib operators (`com.microsoft`).
"""

from collections.abc import Callable

import numpy as np
import onnx

from ..graph import operators as ops
from . import onnx_windows as windows
from .onnx_gemm import emit_gemm
from .onnx_node import OnnxNode


def import_quantize(node: OnnxNode) -> str:
    """QuantizeLinear -> Quantize."""
    _refuse_blocks(node)
    wished = node.attribute("output_dtype", 0)
    if wished and not node.has(2):
        types = {onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "uint8"}
        if wished not in types:
            node.fail("int8 or uint8 to quantise to", f"type {wished}", "quantise to 8 bits")
        scales, points, axis = node.quantised(
            node.input(0), node.constant(1), None, node.attribute("axis", 1)
        )
        return node.emit(ops.Quantize(scales, points, types[wished], axis), [node.input(0)])
    return node.quantize(node.input(0), 1, 2, node.attribute("axis", 1))


def import_dequantize(node: OnnxNode) -> str:
    """DequantizeLinear -> Dequantize."""
    _refuse_blocks(node)
    return node.dequantize(node.input(0), 1, 2, node.attribute("axis", 1))


def _refuse_blocks(node: OnnxNode) -> None:
    size = node.attribute("block_size", 0)
    if size:
        node.fail("no `block_size`", f"`{size}`", "quantise per tensor or per channel")


def _bias(node: OnnxNode, index: int, x_scale: int, w_scale: int) -> str:
    """Dequantise an int32 bias, whose scale is the product of input's and weights' scales."""
    scale = np.atleast_1d(node.constant(x_scale) * node.constant(w_scale)).astype(np.float32)
    bias = node.input(index)
    parameters = node.quantised(bias, scale if scale.size > 1 else scale[0], None, -1)
    return node.emit(ops.Dequantize(*parameters), [bias], f"{node.proto.output[0]}.bias")


def import_qlinear_conv(node: OnnxNode) -> str:
    """QLinearConv -> Dequantize, Conv, Quantize."""
    x = node.dequantize(node.input(0), 1, 2)
    w = node.dequantize(node.input(3), 4, 5, axis=0)
    bias = [_bias(node, 8, 1, 4)] if node.has(8) else []
    return node.quantize(windows.emit_conv(node, [x, w, *bias]), 6, 7)


def import_qlinear_matmul(node: OnnxNode) -> str:
    """QLinearMatMul -> Dequantize, MatMul, Quantize."""
    a = node.dequantize(node.input(0), 1, 2)
    b = node.dequantize(node.input(3), 4, 5, axis=-1)
    return node.quantize(node.emit(ops.MatMul(), [a, b]), 6, 7)


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
    return node.quantize(node.emit(ops.Binary(kind), [a, b]), 6, 7)


def import_qlinear_unary(node: OnnxNode) -> str:
    """QLinearSigmoid, QLinearLeakyRelu -> Dequantize, Unary, Quantize."""
    kind = node.proto.op_type.removeprefix("QLinear")
    parameters = (node.attribute("alpha", float(np.float32(0.01))),) if kind == "LeakyRelu" else ()
    x = node.dequantize(node.input(0), 1, 2)
    return node.quantize(node.emit(ops.Unary(kind, parameters), [x]), 3, 4)


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
    ("com.microsoft", "QLinearLeakyRelu"): import_qlinear_unary,
    ("com.microsoft", "QLinearAveragePool"): import_qlinear_pool,
    ("com.microsoft", "QLinearGlobalAveragePool"): import_qlinear_pool,
    ("com.microsoft", "QLinearConcat"): import_qlinear_concat,
}
"""(domain, operator) -> its importer."""
