"""Search for the layers that stay in float because eight bits would lose too much there.

A noisy layer is tried alone, and together with the layers before it: after a logarithm, small
inputs matter as much as large ones, so that the layers that make them need floats too.
"""

from ..graph import Graph
from ..graph.macs import macs_of
from .candidates import CandidateSearch, QuantisationCandidate
from .float_layer import FloatLayer, origin
from .measure import measure_layers
from .points import Points

MAX_ROUNDS = 4
"""Maximum number of rounds that add layers to those in float."""

NOISY_LAYERS = 4
"""Noisiest layers that a round tries."""

DEPTHS = (0, 1, 2, 4, 8, 16)
"""Layers before a noisy one that stay in float with it, counted along the longest path."""

MIN_GAIN_DB = 1.0
"""Minimum gain in dB, at the network's end, for which a layer stays in float."""


def rescue(
    search: CandidateSearch, plain: QuantisationCandidate
) -> tuple[dict[str, str], QuantisationCandidate]:
    """Return the layers that stay in float, and the candidate in which they do.

    The search ends when the network is good enough, nothing helps, or the budget is spent.

    Parameters
    ----------
    search : CandidateSearch
        The search that found the candidate.
    plain : QuantisationCandidate
        The best candidate without corrected biases, which would hide noisy layers.

    Returns
    -------
    dict
        Head of each layer -> its name; empty if nothing helps.
    QuantisationCandidate
        The new candidate, or `plain`.
    """
    best, kept = plain, dict[str, str]()
    spent = 0.0
    for _ in range(MAX_ROUNDS):
        if not search.loses_too_much(best) or search.budget.rescue_left(spent) < search.cost:
            break
        sets = _sets(search, best)[: int(search.budget.rescue_left(spent) // search.cost)]
        if not sets:
            break
        spent += len(sets) * search.cost
        search.progress(f"trying {len(sets)} sets of layers in float")
        graph = best.source.graph
        tried = [
            search.candidate(best.source, search.points(graph, (*kept, *each)), best.method)
            for each in sets
        ]
        search.compare(tried)
        enough = [place for place, each in enumerate(tried) if not search.loses_too_much(each)]
        if enough:  # the least work in float that suffices
            place = min(enough, key=lambda at: _float_macs(graph, best.points, sets[at]))
        else:
            place = max(range(len(tried)), key=lambda at: tried[at].end_db)
        if not enough and tried[place].end_db < best.end_db + MIN_GAIN_DB:
            break
        kept |= sets[place]
        best = tried[place]
    return kept, best


def _sets(search: CandidateSearch, best: QuantisationCandidate) -> list[dict[str, str]]:
    """Return sets of layers to try in float, as head -> name; the noisiest layer's come first."""
    graph, points = best.source.graph, best.points
    qualities = measure_layers(graph, best.inserted, points, best.quantisations, search.compared)
    noisy = [each for each in qualities if each.alone_db < search.options.least_layer_db]
    noisy.sort(key=lambda each: each.alone_db)
    weighted = sum(layer.weighted for layer in points.layers)
    found: list[dict[str, str]] = []
    for quality in noisy[:NOISY_LAYERS]:
        chosen, edge = [quality.layer], [quality.layer]
        for depth in range(max(DEPTHS) + 1):
            edge = [layer for layer in _read_by(graph, points, edge) if layer not in chosen]
            heads = {layer.head: layer.name for layer in chosen}
            fits = sum(layer.weighted for layer in chosen) < weighted and heads not in found
            if fits and (depth in DEPTHS or not edge):
                found.append(heads)
            if not edge:
                break
            chosen += edge
    return found


def _read_by(graph: Graph, points: Points, readers: list[FloatLayer]) -> list[FloatLayer]:
    """Return the layers whose outputs these layers read."""
    sources = {origin(graph, name) for layer in readers for name in layer.inputs}
    return [layer for layer in points.layers if layer.output in sources]


def _float_macs(graph: Graph, points: Points, heads: dict[str, str]) -> tuple[int, int]:
    """Return the multiplications and the number of layers."""
    layers = [layer for layer in points.layers if layer.head in heads]
    inside = {name for layer in layers for name in layer.inside}
    chosen = (node for node in graph.nodes if node.outputs[0].name in inside)
    return sum(macs_of(graph, node) for node in chosen), len(layers)
