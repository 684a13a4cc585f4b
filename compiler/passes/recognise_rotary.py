"""Recognise rotary embedding of integers: sums of two channels with constant factors.

Exporters write it with halves or with interleaved pairs, by slices, Gather, Split, negations and
concatenations, before or after the heads are transposed. All of these are linear, so the pass
follows the factor of each element through them, whatever their form.

The channels and their partners come side by side from the dense layer before, whose weights repeat
for it: no data moves between lanes.
"""

from typing import NamedTuple

import numpy as np

from ..graph import Graph, Quantisation, evaluate_operator
from ..graph import operators as ops
from ..rewriting import GraphView, Site, first_match, op, rewrite, rule
from .absorb_heads import SWAP_HEADS
from .moved_elements import moved_elements, moving_node
from .patterns import dequantised, quantisation_of, quantised, reshaped, result_of, to_image

TERMS = 2
"""Elements of which each result is a sum."""

MAX_ELEMENTS = 1 << 22
"""Of a result; larger ones stay in float."""

MAX_ERROR = 2
"""Bound, in steps of the result, on what factors of 8 bits move it; rotations of equal scales have
1, as cosines and sines are 1 at most."""

INPUT = dequantised("x", constant=False)


class Linear(NamedTuple):
    """Elements as sums of others: their places in int8 values and the factors, [..., terms]."""

    source: tuple[str, Quantisation]
    places: np.ndarray
    factors: np.ndarray


def linear_form(view: GraphView, name: str) -> Linear | None:
    """Return the sums of elements of one quantised value that make a float value."""
    node = view.producer(name)
    if node is None or view.types[name].elements > MAX_ELEMENTS:
        return None
    found = first_match(INPUT, view, name)
    if found is not None:
        source, places = moved_elements(view, found["x"])
        quantisation = quantisation_of(found["x_scale"])
        return Linear((source, quantisation), places[..., None], np.ones((*places.shape, 1)))
    operator = node.attributes
    if moving_node(view, name) is not None:
        inner = linear_form(view, node.inputs[0])
        rest = [view.data(each) for each in node.inputs[1:]]
        return inner and Linear(inner.source, *(
            np.stack([evaluate_operator(operator, [part[..., term], *rest])
                      for term in range(part.shape[-1])], axis=-1)
            for part in inner[1:]
        ))  # fmt: skip
    if operator == ops.Unary("Neg"):
        inner = linear_form(view, node.inputs[0])
        return inner and inner._replace(factors=-inner.factors)
    constants = [view.is_constant(each) for each in node.inputs]
    if isinstance(operator, ops.Concat) and not any(constants):
        return _joined([linear_form(view, each) for each in node.inputs], operator.axis)
    if not isinstance(operator, ops.Binary):
        return None
    if operator.kind in ("Mul", "Div") and sum(constants) == 1:
        at = constants.index(True)
        if operator.kind == "Div" and at == 0:
            return None
        inner = linear_form(view, node.inputs[1 - at])
        number = view.data(node.inputs[at]).astype(np.float64)
        if inner is None or (operator.kind == "Div" and not number.all()):
            return None
        shape = (*node.output.type.shape, inner.places.shape[-1])
        number = np.broadcast_to(number, node.output.type.shape)[..., None]
        factors = inner.factors / number if operator.kind == "Div" else inner.factors * number
        return Linear(inner.source, np.broadcast_to(_ranked(inner.places, shape), shape), factors)
    if operator.kind in ("Add", "Sub") and not any(constants):
        parts = [linear_form(view, each) for each in node.inputs]
        if operator.kind == "Sub" and parts[1] is not None:
            parts[1] = parts[1]._replace(factors=-parts[1].factors)
        if any(part is None or part.places.shape[:-1] != node.output.type.shape for part in parts):
            return None
        return _joined(parts, -1)
    return None


