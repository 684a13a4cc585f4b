"""Rules of rewriting: a pattern, and a function that replaces the node it matches."""

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
    """The match of a rule: the captures, and the means to write a replacement.

    Attributes
    ----------
    view : Rewriter
        Graph as the patterns see it.
    root : Node
        Node to replace.
    """

    __slots__ = ("_match", "root", "view")

    def __init__(self, view: "Rewriter", root: Node, match: GraphMatch) -> None:
        self.view, self.root, self._match = view, root, match

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the root's output."""
        return self.root.output.type.shape

    def __getitem__(self, capture: str) -> Any:
        """Return the object that a capture is bound to; None if no alternative bound it."""
        return self._match[capture]

    def node(self, capture: str) -> Node:
        """Return the node that a capture is bound to."""
        return self._match.named[capture]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.view.types[name].shape

    def elements_of(self, name: str) -> int:
        """Return the number of elements of a value."""
        return self.view.types[name].elements

    def quantisation_of(self, name: str) -> Quantisation | None:
        """Return the quantisation of a value; None if it is not known."""
        return self.view.types[name].quantisation

    def is_constant(self, name: str) -> bool:
        """Tell whether a value is a constant."""
        return self.view.is_constant(name)

    def data(self, name: str) -> np.ndarray:
        """Return the array of a constant."""
        return self.view.data(name)

    def constant(self, data: np.ndarray, name: str) -> str:
        """Add a constant and return its name; equal arrays share one constant."""
        return self.view.constant(data, name)

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


Replacement = Callable[..., str | None]
"""Function (site, captures by name) -> value that replaces the root's, or None to keep the root."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and its replacement.

    Attributes
    ----------
    patterns : tuple of NodePattern
        Alternative patterns of the node to replace, in order.
    replace : callable
        Function that writes the replacement; its docstring states the law.
    captures : tuple of str
        Names of the parameters of `replace` after the site.
    """

    patterns: tuple[NodePattern, ...]
    replace: Replacement
    captures: tuple[str, ...]

    @property
    def kinds(self) -> tuple[type[Operator], ...]:
        """Classes of the operators that the rule may replace."""
        return tuple(kind for pattern in self.patterns for kind in pattern.kinds)

    def apply(self, rewriter: "Rewriter", root: Node) -> str | None:
        """Return the value that replaces the root's; None if the rule does not apply."""
        for pattern in self.patterns:
            for match in pattern.matches_node(rewriter, root):
                found = {name: match.captures.get(name) for name in self.captures}
                result = self.replace(Site(rewriter, root, match), **found)
                if result is not None:
                    return result
        return None


def rule(*patterns: NodePattern) -> Callable[[Replacement], Rule]:
    """Turn a function into a rule.

    The function's parameters after the site are named after captures. A parameter is None if no
    alternative bound its capture.
    """

    def decorate(replace: Replacement) -> Rule:
        captures = tuple(inspect.signature(replace).parameters)[1:]
        known = frozenset().union(*(pattern.captures() for pattern in patterns))
        unknown = sorted(set(captures) - known)
        assert not unknown, f"rule `{replace.__name__}`: no pattern captures {unknown}"
        return Rule(patterns, replace, captures)

    return decorate
