"""Bring normalisations to the form that `normalisations` matches: means along the last axis.

The laws hold for float values, but for rounding, and but for rows that are as small as epsilon.
"""

import math
from collections.abc import Callable

import numpy as np

from ..graph import Node
from ..graph import operators as ops
from ..rewriting import (
    GraphMatch,
    Site,
    computed,
    constant,
    either,
    fits,
    number,
    op,
    repeated,
    rule,
    value,
)
from ..rewriting.patterns import NOTHING
from .arrange_layout import inverse
from .normalisations import ROWS, channels_first, normalisations, square
from .patterns import is_float32, reshaped

ADD, MULTIPLY, DIVIDE = map(ops.Binary, ("Add", "Mul", "Div"))

MAX_FLOOR = 1e-6
"""Largest epsilon, added to a norm or bounding it from below, that may move under the root."""

IMAGE = 4

TINY, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

_X = computed("x", where=is_float32)


# Sums --------------------------------------------------------------------------------------------


def _is_total(reduce: ops.Reduce) -> bool:
    return reduce.kind in ("ReduceSum", "ReduceSumSquare") and reduce.keep


_TOTAL = op(ops.Reduce, _X, capture="total", where=_is_total)


@rule(op(MULTIPLY, _TOTAL, number("share"), commutative=True), op(DIVIDE, _TOTAL, number("count")))
def name_mean(
    site: Site, x: str, total: ops.Reduce, share: float | None, count: float | None
) -> str | None:
    """ReduceSum(x) / n -> ReduceMean(x), and ReduceSumSquare(x) / n -> ReduceMean(x * x)."""
    columns = math.prod(site.shape_of(x)[axis] for axis in total.axes)
    if not math.isclose(count or 1 / (share or math.inf), columns, rel_tol=1e-6):
        return None
    squares = total.kind == "ReduceSumSquare"
    return site.emit(
        ops.Reduce("ReduceMean", total.axes, keep=True), site.emit(MULTIPLY, x, x) if squares else x
    )


def _is_mean(reduce: ops.Reduce) -> bool:
    return reduce.kind == "ReduceMean"


@rule(
    op(
        ops.Reduce,
        op(ops.Reduce, _X, capture="inner", where=_is_mean),
        capture="outer",
        where=_is_mean,
    )
)
def join_means(site: Site, x: str, inner: ops.Reduce, outer: ops.Reduce) -> str | None:
    """ReduceMean(ReduceMean(x)) over the rows and columns of an image -> AveragePool(x)."""
    shape = site.shape_of(x)
    left = [axis for axis in range(len(shape)) if inner.keep or axis not in inner.axes]
    axes = {*inner.axes, *(left[axis] for axis in outer.axes)}
    if len(shape) != IMAGE or axes != {2, 3}:
        return None
    pool = ops.AveragePool(shape[2:], shape[2:], (0, 0, 0, 0))
    return reshaped(site, site.emit(pool, x), site.shape)


# Norms of vectors --------------------------------------------------------------------------------

_SQUARES = either(
    op(ops.Reduce, either(*square(_X)), capture="sums",
       where=lambda r: r.kind == "ReduceSum" and r.keep),
    op(ops.Reduce, _X, capture="sums", where=lambda r: r.kind == "ReduceSumSquare" and r.keep),
)  # fmt: skip


def _is_floor(clip: ops.Unary) -> bool:
    return clip.kind == "Clip" and clip.parameters[1] >= LARGEST


_BOUNDED_SQUARES = either(
    op(ops.Unary, _SQUARES, capture="square_clip", where=_is_floor),
    op((ops.Binary("Max"), ADD), _SQUARES, number("square_floor"), commutative=True),
    _SQUARES,
)
_NORM = either(
    op(ops.Reduce, _X, capture="norm", where=lambda r: r.kind == "ReduceL2" and r.keep),
    op(ops.Unary("Sqrt"), _BOUNDED_SQUARES),
)
_BOUNDED = repeated(
    op(ops.Expand, value()),
    either(
        op(ops.Unary, _NORM, capture="clip", where=_is_floor),
        op((ops.Binary("Max"), ADD), _NORM, number("floor"), commutative=True),
        _NORM,
    ),
)


@rule(
    op(DIVIDE, _X, _BOUNDED),
    op(MULTIPLY, _X, op(ops.Unary("Reciprocal"), _BOUNDED), commutative=True),
)
def name_vector_norm(
    site: Site, x: str, norm: ops.Reduce | None, sums: ops.Reduce | None,
    clip: ops.Unary | None, floor: float | None, square_clip: ops.Unary | None,
    square_floor: float | None
) -> str | None:  # fmt: skip
    """x / max(|x|, e) -> x / sqrt(mean(x * x) + e * e / n) / sqrt(n)."""
    reduce = norm or sums
    assert reduce is not None
    least = clip.parameters[0] if clip else floor or 0
    squared = square_clip.parameters[0] if square_clip else square_floor or 0
    if (
        not (0 <= least <= MAX_FLOOR and 0 <= squared <= MAX_FLOOR)
        or site.shape_of(x) != site.shape
    ):
        return None
    columns = math.prod(site.shape[axis] for axis in reduce.axes)
    epsilon, share = max((least**2 + squared) / columns, TINY), 1 / math.sqrt(columns)
    held = {"epsilon": np.array(epsilon, np.float32), "share": np.array(share, np.float32)}
    numbers = site.constants(site.root.name, **held)
    mean = site.emit(ops.Reduce("ReduceMean", reduce.axes, keep=True), site.emit(MULTIPLY, x, x))
    root = site.emit(ops.Unary("Sqrt"), site.emit(ADD, mean, numbers[0]))
    return site.emit(MULTIPLY, site.emit(DIVIDE, x, root), numbers[1])


