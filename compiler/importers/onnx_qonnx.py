"""Importers of QONNX, in which Brevitas and FINN describe networks of few bits.

Source: QONNX, documentation of the operators Quant and BipolarQuant.
"""

import numpy as np

from ..graph import operators as ops
from .onnx_node import OnnxNode

DOMAINS = ("", "onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general")
"""Domains in which these operators occur."""

ROUNDINGS = {"ROUND": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}
"""Rounding modes, and functions of one value."""


def import_quant(node: OnnxNode) -> str:
    """Import Quant as Clip, Quantize and Dequantize, which passes recognise as integer layers.

    Numbers that do not fit a byte, or are rounded to one side, stay in floats.
    """
    x = node.input(0)
    scale, zero, bits = (node.constant(index).astype(np.float32) for index in (1, 2, 3))
    mode = node.attribute("rounding_mode", "ROUND")
    if mode not in ROUNDINGS or bits.size != 1 or not 1 <= float(bits.reshape(())) <= 32:
        wanted = f"`rounding_mode` {', '.join(ROUNDINGS)} and one `bitwidth` of 1 to 32"
        got = f"`rounding_mode` {mode} and `bitwidth` {bits.ravel()[:8].tolist()}"
        node.fail(wanted, got, "export the model with these")
    if not (np.isfinite(scale) & (scale > 0)).all():
        node.fail("positive, finite scales", f"{scale.ravel()[:8].tolist()}", "train it again")
    signed, narrow = bool(node.attribute("signed", 1)), int(node.attribute("narrow", 0))
    width = float(bits.reshape(()))
    high = 2.0 ** (width - 1) - 1 if signed else 2.0**width - 1 - narrow
    low = -(2.0 ** (width - 1)) + narrow if signed else 0.0
    if mode == "ROUND":
        dtype = "int8" if signed else "uint8"
        result = _as_integers(node, x, scale, zero, (low, high), dtype)
        if result is not None:
            return result
    base = node.result
    factor, point = node.array(scale, f"{base}.scale"), node.array(zero, f"{base}.zero")
    y = node.binary("Add", node.binary("Div", x, factor, f"{base}.ratio"), point, f"{base}.moved")
    y = node.unary(ROUNDINGS[mode], _limited(node, y, np.array(low), np.array(high)))
    return node.binary("Mul", node.binary("Sub", y, point, f"{base}.centred"), factor, base)


def _as_integers(
    node: OnnxNode,
    x: str,
    scale: np.ndarray,
    zero: np.ndarray,
    bounds: tuple[float, float],
    dtype: str,
) -> str | None:
    """Emit Clip, Quantize and Dequantize; None if the integers do not fit the type."""
    axis, limits = _axis(node, x, scale), np.iinfo(dtype)
    if axis is None or zero.size != 1:
        return None
    point, (low, high) = float(zero.reshape(())), bounds
    if not (point.is_integer() and low.is_integer() and high.is_integer()):
        return None
    if min(low, point) < limits.min or max(high, point) > limits.max:
        return None
    if (low, high) != (limits.min, limits.max):
        x = _limited(node, x, (low - point) * scale, (high - point) * scale)
    factors = scale.reshape(-1) if scale.size > 1 else scale.reshape(())
    points = np.full(scale.size, int(point))
    parameters = node.quantised(x, factors, points, axis)
    quantise = ops.Quantize(parameters[0], parameters[1], dtype, parameters[2])
    integers = node.emit(quantise, [x], f"{node.result}.integers")
    return node.emit(ops.Dequantize(*parameters), [integers])


def import_bipolar_quant(node: OnnxNode) -> str:
    """Import BipolarQuant: the scale where x is 0 or more, else the negated scale."""
    scale, zero = node.input(1), node.number(0.0, "float32")
    positive = node.binary("GreaterOrEqual", node.input(0), zero, f"{node.result}.positive")
    return node.emit(ops.Where(), [positive, scale, node.unary("Neg", scale)], node.result)


def _axis(node: OnnxNode, x: str, scale: np.ndarray) -> int | None:
    """Return the axis of scales for each channel, 0 for one scale; None if there are several."""
    rank = len(node.builder.types[x].shape)
    wide = [axis - scale.ndim + rank for axis, size in enumerate(scale.shape) if size > 1]
    if len(wide) > 1 or min(wide, default=0) < 0:
        return None
    return wide[0] if wide else 0


def _limited(node: OnnxNode, x: str, low: np.ndarray, high: np.ndarray) -> str:
    """Emit the limits of a value."""
    if low.size == 1:
        limits = float(low.reshape(())), float(high.reshape(()))
        return node.emit(ops.Unary("Clip", limits), [x], f"{node.result}.limited")
    x = node.binary("Max", x, node.array(low.astype(np.float32)), f"{node.result}.above")
    return node.binary("Min", x, node.array(high.astype(np.float32)), f"{node.result}.limited")


QONNX_HANDLERS = {
    (domain, kind): importer
    for domain in DOMAINS
    for kind, importer in (("Quant", import_quant), ("BipolarQuant", import_bipolar_quant))
}
