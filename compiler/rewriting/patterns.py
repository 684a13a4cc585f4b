"""The pattern language: trees of operators with captures, matched from a value up to its producers.

    x = value("x")
    op(QLut, op(QLut, x, constant("inner"), private=True), ...)

matches a table whose operand is a table with no other reader. A capture that occurs twice must be
the same value both times, so trees describe graphs: `op(Binary("Mul"), x, x)` is a square.

Matching enumerates. Each alternative and each order of commutative operands gives a match. The
first match that the rest of the pattern and the rule accept is used.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import permutations
from types import EllipsisType
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from ..graph import Node, TensorType
from ..graph.operator import Operator


class GraphView(Protocol):
    """The view of a graph that patterns need."""

    @property
    def types(self) -> Mapping[str, TensorType]: ...

    def producer(self, name: str) -> Node | None:
        """Return the node that produces a value; None for inputs and constants."""
        ...

    def is_constant(self, name: str) -> bool: ...

    def data(self, name: str) -> np.ndarray:
        """Return the array of a constant."""
        ...

    def is_private(self, name: str) -> bool:
        """Tell whether exactly one node reads a value, and the value is not an output."""
        ...


@dataclass(frozen=True, slots=True)
class GraphMatch:
    """The result of matching a pattern.

    Attributes
    ----------
    captures : mapping
        Name of each capture -> name of a value, operator, number, or tuple for a repetition.
    named : mapping
        Name of each capture of a node -> the node.
    nodes : tuple of Node
        All matched nodes, operands first; a node that was matched twice is listed twice.
    """

    captures: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def __getitem__(self, capture: str) -> Any:
        """Return the object that a capture is bound to; None if no alternative bound it."""
        return self.captures.get(capture)

    def bind(self, capture: str, found: object) -> "GraphMatch | None":
        """Return the match with one more capture; None if the capture has another value already."""
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
"""The empty match."""

Matches = Iterator[GraphMatch]


@dataclass(frozen=True, slots=True)
class GraphPattern(ABC):
    """Base class of all patterns."""

    @abstractmethod
    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield each match of the value `name`, as an extension of `match`."""

    def own_captures(self) -> tuple[str, ...]:
        """Names of its own captures, perhaps empty ones."""
        return getattr(self, "capture", ""), getattr(self, "value", "")

    def inner(self) -> "tuple[GraphPattern, ...]":
        """Return the patterns inside this one."""
        return ()

    def captures(self) -> frozenset[str]:
        """Return the names that the pattern or the patterns inside it may bind."""
        own = frozenset(self.own_captures()) - {""}
        return own.union(*(pattern.captures() for pattern in self.inner()))

    def depth(self) -> int:
        """Return the number of nodes on the longest path up from the value, without repetitions."""
        return max((pattern.depth() for pattern in self.inner()), default=0)


@dataclass(frozen=True, slots=True)
class ValuePattern(GraphPattern):
    """A value: `value`.

    Attributes
    ----------
    capture : str
        Name to which the value is bound.
    constant : bool
        Whether the value must be a constant (True) or must not be one (False); None allows both.
    where : callable
        Condition on the type of the value.
    private : bool
        Whether exactly one node may read the value.
    """

    capture: str = ""
    _: KW_ONLY
    constant: bool | None = None
    where: Callable[[TensorType], bool] | None = None
    private: bool = False

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the match with the capture bound to the value's name."""
        if self.private and not view.is_private(name):
            return
        if self.constant is not None and view.is_constant(name) is not self.constant:
            return
        if self.where is not None and not self.where(view.types[name]):
            return
        found = match.bind(self.capture, name)
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class NumberPattern(GraphPattern):
    """A constant with one element, bound as a float: `number`; `equal` requires a certain one."""

    capture: str = ""
    _: KW_ONLY
    equal: float | None = None
    tolerance: float = 0.0

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the match with the capture bound to the number as a float."""
        if not view.is_constant(name) or view.types[name].elements != 1:
            return
        got = float(view.data(name).reshape(()))
        if self.equal is not None and not math.isclose(got, self.equal, rel_tol=self.tolerance):
            return
        found = match.bind(self.capture, got)
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class NodePattern(GraphPattern):
    """A node with one output, described by its operator and operands; see `op`.

    Attributes
    ----------
    kinds : tuple of type
        Classes of the operator.
    equal : tuple of Operator
        Operators, one of which it must equal; if empty, any operator of the classes matches.
    operands : tuple of GraphPattern
        Patterns of the operands, in order.
    open_ended : bool
        Whether additional operands may follow.
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

    @override
    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        found = view.producer(name)
        if found is None or not isinstance(found.attributes, self.kinds):
            return
        if not self.private or view.is_private(name):
            yield from self.matches_node(view, found, match)

    def matches_node(self, view: GraphView, found: Node, match: GraphMatch = NOTHING) -> Matches:
        """Yield the matches of a node; any number of nodes may read it."""
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

    @override
    def inner(self) -> tuple[GraphPattern, ...]:
        return self.operands

    @override
    def depth(self) -> int:
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
        """Yield the matches of each choice in turn."""
        for choice in self.choices:
            yield from choice.matches(view, name, match)

    @override
    def inner(self) -> tuple[GraphPattern, ...]:
        return self.choices


