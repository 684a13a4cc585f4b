"""Match interpolation: along one axis by windows that advance evenly, or between pixels."""

import math

import numpy as np

from ..cpu.kernels.interpolation import Interpolation
from ..cpu.kernels.sampling import LinearSamples
from ..graph import Node
from ..graph import operators as ops
from ..rewriting import computed, constant
from .kernel import HostKernel, HostScope, matcher_of
from .pools import has_floats

MAX_TAPS = 4
"""Maximum window, as a multiple of the elements that an output reads; NumPy is faster beyond."""

MAX_ALONG = 16
"""The same limit where vectors run along the axis."""

MAX_DISTANCE = 1 << 31
"""Elements of an image whose distances fit int32."""

MAX_BLOCK = 64
"""Maximum number of elements of the output that share a window."""


@matcher_of(
    ops.Interpolate,
    computed("x", where=has_floats),
    *(constant("places"), constant("weights")),
    capture="interpolate",
)
def interpolation(
    scope: HostScope, node: Node, interpolate: ops.Interpolate, x: str, places: str, weights: str
) -> HostKernel | None:
    """Match an Interpolate."""
    shape, axis = scope.shape(x), interpolate.axis
    extents = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    chosen, shares = scope.data(places), scope.data(weights)
    description, table = windows_of(chosen, shares, *extents, scope.target.lanes)
    if description.taps > chosen.shape[1] * (MAX_ALONG if extents[2] == 1 else MAX_TAPS):
        return None
    return HostKernel(description, {"x": x}, {"weights": table}, (node,))


def windows_of(
    places: np.ndarray, weights: np.ndarray, outer: int, size: int, inner: int, lanes: int
) -> tuple[Interpolation, np.ndarray]:
    """Return the fastest windows that hold all places, and their table of weights.

    Parameters
    ----------
    places : int64[extent, taps]
        Elements that each element of the output reads.
    weights : float32[extent, taps]
        Their weights; those of a repeated place are added.
    outer, size, inner : int
        Elements before the axis, along it, and after it.
    lanes : int
        Elements of a vector.
    """
    extent, used = len(places), weights != 0
    low = np.where(used, places, size).min(axis=1)
    high = np.where(used, places, -1).max(axis=1)
    found = []
    least = min(lanes, extent) if inner == 1 else 1
    for block in range(least, min(extent, MAX_BLOCK) + 1, least):
        starts = np.arange(0, extent, block)
        lows, highs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
        rate = block * size / extent
        for advance in (math.floor(rate), math.ceil(rate)):
            moved = np.arange(len(starts)) * advance
            first = int((lows - moved).min())
            taps = max(int((highs - moved).max()) - first + 1, 1)
            found.append((taps * len(starts) * block, block, advance, first, taps))
    _, *window = min(found)
    description = Interpolation(outer, size, extent, inner, *window)
    starts = np.arange(extent) // description.block * description.advance + description.first
    table = np.zeros(description.operands["weights"].shape, np.float32)
    for column, weight, inside in zip(places.T, weights.T, used.T, strict=True):
        where = np.flatnonzero(inside)
        table[(column - starts)[where], where] += weight[where]
    return description, table


@matcher_of(
    ops.GridSample,
    computed("x", where=has_floats),
    computed("grid", where=has_floats),
    capture="sample",
    where=lambda one: one.mode == "linear" and one.padding in ("zeros", "border"),
)
def samples(
    scope: HostScope, node: Node, sample: ops.GridSample, x: str, grid: str
) -> HostKernel | None:
    """Match a GridSample of images that is linear between pixels."""
    shape, places = scope.shape(x), math.prod(scope.shape(grid)[1:-1])
    if len(shape) != 4 or math.prod(shape[1:]) >= MAX_DISTANCE:
        return None
    kind = (sample.padding == "border", sample.align_corners)
    return HostKernel(LinearSamples(*shape, places, *kind), {"x": x, "grid": grid}, nodes=(node,))


MATCHERS = (interpolation, samples)
