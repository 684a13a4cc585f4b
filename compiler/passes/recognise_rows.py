"""Recognise softmax and norms of integers, for machines with `row_statistics`.

The integers of such a machine differ from the float operators in a few results, by 1 at most. So
other machines keep the float operators, and this is no part of the recipe.
"""

import math
from dataclasses import replace

import numpy as np

from ...errors import IsaError
from ...isa.configuration import Configuration
from ...isa.meanings import norm_constants
from ...isa.meanings.norms import MAX_CHANNELS
from ...isa.meanings.softmax import MAX_KEYS
from ..graph import Graph, Quantisation
from ..graph import operators as ops
from ..rewriting import GraphPattern, Site, either, number, op, repeated, rewrite, rule, value
from .absorb_heads import share_heads
from .keep_rows import keep_rows, rows_in_place
from .masks import added_mask, probabilities, replaced_mask
from .merge_duplicates import merge_duplicates
from .move_pixels import move_pixels
from .normalisations import normalisation_of, normalisations, of_integers
from .patterns import (
    dequantised,
    is_int8,
    is_per_tensor,
    of_images,
    quantised,
    reshaped,
    result_of,
    scale_of,
    to_image,
)
from .plain_attention import join_masks
from .recognise_positions import recognise_positions
from .recognise_rotary import recognise_rotary

USUAL_SCALES = 2.0**-60, 2.0**60
"""Between them, the scales of all rows are normal binary32 numbers."""


def _reshaped(inner: GraphPattern) -> GraphPattern:
    """Describe a value after any reshapes."""
    return repeated(op(ops.Reshape, value()), inner)


DEQUANTISED = _reshaped(
    op(
        ops.Dequantize,
        _reshaped(value("x", where=is_int8)),
        capture="x_scale",
        where=is_per_tensor,
    )
)
"""Values that several branches may reshape apart, before or after they are dequantised."""

TURNED = _reshaped(op(ops.Transpose, DEQUANTISED, capture="turn"))
NORM = normalisations(either(DEQUANTISED, TURNED), of_integers)


_DEQUANTISED_SCORES = _reshaped(dequantised("x", constant=False))
SCORES = either(
    op(ops.Binary("Mul"), _DEQUANTISED_SCORES, number("factor"), commutative=True),
    op(ops.Binary("Div"), _DEQUANTISED_SCORES, number("divisor")),
    _DEQUANTISED_SCORES,
)
"""Products of heads, which ONNX Runtime's quantiser leaves unscaled."""


@rule(quantised(probabilities(SCORES)))
def recognise_softmax(
    site: Site, softmax: ops.Softmax, x: str, mask: str | None, kept: str | None,
    dropped: str | None, fill: float | None, factor: float | None, divisor: float | None
) -> str | None:  # fmt: skip
    """Quantize(Softmax(Dequantize(x), masked or not)) -> QSoftmax(x, mask), over the last axes."""
    made = site.node("softmax")
    shape = made.output.type.shape
    keys, rows = math.prod(shape[softmax.axis :]), math.prod(shape[: softmax.axis])
    given, (y, limits) = scale_of(site, "x"), result_of(site)
    times = 1.0 if factor is None else factor
    over = 1.0 if divisor is None else 1 / divisor if divisor else math.inf
    given = replace(given, scale=given.scale * times * over)
    if softmax.log or softmax.stop != len(shape) or keys > MAX_KEYS or not _usual(given, y):
        return None
    given = replace(given, scale=float(np.float32(given.scale)))
    masks: list[str] = []
    condition = kept or dropped
    if mask or condition:
        if mask:
            integers = added_mask(site, mask, given.scale)
        else:
            assert condition is not None
            assert fill is not None
            inverse = kept is not None
            integers = replaced_mask(site, condition, fill, given.scale, inverse=inverse)
        if integers is None or site.shape_of(x) != shape or softmax.axis != len(shape) - 1:
            return None
        sizes = site.shape_of(integers)
        sizes = (1,) * (len(shape) - len(sizes)) + sizes
        if len(shape) > 4 or sizes[-1] != keys or len(sizes) != len(shape):
            return None
        whole = (1,) * (4 - len(shape)) + shape
        x = reshaped(site, x, whole, made.name)
        masks = [reshaped(site, integers, (1,) * (4 - len(shape)) + sizes, made.name)]
    image = _rows(site, x, rows, keys, made.name)
    operator = ops.QSoftmax(given.scale, y.scale, y.zero_point, *limits)
    return of_images(site, operator, image, held=masks, label=made.name, quantisation=y)


@rule(quantised(NORM))
def recognise_norm(site: Site, x: str, turn: ops.Transpose | None) -> str | None:
    """Quantize(normalisation of Dequantize(x)) -> QNorm(x)."""
    inside = site.match.nodes[:-1]
    found = normalisation_of(site.view, inside, site.match, site.root.output.type.elements)
    if found is None or found.by_row or found.columns > MAX_CHANNELS:
        return None
    given, (y, limits) = scale_of(site, "x"), result_of(site)
    if not _usual(given, y):
        return None
    try:
        constants = norm_constants(found.scale, found.bias, found.epsilon, given.scale, y.scale)
    except IsaError:
        return None  # the rows are small beside epsilon
    label = inside[-1].name
    if turn is not None:
        shape = site.shape_of(site.node("turn").inputs[0])
        x = site.emit(turn, reshaped(site, x, shape, label))
    image = _rows(site, x, found.rows, found.columns, label)
    operator = ops.QNorm(
        found.centred, constants.epsilon, constants.factor, given.zero_point, y.zero_point, *limits
    )
    held = site.constants(label, bias=constants.bias, scale=constants.scale)
    return of_images(site, operator, image, held=held, label=label, quantisation=y)


def _usual(*quantisations: Quantisation) -> bool:
    least, most = USUAL_SCALES
    return all(least <= each.scale <= most for each in quantisations)


def _rows(site: Site, x: str, rows: int, columns: int, label: str) -> str:
    """Emit x as an image whose channels are the columns, in its own shape if that has them."""
    shape = site.shape_of(x)
    if shape[-1:] != (columns,):
        x = reshaped(site, x, (rows, columns), label)
    return to_image(site, x, label)


def recognise_rows(graph: Graph, configuration: Configuration) -> Graph:
    """Replace softmax and normalisations between integers if the machine has `row_statistics`."""
    if configuration.row_statistics == "none":
        return graph
    graph = rewrite(graph, join_masks, recognise_softmax, recognise_norm)
    graph = recognise_rotary(graph, max(configuration.lanes_in, configuration.lanes_out))
    graph = share_heads(keep_rows(recognise_positions(graph)))
    return rows_in_place(merge_duplicates(move_pixels(keep_rows(graph))))
