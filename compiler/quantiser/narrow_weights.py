"""Search for the layers whose weights may have 4 bits."""

from collections.abc import Sequence

from .candidates import CandidateSearch, QuantisationCandidate
from .float_layer import FloatLayer
from .insert import four_bit_form, weights_of

TRIED = 8
"""Layers that are compared at a time."""


def narrow_weights(
    search: CandidateSearch, best: QuantisationCandidate
) -> tuple[QuantisationCandidate, tuple[FloatLayer, ...]]:
    """Give weights 4 bits, in as many layers as the options allow.

    Layers come in the order of the noise that each adds alone for its number of weights. The
    longest such list is kept with which the network's end has `weight_db` or more, and in which no
    more samples lose their class than the options allow.

    Returns
    -------
    The new candidate, or the old one, and the layers.
    """
    graph = best.source.graph
    layers = [
        layer
        for layer in best.points.layers
        if layer.weighted and four_bit_form(graph, layer) is not None
    ]
    same = 1.0 if best.same_class is None else best.same_class
    least_same = min(same, search.options.least_agreement)

    def fits(each: QuantisationCandidate) -> bool:
        agrees = each.same_class is None or each.same_class >= least_same
        return agrees and each.end_db >= search.options.weight_db

    def with_narrow(chosen: Sequence[FloatLayer]) -> QuantisationCandidate:
        return search.with_four_bits(best, frozenset(layer.head for layer in chosen))

    cost = {}
    for first in range(0, len(layers), TRIED):
        part = layers[first : first + TRIED]
        search.progress(f"4 bits for the weights of layer {first + 1} of {len(layers)}")
        alone = search.compare([with_narrow([layer]) for layer in part])
        for layer, tried in zip(part, alone, strict=True):
            noise = 10 ** (-tried.end_db / 10) - 10 ** (-best.end_db / 10)
            cost[layer] = noise / weights_of(graph, layer)[0].size
    layers.sort(key=cost.__getitem__)
    kept, fitting, above = best, 0, len(layers) + 1
    while above - fitting > 1:
        middle = (fitting + above) // 2
        (tried,) = search.compare([with_narrow(layers[:middle])])
        if fits(tried):
            kept, fitting = tried, middle
        else:
            above = middle
    return kept, tuple(layers[:fitting])
