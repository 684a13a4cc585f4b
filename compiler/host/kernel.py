"""What a host kernel is, and what those who look for one may ask of the graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..cpu import CpuTarget, Description
from ..graph import Graph, Node


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
        What it computes, in the graph's order. The last one's output is the kernel's, in any shape
        of the same elements; what the others give, nobody else reads.
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


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of a graph that run on the host, as far as kernels may take them.

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

    def is_free(self, node: Node) -> bool:
        """Whether a kernel may take a node."""
        return node.outputs[0].name in self.free

    def follower(self, node: Node) -> Node | None:
        """The one node that reads a node's output, if it is free; None if anyone else sees it."""
        name = node.output.name
        users = self.graph.users(name)
        if len(users) != 1 or self.graph.is_output(name) or not self.is_free(users[0]):
            return None
        return users[0]

    def leader(self, name: str) -> Node | None:
        """The free node that produces a value which only one node reads; else None."""
        node = self.graph.producer(name)
        if node is None or not self.is_free(node) or len(node.outputs) != 1:
            return None
        if len(self.graph.users(name)) != 1 or self.graph.is_output(name):
            return None
        return node

    def constant(self, name: str) -> np.ndarray | None:
        """A constant's array; None for other values."""
        return self.graph.data(name) if self.graph.is_constant(name) else None


Matcher = Callable[[Scope, Node], HostKernel | None]
"""Finds the kernel that begins at a node, in the graph's order, or None."""
