"""Normalisations of rows, LayerNormalization and RMSNormalization, as several float nodes.

Importers and exporters write them so; PyTorch's and TensorFlow's forms are known.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..graph import Node
from ..graph import operators as ops
from ..graph.operators import AveragePool, Binary, Cast, Reduce, Reshape, Transpose, Unary
from ..rewriting import (
    GraphMatch,
    GraphPattern,
    GraphView,
    constant,
    either,
    number,
    op,
    repeated,
    value,
)
from ..rewriting.patterns import EitherPattern, NodePattern
from .patterns import is_float32


def _same(inner: GraphPattern, *kinds: type[ops.Operator]) -> GraphPattern:
    """Match a value after conversions to its own type, or after operators of these kinds."""
    return repeated(op((Cast, *kinds), value(where=is_float32)), inner)


Pool = Callable[[GraphPattern], GraphPattern]
"""Makes the pattern of a whole-image pool that computes row means."""


def _without_border(pool: AveragePool, channels_last: bool) -> bool:
    return pool.channels_last == channels_last and not any(pool.pads)


def _last(image: GraphPattern) -> NodePattern:
    turned = either(op(Transpose((0, 2, 3, 1)), image), image)
    return op(AveragePool, turned, where=lambda pool: _without_border(pool, channels_last=True))


def channels_last(inner: GraphPattern) -> GraphPattern:
    """Match a pool as TensorFlow's exporter has it, after the front end."""
    return _last(op(Reshape, inner))


def channels_first(inner: GraphPattern) -> GraphPattern:
    """Match the same pool as imported."""
    image = either(op(Reshape, inner), inner)
    return op(AveragePool, image, where=lambda pool: _without_border(pool, channels_last=False))


def of_integers(inner: GraphPattern) -> GraphPattern:
    """Match the same pool of dequantised elements, which may be reshaped as integers."""
    return _last(either(op(Reshape, inner), inner))


def square(inner: GraphPattern) -> tuple[NodePattern, NodePattern]:
    """Match a square, as a power or a product."""
    return op(Binary("Pow"), inner, number(equal=2.0)), op(Binary("Mul"), inner, inner)


def _deviation(variance: GraphPattern) -> tuple[GraphPattern, GraphPattern]:
    """Match the root of a variance plus epsilon, and the inverse of it."""
    spread = _same(op(Binary("Add"), variance, number("epsilon"), commutative=True))
    deviation = _same(op(Unary("Sqrt"), spread))
    one_over = op(Binary("Div"), number(equal=1.0), deviation)
    power = op(Binary("Pow"), spread, number(equal=-0.5))
    return deviation, _same(either(op(Unary("Reciprocal"), deviation), one_over, power))


def _normal(x: GraphPattern, variance: GraphPattern) -> tuple[NodePattern, NodePattern]:
    """Match a row divided by the root of its variance plus epsilon, or times the inverse of it."""
    deviation, inverse = _deviation(variance)
    return op(Binary("Div"), x, deviation), op(Binary("Mul"), x, inverse, commutative=True)


def normalisations(x: GraphPattern, pool: Pool) -> EitherPattern:
    """Match a normalisation of `x`, with scale and bias if these are constant."""

    def mean(inner: GraphPattern) -> GraphPattern:
        """Match a mean of rows: a Reduce, or a pool of whole images."""
        reduced = op(Reduce, inner, where=lambda r: r.kind == "ReduceMean" and r.keep)
        return _same(either(reduced, op(Reshape, pool(inner)), pool(inner)))

    def affine(factor: GraphPattern) -> NodePattern:
        """Match TensorFlow's form: `x * factor + (bias - mean * factor)`."""
        moved = op(Binary("Mul"), mean(x), factor, capture="moved", commutative=True)
        shift = op(Binary("Sub"), constant("bias"), moved, value="biased")
        scaled = op(Binary("Mul"), x, factor, commutative=True)
        return op(Binary("Add"), scaled, shift, commutative=True)

    centred = _same(op(Binary("Sub"), x, mean(x), capture="centred"))
    squared, squared_mean = (_same(either(*square(one))) for one in (x, mean(x)))
    mean_square = mean(squared)
    variance = either(
        mean(_same(either(*square(centred)))),
        _same(op(Binary("Sub"), mean_square, squared_mean)),
    )
    normal = _same(either(*_normal(centred, variance), *_normal(x, mean_square)), Reshape)
    scaled = _same(
        op(Binary("Mul"), normal, constant("scale"), value="scaled", commutative=True),
        Reshape,
    )
    biased = op(
        *(Binary("Add"), either(normal, scaled), constant("bias")), value="biased", commutative=True
    )
    inverse = _deviation(variance)[1]
    factor = op(*(Binary("Mul"), inverse, constant("scale")), value="scaled", commutative=True)
    return either(_same(biased, Reshape), scaled, normal, affine(factor), affine(inverse))