def _ranked(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return data.reshape((1,) * (len(shape) - data.ndim) + data.shape)


def _joined(parts: list[Linear | None], axis: int) -> Linear | None:
    """Concatenate elements along an axis, or terms along the last one."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len({part.source for part in found}) > 1:
        return None
    most = max(part.places.shape[-1] for part in found)

    def padded(part: Linear) -> Linear:
        missing = most - part.places.shape[-1]
        if axis == -1 or not missing:
            return part
        again = np.repeat(part.places[..., :1], missing, axis=-1)
        places = np.concatenate([part.places, again], axis=-1)
        factors = np.concatenate([part.factors, np.zeros(again.shape)], axis=-1)
        return Linear(part.source, places, factors)

    every = [padded(part) for part in found]
    return Linear(
        every[0].source,
        np.concatenate([part.places for part in every], axis=axis),
        np.concatenate([part.factors for part in every], axis=axis),
    )


def recognise_rotary(graph: Graph, block: int) -> Graph:
    """Replace rotary embedding by QRotate.

    Parameters
    ----------
    block : int
        The channels of a part are a multiple of it.
    """

    @rule(quantised(op((ops.Concat, ops.Binary, ops.Reshape, ops.Transpose), ..., value="turned")))
    def recognise(site: Site, turned: str) -> str | None:
        """Quantize(cos * Dequantize(x) + sin * partners) -> QRotate(x and partners, factors)."""
        form = linear_form(site.view, turned)
        if form is None or form.places.shape[-1] != TERMS or not form.factors[..., 1].any():
            return None
        if not site.shape:
            return None
        source, given = form.source
        channels = site.shape_of(source)[-1]
        if form.places.size != site.elements_of(source) * TERMS:
            return None
        rows = site.elements_of(source) // channels
        order = _order_of(form.places[..., 0].reshape(-1) // channels, site.shape[0], channels)
        places, factors = (
            each.reshape(*order, TERMS).swapaxes(1, 2).reshape(-1, TERMS) for each in form[1:]
        )
        by_row = _by_row(places, rows, channels)
        if by_row is None:
            return None
        parts = factors.reshape(rows, channels, TERMS)
        unit = float(np.float32(np.abs(parts).max() / 127))
        span = -(-channels // block) * block
        held = np.zeros((1, 1, rows, TERMS, span), np.int8)
        held[0, 0, :, :, :channels] = np.rint(parts / unit).transpose(0, 2, 1)
        y, limits = result_of(site)
        if 128 * unit * given.scale > MAX_ERROR * y.scale:
            return None
        scale = float(np.float32(given.scale * unit / y.scale))
        points = given.zero_point, y.zero_point
        operator = ops.QRotate(channels, span, scale, *points, *limits)
        pairs = _with_partners(site, source, by_row, span, given.zero_point)
        pairs = reshaped(site, pairs, (1, 1, rows, TERMS * span))
        constant = site.constant(
            held.reshape(1, 1, rows, TERMS * span), f"{site.root.name}.factors"
        )
        result = site.emit(operator, pairs, constant, quantisation=y)
        if order[1] > 1:
            images, heads, tokens, size = order
            result = site.emit(ops.Reshape((images, tokens, heads, size)), result)
            result = site.emit(SWAP_HEADS, result)
        return reshaped(site, result, site.shape)

    return rewrite(graph, recognise)


def _order_of(rows: np.ndarray, images: int, channels: int) -> tuple[int, int, int, int]:
    """The images, heads, rows and channels of a head in which results lie, from their rows."""
    changes = np.flatnonzero(rows != rows[0])
    size = int(changes[0]) if changes.size else channels
    if size >= channels or channels % size or rows.size % (images * channels):
        return 1, 1, rows.size // channels, channels
    return images, channels // size, rows.size // images // channels, size


def _by_row(places: np.ndarray, rows: int, channels: int) -> np.ndarray | None:
    """The channels of each row, int64[channels, terms], if all rows have the same in their own."""
    apart = places.reshape(rows, channels, TERMS) - channels * np.arange(rows)[:, None, None]
    same = (apart == apart[:1]).all() and apart.min() >= 0 and apart.max() < channels
    return apart[0] if same else None


LAYER = op(ops.QConv, ..., capture="layer", where=lambda layer: layer.kind == "dense")
BEFORE = op(ops.Reshape, LAYER)


def _with_partners(site: Site, x: str, order: np.ndarray, span: int, zero_point: int) -> str:
    """Emit the channels of each term side by side, from the layer of x or from a new one."""
    channels = len(order)
    match = first_match(LAYER, site.view, x) or first_match(BEFORE, site.view, x)
    layer = None if match is None else match.named["layer"]
    label = site.root.name
    if layer is not None and layer.output.type.shape[-1] == channels:
        source, *names = layer.inputs
        operator, label = layer.attributes, layer.name
        weights, bias, scale = map(site.data, names)
    else:
        source = to_image(site, x)
        weights = np.eye(channels, dtype=np.int8)[None, None]
        bias, scale = np.full(channels, -zero_point, np.int32), np.ones(channels, np.float32)
        operator = ops.QConv(
            *("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, zero_point, zero_point),
        )
    at = np.full((TERMS, span), -1)
    at[:, :channels] = order.T
    used, at = at.reshape(-1) >= 0, at.reshape(-1)
    arrays = {
        "weights": np.where(used, weights[..., at], 0).astype(weights.dtype),
        "bias": np.where(used, bias[at], 0).astype(np.int32),
        "scale": np.where(used, scale[at], 1).astype(np.float32),
    }
    constants = (site.constant(data, f"{label}.pairs.{name}") for name, data in arrays.items())
    quantisation = site.quantisation_of(x)
    return site.emit(operator, source, *constants, label=label, quantisation=quantisation)
