"""Recognise rotary embedding of integers: sums of two channels with factors for each position.

The factors are constants, or come from the positions at run time: then the host makes their 8 bits,
once for all layers.

The channels and their partners come side by side from the dense layer before, whose weights repeat
for it: no data moves between lanes.
"""

import numpy as np

from ...aligned import round_up
from ..graph import Graph, Quantisation
from ..graph import operators as ops
from ..rewriting import Site, op, rewrite, rule
from .absorb_heads import SWAP_HEADS, SWAP_LAST
from .choose_channels import channels_by_row, choose_channels
from .linear_form import Linear, LinearForms
from .patterns import quantised, reshaped, result_of

TERMS = 2
"""Elements of which each result is a sum."""

MAX_ERROR = 2
"""Bound, in steps of the result, on what factors of 8 bits move it; rotations of equal scales have
1, as cosines and sines are 1 at most."""


MAX_ROUNDING = 1.5
"""Bound, in steps of the result, on roundings of products and sums between, which are left out."""

PARTS = op((ops.QConcat, ops.QAdd), ...)


def recognise_rotary(graph: Graph, block: int) -> Graph:
    """Replace rotary embedding by QRotate.

    Parameters
    ----------
    block : int
        The channels of a part are a multiple of it.
    """

    @rule(op(ops.Transpose, PARTS), PARTS)
    def recognise_parts(site: Site) -> str | None:
        """Concat(Quantize(cos * Dequantize(x) + sin * partners), other channels) -> QRotate."""
        forms, name = LinearForms(site.view), site.root.output.name
        form, y = forms.of_integers(name), site.quantisation_of(name)
        return None if y is None else _rotated(site, forms, form, y, (-128, 127), block)

    @rule(quantised(op((ops.Concat, ops.Binary, ops.Reshape, ops.Transpose), ..., value="turned")))
    def recognise(site: Site, turned: str) -> str | None:
        """Quantize(cos * Dequantize(x) + sin * partners) -> QRotate(x and partners, factors)."""
        forms = LinearForms(site.view)
        return _rotated(site, forms, forms.of(turned), *result_of(site), block)

    return rewrite(rewrite(graph, recognise_parts), recognise)


def _rotated(
    site: Site, forms: LinearForms, form: Linear | None, y: Quantisation,
    limits: tuple[int, int], block: int
) -> str | None:  # fmt: skip
    """Emit the rotation that a form is, in the shape of the root; None if it is none."""
    if form is None or form.places.shape[-1] != TERMS or not form.factors[..., 1].any():
        return None
    if not site.shape:
        return None
    size = site.shape_of(form.source[0])[-1]
    heads = dict.fromkeys((1, site.shape[1] if len(site.shape) == 4 else 1))
    made = (_of_rows(site, forms, form, size * each, y, limits, block) for each in heads)
    return next(filter(None, made), None)


def _of_rows(
    site: Site, forms: LinearForms, form: Linear, stride: int, y: Quantisation,
    limits: tuple[int, int], block: int
) -> str | None:  # fmt: skip
    """Emit the rotation of rows of `stride` elements, those of one head or of all."""
    source, given = form.source
    rows, rest = divmod(site.elements_of(source), stride)
    channels, missing = divmod(site.root.output.type.elements, rows)
    if rest or missing or not channels:
        return None
    turns: list[tuple[ops.Transpose | None, Linear]] = [(None, form)]
    if len(site.shape) == 4:
        turns.append((SWAP_LAST, form.moved(SWAP_LAST)))
    found = [
        (_order_of(each.places[..., 0].reshape(-1) // stride, site.shape[0], channels), turn, each)
        for turn, each in turns
    ]
    order, turn, turned = max(found, key=lambda one: one[0][3])  # the longest part of a row
    parts = [
        each.reshape(*order, TERMS).swapaxes(1, 2).reshape(rows, channels, TERMS)
        for each in turned[1:]
    ]
    by_row = channels_by_row(parts[0], rows, stride)
    if by_row is None:
        return None
    factors, tables = (each.swapaxes(1, 2) for each in parts[1:])
    unit = float(np.float32(np.abs(factors).max() * forms.largest / 127))
    if 128 * unit * given.scale > MAX_ERROR * y.scale:
        return None
    if forms.rounding > MAX_ROUNDING * y.scale:
        return None
    span = round_up(channels, block)
    ends = ((0, 0), (0, 0), (0, span - channels))
    shape = (1, 1, rows, TERMS * span)
    held = _factors(site, forms, np.pad(factors, ends), np.pad(tables, ends), unit, shape)
    scale = float(np.float32(given.scale * unit / y.scale))
    operator = ops.QRotate(channels, span, scale, given.zero_point, y.zero_point, *limits)
    at = np.full((TERMS, span), -1)
    at[:, :channels] = by_row.T
    if site.shape_of(source)[-1] != stride:
        source = reshaped(site, source, (1, 1, rows, stride))
    pairs = choose_channels(site, source, at.reshape(-1), given.zero_point, "pairs")
    result = site.emit(operator, reshaped(site, pairs, shape), held, quantisation=y)
    if order[1] > 1:
        images, heads, tokens, size = order
        result = site.emit(ops.Reshape((images, tokens, heads, size)), result)
        result = site.emit(SWAP_HEADS, result)
    if turn is None:
        return reshaped(site, result, site.shape)
    images, heads, size, tokens = site.shape
    return site.emit(turn, reshaped(site, result, (images, heads, tokens, size)))


def _factors(
    site: Site, forms: LinearForms, factors: np.ndarray, tables: np.ndarray, unit: float,
    shape: tuple[int, ...]
) -> str:  # fmt: skip
    """Emit the factors as int8, made at run time if they come from tables."""
    label = site.root.name
    if not forms.starts:
        integers = np.rint(factors / unit).astype(np.int8)
        return site.constant(integers.reshape(shape), f"{label}.factors")
    one = site.constant(np.ones(1, np.float32), f"{label}.one")
    flat = [reshaped(site, name, (site.elements_of(name),)) for name in forms.starts]
    values = site.emit(ops.Concat(0), *flat, one)
    places = np.where(tables < 0, forms.elements, tables).reshape(shape)
    chosen = site.emit(ops.Gather(0), values, site.constant(places, f"{label}.places"))
    signs = site.constant(factors.astype(np.float32).reshape(shape), f"{label}.factors")
    product = site.emit(ops.Binary("Mul"), chosen, signs)
    return site.emit(ops.Quantize((unit,), (0,), "int8"), product)


def _order_of(rows: np.ndarray, images: int, channels: int) -> tuple[int, int, int, int]:
    """The images, heads, rows and channels of a head in which results lie, from their rows."""
    changes = np.flatnonzero(rows != rows[0])
    size = int(changes[0]) if changes.size else channels
    if size >= channels or channels % size or rows.size % (images * channels):
        return 1, 1, rows.size // channels, channels
    return images, channels // size, rows.size // images // channels, size
