"""Read states as they come: a part of a value that is written at constant places.

Networks that keep all states in one tensor update it part by part with ScatterND, and read the next
part from the result. Only the updates have to wait for what computes them.
"""

import numpy as np

from ..graph import Graph, evaluate_operator
from ..graph import operators as ops
from ..rewriting import Site, constant, op, rewrite, rule_of, value
from .patterns import is_float32, reshaped
from .recognise_slices import slice_even

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""First places of a box along each axis, and the places behind it."""

_INDICES = constant("indices")


@rule_of(
    ops.Slice,
    op(ops.ScatterND("none"), value("x"), _INDICES, value("updates")),
    capture="cut",
    result=is_float32,
)
def read_through(site: Site, cut: ops.Slice, x: str, indices: str, updates: str) -> str | None:
    """Slice(ScatterND(x, updates)) -> Slice(x), or Slice(updates), where it reads only that."""
    shape = site.shape_of(x)
    box = _written(shape, site.data(indices), site.shape_of(updates))
    if box is None or min(cut.steps) < 1:
        return None
    read = [*zip(cut.starts, cut.stops, *box, strict=True)]
    if any(stop <= first or last <= start for start, stop, first, last in read):
        return site.emit(cut, x)
    if any(start < first or stop > last for start, stop, first, last in read):
        return None
    starts, stops = ([place - first for place, first in zip(places, box[0], strict=True)]
                     for places in (cut.starts, cut.stops))  # fmt: skip
    part = reshaped(site, updates, tuple(last - first for first, last in zip(*box, strict=True)))
    return site.emit(ops.Slice(tuple(starts), tuple(stops), cut.steps), part)


def _written(shape: tuple[int, ...], indices: np.ndarray, updates: tuple[int, ...]) -> Box | None:
    """Return the box that updates fill in their own order; None if they fill anything else."""
    count = int(np.prod(updates))
    numbers = np.arange(count).reshape(updates)
    written = evaluate_operator(ops.ScatterND("none"), [np.full(shape, -1), indices, numbers])
    places = np.argwhere(written >= 0)
    if len(places) != count or not count:
        return None
    first, last = places.min(axis=0), places.max(axis=0) + 1
    inside = written[tuple(slice(*ends) for ends in zip(first, last, strict=True))]
    if not np.array_equal(inside.ravel(), np.arange(count)):
        return None
    return tuple(map(int, first)), tuple(map(int, last))


def read_states(graph: Graph) -> Graph:
    """Read through updates at constant places, which Gather of one place becomes a Slice for."""
    return rewrite(graph, slice_even, read_through)
