"""Host kernels, the matchers that find them, and the matchers' view of the graph."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ..graph import Graph, Node, TensorType
from ..rewriting import GraphMatch, value
from ..rewriting.patterns import NodePattern
from ..rewriting.rules import Matched, of_node
from .graph_queries import in_order

if TYPE_CHECKING:
    from ..cpu import CpuTarget, Description


class HostStep(ABC):
    """Nodes of a graph that the host computes in machine code, as one step.

    Subclasses are frozen dataclasses.
    """

    __slots__ = ()
    nodes: tuple[Node, ...]
    """The nodes, in the graph's order."""
    exact: bool
    """True if it is bit-exact to the graph's definition. False if it sums float32 in another order
    or approximates a function."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """Values that it reads in a run."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The values that it computes."""
        return tuple(value.name for value in self.nodes[-1].outputs)

    @property
    def output(self) -> str:
        """The value that names the step."""
        return self.nodes[-1].outputs[0].name

    def descriptions(self) -> "tuple[Description, ...]":
        """Return the descriptions of its kernels."""
        return ()


@dataclass(frozen=True, slots=True)
class HostKernel(HostStep):
    """The nodes of a graph that one kernel of the CPU target computes.

    Parameters
    ----------
    description : Description
        The kernel.
    inputs : mapping
        The graph's value for each operand that is not a constant, in the order of the arguments.
        The kernel reads an array in row-major order, in the operand's shape.
    constants : mapping
        An array for each constant operand, in the shape that the description gives.
    nodes : tuple of Node
        The nodes that it computes. The kernel's output is that of the last node, in any shape with
        the same elements. No other node reads the other outputs.
    """

    description: "Description"
    inputs: Mapping[str, str]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    exact: bool = False

    @property
    @override
    def reads(self) -> tuple[str, ...]:
        return tuple(self.inputs.values())

    @override
    def descriptions(self) -> "tuple[Description, ...]":
        return (self.description,)


HERE = value("here")
"""The value at which a pattern starts; see `HostScope.behind`."""


@dataclass(frozen=True, slots=True)
class HostScope:
    """The nodes of a graph that are still free for host kernels.

    Patterns see only these free nodes; outputs of other nodes count as inputs.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    free : frozenset of str
        Names of the first outputs of nodes that no kernel has taken yet.
    target : CpuTarget
        The processor that kernels are compiled for.
    """

    graph: Graph
    free: frozenset[str]
    target: "CpuTarget"

    @property
    def types(self) -> Mapping[str, TensorType]:
        return self.graph.types

    def is_free(self, node: Node) -> bool:
        """Whether a kernel may take a node."""
        return node.outputs[0].name in self.free

    def producer(self, name: str) -> Node | None:
        """Return the free node that produces a value, if there is one."""
        node = self.graph.producer(name)
        return node if node is not None and self.is_free(node) else None

    def is_constant(self, name: str) -> bool:
        return self.graph.is_constant(name)

    def data(self, name: str) -> np.ndarray:
        """Return a constant's array."""
        return self.graph.data(name)

    def is_private(self, name: str) -> bool:
        """Whether exactly one node reads a value and it is not an output."""
        return self.graph.is_private(name)

    def follower(self, node: Node) -> Node | None:
        """Return the only reader of a node's output; None if it is not free or not the only one."""
        user = self.graph.only_user(node.output.name)
        return user if user is not None and self.is_free(user) else None

    def constant(self, name: str) -> np.ndarray | None:
        """Return a constant's array; None for other values."""
        return self.graph.data(name) if self.graph.is_constant(name) else None

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.types[name].shape

    def image(self, name: str) -> tuple[int, int, int, int]:
        """Return the shape of an image: samples, rows, columns, channels."""
        samples, rows, columns, channels = self.shape(name)
        return samples, rows, columns, channels

    def is_closed(self, nodes: Iterable[Node]) -> bool:
        """Whether nodes, in order, are free and only the value of the last one is read outside.

        Nodes with no output or several outputs are never closed.
        """
        nodes = tuple(nodes)
        names = {node.outputs[0].name for node in nodes}
        if not all(self.is_free(node) and len(node.outputs) == 1 for node in nodes):
            return False
        return all(
            not self.graph.is_output(node.output.name)
            and all(user.outputs[0].name in names for user in self.graph.users(node.output.name))
            for node in nodes[:-1]
        )

    def behind(self, node: Node, pattern: NodePattern) -> GraphMatch | None:
        """Match a pattern after a node, whose output is `HERE`; None if nothing matches.

        No other node may read the node's output, and only the pattern's last value may be read
        outside. The match lists its nodes in order, each once.
        """
        start = GraphMatch({"here": node.output.name})
        for root in self.readers(node.output.name, pattern.depth()):
            for match in pattern.matches_node(self, root, start):
                nodes = in_order(self.graph, match.nodes)
                if self.is_closed((node, *nodes)):
                    return replace(match, nodes=nodes)
        return None

    def around(self, node: Node, *patterns: NodePattern) -> Iterator[GraphMatch]:
        """Yield the matches that contain a node, pattern by pattern.

        Only the value of a match's root may be read outside. The match lists its nodes in order,
        each once.
        """
        depth = max(pattern.depth() for pattern in patterns) - 1
        roots = (node, *self.readers(node.output.name, depth))
        for pattern, root in itertools.product(patterns, roots):
            for match in pattern.matches_node(self, root):
                nodes = in_order(self.graph, match.nodes)
                if node in nodes and self.is_closed(nodes):
                    yield replace(match, nodes=nodes)

    def readers(self, name: str, depth: int) -> Iterator[Node]:
        """Yield the free nodes that depend on a value, the nearest first.

        `depth` is the maximum number of nodes in a row.
        """
        found, level = {name}, [name]
        for _ in range(depth):
            users = [user for one in level for user in self.graph.users(one)]
            level = []
            for user in users:
                made = user.outputs[0].name
                if self.is_free(user) and made not in found:
                    found.add(made)
                    level.append(made)
                    yield user


class Matcher(Matched):
    """Patterns of a node, and a function that makes the kernel that begins there, or None."""

    __slots__ = ()

    def __call__(self, scope: HostScope, node: Node) -> HostKernel | None:
        """Find the kernel that begins at a node, in the graph's order; None if there is none."""
        return self.result(scope, node, lambda match: (scope, node))


def matcher(*patterns: NodePattern) -> Callable[[Callable[..., HostKernel | None]], Matcher]:
    """Turn a function into a matcher; its parameters after the scope and the node are captures."""
    return lambda build: Matcher.of(patterns, build, 2)


matcher_of = of_node(matcher)
"""Turns a function into a matcher of the nodes that `op` describes: `matcher(op(...))`."""
