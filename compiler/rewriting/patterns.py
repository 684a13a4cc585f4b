"""The pattern language: trees of operators with captures, matched from a value up to its producers.

    x = value("x")
    op(QLut, op(QLut, x, value("inner", constant=True), private=True), ...)

matches a table whose operand is a table that nobody else reads. A capture that occurs twice must be
the same value both times, so that trees describe graphs: `op(Binary("Mul"), x, x)` is a square.

Matching enumerates: alternatives and commutative operands give a match each, in order, and the
first one that the rest of the pattern and the rule accept counts.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from types import EllipsisType
from typing import Any, Protocol

import numpy as np

from ..graph import Node, TensorType
from ..graph.operator import Operator


class GraphView(Protocol):
    """What patterns ask of a graph."""

    @property
    def types(self) -> Mapping[str, TensorType]:
        """Types of all values."""
        ...

    def producer(self, name: str) -> Node | None:
        """Return the node that produces a value; None for inputs and constants."""
        ...

    def is_constant(self, name: str) -> bool:
        """Tell whether a value is a constant."""
        ...

    def data(self, name: str) -> np.ndarray:
        """Return a constant's array."""
        ...

    def is_private(self, name: str) -> bool:
        """Tell whether one node alone reads a value, and no output shows it."""
        ...


@dataclass(frozen=True, slots=True)
class GraphMatch:
    """What a pattern has found.

    Attributes
    ----------
    captures : mapping
        By name: a value's name, a node's operator, a number, or a tuple of what was repeated.
    named : mapping
        Node of each capture of a node.
    nodes : tuple of Node
        All nodes, operands first; nodes that occur twice are there twice.
    """

    captures: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def __getitem__(self, capture: str) -> Any:
        """Return what a capture has bound; None where an alternative has not bound it."""
        return self.captures.get(capture)

    def bind(self, capture: str, found: object) -> "GraphMatch | None":
        """Return the match with one more capture; None where it has another value already."""
        if not capture:
            return self
        if capture in self.captures:
            return self if self.captures[capture] == found else None
        return GraphMatch({**self.captures, capture: found}, self.named, self.nodes)

    def with_node(self, capture: str, found: Node) -> "GraphMatch":
        """Return the match with one more node."""
        nodes = (*self.nodes, found)
        if not capture:
            return GraphMatch(self.captures, self.named, nodes)
        captures = {**self.captures, capture: found.attributes}
        return GraphMatch(captures, {**self.named, capture: found}, nodes)


NOTHING = GraphMatch()
"""A match to begin with."""

Matches = Iterator[GraphMatch]


@dataclass(frozen=True, slots=True)
class GraphPattern:
    """Base of all patterns."""

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield every way in which the value `name` fits, each with what `match` had before."""
        raise NotImplementedError

    def own_captures(self) -> tuple[str, ...]:
        """Names that the pattern itself binds; "" binds nothing."""
        return ()

    def inner(self) -> "tuple[GraphPattern, ...]":
        """Patterns inside of this one."""
        return ()

    def captures(self) -> frozenset[str]:
        """Names that the pattern may bind, with those inside."""
        own = frozenset(self.own_captures()) - {""}
        return own.union(*(pattern.captures() for pattern in self.inner()))

    def depth(self) -> int:
        """Most nodes from its value up, without those of a row."""
        return max((pattern.depth() for pattern in self.inner()), default=0)


@dataclass(frozen=True, slots=True)
class ValuePattern(GraphPattern):
    """Any value, or a constant, or one that is computed; see `value`."""

    capture: str = ""
    constant: bool | None = None
    where: Callable[[TensorType], bool] | None = None
    private: bool = False

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the match with the value's name."""
        if self.private and not view.is_private(name):
            return
        if self.constant is not None and view.is_constant(name) is not self.constant:
            return
        if self.where is not None and not self.where(view.types[name]):
            return
        found = match.bind(self.capture, name)
        if found is not None:
            yield found

    def own_captures(self) -> tuple[str, ...]:
        """Return its name."""
        return (self.capture,)


