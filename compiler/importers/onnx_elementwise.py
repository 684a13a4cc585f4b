"""Elementwise operators -> Unary, Binary, Where, and casts between element types."""

import numpy as np

from ..graph import operators as ops
from ..graph.operators import SaturatingCast, Where
from ..graph.operators.elementwise import COMPARISONS
from ..graph.operators.quantisation import FLOAT8
from ..graph.types import INTEGERS
from .onnx_node import OnnxNode
from .onnx_tensors import ELEMENT_TYPES

LARGEST = float(np.finfo(np.float32).max)

STRING = 8
"""ONNX's number of the element type string."""

PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "Celu": (("alpha", 1.0),),
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", float(np.float32(0.2))), ("beta", 0.5)),
    "LeakyRelu": (("alpha", float(np.float32(0.01))),),
    "Selu": (
        ("alpha", float(np.float32(1.6732632423543772))),
        ("gamma", float(np.float32(1.0507009873554805))),
    ),
    "Shrink": (("bias", 0.0), ("lambd", 0.5)),
    "Swish": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
}
"""Attributes of elementwise functions and their defaults, in the kernels' order."""

PLAIN_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos"),
    *("Cosh", "Erf", "Exp", "Floor", "HardSwish", "IsNaN", "Log", "Mish", "Neg", "Not"),
    *("Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"),
    *("Sqrt", "Tan", "Tanh"),
)

PLAIN_BINARY = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Min", "Mul", "Or"),
    *("PRelu", "Sub", "Sum", "Xor", *COMPARISONS),
)


def import_unary(node: OnnxNode) -> str:
    """Elementwise functions of one tensor -> Unary."""
    kind = node.proto.op_type
    parameters = tuple(node.attribute(name, value) for name, value in PARAMETERS.get(kind, ()))
    return node.emit(ops.Unary(kind, parameters), [node.input(0)])


def import_is_inf(node: OnnxNode) -> str:
    """IsInf -> Unary."""
    signs = (node.attribute("detect_negative", 1), node.attribute("detect_positive", 1))
    return node.emit(ops.Unary("IsInf", tuple(map(float, signs))), [node.input(0)])


def import_gelu(node: OnnxNode) -> str:
    """Gelu by the error function, or by tanh -> Unary."""
    kinds = {"none": "Gelu", "tanh": "GeluTanh"}
    mode = node.attribute("approximate", "none")
    if mode not in kinds:
        node.fail("`approximate` none or tanh", f"`{mode}`", "correct the model")
    return node.emit(ops.Unary(kinds[mode]), [node.input(0)])


def import_clip(node: OnnxNode) -> str:
    """Clip, its limits as attributes (operator set 6) or inputs (11) -> Unary, or Max and Min."""
    if node.opset < 11:
        low, high = node.attribute("min", -LARGEST), node.attribute("max", LARGEST)
        return node.emit(ops.Unary("Clip", (low, high)), [node.input(0)])
    limits = [node.known(node.input(index)) for index in (1, 2) if node.has(index)]
    if node.type(0).dtype == "float32" and all(limit is not None for limit in limits):
        low, high = node.scalar(1, -LARGEST), node.scalar(2, LARGEST)
        low, high = max(low, -LARGEST), min(high, LARGEST)
        return node.emit(ops.Unary("Clip", (low, high)), [node.input(0)])
    result = node.input(0)
    if node.has(1):
        result = node.binary("Max", result, node.input(1))
    if node.has(2):
        result = node.binary("Min", result, node.input(2))
    return result


def import_binary(node: OnnxNode) -> str:
    """Elementwise functions of two (or more, for Max, Min and Sum) tensors -> Binary."""
    kind = {"Sum": "Add"}.get(node.proto.op_type, node.proto.op_type)
    result = node.input(0)
    for index in range(1, len(node.proto.input)):
        result = node.binary(kind, result, node.input(index))
    return result


def import_power(node: OnnxNode) -> str:
    """Pow, the exponent of any type -> Binary of the base's type, or in float64."""
    base, exponent = (node.type(index).dtype for index in (0, 1))
    operands = [node.input(0), node.input(1)]
    if base == exponent:
        return node.emit(ops.Binary("Pow"), operands)
    common = base if exponent in INTEGERS else "float64"
    operands = [
        x
        if node.builder.types[x].dtype == common
        else node.emit(ops.Cast(common), [x], f"{x}.cast")
        for x in operands
    ]
    result = node.emit(ops.Binary("Pow"), operands)
    return result if common == base else node.emit(ops.Cast(base), [result])


def import_modulo(node: OnnxNode) -> str:
    """Mod, with the divisor's sign or (`fmod`) the dividend's -> Binary."""
    kind = "FMod" if node.attribute("fmod", 0) else "Mod"
    return node.binary(kind, node.input(0), node.input(1))


def import_bit_shift(node: OnnxNode) -> str:
    """BitShift -> Binary."""
    kinds = {"LEFT": "BitShiftLeft", "RIGHT": "BitShiftRight"}
    direction = node.attribute("direction", "")
    if direction not in kinds:
        node.fail("`direction` LEFT or RIGHT", f"`{direction}`", "correct the model")
    return node.binary(kinds[direction], node.input(0), node.input(1))


def import_where(node: OnnxNode) -> str:
    """Where -> Where."""
    return node.emit(Where(), [node.input(0), node.input(1), node.input(2)])


def _target(node: OnnxNode) -> str:
    target = node.attribute("to", 0)
    if target == STRING:
        node.refuse("strings", "a cast to strings", "drop the cast")
    if target not in ELEMENT_TYPES:
        node.fail(
            f"a cast to one of {', '.join(ELEMENT_TYPES.values())}",
            f"type {target}",
            "drop the cast",
        )
    return ELEMENT_TYPES[target]


def import_cast(node: OnnxNode) -> str:
    """Cast -> Cast, or SaturatingCast to the narrowest floats."""
    dtype = _target(node)
    if dtype == "float8_e8m0fnu":
        mode = node.attribute("round_mode", "up")
        if mode not in ("up", "down", "nearest"):
            node.fail("`round_mode` up, down or nearest", f"`{mode}`", "correct the model")
        return node.emit(SaturatingCast(dtype, mode), [node.input(0)])
    if dtype == "float4_e2m1fn" or (dtype in FLOAT8 and node.attribute("saturate", 1)):
        return node.emit(SaturatingCast(dtype), [node.input(0)])
    return node.emit(ops.Cast(dtype), [node.input(0)])
