"""Selection of the host's kernels: matchers run in the graph's order, by operator.

The selection depends only on the graph and the target, so an artifact stores machine code but no
descriptions of kernels.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from ..cpu import CpuTarget, Description
from ..graph import Graph, Node
from .kernel import HostKernel, HostScope
from .matchers import MATCHERS

LEAST_WORK = 1 << 14
"""Fewest operations for which a kernel is compiled, which takes about 100 ms, once."""


PASSES = 8
"""Approximate passes over memory that NumPy needs for a product, a window or a reduction."""


def select_kernels(
    graph: Graph, nodes: Iterable[Node], target: CpuTarget, least_work: int = LEAST_WORK
) -> tuple[HostKernel, ...]:
    """Select kernels for nodes of the host.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    nodes : iterable of Node
        The nodes that the host runs, in order.
    target : CpuTarget
        Processor that kernels are compiled for.
    least_work : int
        Fewest operations for which a kernel is used.

    Returns
    -------
    tuple of HostKernel
        In the order in which they can run: each in place of its last node.
    """
    nodes = tuple(nodes)
    scope = HostScope(graph, frozenset(node.outputs[0].name for node in nodes), target)
    found: list[HostKernel] = []
    for node in nodes:
        kernel = _match(scope, node) if scope.is_free(node) else None
        if kernel is not None and _work(kernel) >= least_work:
            found.append(kernel)
            taken = {one.outputs[0].name for one in kernel.nodes}
            scope = replace(scope, free=scope.free - taken)
    places = {node.outputs[0].name: index for index, node in enumerate(nodes)}
    return tuple(sorted(found, key=lambda kernel: places[kernel.output]))


def _match(scope: HostScope, node: Node) -> HostKernel | None:
    if not node.outputs[0].type.elements:
        return None  # kernels have no empty loops
    matchers = MATCHERS.get(type(node.attributes), ())
    return next((kernel for find in matchers if (kernel := find(scope, node))), None)


def _work(kernel: HostKernel) -> int:
    """Estimate NumPy's operations for the same nodes, counted in passes over memory."""
    description = kernel.description
    work = work_of(description)
    if work > math.prod(description.output.shape):
        return work * PASSES
    return work * len(kernel.nodes)


def work_of(description: Description) -> int:
    """Estimate a kernel's operations: multiplications, or elements of its arrays."""
    given = (a for name, a in description.operands.items() if name not in description.constants)
    sizes = (math.prod(array.shape) for array in (description.output, *given))
    return max(getattr(description, "macs", 0), *sizes)