@dataclass(frozen=True, slots=True)
class EachPattern(GraphPattern):
    """The same pattern for all operands of a node: `each`; its captures are tuples."""

    pattern: GraphPattern

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the match of a single operand."""
        yield from self.matches_all(view, (name,), match)

    def matches_all(self, view: GraphView, names: tuple[str, ...], match: GraphMatch) -> Matches:
        """Yield one match, with a tuple for each capture of the operands."""
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

    @override
    def inner(self) -> tuple[GraphPattern, ...]:
        return (self.pattern,)


@dataclass(frozen=True, slots=True)
class RepeatedPattern(GraphPattern):
    """A chain of nodes that match `link`, as long as possible, below `source`: `repeated`.

    The capture is a tuple of operators, that of the last node first.
    """

    link: GraphPattern
    source: GraphPattern
    capture: str = ""

    def matches(self, view: GraphView, name: str, match: GraphMatch) -> Matches:
        """Yield the matches above the whole chain, then those above shorter chains."""
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

    def inner(self) -> tuple[GraphPattern, ...]:
        """Return the pattern of the value above the chain."""
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
    """Describe a node with one output.

    Parameters
    ----------
    operators : type of Operator, Operator, or tuple of either
        Classes, one of which the operator is an instance of, or operators, one of which it equals.
    operands : GraphPattern or Ellipsis
        Patterns of the operands. `...` at the end allows any others; a single `each` covers all.
    capture : str
        Name to which the operator is bound.
    value : str
        Name to which the output is bound.
    where : callable
        Condition on the operator.
    result : callable
        Condition on the type of the output.
    private : bool
        Whether nothing else may read the output.
    commutative : bool
        Whether the operands may be in any order.
    """
    listed = operators if isinstance(operators, tuple) else (operators,)
    equal = tuple(one for one in listed if isinstance(one, Operator))
    kinds = tuple(type(one) if isinstance(one, Operator) else one for one in listed)
    patterns = tuple(one for one in operands if isinstance(one, GraphPattern))
    open_ended = not operands or operands[-1] is ...
    return NodePattern(
        kinds, equal, patterns, open_ended, capture, value, where, result, private, commutative
    )


def either(*choices: GraphPattern) -> EitherPattern:
    """Describe alternatives; a node is optional if its operand is also one of the choices."""
    return EitherPattern(choices)


value, number, each, repeated = ValuePattern, NumberPattern, EachPattern, RepeatedPattern
"""The other patterns by the names that rules use."""

constant, computed = partial(value, constant=True), partial(value, constant=False)
"""A value that is constant, and one that is not."""


def first_match(pattern: GraphPattern, view: GraphView, name: str) -> GraphMatch | None:
    """Return the first match of a pattern at a value; None if there is none."""
    return next(pattern.matches(view, name, NOTHING), None)


def fits(pattern: NodePattern, view: GraphView, node: Node) -> bool:
    """Tell whether a node matches a pattern."""
    return next(pattern.matches_node(view, node), None) is not None
