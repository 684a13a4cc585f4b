"""The driver of rules: it sweeps over a graph, and revisits only nodes affected by changes.

A sweep offers each waiting node, in topological order, to the rules for its operator. The first
rule that applies replaces the node. The node's readers see the new value in the same sweep. New
nodes wait for the next sweep. A node waits again when something that its rules inspected has
changed. The work therefore grows with the number of changes, not with the size of the graph times
the number of sweeps.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from typing_extensions import override

from ...errors import CompileError
from ..graph import Builder, Constant, Graph, Node, Output, drop_unused
from ..graph.operator import Operator

if TYPE_CHECKING:
    from .rules import Rule

MAX_REWRITES = 100
"""Limit on replacements, times the number of nodes plus one; beyond it, rules undo each other."""

DEEPEST = 16
"""Length of a position beyond which all positions are renumbered."""

Position = tuple[int, ...]
"""Place of a node in the order; the replacements of the node at (5,) are at (5, 0), (5, 1), ..."""


def rewrite(graph: Graph, *rules: "Rule") -> Graph:
    """Apply rules until none applies, then drop everything that no output depends on.

    Raises
    ------
    CompileError
        If the rules do not terminate because they undo each other, or something is no rule.
    """
    graph = drop_unused(graph)
    rewriter = Rewriter(graph, rules)
    while rewriter.sweep():
        rewriter.clean()
    return rewriter.result(graph)


def rewrite_once(graph: Graph, *rules: "Rule") -> Graph:
    """Offer each node to the rules once."""
    rewriter = Rewriter(graph, rules)
    rewriter.sweep()
    return rewriter.result(graph)


class Rewriter(Builder):
    """A graph that rules change in place.

    Parameters
    ----------
    graph : Graph
        Graph to start from.
    rules : sequence of Rule
        Rules, in the order in which they are tried.
    """

    def __init__(self, graph: Graph, rules: Sequence["Rule"]) -> None:
        self._equal: dict[str, dict[str, None]] = {}
        self._added: list[str] = []
        super().__init__(graph.name, graph.inputs)
        for constant in graph.constants:
            self.adopt(constant)
        self._rules = tuple(rules)
        for one in self._rules:
            if not hasattr(one, "apply"):
                raise CompileError(
                    f"graph `{graph.name}`: expected rules, got `{getattr(one, '__name__', one)}`; "
                    "put `@rule(PATTERN)` above the function, and give each rule by itself"
                )
        self._latest: deque[str] = deque(maxlen=len(self._rules) + 1)
        self._rules_by_kind: dict[type[Operator], tuple[Rule, ...]] = {}
        self._outputs = graph.outputs
        self._shown = {output.value for output in graph.outputs}
        self._live: dict[str, Node] = {}
        self._positions: dict[str, Position] = {}
        self._depth = 1
        self._readers: dict[str, dict[str, None]] = {}
        for index, node in enumerate(graph.nodes):
            self.append(node)
            self._enter(node, (index,))
            self._read(node)
        self.nodes.clear()
        self._waiting = set(self._live)
        self._left = MAX_REWRITES * (1 + len(self._live))
        self._root = ""
        self._lookers: dict[str, set[str]] = {}
        self._before: dict[str, tuple[str, ...]] = {}
        self._born: set[str] = set()
        self._added.clear()
        self._rewritten = False

    @override
    def adopt(self, constant: Constant) -> str:
        self._equal.setdefault(constant.digest, {})[constant.name] = None
        self._added.append(constant.name)
        return super().adopt(constant)

    # The view for patterns -------------------------------------------------------------------

    def producer(self, name: str) -> Node | None:
        """Return the node that produces a value, and note that the current root looked at it."""
        self._lookers.setdefault(name, set()).add(self._root)
        return self._producers.get(name)

    def is_private(self, name: str) -> bool:
        """Tell whether exactly one node reads a value, and the value is not an output.

        Values added in this sweep are not private yet, because their readers are not known.
        """
        self._lookers.setdefault(name, set()).add(self._root)
        readers = self._readers.get(name, ())
        return len(readers) == 1 and name not in self._born and name not in self._shown

    def only_user(self, name: str) -> Node | None:
        """Return the only reader of a private value; None for other values."""
        if not self.is_private(name):
            return None
        (key,) = self._readers[name]
        return self._live.get(key)

    # Sweeps ----------------------------------------------------------------------------------

    def sweep(self) -> bool:
        """Offer the waiting nodes to the rules, in order; tell whether any rule applied."""
        if self._depth > DEEPEST:
            ordered = sorted(self._live, key=self._positions.__getitem__)
            self._positions, self._depth = {key: (i,) for i, key in enumerate(ordered)}, 1
        waiting = {key for key in self._waiting if key in self._live and self._rules_for(key)}
        queue = [(self._positions[key], key) for key in waiting]
        heapify(queue)
        self._waiting, self._taken = set(), {}
        rewritten = False
        while queue:
            position, key = heappop(queue)
            waiting.discard(key)
            name = self._offer(key, position)
            if name is None:
                continue
            rewritten = self._rewritten = True
            for woken in self._replace(key, name):
                if woken in waiting or woken not in self._live or not self._rules_for(woken):
                    continue
                if woken in self._born:
                    continue  # its readers are not known before the next sweep
                if self._positions[woken] < position:
                    self._waiting.add(woken)  # its match looked at later nodes, which have changed
                else:
                    waiting.add(woken)
                    heappush(queue, (self._positions[woken], woken))
        return rewritten

    def _rules_for(self, key: str) -> tuple["Rule", ...]:
        node = self._live[key]
        kind = type(node.attributes)
        if kind not in self._rules_by_kind:
            self._rules_by_kind[kind] = tuple(
                rule for rule in self._rules if issubclass(kind, rule.kinds)
            )
        return self._rules_by_kind[kind] if len(node.outputs) == 1 else ()

    def _offer(self, key: str, position: Position) -> str | None:
        """Return the value from the first rule that applies, and enter the nodes that it added."""
        self._root = key
        name = None
        for rule in self._rules_for(key):
            if (name := rule.apply(self, self._live[key])) is not None:
                self._latest.append(rule.__name__)
                break
        for index, node in enumerate(self.nodes):
            self._enter(node, (*position, index))
            self._before[node.output.name] = ()
            self._born.add(node.output.name)
        self.nodes.clear()
        return name

    def _enter(self, node: Node, position: Position) -> None:
        key = node.outputs[0].name
        self._live[key], self._positions[key] = node, position
        self._depth = max(self._depth, len(position))

    def _replace(self, key: str, name: str) -> list[str]:
        """Redirect the readers of a node's output to another value; return the nodes to revisit."""
        self._left -= 1
        if self._left < 0:
            latest = ", ".join(f"`{name}`" for name in sorted(set(self._latest)))
            raise CompileError(
                f"graph `{self.name}`: expected the rewrite rules to end, got more than "
                f"{MAX_REWRITES:,} replacements for each node, the last ones by {latest}; a rule "
                "must not match again what it or another one makes: return None there"
            )
        self._before.setdefault(key, self._live.pop(key).inputs)
        woken: list[str] = []
        for reader in self._readers.get(key, ()):
            old = self._live.get(reader)
            if old is None:
                continue
            self._before.setdefault(reader, old.inputs)
            inputs = tuple(name if one == key else one for one in old.inputs)
            node = self._live[reader] = Node(old.name, old.attributes, inputs, old.outputs)
            woken.append(reader)
            for value in node.outputs:
                self._producers[value.name] = node
                woken += sorted(self._lookers.get(value.name, ()))
        if key in self._shown:
            self._shown = (self._shown - {key}) | {name}
            self._outputs = tuple(
                Output(one.name, name if one.value == key else one.value) for one in self._outputs
            )
        return woken

    # Between sweeps --------------------------------------------------------------------------

    def clean(self) -> None:
        """Update the readers, drop dead values, and wake the nodes that looked at either."""
        touched = set(self._born)
        for key, inputs in self._before.items():
            touched.update(inputs)
            for name in inputs:
                self._readers.get(name, {}).pop(key, None)
            if key in self._live:
                self._read(self._live[key])
                touched.update(self._live[key].inputs)
        dying = sorted(touched.union(self._added))
        while dying:
            name = dying.pop()
            if self._is_dead(name):
                dying += self._drop(name)
                touched.add(name)
        self._waiting |= self._born & self._live.keys()
        self._waiting.update(one for name in touched for one in self._lookers.get(name, ()))
        self._before, self._born = {}, set()
        self._added.clear()

    def _read(self, node: Node) -> None:
        for name in node.inputs:
            self._readers.setdefault(name, {})[node.outputs[0].name] = None

    def _is_dead(self, name: str) -> bool:
        """Tell whether nothing uses a constant, or any output of the node that produces a value."""
        node = self._producers.get(name)
        if node is None and name not in self.constants:
            return False
        names = [value.name for value in node.outputs] if node else [name]
        return not any(self._readers.get(one) or one in self._shown for one in names)

    def _drop(self, name: str) -> Sequence[str]:
        """Drop a dead constant or node, and return the names that it read."""
        if name in self.constants:
            digest = self.constants.pop(name).digest
            del self.types[name], self._digests[digest], self._equal[digest][name]
            self._digests.update((digest, one) for one in list(self._equal[digest])[:1])
            return ()
        node = self._producers[name]
        key = node.outputs[0].name
        for value in node.outputs:
            del self.types[value.name], self._producers[value.name]
        del self._positions[key]
        if self._live.pop(key, None) is None:
            return ()
        for one in node.inputs:
            self._readers[one].pop(key, None)
        return node.inputs

    def result(self, graph: Graph) -> Graph:
        """Return the current graph, or `graph` itself if no rule has applied."""
        if not self._rewritten:
            return graph
        nodes = sorted(self._live.values(), key=lambda node: self._positions[node.outputs[0].name])
        constants = tuple(self.constants.values())
        return Graph(graph.name, graph.inputs, self._outputs, tuple(nodes), constants)
