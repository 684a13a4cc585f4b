"""Sampling of images: at positions computed by the network (GridSample), or in boxes (RoiAlign).

The elements around each position are gathered and weighted. Meanwhile the channels of an element
lie side by side, so that each is copied as one piece.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide
from .indexing import INDICES, from_real, real
from .windows import to_first, to_last

CUBIC = -0.75
"""Coefficient a of cubic convolution in ONNX's GridSample. Source: R. G. Keys, 1981."""

MAX_SAMPLES = 1 << 12
"""Maximum number of samples of a bin along an axis, also in boxes far larger than any image."""

Taps = list[tuple[np.ndarray, np.ndarray]]
"""Indices of neighbouring elements and their weights, an entry for each position."""


@operator("grid_sample", 2)
class GridSample(Operator):
    """x[N, C, ...] at the positions grid[N, ..., r], whose coordinates name the last axis first.

    Coordinates -1 and 1 are the edges of the image, or the centres of its outermost elements with
    `align_corners`. Source: ONNX operator GridSample. It leaves three things open. Cubics beyond a
    border weight its repeated elements, as in PyTorch and ONNX Runtime; ONNX's reference evaluator
    moves the position to the border. Interpolated integers round to the nearest and saturate; the
    evaluator truncates their weights. A NaN in the grid gives NaN, or an element of the border or
    padding if the nearest is taken.

    Attributes
    ----------
    mode : str
        "nearest" (ties to the even element), "linear" or "cubic".
    padding : str
        "zeros", "border" or "reflection".
    """

    onnx = onnx_form("GridSample", "mode", "align_corners", padding_mode="padding")
    mode: str
    padding: str
    align_corners: bool

    def result_type(self, types: Types) -> TensorType:
        x, grid = types
        rank = len(x.shape) - 2
        fits = (
            self.mode in ("nearest", "linear", "cubic")
            and self.padding in ("zeros", "border", "reflection")
            and (x.dtype in NUMBERS or (x.dtype == "bool" and self.mode == "nearest"))
            and grid.dtype in FLOATS
            and rank >= 1
            and len(grid.shape) == rank + 2
            and (grid.shape[0], grid.shape[-1]) == (x.shape[0], rank)
            and min(x.shape[2:]) >= 1
        )
        expected = f"an image [N, C, ...] and a grid of floats [N, ..., axes] for `{self.mode}`"
        self.expect(fits, f"{expected} and padding `{self.padding}`", types)
        return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))

    def compute(self, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
        batch, channels, *sizes = x.shape
        values = x if self.mode == "nearest" else real(x)
        if self.padding == "zeros":
            values = np.pad(values, [(0, 0), (0, 0), *[(1, 1)] * len(sizes)])
        cells = to_last(values)
        stride = math.prod(cells.shape[1:-1])
        flat = cells.reshape(batch * stride, channels)
        places = np.repeat(np.arange(batch) * stride, math.prod(grid.shape[1:-1]))
        coordinates = wide(grid).reshape(len(places), len(sizes)).T[::-1]
        axes: list[Taps] = []
        with np.errstate(all="ignore"):
            for column, size, extent in zip(coordinates, sizes, cells.shape[1:-1], strict=True):
                stride //= extent
                taps = self._taps(self._positions(column, size), size)
                axes.append([(index * stride, weight) for index, weight in taps])
            result = self._sum(flat, places, axes)
        return to_first(from_real(result, x.dtype).reshape(*grid.shape[:-1], channels))

    def _sum(self, cells: np.ndarray, places: np.ndarray, axes: Sequence[Taps]) -> np.ndarray:
        """Return the weighted sums of cells[place, channel] over all combinations of taps."""
        if self.mode == "nearest":
            return np.take(cells, sum((index for ((index, _),) in axes), places), axis=0)
        total = np.zeros((len(places), cells.shape[1]), cells.dtype)
        for taps in itertools.product(*axes):
            place = sum((index for index, _ in taps), places)
            weights = np.prod([weight for _, weight in taps], axis=0)
            part = np.take(cells, place, axis=0)
            part *= weights[:, None]
            total += part
        return total

    def _positions(self, column: np.ndarray, size: int) -> np.ndarray:
        """Return positions on an axis in elements, within or near the image."""
        x = (column + 1) / 2 * (size - 1) if self.align_corners else ((column + 1) * size - 1) / 2
        if self.mode == "nearest":
            x = np.rint(x)
        if self.padding == "reflection":
            return self._reflect(x, size)
        reach = 0 if self.padding == "border" and self.mode != "cubic" else 3
        return np.clip(x, -reach, size - 1 + reach)  # farther on, all elements are equal

    def _reflect(self, x: np.ndarray, size: int) -> np.ndarray:
        """Reflect positions at both borders until they lie between them."""
        low, span = (0.0, size - 1) if self.align_corners else (-0.5, size)
        if not span:
            return np.zeros_like(x)
        outside = (x < low) | (x > low + span)
        return np.where(outside, low + span - np.abs(np.mod(x - low, 2 * span) - span), x)

    def _taps(self, x: np.ndarray, size: int) -> Taps:
        """Return the elements around positions."""
        if self.mode == "nearest":
            return [(self._index(x, size), np.ones(1))]
        base = np.floor(x)
        t = x - base
        weights = [1 - t, t] if self.mode == "linear" else [*_cubic(t), *_cubic(1 - t)[::-1]]
        first = 1 - len(weights) // 2
        return [(self._index(base + first + i, size), one) for i, one in enumerate(weights)]

    def _index(self, x: np.ndarray, size: int) -> np.ndarray:
        """Return the elements at whole positions; with zeros around the image, they begin at 1."""
        if self.padding == "zeros":
            return np.clip(np.nan_to_num(x, nan=-1), -1, size).astype(np.int64) + 1
        if self.padding == "reflection":
            x = np.rint(self._reflect(x, size))
        return np.clip(np.nan_to_num(x), 0, size - 1).astype(np.int64)


def _cubic(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the elements at distances 1 + t and t."""
    far = ((CUBIC * (t + 1) - 5 * CUBIC) * (t + 1) + 8 * CUBIC) * (t + 1) - 4 * CUBIC
    return far, ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1


@operator("roi_align", 3)
class RoiAlign(Operator):
    """x[N, C, H, W] in boxes[R, 4], pooled to [R, C, *size]; images int[R] has each box's image.

    A bin of a box is the mean or maximum of samples between elements; samples more than one element
    beyond the image are 0. A box is (x, y, x, y), scaled by `scale`. Source: ONNX operator RoiAlign
    and its reference evaluator: the maximum is that of the four weighted elements around each
    sample, not of their sum. A bin without samples, as in a box of negative extent, is 0. If an
    element is infinite or NaN, all means of the boxes that reach it may be NaN.

    Attributes
    ----------
    mode : str
        "avg" or "max".
    size : (int, int)
        Bins of a box, along H and W.
    samples : int
        Samples of a bin along each axis; 0 for one per element, at most `MAX_SAMPLES`.
    half_pixel : bool
        Whether elements have their centres at halves; otherwise, boxes extend at least 1.
    """

    mode: str
    size: tuple[int, int]
    samples: int
    scale: float
    half_pixel: bool

    def result_type(self, types: Types) -> TensorType:
        x, boxes, images = types
        fits = (
            self.mode in ("avg", "max")
            and min(self.size) >= 1
            and 0 <= self.samples <= MAX_SAMPLES
            and {x.dtype, boxes.dtype} <= {*FLOATS}
            and images.dtype in INDICES
            and len(x.shape) == 4
            and min(x.shape[2:]) >= 1
            and (boxes.shape, images.shape) == ((*images.shape, 4), boxes.shape[:1])
        )
        expected = f"an image [N, C, H, W], boxes [R, 4] and indices [R] for `{self.mode}`"
        self.expect(fits, expected, types)
        return TensorType(x.dtype, (boxes.shape[0], x.shape[1], *self.size))

    def compute(self, x: np.ndarray, boxes: np.ndarray, images: np.ndarray) -> np.ndarray:
        cells = to_last(wide(x))
        result = np.zeros((len(boxes), *self.size, x.shape[1]), cells.dtype)
        pool = _mean if self.mode == "avg" else _maximum
        with np.errstate(all="ignore"):
            corners = wide(boxes) * self.scale - (0.5 if self.half_pixel else 0.0)
            for box, image, pooled in zip(corners, images, result, strict=True):
                rows = self._taps(box[1], box[3], self.size[0], x.shape[2])
                columns = self._taps(box[0], box[2], self.size[1], x.shape[3])
                if rows[0].size and columns[0].size:
                    pooled[:] = pool(cells[image], rows, columns)
        return to_first(result.astype(x.dtype, copy=False))

    def _taps(
        self, start: np.floating, stop: np.floating, bins: int, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return elements [bins, taps] around samples on an axis of a box, and their weights."""
        extent = stop - start if self.half_pixel else np.maximum(stop - start, 1)
        count = self.samples or int(np.nan_to_num(np.clip(np.ceil(extent / bins), 0, MAX_SAMPLES)))
        step = extent / bins
        inside = (np.arange(count, dtype=step.dtype) + 0.5) * step / max(count, 1)
        x = start + np.arange(bins, dtype=step.dtype)[:, None] * step + inside
        known = (x >= -1) & (x <= size)
        x = np.clip(np.nan_to_num(x), 0, size - 1)
        low = np.floor(x)
        weights = np.stack([(low + 1 - x) * known, (x - low) * known], axis=-1)
        elements = np.stack([low, np.minimum(low + 1, size - 1)], axis=-1).astype(np.int64)
        return elements.reshape(bins, -1), weights.reshape(bins, -1)


def _mean(cells: np.ndarray, *axes: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the means [bins, bins, C] of cells[H, W, C]: products with a matrix for each axis.

    One product for each line is small enough that the BLAS library starts no threads for it.
    """
    (top, rows), (left, columns) = (_matrix(*taps, cells.dtype) for taps in axes)
    part = cells[top : top + rows.shape[1], left : left + columns.shape[1]]
    return (rows @ (columns @ part).swapaxes(0, 1)).swapaxes(0, 1)


def _matrix(elements: np.ndarray, weights: np.ndarray, dtype: np.dtype) -> tuple[int, np.ndarray]:
    """Return the first element, and the mean weight [bins, extent] of each element from there."""
    first, bins = elements.min(), len(elements)
    matrix = np.zeros((bins, elements.max() + 1 - first), dtype)
    np.add.at(matrix, (np.arange(bins)[:, None], elements - first), weights)
    return int(first), matrix / (elements.shape[1] // 2)


def _maximum(cells: np.ndarray, *axes: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the maxima [bins, bins, C] of weighted cells[H, W, C], first of those in a row."""
    (rows, heights), (columns, widths) = axes
    first = rows.min()
    part = cells[first : rows.max() + 1, columns] * widths[..., None].astype(cells.dtype)
    best = part.max(axis=2)
    return (best[rows - first] * heights[..., None, None].astype(cells.dtype)).max(axis=1)
