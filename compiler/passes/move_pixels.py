"""Movements of pixels: into phases of an image and back, as MobileViT moves its patches, or apart.

An exporter writes them as reshapes around a Transpose. The accelerator reads each phase as a slice
with steps, and stores phases where they lie in the image. Heads that are joined to those of a cache
are slices of the channels.
"""

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ..graph import Graph, is_accelerated
from ..graph import operators as ops
from ..rewriting import Site, constant, op, rewrite, rule, value
from .moved_elements import TURNS, moved_elements, moving_node, moving_nodes, turned_elements
from .patterns import is_int8

MAX_FACTOR = 8
"""Of rows and columns, for the number of phases."""

MIN_RUN = 4
"""Bytes that stay together; each run is a transfer of its own."""

MAX_ELEMENTS = 1 << 22
"""Of a value; larger ones move on the host."""


def _phases(image: np.ndarray, factors: tuple[int, int]) -> Sequence[np.ndarray]:
    rows, columns = factors
    return [image[:, a::rows, b::columns] for a, b in product(range(rows), range(columns))]


def _factors(order: np.ndarray, image: np.ndarray) -> tuple[int, int] | None:
    """Return the factors for which the phases of an image are some places in order."""
    _, height, width = image.shape
    factors = [
        [size for size in range(1, MAX_FACTOR + 1) if extent % size == 0]
        for extent in (height, width)
    ]
    for rows, columns in product(*factors):
        phases = np.concatenate([one.ravel() for one in _phases(image, (rows, columns))])
        if rows * columns > 1 and np.array_equal(phases, order):
            return rows, columns
    return None


def _moved_pixels(site: Site) -> tuple[str, np.ndarray] | None:
    """Return the layer's result whose pixels the root has in another order, and their places."""
    name, shape = site.root.output.name, site.shape
    chain = moving_nodes(site.view, name, TURNS)
    made = site.view.producer(chain[0].inputs[0])
    turns = any(isinstance(node.attributes, ops.Transpose) for node in chain)
    few = site.root.output.type.elements <= MAX_ELEMENTS
    if not turns or not few or len(shape) != 4 or made is None or not is_accelerated(made):
        return None
    x, places = moved_elements(site.view, name, TURNS)
    channels = shape[-1]
    pixels = places[..., 0] // channels
    whole = pixels[..., None] * channels + np.arange(channels)
    return (x, pixels) if np.array_equal(places, whole) else None


def _to_phases(site: Site, x: str, factors: tuple[int, int]) -> str:
    kind, given, (rows, columns) = site.quantisation_of(x), site.shape_of(x), factors
    n, height, width, channels = given
    slices = [
        ops.QSlice((0, a, b, 0), (n, height, width, channels), (1, rows, columns, 1))
        for a, b in product(range(rows), range(columns))
    ]
    parts = [site.emit(each, x, quantisation=kind) for each in slices]
    return site.emit(ops.QConcat(0), *parts, quantisation=kind)


def _from_phases(site: Site, x: str, factors: tuple[int, int]) -> str:
    kind, (rows, columns) = site.quantisation_of(x), factors
    n, height, width, channels = site.shape
    images = n * rows * columns, height // rows, width // columns, channels
    apart = site.emit(ops.QReshape(images), x, quantisation=kind)
    slices = [
        ops.QSlice((at, 0, 0, 0), (at + n, *images[1:]), (1, 1, 1, 1))
        for at in range(0, images[0], n)
    ]
    parts = [site.emit(each, apart, quantisation=kind) for each in slices]
    return site.emit(ops.QInterleave(factors), *parts, quantisation=kind)


def _moved(site: Site, name: str) -> str | None:
    """Emit turns of a layer's result that keep runs of channels, or exchange the last two axes."""
    x, places = moved_elements(site.view, name, TURNS)
    made, found, shape = site.view.producer(x), turned_elements(places), site.shape_of(name)
    few = places.size <= MAX_ELEMENTS and len(site.shape_of(x)) == len(shape) == 4
    if made is None or not is_accelerated(made) or found is None or not few:
        return None
    sizes, turn = found
    order, last, kind = turn.permutation, len(sizes) - 1, site.quantisation_of(x)
    n, heads, rows, columns = shape
    turned = order[-2:-1] == (last,) and (rows, columns) == (sizes[last], sizes[order[-1]])
    if turned:
        order, rows, columns = (*order[:-2], order[-1], last), columns, rows
    if order[-1] != last or sizes[-1] < MIN_RUN or (order == (*range(last + 1),) and not turned):
        return None
    whole = ops.QReshape((n, heads, rows, columns))
    y = site.emit(whole, _swapped(site, x, sizes, order), quantisation=kind)
    if not turned:
        return y
    ones = np.broadcast_to(np.eye(columns, dtype=np.int8), (n, heads, columns, columns))
    if ones.size > MAX_ELEMENTS:
        return None
    constant = site.constant(np.ascontiguousarray(ones), f"{site.root.name}.ones")
    return site.emit(ops.QMatMul(heads, 1.0, 0, 0, 0, True), constant, y, quantisation=kind)


