"""Partition of nodes into parts for the host and for the accelerator, in execution order."""

from collections.abc import Callable
from heapq import heappop, heappush

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
    waits = {
        place: {name for name in node.inputs if graph.producer(name) is not None}
        for place, node in enumerate(graph.nodes)
    }
    places = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
    sides = [accelerated(node) for node in graph.nodes]
    ready: dict[bool, list[int]] = {False: [], True: []}
    for place, waiting in waits.items():
        if not waiting:
            ready[sides[place]].append(place)
    groups, there = [], False
    while any(ready.values()):
        group: list[Node] = []
        while ready[there]:
            node = graph.nodes[heappop(ready[there])]
            group.append(node)
            for name in (value.name for value in node.outputs):
                for user in graph.users(name):
                    place = places[user.outputs[0].name]
                    if name in waits[place]:
                        waits[place].remove(name)
                        if not waits[place]:
                            heappush(ready[sides[place]], place)
        if group:
            groups.append(group)
        there = not there
    return groups
