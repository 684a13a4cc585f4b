"""Compute what LOAD transposes before its siblings, so that LOAD works while GEMM computes these.

LOAD transposes a byte a cycle at most, so the keys of an attention take it longer than GEMM takes
to make them. Queries and values come from the same rows and are made meanwhile.
"""

from dataclasses import replace

from ..graph import Graph, Node
from ..graph.operators import Multiplying


def keys_first(graph: Graph) -> Graph:
    """Move the nodes that only transposed operands need as far ahead as their inputs allow."""
    urgent: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.attributes, Multiplying) and node.attributes.transposed:
            urgent.update(_chain(graph, node.inputs[1]))
    if not urgent:
        return graph
    made = {value.name for node in graph.nodes for value in node.outputs}
    ahead = [node for node in graph.nodes if node.outputs[0].name in urgent]
    nodes: list[Node] = []

    def append(node: Node) -> None:
        nodes.append(node)
        made.difference_update(value.name for value in node.outputs)

    for node in graph.nodes:
        while found := next((one for one in ahead if made.isdisjoint(one.inputs)), None):
            ahead.remove(found)
            append(found)
        if node.outputs[0].name not in urgent:
            append(node)
    return replace(graph, nodes=tuple(nodes))


def _chain(graph: Graph, name: str) -> list[str]:
    """The results from the last one that several nodes read to this one."""
    found: list[str] = []
    while len(graph.users(name)) == 1 and not graph.is_output(name):
        maker = graph.producer(name)
        if maker is None:
            break
        found.append(maker.outputs[0].name)
        name = next((one for one in maker.inputs if not graph.is_constant(one)), "")
    return found
