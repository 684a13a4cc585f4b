"""Minimum cut of a network, by Dinic's algorithm.

Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
estimation", Soviet Math. Doklady 11 (1970). The networks here have a few thousand edges, too few to
justify a dependency on a graph library.
"""

from collections import deque
from collections.abc import Hashable, Iterable

from ..reach import reach


class FlowNetwork:
    """Directed edges with integer capacities between nodes of any hashable type."""

    def __init__(self) -> None:
        self._edges: dict[Hashable, list[int]] = {}
        self._heads: list[Hashable] = []
        self._residual: list[int] = []

    def connect(self, tail: Hashable, head: Hashable, capacity: int) -> None:
        """Add an edge; capacities of edges between the same nodes add up."""
        for end, other, residual in ((tail, head, capacity), (head, tail, 0)):
            self._edges.setdefault(end, []).append(len(self._heads))
            self._heads.append(other)
            self._residual.append(residual)

    def cut(self, source: Hashable, sink: Hashable) -> tuple[int, frozenset[Hashable]]:
        """Return the minimum cut's capacity, and the largest source side with this capacity.

        This uses up the capacities, so it can be called only once.
        """
        flow = 0
        while sink in (levels := self._levels(source)):
            flow += self._fill(source, sink, levels)
        reaching = self._reaching(sink)
        return flow, frozenset(node for node in self._edges if node not in reaching)

    def _levels(self, source: Hashable) -> dict[Hashable, int]:
        """Return each node's distance from the source, along edges with free capacity."""
        levels, waiting = {source: 0}, deque([source])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges.get(node, ()):
                head = self._heads[edge]
                if self._residual[edge] and head not in levels:
                    levels[head] = levels[node] + 1
                    waiting.append(head)
        return levels

    def _fill(self, source: Hashable, sink: Hashable, levels: dict[Hashable, int]) -> int:
        """Send as much flow as fits along shortest paths, and return its amount."""
        untried = {node: iter(self._edges.get(node, ())) for node in levels}
        path: list[int] = []
        total, node = 0, source
        while True:
            if node == sink:
                part = min(self._residual[edge] for edge in path)
                for edge in path:
                    self._residual[edge] -= part
                    self._residual[edge ^ 1] += part
                total += part
                untried |= {self._heads[e ^ 1]: iter(self._edges[self._heads[e ^ 1]]) for e in path}
                path, node = [], source
                continue
            for edge in untried[node]:
                head = self._heads[edge]
                if self._residual[edge] and levels.get(head) == levels[node] + 1:
                    path.append(edge)
                    node = head
                    break
            else:
                if not path:
                    return total
                levels.pop(node)
                node = self._heads[path.pop() ^ 1]

    def _reaching(self, sink: Hashable) -> set[Hashable]:
        """Return the nodes from which more flow could still reach the sink."""

        def before(node: Hashable) -> Iterable[Hashable]:
            edges = self._edges.get(node, ())
            return (self._heads[edge] for edge in edges if self._residual[edge ^ 1])

        return set(reach([sink], before))
