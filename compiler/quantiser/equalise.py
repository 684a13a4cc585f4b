"""Cross-layer equalisation: give the channels between two convolutions similar ranges.

All channels of an activation share one scale, so a channel with small values is rounded coarsely.
Relu and max pooling commute with a positive factor per channel. The first layer can divide a
channel by a factor and the second layer multiply by it, and no real result changes. Weights have a
scale per output channel, so the first layer loses no precision, and neither does a depthwise second
layer. A second layer that sums over channels loses precision in its weights. The factor is then the
geometric mean of what the activation and the weights need.

Sources: M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
ICCV 2019; G. Xiao et al., "SmoothQuant", ICML 2023, for factors from activations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import Builder, Graph, Node, drop_unused
from ..graph import operators as ops
from ..rewriting import constant, either, first_match, op, repeated, value
from .float_layer import maker
from .points import Points

MAX_FACTOR = 64.0
"""Maximum factor, and the inverse of the smallest; a larger one would only raise dead channels."""

BEFORE_POOLS = repeated(op(ops.MaxPool, value(), private=True), value("between", private=True))
"""A layer's activation, before pools through which a positive factor passes."""

BENT = either(
    op(ops.Binary("PRelu"), value("linear", private=True), constant()),
    op(ops.Unary, value("linear", private=True), where=lambda unary: unary.kind == "LeakyRelu"),
)
"""Functions of two slopes, layers of their own, through which a positive factor passes."""

PASSED = repeated(op(ops.Unary("Relu"), value()), value("linear"))
"""Operators after a layer's sums through which a positive factor passes."""


@dataclass(frozen=True, slots=True)
class EqualisedPair:
    """Two convolutions that may share factors.

    Attributes
    ----------
    first, second : str
        Outputs of the two Conv nodes.
    between : str
        Activation of the first layer, whose channels are equalised.
    """

    first: str
    second: str
    between: str


def find_links(graph: Graph, points: Points) -> tuple[EqualisedPair, ...]:
    """Return the pairs of convolutions between which a positive factor passes unchanged."""
    layers = {layer.output: layer for layer in points.layers if layer.kind == "conv"}
    links = []
    for layer in layers.values():
        match = first_match(BEFORE_POOLS, graph, maker(graph, layer.head).inputs[0])
        bent = match and first_match(BENT, graph, match["between"])
        first = match and layers.get(bent["linear"] if bent else match["between"])
        if first is None:
            continue
        passing = first_match(PASSED, graph, first.output)
        if passing is not None and passing["linear"] == first.linear:
            links.append(EqualisedPair(first.head, layer.head, first.output))
    return tuple(links)


def equalise(
    graph: Graph, links: tuple[EqualisedPair, ...], peaks: Mapping[str, np.ndarray]
) -> Graph:
    """Return a graph with equalised channels, the same function up to rounding.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    links : tuple of EqualisedPair
        Pairs of convolutions in this graph.
    peaks : mapping
        Activation between two convolutions -> float64[channels], its largest magnitudes.
    """
    weights: dict[str, np.ndarray] = {}
    biases: dict[str, np.ndarray] = {}
    for link in links:
        for name in (link.first, link.second):
            node = maker(graph, name)
            weights.setdefault(name, graph.data(node.inputs[1]).astype(np.float64))
            biases.setdefault(name, graph.data(node.inputs[2]).astype(np.float64))
    for link in links:
        conv = maker(graph, link.second).attributes
        assert isinstance(conv, ops.Conv), "links join convolutions"
        second = weights[link.second]
        factors = _factors(second, conv.groups, peaks[link.between])
        weights[link.first] = weights[link.first] / factors.reshape(-1, 1, 1, 1)
        biases[link.first] = biases[link.first] / factors
        weights[link.second] = second * _per_input(second, conv.groups, factors)
    builder = Builder.from_graph(graph)
    for node in graph.nodes:
        name = node.outputs[0].name
        if name not in weights:
            builder.append(node)
            continue
        w = builder.constant(weights[name].astype(np.float32), f"{node.name}.equalised")
        b = builder.constant(biases[name].astype(np.float32), f"{node.name}.equalised_bias")
        builder.append(Node(node.name, node.attributes, (node.inputs[0], w, b), node.outputs))
    return drop_unused(builder.graph(graph.outputs))


def _factors(weights: np.ndarray, groups: int, peaks: np.ndarray) -> np.ndarray:
    """Return the divisor of each channel, between `MAX_FACTOR` and its inverse."""
    alive = peaks > 0
    if not alive.any():
        return np.ones(len(peaks))
    needs = np.where(alive, peaks / peaks.max(), 1.0)
    if weights.shape[1] > 1:
        rows = np.abs(weights).reshape(groups, -1, *weights.shape[1:])
        columns = rows.max(axis=(1, 3, 4)).ravel()
        offers = np.where(columns > 0, columns / max(columns.max(), 1e-30), 1.0)
        needs = np.sqrt(needs / offers)
    middle = np.exp(np.log(needs[alive]).mean())
    return np.where(alive, np.clip(needs / middle, 1 / MAX_FACTOR, MAX_FACTOR), 1.0)


def _per_input(weights: np.ndarray, groups: int, factors: np.ndarray) -> np.ndarray:
    """Return the factors of the input channels that each output channel reads."""
    shares = np.repeat(factors.reshape(groups, -1), len(weights) // groups, axis=0)
    return shares.reshape(*weights.shape[:2], 1, 1)
