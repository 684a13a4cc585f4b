"""Rules: a pattern, and what replaces the node that it finds."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Node, Quantisation
from ..graph.operator import Operator
from .patterns import GraphMatch, NodePattern

if TYPE_CHECKING:
    from .rewriter import Rewriter


class Site:
    """Where a rule has matched: what it found, and how it writes what comes instead.

    Attributes
    ----------
    view : Rewriter
        The graph as patterns see it.
    root : Node
        The node to replace.
    """

    __slots__ = ("_match", "root", "view")

    def __init__(self, view: "Rewriter", root: Node, match: GraphMatch) -> None:
        self.view, self.root, self._match = view, root, match

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the root's output."""
        return self.root.output.type.shape

    def __getitem__(self, capture: str) -> Any:
        """Return what a capture has bound; None where an alternative has not bound it."""
        return self._match[capture]

    def node(self, capture: str) -> Node:
        """Return the node that a capture found."""
        return self._match.named[capture]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.view.types[name].shape

    def elements_of(self, name: str) -> int:
        """Return the number of elements of a value."""
        return self.view.types[name].elements

    def quantisation_of(self, name: str) -> Quantisation | None:
        """Return what the integers of a value stand for, if that is known."""
        return self.view.types[name].quantisation

    def is_constant(self, name: str) -> bool:
        """Tell whether a value is a constant."""
        return self.view.is_constant(name)

    def data(self, name: str) -> np.ndarray:
        """Return a constant's array."""
        return self.view.data(name)

    def constant(self, data: np.ndarray, name: str) -> str:
        """Add a constant and return its name; equal arrays are shared."""
        return self.view.constant(data, name)

    def emit(
        self,
        operator: Operator,
        *inputs: str,
        label: str = "",
        quantisation: Quantisation | None = None,
    ) -> str:
        """Add a node and return its value.

        Parameters
        ----------
        operator : Operator
            What it computes.
        inputs : str
            Values that exist.
        label : str
            Name of the node, for reports; the root's by default.
        quantisation : Quantisation
            Of its value, where type inference cannot know it.
        """
        return self.view.emit(operator, inputs, label or self.root.name, quantisation=quantisation)

    def become(self, operator: Operator, *inputs: str, label: str = "") -> str:
        """Add a node with the root's quantisation and return its value; see `emit`."""
        kind = self.root.output.type.quantisation
        return self.emit(operator, *inputs, label=label, quantisation=kind)


Replacement = Callable[..., str | None]
"""(site, captures by name) -> the value that replaces the root's; None to leave the root."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern with its replacement.

    Attributes
    ----------
    patterns : tuple of NodePattern
        Of the node to replace; alternatives, in order.
    replace : callable
        Its docstring is the law.
    captures : tuple of str
        Parameters of `replace` behind the site.
    """

    patterns: tuple[NodePattern, ...]
    replace: Replacement
    captures: tuple[str, ...]

    @property
    def kinds(self) -> tuple[type[Operator], ...]:
        """Classes of operators that it may replace."""
        return tuple(kind for pattern in self.patterns for kind in pattern.kinds)

    def apply(self, rewriter: "Rewriter", root: Node) -> str | None:
        """Return the value that replaces the root's; None where the rule does not apply."""
        for pattern in self.patterns:
            for match in pattern.matches_node(rewriter, root):
                found = {name: match.captures.get(name) for name in self.captures}
                result = self.replace(Site(rewriter, root, match), **found)
                if result is not None:
                    return result
        return None


def rule(*patterns: NodePattern) -> Callable[[Replacement], Rule]:
    """Make a rule of a function.

    Its parameters behind the site have the names of captures; None stands for what an alternative
    has not bound.
    """

    def decorate(replace: Replacement) -> Rule:
        captures = tuple(inspect.signature(replace).parameters)[1:]
        known = frozenset().union(*(pattern.captures() for pattern in patterns))
        unknown = sorted(set(captures) - known)
        assert not unknown, f"rule `{replace.__name__}`: no pattern captures {unknown}"
        return Rule(patterns, replace, captures)

    return decorate
