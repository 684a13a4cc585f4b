"""Products with a batch of constant matrices, as of experts or heads -> one dense layer for each.

The layers read slices of the input in place, and store their results side by side, so that nothing
moves. Each matrix keeps its own scales and bias. Leading dimensions of 1 are dropped first.
"""

from dataclasses import replace
from math import prod

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, constant, either, first_match, op, rewrite, rule
from .patterns import HELD, dequantised, is_int8, known, quantisation_of, quantised, reshaped

MAX_MATRICES = 64
"""Number of matrices beyond which a product is not split; each one is a layer with its weights."""

MAX_SMALL = 1 << 10
"""Elements of a matrix up to which a product with an operand that is constant is faster.

So measured on `transformer-85` and `16x16`. The layers of larger matrices take 7 to 44 % fewer
cycles, those of smaller ones up to 33 % more.
"""

WEIGHTS = op(ops.Dequantize, constant("w", where=is_int8), capture="w_scale")

PRODUCT = op(ops.MatMul, dequantised("x", constant=False), WEIGHTS, capture="product")


@rule(PRODUCT)
def drop_ones(
    site: Site, x: str, x_scale: ops.Dequantize, w: str, w_scale: ops.Dequantize
) -> str | None:
    """MatMul(x, Dequantize(w[1, K, N])) -> MatMul(Reshape(x), Dequantize(w[K, N]))."""
    data, rows = site.data(w), site.shape_of(x)
    ones = data.ndim - 2
    if not ones or prod(data.shape[:-2]) != 1:
        return None
    # A scale for each index of a dimension of 1 is a single scale.
    axis = None if w_scale.axis is None or w_scale.axis < ones else w_scale.axis - ones
    matrix = site.emit(replace(w_scale, axis=axis), site.constant(data.reshape(data.shape[-2:]), w))
    shape = (1,) * (len(site.shape) - len(rows)) + rows
    return site.emit(ops.MatMul(), site.emit(x_scale, reshaped(site, x, shape)), matrix)


@rule(quantised(either(PRODUCT, op(ops.Binary("Add"), PRODUCT, known("addend"), commutative=True))))
def split(
    site: Site,
    clamps: tuple[ops.Unary, ...],
    target: ops.Quantize,
    x: str,
    x_scale: ops.Dequantize,
    w: str,
    w_scale: ops.Dequantize,
    addend: str | None,
) -> str | None:
    """Quantize(clamps(Add?(MatMul(x, w[B, K, N])))) -> QConcat of one such product per matrix."""
    label, weights = site.node("product").name, site.data(w)
    inputs, outputs = site.shape_of(x), site.shape
    alike = w_scale.axis is None and addend is None and inputs[:-2] == weights.shape[:-2]
    if alike and prod(weights.shape[-2:]) <= MAX_SMALL:
        return None  # a product whose operand is constant: heads are read in place
    batch = _batch(weights.shape[:-2], outputs[:-2])
    if batch is None or len(inputs) > len(outputs):
        return None
    first, count = batch
    given = (1,) * (len(outputs) - len(inputs)) + inputs
    shared = prod(given[first:-2]) == 1
    if not shared and given[first:-2] != outputs[first:-2]:
        return None
    image = reshaped(site, x, (prod(given[:first]), prod(given[first:-2]), *given[-2:]), label)
    samples, _, rows, depth = site.shape_of(image)
    parts: list[str] = []
    for index in range(count):
        part = image
        if not shared:
            whole = (0, index, 0, 0), (samples, index + 1, rows, depth), (1, 1, 1, 1)
            kind = quantisation_of(x_scale)
            part = site.emit(ops.QSlice(*whole), image, label=label, quantisation=kind)
        matrix = _matrix(site, w, w_scale, index, count)
        y = site.emit(ops.MatMul(), site.emit(x_scale, part), matrix, label=f"{label}[{index}]")
        if addend is not None:
            term = _term(site, addend, (*outputs[first:-2], 1, outputs[-1]), index)
            if term is None:
                return None
            y = site.emit(ops.Binary("Add"), y, term)
        for clamp in reversed(clamps):
            y = site.emit(clamp, y)
        parts.append(site.emit(target, y))
    joined = site.emit(ops.QConcat(1), *parts, label=label, quantisation=quantisation_of(target))
    return reshaped(site, joined, outputs, label)


def _batch(weights: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the first dimension of the result that counts matrices, and their number.

    The dimensions from there on are those of the weights. None if there is another order, or a
    number of matrices that is not to be split.
    """
    held = (1,) * (len(outputs) - len(weights)) + weights
    first = next((axis for axis, size in enumerate(held) if size > 1), len(held))
    count = prod(held)
    return (first, count) if 1 < count <= MAX_MATRICES and held[first:] == outputs[first:] else None


def _matrix(site: Site, w: str, scaling: ops.Dequantize, index: int, count: int) -> str:
    """Emit the Dequantize of one of the matrices."""
    data = site.data(w)
    axis, outer = scaling.axis, data.ndim - 2
    scales, points = scaling.scales, scaling.zero_points
    if axis is not None and axis < outer:
        place = np.unravel_index(index, data.shape[:-2])[axis]
        axis, scales, points = None, (scales[place],), (points[place],)
    elif axis is not None:
        axis -= outer
    matrix = site.constant(data.reshape(count, *data.shape[-2:])[index], f"{w}[{index}]")
    own = replace(scaling, scales=scales, zero_points=points, axis=axis)
    return site.emit(own, matrix)


def _term(site: Site, name: str, shape: tuple[int, ...], index: int) -> str | None:
    """Emit what is added to the product of one matrix, a bias [N]; None if it is not a bias."""
    match = first_match(HELD, site.view, name)
    assert match is not None, "a known value"
    held, unit = site.data(match["held"]), match["scaling"]
    if unit is not None and unit.axis is not None and held.size != shape[-1]:
        return None
    leading = held.ndim - len(shape)
    if leading > 0 and prod(held.shape[:leading]) == 1:
        held = held.reshape(held.shape[leading:])
    try:
        spread = np.broadcast_to(held, shape)
    except ValueError:
        return None
    part = site.constant(spread.reshape(-1, shape[-1])[index], f"{name}[{index}]")
    if unit is None:
        return part
    return site.emit(replace(unit, axis=None if unit.axis is None else 0), part)


def split_batched_weights(graph: Graph) -> Graph:
    """Split products with several constant matrices into one product for each."""
    return rewrite(graph, drop_ones, split)
