"""Quantised layers that go through their elements one by one: residual adds and look-up tables."""

import math

import numpy as np

from ...isa.numbers import EXACT_LIMIT, INT8_MIN
from ..cpu import ByteSum, ByteTable, Requantisation, Residual
from ..graph import Node
from ..graph.operators import QAdd, QLut
from .integer_bounds import is_plain
from .kernel import HostKernel, Scope


def as_residual(layer: QAdd, own: int = 0) -> Residual | None:
    """How a residual add is computed, its operand `own` first; None where binary32 is too narrow.

    The sum is made in binary32, which is exact as long as every part of it stays below 2**24.
    """
    first, second = layer.multipliers[own], layer.multipliers[1 - own]
    size = -INT8_MIN * (abs(first) + abs(second)) + abs(layer.constant)
    scale = float(np.float32(layer.scale))
    if size >= EXACT_LIMIT or not is_plain(size, scale):
        return None
    quantised = Requantisation(
        "int8", "int8", 0, layer.zero_point_y, layer.low, layer.high, folded=True
    )
    return Residual((first, second), layer.constant, scale, quantised)


def match_sum(scope: Scope, node: Node) -> HostKernel | None:
    """A QAdd by itself."""
    layer = node.attributes
    assert isinstance(layer, QAdd)
    added = as_residual(layer)
    shapes = [scope.graph.types[name].shape for name in node.inputs]
    if added is None or shapes[0] != shapes[1] or any(map(scope.graph.is_constant, node.inputs)):
        return None
    described = ByteSum(math.prod(shapes[0]), added)
    inputs = dict(zip(described.operands, node.inputs, strict=True))
    return HostKernel(described, inputs, {}, (node,), exact=True)


def match_table(scope: Scope, node: Node) -> HostKernel | None:
    """A QLut."""
    assert isinstance(node.attributes, QLut)
    x, name = node.inputs
    table = scope.constant(name)
    if table is None or scope.graph.is_constant(x):
        return None
    described = ByteTable(math.prod(scope.graph.types[x].shape))
    return HostKernel(described, {"x": x}, {"table": table}, (node,), exact=True)
