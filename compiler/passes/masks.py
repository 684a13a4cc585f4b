"""Masks of scores before a softmax: constants that are added, or values that replace scores.

A mask excludes elements by large negative numbers. On the accelerator it is an int8 operand of the
softmax. If it is computed at run time, as from the lengths of padded sentences, the host makes it
from the network's own mask, once for all layers.
"""

import numpy as np

from ...isa.row_statistics import MASKED
from ..graph import operators as ops
from ..rewriting import GraphPattern, GraphView, Site, either, first_match, number, op, value
from ..rewriting.patterns import NodePattern
from .patterns import is_float32
from .sink_dequantize import MOVES

NEGLIGIBLE = 12.0
"""Softmax of 16-bit entries gives 0 for scores this far below the maximum: exp(-12) < 2**-17."""

EXCLUDED = -1000.0
"""Numbers up to this one that are added to scores exclude elements, whatever the scores."""

APART = -90.0
"""Constants up to this one exclude, too, if no others are below half of it: Swin's are -100."""

ADD, MULTIPLY = ops.Binary("Add"), ops.Binary("Mul")


def probabilities(scores: GraphPattern) -> GraphPattern:
    """Describe the softmax of scores with a mask or without, and 0 instead of NaN or not.

    A row that is masked as a whole is NaN in float, and 0 in integers.
    """
    every = either(scores, *masked_scores(scores))
    softmax = op(ops.Softmax, every, capture="softmax", value="probabilities")
    guarded = op(ops.Where, op(ops.Unary("IsNaN"), softmax), number(equal=0.0), softmax)
    return either(softmax, guarded)


def masked_scores(scores: GraphPattern) -> tuple[NodePattern, ...]:
    """Describe scores with a mask, added or in their place."""
    return (
        op(ADD, scores, value("mask"), commutative=True),
        op(ops.Where, value("kept"), scores, number("fill")),
        op(ops.Where, value("dropped"), number("fill"), scores),
    )


def excluded(data: np.ndarray) -> np.ndarray:
    """Return which elements of a constant exclude scores to which they are added."""
    between = (data > APART) & (data < APART / 2)
    return data <= (EXCLUDED if between.any() else APART)


def excludes(view: GraphView, mask: str) -> bool:
    """Tell whether a value that is added to scores is a mask, whatever their scale."""
    if view.is_constant(mask):
        data = view.data(mask)
        masked = excluded(data)
        return bool(masked.any() and not data[~masked].any())
    return mask_step(view, mask) >= -EXCLUDED


def added_mask(site: Site, mask: str, scale: float) -> str | None:
    """Emit the int8 form of a mask that is added to scores of this scale; None if it is none."""
    least = 255 * scale + NEGLIGIBLE
    if site.is_constant(mask):
        data = site.data(mask)
        masked = data <= -least
        if not (masked | (data == 0)).all():
            return None
        return site.constant(_integers(masked), f"{mask}.integers")
    step = mask_step(site.view, mask)
    if step < least:
        return None
    unit = min(step, float(np.finfo(np.float32).max)) / -MASKED
    return site.emit(ops.Quantize((float(np.float32(unit)),), (0,), "int8"), mask)


def replaced_mask(
    site: Site, condition: str, fill: float, scale: float, *, inverse: bool
) -> str | None:
    """Emit the mask of scores that `fill` replaces where a condition holds, or does not hold."""
    if fill > -(255 * scale + NEGLIGIBLE) - 255 * scale:
        return None
    if site.is_constant(condition):
        masked = site.data(condition) != inverse
        return site.constant(_integers(masked), f"{condition}.integers")
    kept, masked = (site.constant(np.array(each, np.int8), f"mask.{each}") for each in (0, MASKED))
    return site.emit(ops.Where(), condition, *((kept, masked) if inverse else (masked, kept)))


def _integers(masked: np.ndarray) -> np.ndarray:
    return np.where(masked, np.int8(MASKED), np.int8(0))


_SUM = op((ADD, ops.Binary("Min")), value("a"), value("b"))
_DIFFERENCE = op((ADD, ops.Binary("Sub")), value("a"), value("b"))
_PRODUCT = op(MULTIPLY, value("a"), number("factor"), commutative=True)
_CHOICE = op(ops.Where, value(), value("a"), value("b"))
_LARGEST = op(ops.Reduce, value("a"), where=lambda reduce: reduce.kind == "ReduceMax")
_MOVE = either(_LARGEST, *(op(MOVES, value("a")), op(MOVES, value("a"), value())))


def mask_step(view: GraphView, name: str) -> float:
    """The magnitude that values of a mask have at least, unless they are 0; 0 for other values.

    It follows from the operators: a product of integers and a number is a multiple of it. Masks
    come from inputs of 0 and 1, so that no positive number occurs.
    """
    if view.is_constant(name):
        data = view.data(name)
        if data.dtype != np.float32 or (data > 0).any():
            return 0.0
        return float(np.abs(data[data != 0]).min(initial=np.inf))
    made = view.producer(name)
    if made is not None and isinstance(made.attributes, ops.Concat):
        return min(mask_step(view, each) for each in made.inputs)
    for pattern in (_SUM, _CHOICE):
        found = first_match(pattern, view, name)
        if found is not None:
            return min(mask_step(view, found["a"]), mask_step(view, found["b"]))
    found = first_match(_PRODUCT, view, name)
    if found is not None:
        return -found["factor"] if found["factor"] < 0 and _is_whole(view, found["a"]) else 0.0
    found = first_match(_MOVE, view, name)
    return 0.0 if found is None else mask_step(view, found["a"])


def _is_whole(view: GraphView, name: str) -> bool:
    """Tell whether all values are integers."""
    if view.is_constant(name):
        data = view.data(name)
        return bool((data == np.rint(data)).all())
    if not is_float32(view.types[name]):
        return True
    cast = first_match(op(ops.Cast, value("a")), view, name)
    if cast is not None:
        return not is_float32(view.types[cast["a"]]) or _is_whole(view, cast["a"])
    found = first_match(_DIFFERENCE, view, name)
    if found is not None:
        return _is_whole(view, found["a"]) and _is_whole(view, found["b"])
    found = first_match(_MOVE, view, name)
    return found is not None and _is_whole(view, found["a"])