ROWS = _same(value("x"))
"""The rows of a normalisation in float."""


def extents_of(view: GraphView, node: Node) -> tuple[int, int, int]:
    """Count the elements before, along and after the axes of a mean; 0 if not adjacent.

    A pool of whole images counts along the rows of the image, before its transpose if channels are
    last.
    """
    operator, kind = node.attributes, view.types[node.inputs[0]]
    if isinstance(operator, AveragePool):
        image = kind.shape[1:3] if operator.channels_last else kind.shape[2:4]
        if operator.kernel == image:
            columns = math.prod(operator.kernel)
            return kind.elements // columns, columns, 1
    if not isinstance(operator, Reduce) or kind.dtype != "float32" or not operator.axes:
        return 0, 0, 0
    first, last = min(operator.axes), max(operator.axes)
    if any(kind.shape[i] > 1 and i not in operator.axes for i in range(first, last)):
        return 0, 0, 0
    parts = kind.shape[:first], kind.shape[first : last + 1], kind.shape[last + 1 :]
    rows, columns, inner = map(math.prod, parts)
    return (rows, columns, inner) if rows * columns * inner else (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A normalisation of rows, with scale and bias as float32[columns], or [rows] if `by_row`."""

    rows: int
    columns: int
    epsilon: float
    centred: bool
    scale: np.ndarray
    bias: np.ndarray
    by_row: bool


def normalisation_of(
    view: GraphView, nodes: Iterable[Node], match: GraphMatch, elements: int
) -> Normalisation | None:
    """Return the normalisation of a match of `RESULT`, if its nodes work on the same rows.

    Parameters
    ----------
    nodes : iterable of Node
        The nodes of the match.
    elements : int
        Elements of the result.
    """
    means = (node for node in nodes if isinstance(node.attributes, Reduce | AveragePool))
    extents = {extents_of(view, node)[1:] for node in means}
    columns, inner = extents.pop()
    if extents or not columns or inner != 1 or match["epsilon"] < 0:
        return None
    if view.is_constant(match["x"]) or view.types[match["x"]].elements != elements:
        return None
    rows = elements // columns
    centred = match["centred"] is not None or match["moved"] is not None
    given = {"scale": match["scaled"], "bias": match["biased"]}
    for by_row, extent, held in ((False, columns, per_column), (True, rows, per_row)):
        constants = {name: np.full(extent, name == "scale", np.float32) for name in given}
        for name, result in given.items():
            if result is not None:
                found = held(view.data(match[name]), view.types[result].shape, columns)
                if found is None:
                    break
                constants[name] = found
        else:
            return Normalisation(
                rows, columns, match["epsilon"], centred, **constants, by_row=by_row
            )
    return None


def per_column(constant: np.ndarray, shape: tuple[int, ...], columns: int) -> np.ndarray | None:
    """Return a constant, broadcast to `shape`, as one row of `columns`; None if rows differ."""
    if constant.size not in (1, columns) or constant.dtype != np.float32:
        return None
    rows = np.broadcast_to(constant, shape).reshape(-1, columns)
    return np.array(rows[0]) if (rows == rows[0]).all() else None


def per_row(constant: np.ndarray, shape: tuple[int, ...], columns: int) -> np.ndarray | None:
    """Return a constant, broadcast to `shape`, as one element per row; None if rows vary."""
    rows = np.broadcast_to(constant, shape).reshape(-1, columns)
    same = constant.dtype == np.float32 and (rows == rows[:, :1]).all()
    return np.array(rows[:, 0]) if same else None
