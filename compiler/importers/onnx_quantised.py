"""Importers of quantised operators; QLinear forms become float operators between QDQ operators.

So the passes need to recognise only one form, whichever tool quantised the model. Sources: ONNX
operators QLinearConv and QLinearMatMul; ONNX Runtime's contributed operators (`com.microsoft`).
"""

from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np

from ..graph import operators as ops
from ..graph.types import DTYPES, HALVES
from .onnx_elementwise import import_binary, import_unary
from .onnx_images import import_conv, import_global_pool, import_one_pool
from .onnx_node import OnnxNode
from .onnx_products import import_gemm, import_matmul, import_matmul_integer_to_float
from .onnx_tensors import ELEMENT_TYPES

BELOW_INT8 = ("int2", "uint2", "int4", "uint4")
"""Element types whose values fit int8."""


def import_quantize(node: OnnxNode) -> str:
    """Import QuantizeLinear as Quantize or GeneralQuantize; INT4 and INT2 become clamped int8."""
    x, axis = node.input(0), node.attribute("axis", 1)
    dtype = ELEMENT_TYPES.get(node.attribute("output_dtype", 0), "uint8")
    given = node.type(2).dtype if node.has(2) else dtype
    plain = not node.attribute("precision", 0) and node.has_plain_scale(1, node.type(0).dtype)
    if not plain or given not in ("int8", "uint8", *BELOW_INT8):
        return node.quantize(x, 1, axis, dtype, general=True)
    if given not in BELOW_INT8:
        return node.quantize(_widened(node, x), 1, axis, dtype)
    held, limits = given[: given.index("int")] + "int8", ml_dtypes.iinfo(DTYPES[given])
    operands = [_widened(node, x), node.input(1)]
    if node.has(2):
        operands.append(node.builder.constant(node.constant(2).astype(held), f"{x}.point"))
    result = node.as_operator("QuantizeLinear", *operands).quantize(operands[0], 1, axis, held)
    for kind, end in ("Max", limits.min), ("Min", limits.max):
        result = node.binary(kind, result, node.number(int(end), held), f"{node.result}.{kind}")
    return node.emit(ops.Cast(given), [result])


def import_dequantize(node: OnnxNode) -> str:
    """Import DequantizeLinear as Dequantize or GeneralDequantize; INT4 and INT2 become int8."""
    dtype, x = node.type(0).dtype, node.input(0)
    if dtype in BELOW_INT8 and node.has_plain_scale(1, "int8"):
        whole = _as_int8(node, x)
        node, dtype = node.as_operator("DequantizeLinear", whole, *node.inputs()[1:]), "int8"
    general = dtype not in ("int8", "uint8", "int32") or not node.has_plain_scale(1, dtype)
    real = node.dequantize(0, node.attribute("axis", 1), general)
    if general or not node.has(1) or node.attribute("output_dtype", 0):
        return real
    return node.cast(real, node.type(1).dtype)


def _widened(node: OnnxNode, x: str) -> str:
    """Emit a value in float32, in which float16 and bfloat16 are divided by their scale."""
    return node.cast(x, "float32") if node.builder.types[x].dtype in HALVES else x


def _as_int8(node: OnnxNode, x: str) -> str:
    """Emit a narrow integer as the int8 or uint8 that it was clamped from, or as int8."""
    if node.builder.is_constant(x):
        return node.builder.constant(node.builder.data(x).astype(np.int8), f"{x}.int8")
    maker = node.builder.producer(x)
    if maker is not None and isinstance(maker.attributes, ops.Cast):
        (source,) = maker.inputs
        if node.builder.types[source].dtype in ("int8", "uint8"):
            return source
    return node.cast(x, "int8")


def import_dynamic_quantize(node: OnnxNode) -> list[str]:
    """Import DynamicQuantizeLinear: the range with 0 inside, scale and zero point, Quantize.

    Where all values are 0, the scale is 1, as in ONNX Runtime.
    """
    x, (y, scale, point) = node.input(0), node.proto.output
    zero, axes = node.number(0.0, "float32"), tuple(range(node.rank(0)))
    low, high = (
        node.binary(
            kind,
            node.emit(ops.Reduce(f"Reduce{kind}", axes, False), [x], f"{y}.{kind}"),
            zero,
            name,
        )
        for kind, name in (("Min", f"{y}.low"), ("Max", f"{y}.high"))
    )
    span = node.binary("Sub", high, low, f"{y}.span")
    step = node.binary("Div", span, node.number(255.0, "float32"), f"{y}.step")
    flat = node.binary("Equal", span, zero, f"{y}.flat")
    scale = node.emit(ops.Where(), [flat, node.number(1.0, "float32"), step], scale)
    quantise = ops.GeneralQuantize(0, 0, "uint8")
    point = node.emit(quantise, [node.unary("Neg", low, f"{y}.depth"), scale], point)
    return [node.emit(quantise, [x, scale, point], y), scale, point]


def _is_general(node: OnnxNode) -> bool:
    """Tell whether a product has scales that Quantize and Dequantize do not accept."""
    dtype = node.type(0).dtype
    return not all(node.has_plain_scale(scale, dtype) for scale in (1, 4, 6))


def _bias(node: OnnxNode, index: int) -> str | None:
    """Dequantise an int32 bias; its scale is the input's scale times the weights' scale."""
    if not node.has(index):
        return None
    bias, name = node.input(index), f"{node.result}.bias"
    if _is_general(node):
        unit = node.binary("Mul", node.input(1), node.input(4), f"{node.result}.unit")
        return node.binary("Mul", node.cast(bias, "float32", f"{name}.real"), unit, name)
    x_scale, w_scale = (node.constant(index).astype(np.float32) for index in (1, 4))
    scale = np.atleast_1d(x_scale * w_scale)
    parameters = node.quantised(bias, scale if scale.size > 1 else scale[0], None, -1)
    return node.emit(ops.Dequantize(*parameters), [bias], name)


