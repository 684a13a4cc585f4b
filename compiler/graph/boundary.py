"""The boundary of a group of nodes."""

from collections.abc import Sequence

from .ir import Graph, Node


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
