"""Importers of elementwise operators as Unary and Binary, and of casts between element types."""

import numpy as np

from ..graph import operators as ops
from ..graph.functions import BINARY, UNARY
from ..graph.operators.quantisation import FLOAT8
from ..graph.operators.reductions import POSITIONS
from ..graph.types import INTEGERS
from .onnx_node import OnnxNode
from .onnx_tensors import ELEMENT_TYPES

MAX_FLOAT32 = float(np.finfo(np.float32).max)

STRING = 8
"""ONNX's number of the string element type."""

VARIANTS = {
    kind: variant
    for kind, variant in (
        *((kind, function.variant) for kind, function in {**UNARY, **BINARY}.items()),
        *POSITIONS.items(),
    )
    if variant is not None
}
"""Kind -> its form in ONNX, unless that is an operator of its own."""


def kind_of(node: OnnxNode) -> str:
    """Return the kind of Unary, Binary or Reduce that corresponds to a node."""
    kind = {"Sum": "Add"}.get(node.proto.op_type, node.proto.op_type)
    variants = {own: variant for own, variant in VARIANTS.items() if variant.kind == kind}
    if not variants:
        return kind
    one, *_ = variants.values()
    kinds = {variant.value: own for own, variant in variants.items()}
    if one.default != "":
        kinds = {one.default: kind, **kinds}
    value = node.attribute(one.attribute, one.default)
    if value not in kinds:
        known = " or ".join(map(str, kinds))
        node.fail(f"`{one.attribute}` {known}", f"`{value}`", "correct the model")
    return kinds[value]


def import_unary(node: OnnxNode) -> str:
    """Import elementwise functions of one tensor as Unary."""
    kind = kind_of(node)
    known = UNARY[kind].onnx_parameters.items()
    parameters = tuple(float(node.attribute(name, default)) for name, default in known)
    return node.emit(ops.Unary(kind, parameters), [node.input(0)])


def import_binary(node: OnnxNode) -> str:
    """Import elementwise functions of two tensors (or more, for Max, Min and Sum) as Binary."""
    result, *others = node.inputs()
    for operand in others:
        result = node.binary(kind_of(node), result, operand)
    return result


def import_clip(node: OnnxNode) -> str:
    """Import Clip as Unary, or as Max and Min; limits are attributes up to operator set 10."""
    if node.opset < 11:
        low, high = node.attribute("min", -MAX_FLOAT32), node.attribute("max", MAX_FLOAT32)
        return node.emit(ops.Unary("Clip", (low, high)), [node.input(0)])
    limits = [node.known(node.input(index)) for index in (1, 2) if node.has(index)]
    if node.type(0).dtype == "float32" and all(limit is not None for limit in limits):
        low, high = (
            max(node.scalar(1, -MAX_FLOAT32), -MAX_FLOAT32),
            min(node.scalar(2, MAX_FLOAT32), MAX_FLOAT32),
        )
        return node.emit(ops.Unary("Clip", (low, high)), [node.input(0)])
    result = node.input(0)
    for index, kind in ((1, "Max"), (2, "Min")):
        if node.has(index):
            result = node.binary(kind, result, node.input(index))
    return result


def import_power(node: OnnxNode) -> str:
    """Import Pow as Binary in the base's type, or in float64 if the exponent's type requires it."""
    base, exponent = (node.type(index).dtype for index in (0, 1))
    common = base if exponent in (base, *INTEGERS) else "float64"
    operands = [node.cast(x, common, f"{x}.cast") for x in node.inputs()]
    return node.cast(node.emit(ops.Binary("Pow"), operands), base)


def import_cast(node: OnnxNode) -> str | None:
    """Import Cast as Cast; decline casts to float8 that saturate, and casts to float4 or e8m0."""
    target = node.attribute("to", 0)
    if target == STRING:
        node.refuse("strings", "a cast to strings", "drop the cast")
    dtype = ELEMENT_TYPES.get(target, "")
    if not dtype:
        expected = f"a cast to one of {', '.join(ELEMENT_TYPES.values())}"
        node.fail(expected, f"type {target}", "drop the cast")
    saturates = dtype in FLOAT8 and node.attribute("saturate", 1)
    if saturates or dtype in ("float4_e2m1fn", "float8_e8m0fnu"):
        return None
    return node.cast(node.input(0), dtype)