@rule(op(MULTIPLY, op(MULTIPLY, computed("x"), number("factor"), private=True, commutative=True),
         constant("again"), commutative=True))  # fmt: skip
def join_scales(site: Site, x: str, factor: float, again: str) -> str:
    """(x * f) * g -> x * (f * g)."""
    whole = site.data(again) * np.float32(factor)
    return site.emit(MULTIPLY, x, site.constant(whole, f"{site.root.name}.scale"))


# Axes --------------------------------------------------------------------------------------------

_NORMAL = normalisations(ROWS, channels_first)
MEANS = ops.Reduce, ops.AveragePool
_SCALED = op((ADD, MULTIPLY), value(), constant(), commutative=True)


_END = op((ADD, MULTIPLY, DIVIDE), ...)


@rule(_END)
def norm_of_rows(site: Site) -> str | None:
    """Norm(x) along an axis -> Transpose(Norm(x with this axis last))."""
    return _norm_of_rows(site, lambda made: True)


@rule(_END)
def norm_of_integers(site: Site) -> str | None:
    """Norm(Dequantize(x)) along an axis -> Transpose(Norm(Dequantize(x) with this axis last))."""
    return _norm_of_rows(
        site, lambda made: made is not None and isinstance(made.attributes, ops.Dequantize)
    )


def _norm_of_rows(site: Site, fits_source: Callable[[Node | None], bool]) -> str | None:
    user = site.view.only_user(site.root.output.name)
    if user is not None and fits(_SCALED, site.view, user):
        return None
    matches = _NORMAL.matches(site.view, site.root.output.name, NOTHING)
    return next(filter(None, (_last_axis(site, match, fits_source) for match in matches)), None)


def _last_axis(
    site: Site, match: GraphMatch, fits_source: Callable[[Node | None], bool]
) -> str | None:
    """Emit a normalisation along the last axis of its source, and a Transpose behind it."""
    x, shape, label = match["x"], site.shape, site.root.name
    means = {node.attributes for node in match.nodes if isinstance(node.attributes, MEANS)}
    if len(means) != 1 or site.shape_of(x) != shape or site.is_constant(x):
        return None
    (mean,) = means
    if not isinstance(mean, ops.Reduce) or len(mean.axes) != 1:
        return None
    (axis,), last = mean.axes, len(shape) - 1
    made = site.view.producer(x)
    turn = made.attributes if made is not None else None
    if made is not None and isinstance(turn, ops.Transpose) and turn.permutation[axis] == last:
        x, order = made.inputs[0], inverse(turn.permutation)
        made = site.view.producer(x)
    elif axis != last:
        order = *(other for other in range(len(shape)) if other != axis), axis
    else:
        return None
    held = [
        None if match[result] is None else _column(site.data(match[name]), shape, axis)
        for result, name in (("scaled", "scale"), ("biased", "bias"))
    ]
    if not fits_source(made) or any(data is not None and not data.size for data in held):
        return None
    x = site.emit(ops.Transpose(order), x) if x == match["x"] else x
    mean = ops.Reduce("ReduceMean", (last,), keep=True)
    if match["centred"] is not None or match["moved"] is not None:
        x = site.emit(ops.Binary("Sub"), x, site.emit(mean, x))
    variance = site.emit(mean, site.emit(MULTIPLY, x, x))
    epsilon = site.constant(np.array(match["epsilon"], np.float32), f"{label}.epsilon")
    y = site.emit(DIVIDE, x, site.emit(ops.Unary("Sqrt"), site.emit(ADD, variance, epsilon)))
    for operator, data in zip((MULTIPLY, ADD), held, strict=True):
        if data is not None:
            y = site.emit(operator, y, site.constant(data, f"{label}.column"))
    return site.emit(ops.Transpose(inverse(order)), y)


def _column(data: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Return a constant that varies along one axis alone as a vector; an empty one for others."""
    whole = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
    if whole.size != whole.shape[axis]:
        return np.zeros(0, np.float32)
    return np.ascontiguousarray(np.broadcast_to(whole.reshape(-1), shape[axis : axis + 1]))


SUMS = name_mean, join_means, name_vector_norm
"""Rules that also suit graphs that stay in float, since they change no layout."""
