"""Host kernels, the view of the graph that matchers have, and matchers as patterns."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..cpu import CpuTarget, Description
from ..graph import Graph, Node, TensorType
from ..graph.operator import Operator
from ..rewriting import GraphMatch, value
from ..rewriting.patterns import NodePattern
from .graph_queries import in_order


@dataclass(frozen=True, slots=True)
class HostKernel:
    """Nodes of a graph that one kernel of the CPU target computes.

    Parameters
    ----------
    description
        The kernel.
    inputs
        The graph's value for each operand that is no constant, in the order of a call. Arrays are
        read row-major in the operand's shape, which has the elements of the value in their order.
    constants
        An array for each constant operand, as the description has it.
    nodes
        The nodes that it computes, in the graph's order. The kernel's output is the last one's, in
        any shape of the same elements. Nobody else reads the others' outputs.
    exact
        Whether it has the bits of the graph's definition; False where float32 sums are rounded in
        another order, or functions are approximated.
    """

    description: Description
    inputs: Mapping[str, str]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    exact: bool = False

    @property
    def output(self) -> str:
        """The value that it gives."""
        return self.nodes[-1].output.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """The same, as all that the host runs has them."""
        return (self.output,)

    @property
    def macs(self) -> int:
        """Multiplications; 0 where the description counts none."""
        return getattr(self.description, "macs", 0)


HERE = value("here")
"""The value behind which a pattern is looked for; see `HostScope.behind`."""


@dataclass(frozen=True, slots=True)
class HostScope:
    """The nodes of a graph that host kernels may still take.

    Patterns see only these free nodes; outputs of other nodes count as inputs.

    Parameters
    ----------
    graph
        The whole graph.
    free
        Names of the first outputs of nodes that no kernel has taken yet.
    target
        What kernels are compiled for.
    """

    graph: Graph
    free: frozenset[str]
    target: CpuTarget

    @property
    def types(self) -> Mapping[str, TensorType]:
        """Types of all values."""
        return self.graph.types

    def is_free(self, node: Node) -> bool:
        """Whether a kernel may take a node."""
        return node.outputs[0].name in self.free

    def producer(self, name: str) -> Node | None:
        """The free node that produces a value."""
        node = self.graph.producer(name)
        return node if node is not None and self.is_free(node) else None

    def is_constant(self, name: str) -> bool:
        """Whether a value is a constant."""
        return self.graph.is_constant(name)

    def data(self, name: str) -> np.ndarray:
        """A constant's array."""
        return self.graph.data(name)

    def is_private(self, name: str) -> bool:
        """Whether one node alone reads a value, and no output shows it."""
        return self.graph.is_private(name)

    def follower(self, node: Node) -> Node | None:
        """The one node that reads a node's output, if it is free; None if anyone else sees it."""
        user = self.graph.only_user(node.output.name)
        return user if user is not None and self.is_free(user) else None

    def constant(self, name: str) -> np.ndarray | None:
        """A constant's array; None for other values."""
        return self.graph.data(name) if self.graph.is_constant(name) else None

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.graph.types[name].shape

    def image(self, name: str) -> tuple[int, int, int, int]:
        """The shape of an image: samples, rows, columns, channels."""
        samples, rows, columns, channels = self.shape(name)
        return samples, rows, columns, channels

    def is_closed(self, nodes: Iterable[Node]) -> bool:
        """Whether nodes, in order, are free and only the last one's value is seen outside.

        Nodes of no output, or of several, are never closed.
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
        """Match a pattern below a node, whose output is `HERE`; None if nothing matches.

        Nobody else may read the node's output, and only the pattern's last value is visible
        outside. The match has its nodes in order, each once.
        """
        start = GraphMatch({"here": node.output.name})
        reached = [node]
        for _ in range(pattern.depth()):
            users = (user for one in reached for user in self.graph.users(one.outputs[0].name))
            found = {user.outputs[0].name: user for user in users if self.is_free(user)}
            reached = list(found.values())
            for root in reached:
                for match in pattern.matches_node(self, root, start):
                    nodes = in_order(self.graph, match.nodes)
                    if self.is_closed((node, *nodes)):
                        return GraphMatch(match.captures, match.named, nodes)
        return None


@dataclass(frozen=True, slots=True)
class Matcher:
    """Finds the kernel that begins at a node, in the graph's order.

    Parameters
    ----------
    patterns
        Of that node, one of which it must fit.
    build
        (scope, node, captures by name) -> the kernel, or None.
    captures
        Parameters of `build` behind the node.
    """

    patterns: tuple[NodePattern, ...]
    build: Callable[..., HostKernel | None]
    captures: tuple[str, ...]

    @property
    def kinds(self) -> tuple[type[Operator], ...]:
        """Classes of operators at which such a kernel may begin."""
        return tuple(kind for pattern in self.patterns for kind in pattern.kinds)

    def __call__(self, scope: HostScope, node: Node) -> HostKernel | None:
        """The kernel that begins at a node; None if there is none."""
        for pattern in self.patterns:
            for match in pattern.matches_node(scope, node):
                found = {name: match[name] for name in self.captures}
                kernel = self.build(scope, node, **found)
                if kernel is not None:
                    return kernel
        return None


def matcher(*patterns: NodePattern) -> Callable[[Callable[..., HostKernel | None]], Matcher]:
    """Make a matcher of a function whose parameters behind the node are captures."""

    def decorate(build: Callable[..., HostKernel | None]) -> Matcher:
        return Matcher(patterns, build, tuple(inspect.signature(build).parameters)[2:])

    return decorate
