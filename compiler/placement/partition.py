"""Partition of nodes into parts for the host and for the accelerator, in execution order."""

from collections.abc import Callable

from ..graph import Graph, Node, accelerated_nodes


def partition(graph: Graph, accelerated: Callable[[Node], bool] | None = None) -> list[list[Node]]:
    """Groups of nodes that alternate between host and accelerator, as few as the order allows.

    Parameters
    ----------
    accelerated
        Says whether the accelerator runs a node; by default it runs all supported nodes.
    """
    if accelerated is None:
        able = {node.output.name for node in accelerated_nodes(graph)}
        return partition(graph, lambda node: node.outputs[0].name in able)
    ready = {value.name for value in graph.inputs} | {c.name for c in graph.constants}
    waiting, groups = list(graph.nodes), []
    there = False
    while waiting:
        group: list[Node] = []
        for node in waiting:
            if accelerated(node) == there and all(name in ready for name in node.inputs):
                group.append(node)
                ready |= {value.name for value in node.outputs}
        if group:
            groups.append(group)
            taken = {node.outputs[0].name for node in group}
            waiting = [node for node in waiting if node.outputs[0].name not in taken]
        there = not there
    return groups
