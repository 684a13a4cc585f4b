"""Estimated work of kernels, and a bound that rules kernels out before any of them is looked for.

The bound needs neither the kernels nor LLVM, so that a run without kernels does not load them.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..graph import Graph, Node
from ..graph import operators as ops
from .formulas import ELEMENTWISE

if TYPE_CHECKING:
    from .kernel import HostKernel, HostStep

MIN_WORK = 1 << 10
"""Minimum number of operations that the largest kernel needs before loading LLVM pays off.

Then small nodes are compiled too: NumPy takes 5 to 50 us for each of them, however small.
"""

PASSES = 8
"""Approximate passes over memory that NumPy needs for a product, a window or a reduction."""

POINTWISE = (*ELEMENTWISE, ops.Reshape, ops.Transpose)
"""Operators whose kernels do one operation for each element of the output."""


def replaced_work(kernel: "HostKernel") -> int:
    """Estimate NumPy's operations for the nodes of a kernel, counted in passes over memory.

    Operations are multiplications, or elements of its arrays.
    """
    description = kernel.description
    given = (a for name, a in description.operands.items() if name not in description.constants)
    sizes = (math.prod(array.shape) for array in (description.output, *given))
    work = max(description.macs, *sizes)
    if work > math.prod(description.output.shape):
        return work * PASSES
    return work * len(kernel.nodes)


def moved_work(step: "HostStep") -> int:
    """Estimate NumPy's operations for nodes that move elements: a pass over memory for each."""
    return step.nodes[-1].output.type.elements * len(step.nodes)


def may_have_kernels(graph: Graph, nodes: Iterable[Node], least_work: int = MIN_WORK) -> bool:
    """Whether a step of the host's nodes may do `least_work` operations; False is certain.

    The nodes of a step are connected. `replaced_work` and `moved_work` are at most the work of the
    largest of these nodes times their number, or times `PASSES`.
    """
    groups: list[tuple[list[Node], set[str]]] = []
    for node in nodes:
        if isinstance(node.attributes, ops.Recurrent):
            return True
        touched = [group for group in groups if not group[1].isdisjoint(node.inputs)]
        groups = [group for group in groups if group not in touched]
        members = [one for group in touched for one in group[0]]
        names = {value.name for value in node.outputs}.union(*(group[1] for group in touched))
        groups.append(([*members, node], names))
    return any(_most_work(graph, members) >= least_work for members, _ in groups)


def _most_work(graph: Graph, nodes: list[Node]) -> int:
    """Return an upper bound of `replaced_work` for any kernel of these nodes."""
    work, simple = 0, True
    for node in nodes:
        made = sum(value.type.elements for value in node.outputs)
        read = [graph.types[name].elements for name in node.inputs]
        if isinstance(node.attributes, POINTWISE) and max(read) <= made:
            work = max(work, made)
        else:
            window = getattr(node.attributes, "kernel", ())
            work, simple = max(work, made * sum(read) * math.prod(window)), False
    return work * (len(nodes) if simple else max(len(nodes), PASSES))
