"""Selection of the host's kernels: matchers run in the graph's order, by operator.

The selection depends only on the graph and the target, so an artifact stores machine code but no
descriptions of kernels.
"""

from collections.abc import Iterable
from dataclasses import replace

from ..cpu import CpuTarget
from ..graph import Graph, Node
from .gathers import find_gathers
from .kernel import HostKernel, HostScope, HostStep
from .matchers import matchers_of
from .movements import find_movements
from .recurrence import find_recurrences
from .work import MIN_WORK, moved_work, replaced_work


def select_steps(
    graph: Graph, nodes: Iterable[Node], target: CpuTarget, least_work: int = MIN_WORK
) -> tuple[HostStep, ...]:
    """Select the host's steps in machine code: kernels, recurrent layers, movements and gathers.

    There are none if none of them is worth loading LLVM. Parameters are those of
    `select_kernels`.
    """
    nodes = tuple(nodes)
    found = (
        *select_kernels(graph, nodes, target, least_work),
        *find_recurrences(graph, nodes),
    )
    taken = {node.outputs[0].name for step in found for node in step.nodes}
    rest = [node for node in nodes if node.outputs[0].name not in taken]
    movements = find_movements(graph, rest)
    taken |= {node.outputs[0].name for step in movements for node in step.nodes}
    gathers = find_gathers(graph, [node for node in rest if node.outputs[0].name not in taken])
    moves = (*movements, *gathers)
    worth = found or any(moved_work(step) >= least_work for step in moves)
    return (*found, *moves) if worth else ()


def select_kernels(
    graph: Graph, nodes: Iterable[Node], target: CpuTarget, least_work: int = MIN_WORK
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
        Fewest operations of the largest kernel; if it does fewer, no kernel is used.

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
        if kernel is not None:
            found.append(kernel)
            taken = {one.outputs[0].name for one in kernel.nodes}
            scope = replace(scope, free=scope.free - taken)
    if max(map(replaced_work, found), default=0) < least_work:
        return ()
    places = {node.outputs[0].name: index for index, node in enumerate(nodes)}
    return tuple(sorted(found, key=lambda kernel: places[kernel.output]))


def _match(scope: HostScope, node: Node) -> HostKernel | None:
    if not node.outputs[0].type.elements:
        return None  # kernels have no empty loops
    matchers = matchers_of(type(node.attributes))
    return next((kernel for find in matchers if (kernel := find(scope, node))), None)
