"""Rules of rewriting: a pattern, and a function that replaces the node it matches."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from ...errors import CompileError
from ..graph import Graph, Node, Quantisation
from ..graph.operator import Operator
from .patterns import GraphMatch, GraphView, NodePattern, op
from .rewriter import Rewriter, rewrite

T = TypeVar("T")


class Site:
    """The match of a rule: the captures, and the means to write a replacement.

    Attributes
    ----------
    view : Rewriter
        Graph as the patterns see it.
    root : Node
        Node to replace.
    match : GraphMatch
        Captures and nodes.
    """

    __slots__ = ("match", "root", "view")

    def __init__(self, view: Rewriter, root: Node, match: GraphMatch) -> None:
        self.view, self.root, self.match = view, root, match

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the root's output."""
        return self.root.output.type.shape

    def __getitem__(self, capture: str) -> Any:
        """Return the object that a capture is bound to; None if no alternative bound it."""
        return self.match[capture]

    def node(self, capture: str) -> Node:
        """Return the node that a capture is bound to."""
        return self.match.named[capture]

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self.view.types[name].shape

    def elements_of(self, name: str) -> int:
        """Return the number of elements of a value."""
        return self.view.types[name].elements

    def quantisation_of(self, name: str) -> Quantisation | None:
        """Return the quantisation of a value; None if it is not known."""
        return self.view.types[name].quantisation

    def is_constant(self, name: str) -> bool:
        return self.view.is_constant(name)

    def data(self, name: str) -> np.ndarray:
        """Return the array of a constant."""
        return self.view.data(name)

    def constant(self, data: np.ndarray, name: str) -> str:
        """Add a constant and return its name; equal arrays share one constant."""
        return self.view.constant(data, name)

    def constants(self, label: str, **arrays: np.ndarray) -> list[str]:
        """Add constants named `<label>.<name>` and return their names."""
        return [self.constant(data, f"{label}.{name}") for name, data in arrays.items()]

    def emit(
        self,
        operator: Operator,
        *inputs: str,
        label: str = "",
        quantisation: Quantisation | None = None,
    ) -> str:
        """Add a node and return the name of its value.

        Parameters
        ----------
        operator : Operator
            Operation of the node.
        inputs : str
            Names of existing values.
        label : str
            Name of the node, for reports; by default that of the root.
        quantisation : Quantisation
            Quantisation of the value, if type inference cannot determine it.
        """
        return self.view.emit(operator, inputs, label or self.root.name, quantisation=quantisation)

    def become(self, operator: Operator, *inputs: str, label: str = "") -> str:
        """Add a node with the root's quantisation and return the name of its value; see `emit`."""
        kind = self.root.output.type.quantisation
        return self.emit(operator, *inputs, label=label, quantisation=kind)


@dataclass(frozen=True, slots=True)
class Matched:
    """A function of the captures of patterns; the first match for which it has a result counts.

    Attributes
    ----------
    patterns : tuple of NodePattern
        Alternative patterns of a node, in order.
    function : callable
        Returns None to decline a match.
    captures : tuple of str
        Names of the parameters that it takes from the match.
    """

    patterns: tuple[NodePattern, ...]
    function: Callable[..., Any]
    captures: tuple[str, ...]

    @classmethod
    def of(
        cls, patterns: tuple[NodePattern, ...], function: Callable[..., Any], given: int
    ) -> Self:
        """Make one of a function whose parameters, but for the first `given`, are captures.

        A parameter is None if no alternative bound its capture.

        Raises
        ------
        CompileError
            If something is no pattern, or no pattern has a capture of a parameter's name.
        """
        rule = f"{cls.__name__.lower()} `{function.__name__}`"
        for pattern in patterns:
            if not isinstance(pattern, NodePattern):
                raise CompileError(f"{rule}: expected patterns, got `{pattern}`; write `op(...)`")
        captures = tuple(inspect.signature(function).parameters)[given:]
        known = frozenset[str]().union(*(pattern.captures() for pattern in patterns))
        if unknown := sorted(set(captures) - known):
            raise CompileError(
                f"{rule}: expected parameters named as captures of its patterns "
                f"({', '.join(sorted(known))}), got `{unknown[0]}`; rename it"
            )
        return cls(patterns, function, captures)

    @property
    def kinds(self) -> tuple[type[Operator], ...]:
        """Classes of the operators that a matched node may have."""
        return tuple(kind for pattern in self.patterns for kind in pattern.kinds)

    def result(
        self, view: GraphView, node: Node, given: Callable[[GraphMatch], tuple[Any, ...]]
    ) -> Any:
        """Return the function's first result for a node; `given` makes its first arguments."""
        for pattern in self.patterns:
            for match in pattern.matches_node(view, node):
                found = {name: match[name] for name in self.captures}
                result = self.function(*given(match), **found)
                if result is not None:
                    return result
        return None


class Rule(Matched):
    """Patterns and their replacement, a function of the site; its docstring states the law.

    It returns the value that replaces the root's, or None to keep the root. A rule alone is a pass.
    """

    __slots__ = ()

    def __call__(self, graph: Graph) -> Graph:
        """Apply the rule until it does not apply any more; see `rewrite`."""
        return rewrite(graph, self)

    @property
    def __name__(self) -> str:
        """The name of the pass."""
        return self.function.__name__

    def apply(self, rewriter: Rewriter, root: Node) -> str | None:
        """Return the value that replaces the root's; None if the rule does not apply."""
        name = self.result(rewriter, root, lambda match: (Site(rewriter, root, match),))
        if name is not None and name not in rewriter.types:
            raise CompileError(
                f"rule `{self.__name__}`: expected the name of a value or None, got `{name}`; "
                "return what `site.become` or `site.emit` returns"
            )
        return name


def rule(*patterns: NodePattern) -> Callable[[Callable[..., str | None]], Rule]:
    """Turn a function into a rule; its parameters after the site are captures."""
    return lambda replace: Rule.of(patterns, replace, 1)


def of_node(
    make: Callable[[NodePattern], Callable[[Callable[..., Any]], T]],
) -> Callable[..., Callable[[Callable[..., Any]], T]]:
    """Return a function that takes the arguments of `op`, and returns `make(op(...))`."""
    return lambda *operands, **conditions: make(op(*operands, **conditions))


rule_of = of_node(rule)
"""Turns a function into a rule of the nodes that `op` describes: `rule(op(...))`."""
