"""Depthwise convolution: each channel has its own window; vectors run along the channels.

A tile of output pixels by a vector of channels stays in registers. The window is unrolled, so that
pixels shared by neighbouring windows are loaded once. The image is read in place: rows at its
border have code of their own, and so do tiles if there are few or vectors are small. Each variant
contains a whole window for a whole tile, which makes up most of the compile time.

In images of many channels, neighbouring pixels are far apart and share a few sets of L1, so that a
large window evicts its own pixels. There, a band of the image by a few vectors of channels is first
copied with its border to where its pixels lie side by side.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ... import te
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule, Planner, even_blocks
from .tiles import panels

if TYPE_CHECKING:
    from .convolution import Convolution

MAX_TAPS = 49
"""Taps of the largest window that is unrolled; larger ones would compile for minutes."""

MIN_COPIED_TAPS = 49
"""Minimum taps for each element that is copied; with fewer, the copy takes what it saves."""

MIN_COPIED_BYTES = 768
"""Minimum distance of pixels at which copies pay with 32 registers, unless windows are larger than
`MAX_TAPS`."""

DILATED_TAPS, DILATED_BYTES, MAX_DILATED_BYTES = 25, 1024, 5 << 19
"""Taps, or distance of pixels, from which on copies pay where the window is dilated, and the most
bytes of such an image. Fitted to 24 float32 shapes with AVX2 and AVX-512: copies take 0.4 to 0.9 of
the time there; of images beyond L2, up to twice the time."""

COPIED_CHANNELS = (32, 16)
"""Channels of a copied band, the best first: processors fetch lines of a cache in pairs."""

BAND_BYTES = 1 << 17
"""Maximum bytes of a copied band, so that it fits half of L2."""

SMALL = 9
"""Taps up to which a window is unrolled wherever it is used."""

SPAN = 15
"""Columns of the image under a wide tile; the vectors of more would not fit 32 registers."""

MANY = 3
"""Tiles of a row from which on they share code; of fewer, most would be slower at the border."""

WIDE = 14
"""Number of columns from which tiles of 2x3 pixels are faster than 2x4 with 16 registers."""

SEVERAL = 5
"""Least number of large float32 tiles in a row."""


class DepthwisePlanner(Planner):
    """The declaration and schedule of one depthwise convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        self.conv, self.target, self.choices = conv, target, choices
        self.real = conv.narrow or conv.dtype == "float32"
        """True if sums are float32."""
        self.channels = next(filter(self._fits, COPIED_CHANNELS), 0)
        """Channels of a copied band; 0 if there is no room for one."""
        self.copies = self._picks(self._copies(), "copied", possible=self.channels > 0)
        """True if bands of the image are copied."""
        self.tile = self._pick_tile()
        alone = not self.copies
        self.shares_code = self._picks(self._shares_code(), "shared", possible=alone)
        self.loops_rows = self._picks(self._loops_rows(), "looped", possible=alone)

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Drop the weights' dimension of one; small sums are computed in float32."""
        weights = {} if self.conv.computed else {"w": constants["w"][:, :, 0]}
        prepared = {**constants, **weights}
        if not self.real:
            return prepared
        return {name: array.astype(np.float32) for name, array in prepared.items()}

    @override
    def plan(self) -> KernelSchedule:
        processor = self.target.processor
        s = te.Schedule(te.kernel("depthwise", self._declared()), processor)
        (rows, pixels), lanes = self.tile, self.target.lanes
        if self.copies:
            band = even_blocks(self.conv.size_out[0], self._most_rows(self.channels))
            loops = "n y.o (c.o) y.i.o x.o c.i.o ky kx* y.i.i* x.i* c.i.i~"
            s.nest("out", loops, y=(band, rows), x=pixels, c=(self.channels, lanes))
            s.compute_at("band", "out", "c.o")
            s.nest("band", "bn by bx bc.o* bc.i~", bc=lanes)
        else:
            window = "ky kx"
            if self.conv.taps <= MAX_TAPS:
                window = "ky kx*" if self.loops_rows else "ky* kx*"
            loops = f"n (y.o) x.o c.o {window} y.i* x.i* c.i~"
            s.nest("out", loops, y=rows, x=pixels, c=lanes)
        if self.shares_code:
            s.fuse("out", "x.o", "c.o")
        if self.conv.computed:
            return KernelSchedule(s)
        # The taps of a vector of channels lie side by side: far apart, they share sets of L1.
        shape = (*self.conv.kernel, self.conv.channels_out)
        return KernelSchedule(s, {"w": panels(shape, self.target.lanes)})

    def _pick_tile(self) -> tuple[int, int]:
        """Rows and columns of a tile, whose sums fit the registers."""
        rows, pixels = self._tile()
        free = self.target.registers - 4
        rows = self.choices.pick("rows", rows, (1, 2, 4))
        columns = self.conv.size_out[1]
        sizes = {even_blocks(columns, most) for most in range(1, max(2, free // rows + 1))}
        fitting = even_blocks(columns, max(1, min(pixels, free // rows)))
        return rows, self.choices.pick("pixels", fitting, sorted(sizes))

    def _picks(self, default: bool, name: str, *, possible: bool) -> bool:
        return possible and self.choices.pick(name, int(default), (0, 1)) > 0

    def _most_rows(self, channels: int) -> int:
        """Maximum output rows of a copied band of some channels."""
        conv, size = self.conv, 4 if self.real else 1
        rows = BAND_BYTES // (conv.span[1] * channels * size)
        return (rows - conv.reach(0)) // conv.strides[0] + 1

    def _fits(self, channels: int) -> bool:
        """Whether such a band has so many rows that not much of the image is copied twice."""
        return self._most_rows(channels) >= min(self.conv.reach(0), self.conv.size_out[0])

    def _copies(self) -> bool:
        """Whether copied bands, if there is room, are probably faster.

        They have their border, so the sums of a small image take more products with padding. There,
        other windows are unrolled, unless they are too large for that.
        """
        conv = self.conv
        if self._is_small_and_dilated():
            return True
        if not self.channels or conv.taps < MIN_COPIED_TAPS * math.prod(conv.strides):
            return False
        if conv.taps > MAX_TAPS:
            return True
        if conv.channels_out % self.channels or conv.size_out[1] <= 2 * conv.reach(1):
            return False
        apart = conv.channels_out * (4 if conv.dtype == "float32" else 1)
        return self.target.registers < 32 or apart >= MIN_COPIED_BYTES

    def _is_small_and_dilated(self) -> bool:
        """Whether pixels that neighbouring windows share are far apart, in an image within L2."""
        conv, apart = self.conv, 4 * self.conv.channels_out
        if not self.channels or conv.channels_out % self.channels or conv.dtype != "float32":
            return False
        if max(conv.dilations) == 1 or conv.strides != (1, 1):
            return False
        small = math.prod(conv.image) * 4 <= MAX_DILATED_BYTES
        return small and (conv.taps >= DILATED_TAPS or apart >= DILATED_BYTES)

    def _tile(self) -> tuple[int, int]:
        """Rows and columns of a tile.

        Tiles that divide a row need no tail. Large ones read less of the image twice. Small ones
        are enough for float32 with strides, where neighbours share less, and for narrow images,
        where fewer small tiles lie at the border.
        """
        columns, stride = self.conv.size_out[1], self.conv.strides[1]
        if self.copies:
            return 2, even_blocks(columns, self.target.registers // 4)
        if self.target.registers < 32:
            return 2, even_blocks(columns, 3 if columns >= WIDE else 4)
        reach = self.conv.reach(1)
        whole = [p for p in range(4, 8) if columns % p == 0 and (p - 1) * stride + reach <= SPAN]
        if whole:
            if self.conv.dtype == "float32" and (stride > 1 or columns < SEVERAL * max(whole)):
                return 2, min(whole)
            return 2, max(whole)
        return 2, even_blocks(columns, 7 if stride == 1 else 4)

    def _shares_code(self) -> bool:
        """Whether all tiles of a row share one body.

        Columns and vectors are then one loop, and any iteration may lie at the border. The two or
        three columns of a tile that may lie outside are read under a mask, which is almost free for
        vectors of 16 elements. Narrower vectors would be read element by element, and so would
        everything if the channels were not whole vectors.
        """
        pixels, columns = self.tile[1], self.conv.size_out[1]
        whole = columns % pixels == 0 and self.conv.channels_out % self.target.lanes == 0
        return self.target.lanes == 16 and whole and columns >= MANY * pixels

    def _loops_rows(self) -> bool:
        """Whether the rows of a large window stay a loop, for a fifth of the code."""
        if self.conv.taps <= SMALL or self.shares_code:
            return False
        least = 14 if self.conv.dtype == "float32" else 28
        return self.target.registers == 32 and self.conv.size_out[1] >= least

    def _declared(self) -> te.DeclaredTensor:
        conv, channels, (rows, columns) = self.conv, self.conv.channels_out, self.conv.size_out
        x = te.tensor("x", conv.dtype, conv.image, pad=conv.zero_point)
        top, left = conv.pads[:2]
        if self.copies:
            axes = bn, by, bx, bc = te.axes(
                bn=conv.batch, by=conv.span[0], bx=conv.span[1], bc=channels
            )
            dtype = "float32" if self.real else conv.dtype
            moved = self._number(x[bn, by - top, bx - left, bc])
            x, top, left = te.compute("band", dtype, axes, moved), 0, 0
        w = te.tensor("w", "float32" if self.real else "int8", (*conv.kernel, channels))
        axes = n, y, xo, c = te.axes(n=conv.batch, y=rows, x=columns, c=channels)
        over = ky, kx = te.reduce_axes(ky=conv.kernel[0], kx=conv.kernel[1])
        read = self._number(x[n, conv.row(y, ky) - top, conv.column(xo, kx) - left, c])
        total = te.sum(read * w[ky, kx, c], over=over)
        value = conv.epilogue.value(total, (channels,), (c,), conv.extents, axes)
        return te.compute("out", conv.epilogue.dtype, axes, value)

    def _number(self, read: te.TensorExpression) -> te.TensorExpression:
        """A factor of the sums."""
        return te.real(read) if self.real and not read.real else read