@dataclass(frozen=True, slots=True)
class NumberPattern(GraphPattern):
    """A constant of one element; see `number`."""

    capture: str = ""
    equal: float | None = None
    tolerance: float = 0.0

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the match with the number as a float."""
        if not view.is_constant(name) or view.types[name].elements != 1:
            return
        got = float(view.data(name).reshape(()))
        if self.equal is not None and not math.isclose(got, self.equal, rel_tol=self.tolerance):
            return
        found = match.bind(self.capture, got)
        if found is not None:
            yield found

    def own_captures(self) -> tuple[str, ...]:
        """Return its name."""
        return (self.capture,)


@dataclass(frozen=True, slots=True)
class NodePattern(GraphPattern):
    """A node of one output by its operator and operands; see `op`.

    Attributes
    ----------
    kinds : tuple of type
        Classes of operators.
    equal : tuple of Operator
        Operators that it may equal; any of the classes where empty.
    operands : tuple of GraphPattern
        In order.
    open_ended : bool
        Whether more operands may follow.
    """

    kinds: tuple[type[Operator], ...]
    equal: tuple[Operator, ...]
    operands: tuple[GraphPattern, ...]
    open_ended: bool
    capture: str = ""
    value: str = ""
    where: Callable[[Any], bool] | None = None
    result: Callable[[TensorType], bool] | None = None
    private: bool = False
    commutative: bool = False

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the matches of the node that produces a value."""
        found = view.producer(name)
        if found is None or not isinstance(found.attributes, self.kinds):
            return
        if not self.private or view.is_private(name):
            yield from self.matches_node(view, found, match)

    def matches_node(self, view: GraphView, found: Node, match: GraphMatch = NOTHING) -> Matches:
        """Yield the matches of a node, whoever reads it."""
        operator = found.attributes
        if not isinstance(operator, self.kinds) or len(found.outputs) != 1:
            return
        if self.equal and operator not in self.equal:
            return
        if self.result is not None and not self.result(found.outputs[0].type):
            return
        if self.where is not None and not self.where(operator):
            return
        named = match.bind(self.value, found.outputs[0].name)
        if named is not None:
            for one in self._operands(view, found.inputs, named):
                yield one.with_node(self.capture, found)

    def _operands(self, view: GraphView, names: tuple[str, ...], match: GraphMatch) -> Matches:
        count = len(self.operands)
        if count == 1 and isinstance(self.operands[0], EachPattern):
            yield from self.operands[0].matches_all(view, names, match)
        elif len(names) == count or (self.open_ended and len(names) > count):
            orders = permutations(self.operands) if self.commutative else (self.operands,)
            for order in orders:
                yield from _in_turn(view, order, names, match)

    def own_captures(self) -> tuple[str, ...]:
        """Names of its operator and of its output."""
        return self.capture, self.value

    def inner(self) -> tuple[GraphPattern, ...]:
        """Patterns of its operands."""
        return self.operands

    def depth(self) -> int:
        """Most nodes from its value up, itself among them."""
        return 1 + max((operand.depth() for operand in self.operands), default=0)


def _in_turn(
    view: GraphView, patterns: tuple[GraphPattern, ...], names: tuple[str, ...], match: GraphMatch
) -> Matches:
    if not patterns:
        yield match
        return
    for found in patterns[0].matches(view, names[0], match):
        yield from _in_turn(view, patterns[1:], names[1:], found)


@dataclass(frozen=True, slots=True)
class EitherPattern(GraphPattern):
    """One of several patterns, tried in order; see `either`."""

    choices: tuple[GraphPattern, ...]

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the matches of each choice."""
        for choice in self.choices:
            yield from choice.matches(view, name, match)

    def inner(self) -> tuple[GraphPattern, ...]:
        """All choices."""
        return self.choices


@dataclass(frozen=True, slots=True)
class EachPattern(GraphPattern):
    """All operands of a node; see `each`."""

    pattern: GraphPattern

    def matches_all(self, view: GraphView, names: tuple[str, ...], match: GraphMatch) -> Matches:
        """Yield one match, with tuples of what each operand captures."""
        parts: list[GraphMatch] = []
        for name in names:
            found = first_match(self.pattern, view, name)
            if found is None:
                return
            parts.append(found)
        captures = dict(match.captures)
        for capture in self.pattern.captures():
            captures[capture] = tuple(part.captures.get(capture) for part in parts)
        nodes = tuple(one for part in parts for one in part.nodes)
        yield GraphMatch(captures, match.named, (*match.nodes, *nodes))

    def inner(self) -> tuple[GraphPattern, ...]:
        """The operands' pattern."""
        return (self.pattern,)


