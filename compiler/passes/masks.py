"""Masks of scores before a softmax: constants that are added, or values that replace scores.

A mask excludes elements by large negative numbers. On the accelerator it is an int8 operand of the
softmax. If it is computed at run time, as from the lengths of padded sentences, the host makes it
from the network's own mask, once for all layers.
"""

import math
from itertools import takewhile

import numpy as np

from ...isa.row_statistics import MASKED
from ..graph import Builder
from ..graph import operators as ops
from ..graph.types import DTYPES, FLOATS, NARROW_FLOATS, wide
from ..rewriting import GraphPattern, GraphView, Site, either, number, op, value
from ..rewriting.patterns import NodePattern
from .sink_dequantize import MOVES

NEGLIGIBLE = 12.0
"""Softmax of 16-bit entries gives 0 for scores this far below the maximum: exp(-12) < 2**-17."""

EXCLUDED = -1000.0
"""Numbers up to this one that are added to scores exclude elements, whatever the scores."""

APART = -90.0
"""Constants up to this one exclude, too, if no others are below half of it: Swin's are -100."""

ADD = ops.Binary("Add")


def round_mask(builder: Builder, name: str, least: float = float(np.finfo(np.float32).min)) -> str:
    """Emit `least` where a value is closer to a mask's numbers than to 0, and 0 elsewhere."""
    held = [builder.constant(np.array(n, np.float32)) for n in (EXCLUDED / 2, least, 0)]
    truth = builder.emit(ops.Binary("Less"), [name, held[0]], f"{name}.truth")
    return builder.emit(ops.Where(), [truth, *held[1:]], f"{name}.mask")


def probabilities(scores: GraphPattern) -> GraphPattern:
    """Describe the softmax of scores with a mask or without, and 0 instead of NaN or masked ones.

    A row that is masked as a whole is NaN in float, and 0 in integers.
    """
    added, kept, dropped = masked_scores(scores)
    softmax, of_kept, of_dropped = (
        op(ops.Softmax, each, capture="softmax", value="probabilities")
        for each in (either(scores, added, kept, dropped), kept, dropped)
    )
    zero = number(equal=0.0)
    return either(
        softmax,
        op(ops.Where, op(ops.Unary("IsNaN"), softmax), zero, softmax),
        op(ops.Where, value("kept"), of_kept, zero),
        op(ops.Where, value("dropped"), zero, of_dropped),
    )


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


def excludes(view: GraphView, mask: str, sign: int = 1) -> bool:
    """Tell whether a value times `sign` that is added to scores is a mask, whatever their scale."""
    if view.is_constant(mask):
        data = sign * view.data(mask)
        masked = excluded(data)
        return bool(masked.any() and not data[~masked].any())
    return mask_step(view, mask, sign=sign) >= -EXCLUDED


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
    half = site.constant(np.array(-min(step, -EXCLUDED) / 2, np.float32), "mask.half")
    return _chosen(site, site.emit(ops.Binary("Less"), mask, half), MASKED, 0)


def replaced_mask(
    site: Site, condition: str, fill: float, scale: float, *, inverse: bool
) -> str | None:
    """Emit the mask of scores that `fill` replaces where a condition holds, or does not hold."""
    if fill > -(255 * scale + NEGLIGIBLE) - 255 * scale:
        return None
    if site.is_constant(condition):
        masked = site.data(condition) != inverse
        return site.constant(_integers(masked), f"{condition}.integers")
    return _chosen(site, condition, *((0, MASKED) if inverse else (MASKED, 0)))


def _chosen(site: Site, condition: str, *integers: int) -> str:
    held = (site.constant(np.array(each, np.int8), f"mask.{each}") for each in integers)
    return site.emit(ops.Where(), condition, *held)


def _integers(masked: np.ndarray) -> np.ndarray:
    return np.where(masked, np.int8(MASKED), np.int8(0))


TRUTHS = frozenset((0.0, 1.0))

MAX_CHOICES = 1 << 10
"""Number of combinations of values up to which an operator is evaluated."""


def mask_step(view: GraphView, name: str, sign: int = 1) -> float:
    """The magnitude that values of a mask have at least, unless they are 0; 0 for other values.

    It follows from the operators. Masks come from truths, which integers stand for as 0 and 1. So
    do floats that are inputs, if what is made of them is then 0 or excludes elements.

    Parameters
    ----------
    sign
        A factor of the mask, 1 or -1.
    """
    for inputs, least in ((frozenset[float](), 0.0), (TRUTHS, -EXCLUDED)):
        values = frozenset(sign * each for each in _values(view, name, {}, inputs))
        if not values or not max(values) <= 0 or any(map(math.isnan, values)):
            continue
        step = -max(values - {0}, default=-math.inf)
        if step >= least and (values != {0} or not inputs):
            return step
    return 0.0


def excludes_unless(view: GraphView, truth: str, mask: str) -> bool:
    """Tell whether a value is 0 or 1, and a mask of the elements for which it is 0."""
    if not 0 < len(_values(view, truth, {}, TRUTHS)) <= 2:
        return False
    kept, dropped = (_values(view, mask, {truth: frozenset((n,))}, TRUTHS) for n in (1.0, 0.0))
    return kept == {0} and bool(dropped) and max(dropped) <= EXCLUDED


def _values(
    view: GraphView, name: str, found: dict[str, frozenset[float]], inputs: frozenset[float]
) -> frozenset[float]:
    """All values that elements can have, as numbers; none if they are not known.

    Parameters
    ----------
    inputs
        All values of inputs of the network that are floats.
    """
    if name not in found:
        found[name] = _values_made(view, name, found, inputs)
    return found[name]


def _values_made(
    view: GraphView, name: str, found: dict[str, frozenset[float]], inputs: frozenset[float]
) -> frozenset[float]:
    kind = view.types[name]
    if view.is_constant(name):
        data = wide(view.data(name)).ravel()
        parts = data[: 2 * MAX_CHOICES], data  # most of those with many values begin with many
        few = all(len(np.unique(part)) <= MAX_CHOICES for part in parts)
        return frozenset(map(float, np.unique(data))) if few else frozenset()
    is_float = kind.dtype in (*FLOATS, *NARROW_FLOATS)
    unknown = frozenset() if is_float else TRUTHS
    made = view.producer(name)
    if made is None or kind.dtype == "bool":
        return unknown or inputs
    operator = made.attributes
    moves = isinstance(operator, (*MOVES, ops.Concat)) or (
        isinstance(operator, ops.Reduce) and operator.kind in ("ReduceMax", "ReduceMin")
    )
    names = made.inputs[operator.moved] or made.inputs[:1] if moves else made.inputs
    given: list[frozenset[float]] = []
    if moves or isinstance(operator, (ops.Pointwise, ops.Cast, ops.Where)):
        given = [*takewhile(bool, (_values(view, each, found, inputs) for each in names))]
    if len(given) < len(names) or math.prod(map(len, given)) > MAX_CHOICES:
        return unknown
    if moves:
        return frozenset().union(*given)
    kinds = (DTYPES[view.types[each].dtype] for each in names)
    listed = (np.array(sorted(each)).astype(one) for each, one in zip(given, kinds, strict=True))
    with np.errstate(all="ignore"):
        return frozenset(map(float, np.unique(wide(operator.compute(*np.meshgrid(*listed))))))
