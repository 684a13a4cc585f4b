"""Decide where an image is flattened for a dense layer: in the layer's window, or on the host.

A window over the whole image reads it in place, but pads the channels of each pixel to full lanes:
an image of one channel takes as many times the weights as there are lanes. Behind a flatten, only
the last lanes are empty. The host flattens at no cost, but the network needs one more segment.
"""

import math

from ...isa.configuration import Configuration
from ...isa.durations import tile_cycles
from ..graph import Graph, QConv, QSlice, is_accelerated
from ..graph.operators import Reshape, Slice
from ..placement import Costs
from ..rewriting import GraphMatch, Site, first_match, op, rewrite, rule, rule_of, value
from .merge_duplicates import merge_duplicates
from .patterns import is_int8


def flatten_on_host(graph: Graph, configuration: Configuration, costs: Costs) -> Graph:
    """Replace windows of dense layers by flattened images where lanes would be too empty."""

    @rule_of(
        QConv,
        *map(value, ("x", "weights", "bias", "scale")),
        capture="dense",
        where=lambda layer: layer.kind == "dense",
    )
    def flatten(
        site: Site, dense: QConv, x: str, weights: str, bias: str, scale: str
    ) -> str | None:
        """QConv(x), a window of all -> QConv(Reshape(x)), 1x1, if that takes less time."""
        shape, kernel = site.shape_of(x), site.data(weights)
        if shape[1:3] != kernel.shape[:2] or shape[1:3] == (1, 1):
            return None
        cut = _cut_on_host(site, x)
        least_us = 0 if cut or not _is_made(site, x) else _segment_us(shape, costs)
        if costs.cycles_us(saved_cycles(kernel.shape, configuration)) <= least_us:
            return None
        image = x if cut is None else _slice(site, cut)
        flat = site.emit(Reshape((shape[0], 1, 1, math.prod(shape[1:]))), image)
        rows = kernel.reshape(1, 1, -1, kernel.shape[-1])
        return site.become(dense, flat, site.constant(rows, f"{weights}.flat"), bias, scale)

    @rule(op(Reshape, value("x"), result=is_int8))
    def cut(site: Site, x: str) -> str | None:
        """Reshape(QSlice(x)) to other channels -> Reshape(Slice(x)), if the host makes x."""
        cut = _cut_on_host(site, x)
        if cut is None or site.shape[-1:] == site.shape_of(x)[-1:]:
            return None
        return site.emit(site.root.attributes, _slice(site, cut))

    made = rewrite(graph, flatten, cut)
    return graph if made.nodes == graph.nodes else merge_duplicates(made)  # the same slices


SLICED = op(QSlice, value("source"), capture="cut")


def _cut_on_host(site: Site, x: str) -> GraphMatch | None:
    """Return the match of a slice of a value that the host makes; None for other values."""
    match = first_match(SLICED, site.view, x)
    return None if match is None or _is_made(site, match["source"]) else match


def _slice(site: Site, match: GraphMatch) -> str:
    """Emit a matched slice for the host."""
    cut, label = match["cut"], match.named["cut"].name
    return site.emit(Slice(cut.starts, cut.stops, cut.steps), match["source"], label=label)


def _is_made(site: Site, x: str) -> bool:
    """Tell whether the accelerator makes a value."""
    producer = site.view.producer(x)
    return producer is not None and is_accelerated(producer)


def saved_cycles(kernel: tuple[int, ...], configuration: Configuration) -> int:
    """Estimate the cycles that flattening saves a dense layer with few rows.

    Parameters
    ----------
    kernel : tuple of int
        Shape of its weights, [KH, KW, C, Co].
    """
    height, width, depth, channels = kernel
    lanes = configuration.lanes_in
    blocks = height * width * -(-depth // lanes) - -(-height * width * depth // lanes)
    load = -(-configuration.tile_bytes // configuration.bus_bytes)
    return blocks * -(-channels // configuration.lanes_out) * max(load, tile_cycles(configuration))


def _segment_us(shape: tuple[int, ...], costs: Costs) -> float:
    """Estimate the time to take an image to the host and back."""
    return costs.link.start_us + 2 * math.prod(shape) / costs.link.gbps / 1000
