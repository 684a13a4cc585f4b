"""Values as sums of elements of one quantised value, each with a factor.

Exporters write rotary embedding with halves or with interleaved pairs, by slices, Gather, Split,
negations and concatenations, before or after the heads are transposed, of all channels or of some.
All of these are linear, so one walk follows the factor of each element through them, whatever their
form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..graph import Node, Quantisation, evaluate_operator
from ..graph import operators as ops
from ..rewriting import GraphView, first_match
from .moved_elements import MOVES, moved_elements, moving_node
from .patterns import dequantised, quantisation_of

MAX_ELEMENTS = 1 << 22
"""Of a result; larger ones stay in float."""

MAX_DEPTH = 40
"""Of the operators between a result and its source; deeper ones have no form."""

MAX_TERMS = 16
"""Of each element; sums of more have no form."""

TABLE_ENTRIES = 256

INPUT = dequantised("x", constant=False)


class Linear(NamedTuple):
    """Elements as sums of others: places in int8 values, factors, and places in run-time tables.

    Attributes
    ----------
    source : tuple of str and Quantisation
    places, factors, tables : [..., terms]
        A place of -1 in the tables stands for 1; see `LinearForms`.
    """

    source: tuple[str, Quantisation]
    places: np.ndarray
    factors: np.ndarray
    tables: np.ndarray

    def moved(self, operator: ops.Operator, *constants: np.ndarray) -> "Linear":
        """Return the elements after a movement."""
        return self._each(
            lambda part: np.stack([
                evaluate_operator(operator, [part[..., term], *constants])
                for term in range(part.shape[-1])
            ], axis=-1)
        )  # fmt: skip

    def _each(self, change) -> "Linear":
        return Linear(self.source, *map(change, self[1:]))

    def broadcast(self, shape: tuple[int, ...]) -> "Linear":
        """Return the elements repeated to fill a shape."""

        def change(part: np.ndarray) -> np.ndarray:
            ranked = part.reshape((1,) * (len(shape) + 1 - part.ndim) + part.shape)
            return np.broadcast_to(ranked, (*shape, part.shape[-1]))

        return self._each(change)


@dataclass
class LinearForms:
    """The linear forms of values, and the run-time tables from which their factors come.

    Attributes
    ----------
    starts : dict
        Table -> place of its first element, where all lie one behind the other.
    largest : float
        Bound on their magnitudes.
    rounding : float
        Bound on what the roundings of values between move a result, where factors are 1 at most.
    """

    view: GraphView
    starts: dict[str, int] = field(default_factory=dict)
    largest: float = 1.0
    rounding: float = 0.0
    _known: dict[tuple[str, bool], tuple[Linear | None, float]] = field(default_factory=dict)
    _depth: int = 0

    @property
    def elements(self) -> int:
        """Count the elements of all tables."""
        return sum(self.view.types[name].elements for name in self.starts)

    def of_integers(self, name: str) -> Linear | None:
        """Return the form of int8 values, which is at least their own; see `of`."""
        return self._found(name, integers=True)

    def of(self, name: str) -> Linear | None:
        """Return the form of float values; None if they have none."""
        return self._found(name, integers=False)

    def _found(self, name: str, *, integers: bool) -> Linear | None:
        """Look for a form once, and count its roundings wherever it is read."""
        key, before = (name, integers), self.rounding
        if key in self._known:
            form, rounding = self._known[key]
            self.rounding += rounding
            return form
        if self._depth == MAX_DEPTH:
            return None
        self._depth += 1
        form = self._integer_form(name) if integers else self._float_form(name)
        self._depth -= 1
        self._known[key] = form, self.rounding - before
        return form

    def _integer_form(self, name: str) -> Linear | None:
        node, kind = self.view.producer(name), self.view.types[name]
        if node is not None and kind.elements <= MAX_ELEMENTS:
            operator = node.attributes
            if isinstance(operator, ops.Quantize) and operator.axis is None:
                inner = self.of(node.inputs[0])
                return inner or self._source(name, quantisation_of(operator))
            if isinstance(operator, ops.QConcat):
                return _joined([self.of_integers(each) for each in node.inputs], operator.axis)
            shapes = {self.view.types[each].shape for each in node.inputs}
            if isinstance(operator, ops.QAdd) and len(shapes) == 1:
                return _joined([self._between(each) for each in node.inputs], -1)
            if isinstance(operator, ops.QLut) and (factor := _slope(self.view, node)):
                inner = self._between(node.inputs[0])
                return inner and inner._replace(factors=inner.factors * factor)
            if moving_node(self.view, name) is not None:
                inner = self.of_integers(node.inputs[0])
                return inner and inner.moved(operator, *map(self.view.data, node.inputs[1:]))
        if kind.quantisation is None:
            return None
        return self._source(name, kind.quantisation)

    def _float_form(self, name: str) -> Linear | None:
        view, node = self.view, self.view.producer(name)
        if node is None or view.types[name].elements > MAX_ELEMENTS:
            return None
        found = first_match(INPUT, view, name)
        if found is not None:
            return self._between(found["x"], quantisation_of(found["x_scale"]))
        operator = node.attributes
        if moving_node(view, name) is not None:
            inner = self.of(node.inputs[0])
            return inner and inner.moved(operator, *map(view.data, node.inputs[1:]))
        if operator == ops.Unary("Neg"):
            inner = self.of(node.inputs[0])
            return inner and inner._replace(factors=-inner.factors)
        if isinstance(operator, ops.Concat):
            return _joined([self.of(each) for each in node.inputs], operator.axis)
        if not isinstance(operator, ops.Binary):
            return None
        if operator.kind in ("Mul", "Div"):
            return self._scaled(node, operator.kind)
        if operator.kind not in ("Add", "Sub"):
            return None
        parts = [self.of(each) for each in node.inputs]
        if operator.kind == "Sub" and parts[1] is not None:
            parts[1] = parts[1]._replace(factors=-parts[1].factors)
        if any(part is None or part.places.shape[:-1] != node.output.type.shape for part in parts):
            return None
        return _joined(parts, -1)

    def _between(self, name: str, given: Quantisation | None = None) -> Linear | None:
        """Return the form of int8 values that are read; they may be sums that were rounded."""
        given = given or self.view.types[name].quantisation
        form = self.of_integers(name)
        if given is None:
            return None
        plain = self._source(name, given)
        if form is None or form.source[0] == plain.source[0]:
            return plain
        self.rounding += given.scale / 2
        return form

    def _source(self, name: str, quantisation: Quantisation) -> Linear:
        source, places = moved_elements(self.view, name)
        places = places[..., None]
        ones, none = np.ones(places.shape), np.full(places.shape, -1)
        return Linear((source, quantisation), places, ones, none)

    def _scaled(self, node: Node, kind: str) -> Linear | None:
        """Return the form of a product or quotient with constants or with tables."""
        shape = node.output.type.shape
        for name, other in (node.inputs, node.inputs[::-1]):
            inner = self.of(name)
            if inner is None:
                if kind == "Div":
                    break
                continue
            inner = inner.broadcast(shape)
            if self.view.is_constant(other):
                data = self.view.data(other).astype(np.float64)
                if kind == "Div" and not data.all():
                    return None
                number = np.broadcast_to(data, shape)[..., None]
                factors = inner.factors / number if kind == "Div" else inner.factors * number
                return inner._replace(factors=factors)
            bound = _bound(self.view, other)
            if bound is None or kind == "Div" or (inner.tables >= 0).any():
                return None
            start = self.starts.setdefault(other, self.elements)
            self.largest = max(self.largest, bound)
            own = self.view.types[other].shape
            places = start + np.arange(int(np.prod(own))).reshape(own)
            places = np.broadcast_to(places, shape)[..., None]
            return inner._replace(tables=np.broadcast_to(places, inner.tables.shape))
        return None


def _slope(view: GraphView, node: Node) -> float | None:
    """Return the factor by which a table multiplies; None if it computes something else."""
    x, y = (view.types[name].quantisation for name in (node.inputs[0], node.output.name))
    if x is None or y is None or view.types[node.inputs[1]].elements != TABLE_ENTRIES:
        return None
    table = view.data(node.inputs[1]).astype(int).reshape(-1)
    given = (np.arange(-128, 128) - x.zero_point) * (x.scale / y.scale)
    inside = np.abs(table) < 127
    square = given[inside] @ given[inside]
    if not square:
        return None
    factor = float(given[inside] @ (table[inside] - y.zero_point) / square)
    expected = np.clip(np.rint(given * factor) + y.zero_point, -128, 127)
    return factor if np.abs(table - expected).max() <= 1 else None


def _bound(view: GraphView, name: str) -> float | None:
    """Return a bound on the magnitudes of values that only positions determine."""
    if view.is_constant(name):
        return float(np.abs(view.data(name)).max(initial=0))
    node = view.producer(name)
    if node is None:
        return None
    if isinstance(node.attributes, ops.Unary) and node.attributes.kind in ("Cos", "Sin"):
        return 1.0
    if isinstance(node.attributes, ops.Concat):
        bounds = [_bound(view, each) for each in node.inputs]
        return None if None in bounds else max(each for each in bounds if each is not None)
    return _bound(view, node.inputs[0]) if isinstance(node.attributes, MOVES) else None


def _joined(parts: Sequence[Linear | None], axis: int) -> Linear | None:
    """Concatenate elements along an axis, or terms along the last one."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len({part.source for part in found}) > 1:
        return None
    counts = [part.places.shape[-1] for part in found]
    most = max(counts)
    if (sum(counts) if axis == -1 else most) > MAX_TERMS:
        return None

    def padded(part: Linear) -> Linear:
        missing = most - part.places.shape[-1]
        if axis == -1 or not missing:
            return part
        again = np.repeat(part.places[..., :1], missing, axis=-1)
        ends = (again, np.zeros(again.shape), np.full(again.shape, -1))
        joined = (np.concatenate(pair, axis=-1) for pair in zip(part[1:], ends, strict=True))
        return Linear(part.source, *joined)

    every = [padded(part) for part in found]
    columns = zip(*(part[1:] for part in every), strict=True)
    return Linear(every[0].source, *(np.concatenate(column, axis=axis) for column in columns))
