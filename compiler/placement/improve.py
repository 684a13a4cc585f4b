"""Local search for a better placement, given that both sides work at once.

Parts of a network move to the other side while this lowers the makespan. The result is not always
the best, but never slower than the minimum cut.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

from ..graph import Graph
from .timeline import Evaluator

MAX_VISITS = 2_000_000
"""Maximum node visits of the search, which take a few seconds; all starts share them."""

BEGINNINGS = 32
"""Most prefixes of one chain that are tried, evenly spread over a longer chain."""


def improve(evaluator: Evaluator) -> frozenset[str]:
    """Return the best assignment found, as the first outputs of the accelerator's nodes.

    The search starts at the minimum cut, then with all nodes on one side, then on the other.
    """
    problem = evaluator.problem
    able = [
        node.outputs[0].name
        for node in evaluator.graph.nodes
        if problem.host_ns[node.outputs[0].name] is not None
        and problem.accelerator_ns[node.outputs[0].name] is not None
    ]
    parts = list(_parts(evaluator.graph, able))
    cut = problem.solve()
    starts = (cut, cut | frozenset(able), cut - frozenset(able))
    share = MAX_VISITS // len(starts)
    found = [_descend(evaluator, start, parts, share) for start in dict.fromkeys(starts)]
    return min((cut, *found), key=lambda chosen: evaluator.exact(chosen).total_ns)


def _descend(
    evaluator: Evaluator, best: frozenset[str], parts: Sequence[frozenset[str]], visits: int
) -> frozenset[str]:
    """Move parts to the other side while this saves time."""
    end = evaluator.visits + visits
    least = evaluator.exact(best).total_ns
    waiting = len(parts)
    for part in cycle(parts):
        if not waiting or evaluator.visits > end:
            break
        waiting -= 1
        for moved in (best | part, best - part):
            if moved == best or evaluator.rough(moved).total_ns >= least:
                continue
            if (time := evaluator.exact(moved).total_ns) < least:
                best, least, waiting = moved, time, len(parts)
    return best


def _parts(graph: Graph, able: list[str]) -> Iterator[frozenset[str]]:
    """Yield sets of nodes that move together: unbranched chains, their prefixes, single nodes."""
    for chain in _chains(graph, able):
        count = min(len(chain), BEGINNINGS)
        for part in range(count, 0, -1):
            yield frozenset(chain[: len(chain) * part // count])
    for name in able:
        yield frozenset({name})


def _chains(graph: Graph, able: list[str]) -> list[list[str]]:
    """Return chains of movable nodes; each node is the only reader of the previous one."""
    movable, ended = set(able), {}
    chains: list[list[str]] = []
    for name in able:
        node = graph.producer(name)
        assert node is not None
        makers = {
            maker.outputs[0].name
            for value in node.inputs
            if (maker := graph.producer(value)) is not None
        }
        before = makers & movable
        chain = None
        if len(before) == 1:
            (maker,) = before
            found = graph.producer(maker)
            assert found is not None
            readers = {user.outputs[0].name for v in found.outputs for user in graph.users(v.name)}
            if len(readers) == 1:
                chain = ended.pop(maker, None)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(name)
        ended[name] = chain
    return chains
