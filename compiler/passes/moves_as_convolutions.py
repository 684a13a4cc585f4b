"""Write gathered windows and shuffled channels as convolutions with weights of 0 and 1.

`Unfold` of PyTorch comes as Pad, Gather and Reshape, and a channel shuffle as Reshape, Transpose
and Reshape, perhaps behind a Concat of both halves. The array computes either in a few cycles, and
the next convolution often takes it in without any.
"""

from typing import NamedTuple

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, constant, each, op, rewrite, rule, value
from .moved_elements import MOVES, moved_elements
from .patterns import is_float32

IMAGE = 4
MAX_CHANNELS = 64
"""Maximum number of channels of a result; beyond it, a product costs more than a movement."""

NOWHERE = -1
"""The place of padding."""


class _Taps(NamedTuple):
    """The element that a convolution copies, by channel of the result.

    Attributes
    ----------
    channels, offsets : int[Co], int[Co, 2]
        Channel of the source, and place relative to the first one of the result's pixel.
    strides : tuple of int
        Steps of the source for a step of the result.
    """

    channels: np.ndarray
    offsets: np.ndarray
    strides: tuple[int, int]

    def places(self, source: tuple[int, ...], result: tuple[int, ...]) -> np.ndarray:
        """Return the place of each element of a result [N, Co, H, W]; `NOWHERE` for padding."""
        n, depth, *extents = source
        index = np.arange(n)[:, None, None, None] * depth + self.channels[:, None, None]
        inside = np.ones(result, bool)
        for axis in range(2):
            steps = np.arange(result[2 + axis]) * self.strides[axis]
            line = self.offsets[:, axis, None] + steps
            line = line[:, :, None] if axis == 0 else line[:, None, :]
            inside &= (line >= 0) & (line < extents[axis])
            index = index * extents[axis] + line
        return np.where(inside, index, NOWHERE)


@rule(op(ops.Reshape, value(), result=is_float32))
def copy_by_products(site: Site) -> str | None:
    """Windows or shuffled channels of an image [N, C, H, W] -> Conv with a 1 for each channel.

    Rows that are split in blocks and channels that are repeated, such as heads of attention that
    share keys, are left: strides of matrix products read them in place.
    """
    if len(site.shape) != IMAGE or site.shape[1] > MAX_CHANNELS:
        return None
    moves = (*MOVES, ops.Pad)
    x, places = moved_elements(site.view, site.root.output.name, moves)
    given = site.shape_of(x)
    if len(given) != IMAGE or site.shape[0] != given[0] or given[1] == 1:
        return None
    taps = _taps(places, given)
    if taps is None or not np.array_equal(taps.places(given, site.shape), places):
        return None
    first = np.minimum(taps.offsets.min(axis=0), 0)
    window = taps.offsets.max(axis=0) - first + 1
    moves_all = taps.strides == (1, 1) and len(np.unique(places)) == places.size
    if moves_all != (window.max() == 1):  # rows in blocks, or repeated channels
        return None
    is_copy = np.array_equal(taps.channels, np.arange(len(taps.channels))) and window.max() == 1
    ends = [
        (site.shape[2 + axis] - 1) * taps.strides[axis]
        + int(window[axis] + first[axis])
        - given[2 + axis]
        for axis in range(2)
    ]
    if is_copy or min(ends) < 0:
        return None
    weights = np.zeros((site.shape[1], given[1], *window), np.float32)
    rows, columns = (taps.offsets - first).T
    weights[np.arange(site.shape[1]), taps.channels, rows, columns] = 1
    pads = (*(-first).tolist(), *ends)
    conv = ops.Conv(taps.strides, pads, (1, 1), 1)
    return site.emit(conv, x, site.constant(weights, f"{site.root.name}.copies"))


def _taps(places: np.ndarray, source: tuple[int, ...]) -> _Taps | None:
    """Return what the elements of a result suggest; None if a channel has nothing but padding."""
    _, depth, height, width = source
    whole = places[0]
    found = whole != NOWHERE
    if not found.any(axis=(1, 2)).all():
        return None
    rows, columns = whole // width % height, whole % width
    strides = tuple(_stride(line, found, axis) for axis, line in ((1, rows), (2, columns)))
    channels, offsets = [], []
    for channel in range(len(whole)):
        y, x = np.argwhere(found[channel])[0]
        channels.append(whole[channel, y, x] // (width * height) % depth)
        offsets.append(
            (rows[channel, y, x] - y * strides[0], columns[channel, y, x] - x * strides[1])
        )
    return _Taps(np.array(channels), np.array(offsets), (strides[0], strides[1]))


def _stride(line: np.ndarray, found: np.ndarray, axis: int) -> int:
    """Return the distance of two neighbours that are both elements; 1 if there are none."""
    ahead, behind = (
        tuple(slice(*cut) if i == axis else slice(None) for i in range(3))
        for cut in ((1, None), (None, -1))
    )
    both = found[ahead] & found[behind]
    return max(1, int((line[ahead] - line[behind])[both][0])) if both.any() else 1


_COPIES = constant("copies")
_INNER = op(ops.Conv, value("x"), _COPIES, capture="inner", value="inner_value")


@rule(op(ops.Conv, _INNER, constant("w"), ..., capture="outer", result=is_float32))
def join_copies(
    site: Site, x: str, copies: str, inner: ops.Conv, inner_value: str, w: str, outer: ops.Conv
) -> str | None:
    """Conv(copies of x) -> Conv(x): windows before a layer of single pixels, or a shuffle."""
    held, weights = site.data(copies), site.data(w)
    if outer.groups != 1 or inner.groups != 1 or not is_copies(held):
        return None
    pointwise = (*weights.shape[2:], *outer.strides) == (1,) * 4 and not any(outer.pads)
    shuffles = (*held.shape[2:], *inner.strides) == (1,) * 4 and not any(inner.pads)
    alone = site.view.only_user(inner_value) is not None
    if shuffles:
        joined, made = np.einsum("ojyx,ji->oiyx", weights, held[:, :, 0, 0]), outer
    elif pointwise and alone:
        joined, made = np.einsum("oj,jiyx->oiyx", weights[:, :, 0, 0], held), inner
    else:
        return None
    label = f"{site.root.name}.weights"
    constant = site.constant(np.ascontiguousarray(joined, np.float32), label)
    return site.emit(made, x, constant, *site.root.inputs[2:])


def is_copies(weights: np.ndarray) -> bool:
    """Tell whether each channel of a convolution's result is one element of its window."""
    flat = weights.reshape(len(weights), -1)
    return bool((flat.max(axis=1) == 1).all() and (np.abs(flat).sum(axis=1) == 1).all())


@rule(op(ops.Concat, each(op(ops.Reshape, value("image"))), capture="concat", result=is_float32))
def join_images(site: Site, concat: ops.Concat, image: tuple[str, ...]) -> str | None:
    """Concat(x as [N, 1, C, H, W], ...) -> Reshape of Concat(x, ...) along the channels."""
    shapes = [site.shape_of(name) for name in image]
    unequal = len({*shapes}) > 1 or len(shapes[0]) != IMAGE
    if unequal or concat.axis != 1 or site.shape != (shapes[0][0], len(shapes), *shapes[0][1:]):
        return None
    return site.emit(ops.Reshape(site.shape), site.emit(ops.Concat(1), *image))


def moves_as_convolutions(graph: Graph) -> Graph:
    """Write windows and shuffles of float images as convolutions."""
    return rewrite(graph, join_images, copy_by_products, join_copies)
