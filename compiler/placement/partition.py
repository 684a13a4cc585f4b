"""Partition of nodes into parts for the host and for the accelerator, in execution order."""

from collections.abc import Callable, Sequence

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


def boundary(graph: Graph, nodes: Sequence[Node]) -> tuple[list[str], list[str]]:
    """Activations that enter and leave a group of nodes."""
    inside = {value.name for node in nodes for value in node.outputs}
    entering = dict.fromkeys(
        name
        for node in nodes
        for name in node.inputs
        if name not in inside and not graph.is_constant(name)
    )
    shown = {output.value for output in graph.outputs}
    leaving = [
        name
        for name in (value.name for node in nodes for value in node.outputs)
        if name in shown or any(user.outputs[0].name not in inside for user in graph.users(name))
    ]
    return list(entering), leaving