def import_qlinear_conv(node: OnnxNode) -> str:
    """Import QLinearConv as Dequantize, Conv, Quantize."""
    general = _is_general(node)
    x, w = node.dequantize(0, general=general), node.dequantize(3, 0, general)
    bias = _bias(node, 8)
    result = import_conv(node.as_operator("Conv", x, w, *([bias] if bias else [])))
    return node.quantize(result, 6, general=general)


def import_qlinear_matmul(node: OnnxNode) -> str:
    """Import QLinearMatMul as Dequantize, MatMul, Quantize."""
    general = _is_general(node) or min(node.rank(0), node.rank(3)) < 2
    a = node.dequantize(0, max(0, node.rank(0) - 2) if general else 1, general)
    b = node.dequantize(3, max(0, node.rank(3) - 1), general)
    product = import_matmul(node.as_operator("MatMul", a, b))
    axis = max(0, len(node.builder.types[product].shape) - 2) if general else 1
    return node.quantize(product, 6, axis, general=general)


def import_qgemm(node: OnnxNode) -> str:
    """Import QGemm as Dequantize, Gemm and, if the output is quantised, Quantize."""
    a, b = node.dequantize(0), node.dequantize(3, 0 if node.attribute("transB", 0) else 1)
    result = import_gemm(node.as_operator("Gemm", a, b, _bias(node, 6)))
    return node.quantize(result, 7) if node.has(7) else result


def import_qlinear(importer: Callable[[OnnxNode], str], operands: int, node: OnnxNode) -> str:
    """Import the QLinear form of an operator as Dequantize, the float operator, Quantize."""
    inputs = [node.dequantize(3 * index) for index in range(operands)]
    kind = node.proto.op_type.removeprefix("QLinear")
    return node.quantize(importer(node.as_operator(kind, *inputs)), 3 * operands)


def import_softmax_of_set(node: OnnxNode) -> str:
    """Import Softmax as the operator set in the attribute `opset` defines it."""
    axis, modern = node.axis(-1, node.rank(0)), node.attribute("opset", 0) >= 13
    return node.emit(ops.Softmax(axis, axis + 1 if modern else node.rank(0)), [node.input(0)])


def import_pool_of_layout(node: OnnxNode) -> str:
    """Import AveragePool and GlobalAveragePool; transpose before and after if `channels_last`."""
    kind, x, last = node.proto.op_type, node.input(0), node.attribute("channels_last", 0)
    if last:
        x = node.transpose(x, (0, 3, 1, 2), f"{x}.first")
    pool = import_global_pool if kind.startswith("Global") else import_one_pool
    result = pool(node.as_operator(kind, x))
    return node.transpose(result, (0, 2, 3, 1), f"{result}.last") if last else result


def import_qlinear_concat(node: OnnxNode) -> str:
    """Import QLinearConcat as Dequantize of each operand, Concat, Quantize."""
    parts = [node.dequantize(index) for index in range(2, len(node.proto.input), 3)]
    return node.quantize(node.emit(ops.Concat(node.axis(0, node.rank(2))), parts), 0)


def import_qlinear_where(node: OnnxNode) -> str:
    """Import QLinearWhere as Dequantize of both values, Where, Quantize."""
    values = node.dequantize(1), node.dequantize(4)
    return node.quantize(node.emit(ops.Where(), [node.input(0), *values]), 7)


def import_dynamic_matmul(node: OnnxNode) -> str:
    """Import DynamicQuantizeMatMul as DynamicQuantizeLinear, MatMulIntegerToFloat."""
    inner = node.as_operator("DynamicQuantizeLinear", node.input(0))
    inner.proto.output[:] = [f"{node.result}.{part}" for part in ("bytes", "scale", "point")]
    x, scale, point = import_dynamic_quantize(inner)
    operands = [node.input(index) if node.has(index) else None for index in (1, 2, 3, 4)]
    w, w_scale, w_point, bias = operands
    return import_matmul_integer_to_float(
        node.as_operator("MatMulIntegerToFloat", x, w, scale, w_scale, point, w_point, bias)
    )


QUANTISED_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], str | list[str]]] = {
    **{(domain, "QuantizeLinear"): import_quantize for domain in ("", "com.microsoft")},
    **{(domain, "DequantizeLinear"): import_dequantize for domain in ("", "com.microsoft")},
    ("", "DynamicQuantizeLinear"): import_dynamic_quantize,
    ("", "QLinearConv"): import_qlinear_conv,
    ("", "QLinearMatMul"): import_qlinear_matmul,
    ("com.microsoft", "DynamicQuantizeMatMul"): import_dynamic_matmul,
    ("com.microsoft", "QGemm"): import_qgemm,
    ("com.microsoft", "QLinearAdd"): partial(import_qlinear, import_binary, 2),
    ("com.microsoft", "QLinearMul"): partial(import_qlinear, import_binary, 2),
    ("com.microsoft", "QLinearSigmoid"): partial(import_qlinear, import_unary, 1),
    ("com.microsoft", "QLinearLeakyRelu"): partial(import_qlinear, import_unary, 1),
    ("com.microsoft", "QLinearSoftmax"): partial(import_qlinear, import_softmax_of_set, 1),
    ("com.microsoft", "QLinearAveragePool"): partial(import_qlinear, import_pool_of_layout, 1),
    ("com.microsoft", "QLinearGlobalAveragePool"): partial(
        import_qlinear, import_pool_of_layout, 1
    ),
    ("com.microsoft", "QLinearConcat"): import_qlinear_concat,
    ("com.microsoft", "QLinearWhere"): import_qlinear_where,
}
