"""Eliminate common subexpressions: merge nodes with equal attributes and inputs."""

from ..graph import Graph, Node, Output, drop_unused


def merge_duplicates(graph: Graph) -> Graph:
    """Merge equal nodes; of two, the first stays."""
    renamed: dict[str, str] = {}
    seen: dict[tuple[object, ...], Node] = {}
    nodes: list[Node] = []
    for old in graph.nodes:
        inputs = tuple(renamed.get(name, name) for name in old.inputs)
        key = (old.attributes, inputs, tuple(value.type for value in old.outputs))
        if key in seen:
            for value, other in zip(old.outputs, seen[key].outputs, strict=True):
                renamed[value.name] = other.name
            continue
        seen[key] = old
        nodes.append(Node(old.name, old.attributes, inputs, old.outputs))
    outputs = tuple(Output(o.name, renamed.get(o.value, o.value)) for o in graph.outputs)
    return drop_unused(Graph(graph.name, graph.inputs, outputs, tuple(nodes), graph.constants))