@dataclass(frozen=True, slots=True)
class RepeatedPattern(GraphPattern):
    """Nodes in a row, as many as fit, then another pattern; see `repeated`."""

    link: GraphPattern
    source: GraphPattern
    capture: str = ""

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the matches above the last link, then those above links before it."""
        found = [(name, match)]
        while (last := first_match(self.link, view, name)) is not None:
            made = last.nodes[-1]
            name, match = made.inputs[0], match.with_node("", made)
            found.append((name, match))
        first = len(found[0][1].nodes)
        for above, one in reversed(found):
            operators = tuple(node.attributes for node in one.nodes[first:])
            bound = one.bind(self.capture, operators)
            if bound is not None:
                yield from self.source.matches(view, above, bound)

    def own_captures(self) -> tuple[str, ...]:
        """Return its name."""
        return (self.capture,)

    def inner(self) -> tuple[GraphPattern, ...]:
        """The pattern of what comes before the row."""
        return (self.source,)


Operators = type[Operator] | Operator | tuple[type[Operator], ...] | tuple[Operator, ...]


def op(
    operators: Operators,
    *operands: GraphPattern | EllipsisType,
    capture: str = "",
    value: str = "",
    where: Callable[[Any], bool] | None = None,
    result: Callable[[TensorType], bool] | None = None,
    private: bool = False,
    commutative: bool = False,
) -> NodePattern:
    """Describe a node of one output.

    Parameters
    ----------
    operators
        Classes, one of which its operator is an instance of, or operators, one of which it equals.
    operands
        Patterns of its operands. `...` at the end stands for any others; `each` alone, for all.
    capture : str
        Name under which its operator is found.
    value : str
        Name under which its output is found.
    where, result
        Conditions on the operator, and on the type of its output.
    private : bool
        Whether nobody else may read its output.
    commutative : bool
        Whether the operands may come in another order.
    """
    listed = operators if isinstance(operators, tuple) else (operators,)
    equal = tuple(one for one in listed if isinstance(one, Operator))
    kinds = tuple(type(one) if isinstance(one, Operator) else one for one in listed)
    patterns = tuple(one for one in operands if isinstance(one, GraphPattern))
    open_ended = not operands or operands[-1] is ...
    return NodePattern(
        *(kinds, equal, patterns, open_ended),
        *(capture, value, where, result, private, commutative),
    )


def value(
    capture: str = "",
    *,
    constant: bool | None = None,
    where: Callable[[TensorType], bool] | None = None,
    private: bool = False,
) -> ValuePattern:
    """Describe a value.

    Parameters
    ----------
    capture : str
        Name under which the value's name is found.
    constant : bool
        Whether it must be a constant, or must not; None for either.
    where
        Condition on its type.
    private : bool
        Whether one node alone may read it.
    """
    return ValuePattern(capture, constant, where, private)


def number(
    capture: str = "", *, equal: float | None = None, tolerance: float = 0.0
) -> NumberPattern:
    """Describe a constant of one element, captured as a float, perhaps of a given value."""
    return NumberPattern(capture, equal, tolerance)


def either(*choices: GraphPattern) -> EitherPattern:
    """Describe alternatives; with the operand of a node among them, that node is optional."""
    return EitherPattern(choices)


def each(pattern: GraphPattern) -> EachPattern:
    """Describe all operands of a node alike; captures are tuples."""
    return EachPattern(pattern)


def repeated(link: GraphPattern, source: GraphPattern, capture: str = "") -> RepeatedPattern:
    """Describe nodes in a row, as many as fit, above which `source` matches.

    The capture is a tuple of operators, the last node's first.
    """
    return RepeatedPattern(link, source, capture)


def first_match(pattern: GraphPattern, view: GraphView, name: str) -> GraphMatch | None:
    """Return the first way in which a value fits a pattern, if there is one."""
    return next(pattern.matches(view, name, NOTHING), None)


def fits(pattern: NodePattern, view: GraphView, node: Node) -> bool:
    """Tell whether a node fits a pattern in any way."""
    return next(pattern.matches_node(view, node), None) is not None