def _swapped(site: Site, x: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> str:
    """Swap neighbouring axes of these sizes until they are in the given order."""
    kind, axes = site.quantisation_of(x), [*range(len(sizes))]

    def size(some: Sequence[int]) -> int:
        return prod(sizes[axis] for axis in some)

    for place in range(len(axes)):
        first = axes.index(order[place])
        if first == place:
            continue
        stop = first + 1
        while stop < len(axes) and axes[stop] == order[place + stop - first]:
            stop += 1
        parts = axes[:place], axes[place:first], axes[first:stop], axes[stop:]
        n, rows, columns, channels = map(size, parts)
        x = site.emit(ops.QReshape((n, rows, columns, channels)), x, quantisation=kind)
        x = site.emit(ops.QSwap(), x, quantisation=kind)
        axes = [*parts[0], *parts[2], *parts[1], *parts[3]]
    return x


Runs = Sequence[tuple[int, int]]


def _runs(places: np.ndarray) -> Runs:
    """Return the runs of consecutive places."""
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(places, ends)]


def _rolled(site: Site, x: str, axes: Sequence[tuple[int, Runs]], bounds: Runs) -> str:
    """Emit the slices of x between some bounds, side by side along the axes."""
    kind = site.quantisation_of(x)
    if not axes:
        (a, b, c, d), (e, f, g, h) = zip(*bounds, strict=True)
        return site.emit(ops.QSlice((a, b, c, d), (e, f, g, h), (1, 1, 1, 1)), x, quantisation=kind)
    (axis, runs), *rest = axes
    parts = [_rolled(site, x, rest, (*bounds[:axis], run, *bounds[axis + 1 :])) for run in runs]
    return site.emit(ops.QConcat(axis), *parts, quantisation=kind)


def move_pixels(graph: Graph) -> Graph:
    """Move pixels of layers to others as slices, concatenations and interleavings."""
    read = {name for node in graph.nodes if is_accelerated(node) for name in node.inputs}

    @rule(op(TURNS, ..., result=is_int8))
    def move(site: Site) -> str | None:
        """Transposes of x -> QConcat of the phases of x, or QInterleave of images of x."""
        moved = _moved_pixels(site) if site.root.output.name in read else None
        if moved is None or site.shape_of(moved[0])[-1:] != site.shape[-1:]:
            return None
        x, pixels = moved
        n, height, width, channels = site.shape
        image = site.shape_of(x)[:-1]
        if len(image) == 3:
            factors = _factors(pixels.ravel(), np.arange(pixels.size).reshape(image))
            if factors is not None:
                phases = _to_phases(site, x, factors)
                return site.become(ops.QReshape((n, height, width, channels)), phases)
        factors = _factors(np.arange(pixels.size), pixels)
        return None if factors is None else _from_phases(site, x, factors)

    @rule(op(TURNS, ..., result=is_int8))
    def swap(site: Site) -> str | None:
        """Transposes of x -> reshapes of x that swap rows and columns, perhaps multiplied by 1."""
        return _moved(site, site.root.output.name) if site.root.output.name in read else None

    @rule(op(ops.Gather, value(), constant(), result=is_int8))
    def roll(site: Site) -> str | None:
        """Gathers of runs of rows and columns of x -> QConcat of slices of x."""
        x, shape, axes = site.root.output.name, site.shape, list[tuple[int, Runs]]()
        user = site.view.only_user(x)
        if len(shape) != 4 or (user is not None and isinstance(user.attributes, ops.Gather)):
            return None
        while (node := moving_node(site.view, x, (ops.Gather,))) is not None:
            assert isinstance(node.attributes, ops.Gather), "no other movement was asked for"
            axis, runs = node.attributes.axis, _runs(site.data(node.inputs[1]).ravel())
            if axis == 3 or len(runs) > MAX_FACTOR or axis in (other for other, _ in axes):
                return None
            axes.append((axis, runs))
            x = node.inputs[0]
        made = site.view.producer(x)
        if site.shape_of(x) != shape or made is None:
            return None
        moved = x if is_accelerated(made) else _moved(site, x)
        return None if moved is None else _rolled(site, moved, axes, [(0, n) for n in shape])

    joined = {
        name for node in graph.nodes if isinstance(node.attributes, ops.QConcat)
        for name in node.inputs
    }  # fmt: skip

    @rule(op(TURNS, ..., result=is_int8))
    def part_heads(site: Site) -> str | None:
        """Channels of x moved to heads -> QConcat of slices of x."""
        name, shape = site.root.output.name, site.shape
        if name not in joined or len(shape) != 4 or site.root.output.type.elements > MAX_ELEMENTS:
            return None
        x, places = moved_elements(site.view, name, TURNS)
        made, (n, heads, rows, size) = site.view.producer(x), shape
        if made is None or not is_accelerated(made) or heads == 1:
            return None
        apart = np.arange(places.size).reshape(n, rows, heads, size).swapaxes(1, 2)
        if site.shape_of(x) != (n, 1, rows, heads * size) or not np.array_equal(places, apart):
            return None
        kind = site.quantisation_of(x)
        parts = [
            site.emit(
                ops.QSlice((0, 0, 0, at), (n, 1, rows, at + size), (1, 1, 1, 1)),
                x, quantisation=kind,
            )
            for at in range(0, heads * size, size)
        ]  # fmt: skip
        return site.become(ops.QConcat(1), *parts)

    return rewrite(graph, move, part_heads, roll, swap)
