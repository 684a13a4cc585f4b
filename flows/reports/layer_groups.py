"""Layers of several runs side by side: those that compute the same nodes form a group.

Another machine may fuse other nodes, so a group may have one layer in one run and two in another.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that compute the same nodes.

    Parameters
    ----------
    nodes : tuple of str
        The nodes, in the order in which the runs name them.
    members : tuple of tuple of int
        For each run, the indices of its layers; empty if it has none of these nodes.
    """

    nodes: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]


def group_layers(runs: Sequence[Sequence[Sequence[str]]]) -> list[LayerGroup]:
    """Return the fewest groups such that no layer belongs to two, in the order of the first run.

    Layers that only a later run has follow the layer that precedes them there.

    Parameters
    ----------
    runs
        For each run, the nodes of each layer.
    """
    root: dict[str, str] = {}

    def find(node: str) -> str:
        while root[node] != node:
            node = root[node]
        return node

    order: list[str] = []
    for layers in runs:
        before = None
        for nodes in layers:
            for node in nodes:
                if node not in root:
                    root[node] = node
                    order.insert(0 if before is None else order.index(before) + 1, node)
                root[find(node)] = find(nodes[0])
                before = node
    groups: dict[str, list[str]] = {}
    for node in order:
        groups.setdefault(find(node), []).append(node)
    members: dict[str, list[list[int]]] = {name: [[] for _ in runs] for name in groups}
    for run, layers in enumerate(runs):
        for index, nodes in enumerate(layers):
            members[find(nodes[0])][run].append(index)
    return [
        LayerGroup(tuple(nodes), tuple(map(tuple, members[name]))) for name, nodes in groups.items()
    ]
