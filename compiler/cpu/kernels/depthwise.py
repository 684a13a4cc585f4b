"""Depthwise convolution: each channel has its own window; vectors run along the channels.

A tile of output pixels by a vector of channels stays in registers. The window is unrolled, so that
pixels shared by neighbouring windows are loaded once. The image is read in place: rows at its
border have code of their own, and so do tiles if there are few or vectors are small. Each variant
contains a whole window for a whole tile, which makes up most of the compile time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ..target import CpuTarget
from .description import KernelSchedule, even_blocks
from .quantised import Requantisation
from .windows import ChannelWindows, Pair, WeightedWindows

LARGEST = 49
"""Taps of the largest window that is unrolled; larger ones would compile for minutes."""

SMALL = 9
"""Taps up to which a window is unrolled wherever it is used."""

SPAN = 15
"""Columns of the image under a wide tile; the vectors of more would not fit 32 registers."""

MANY = 3
"""Tiles of a row from which on they share code; of fewer, most would be slower at the border."""

SEVERAL = 5
"""Least number of large float32 tiles in a row."""


@dataclass(frozen=True, slots=True)
class DepthwiseConvolution(ChannelWindows, WeightedWindows):
    """`out[n, y, x, c] = sum(x[n, y * s + ky * d - top, ..., c] * w[ky, kx, c]) + bias[c]`.

    Operands are `x` as [N, H, W, C], `w` as [KH, KW, C], `bias` [C] and, for bytes, `scale` [C].
    `ChannelWindows` has the other parameters.

    Parameters
    ----------
    activation
        Follows a float32 kernel.
    quantised
        None for float32.
    narrow
        Whether sums of bytes are known to stay below 2**24. They are then computed in float32,
        which is exact and takes half the instructions, as there is no fused multiply-add of int32.
    """

    kernel: Pair = (3, 3)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    activation: str = ""
    quantised: Requantisation | None = None
    narrow: bool = False
    title = "depthwise convolution"

    def __post_init__(self) -> None:
        WeightedWindows.__post_init__(self)
        if self.quantised and self.activation:
            raise CompileError(
                "depthwise convolution: a quantised kernel has no activation; give its limits "
                "`low` and `high`"
            )

    @property
    def channels_in(self) -> int:
        """Channels of the image."""
        return self.channels

    @property
    def channels_out(self) -> int:
        """Channels of the output."""
        return self.channels

    @property
    def weights(self) -> tuple[int, ...]:
        """Extents of the weights, channels last."""
        return (*self.kernel, self.channels)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """Take the zero point out through the bias."""
        if self.quantised is None:
            return constants
        bias = self.moved_bias(constants)
        if self.narrow:
            w = constants["w"].astype(np.float32)
            return {**constants, "w": w, "bias": bias.astype(np.float32)}
        return {**constants, "bias": bias.astype(np.int32)}

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule for a target."""
        schedule = te.Schedule(te.kernel("depthwise", self._declared()), processor=target.processor)
        lanes, (rows, pixels) = target.lanes, self._tile(target)
        schedule.split("out", "y", rows)
        schedule.split("out", "x", pixels)
        schedule.split("out", "c", lanes)
        schedule.reorder("out", "n", "y.o", "x.o", "c.o", "ky", "kx", "y.i", "x.i", "c.i")
        if self._shares_code(target):
            schedule.fuse("out", "x.o", "c.o")
        if self.taps <= LARGEST:
            for loop in ("kx",) if self._loops_rows(target) else ("ky", "kx"):
                schedule.unroll("out", loop)
        for loop in ("y.i", "x.i"):
            schedule.unroll("out", loop)
        schedule.vectorise("out", "c.i")
        schedule.parallelise("out", "y.o")
        return KernelSchedule(schedule)

    def _tile(self, target: CpuTarget) -> tuple[int, int]:
        """Rows and columns of a tile.

        Tiles that divide a row need no tail. Large ones read less of the image twice. Small ones
        are enough for float32 with strides, where neighbours share less, and for narrow images,
        where fewer small tiles lie at the border.
        """
        columns, stride = self.size_out[1], self.strides[1]
        if target.registers < 32:
            return 1, even_blocks(columns, 4)
        reach = self.reach(1)
        whole = [p for p in range(4, 8) if columns % p == 0 and (p - 1) * stride + reach <= SPAN]
        if whole:
            if self.quantised is None and (stride > 1 or columns < SEVERAL * max(whole)):
                return 2, min(whole)
            return 2, max(whole)
        return 2, even_blocks(columns, 7 if stride == 1 else 4)

    def _shares_code(self, target: CpuTarget) -> bool:
        """Whether all tiles of a row share one body.

        Columns and vectors are then one loop, and any iteration may lie at the border. The two or
        three columns of a tile that may lie outside are read under a mask, which is almost free for
        vectors of 16 elements. Narrower vectors would be read element by element, and so would
        everything if the channels were not whole vectors.
        """
        pixels, columns = self._tile(target)[1], self.size_out[1]
        whole = columns % pixels == 0 and self.channels % target.lanes == 0
        return target.lanes == 16 and whole and columns >= MANY * pixels

    def _loops_rows(self, target: CpuTarget) -> bool:
        """Whether the rows of a large window stay a loop, for a fifth of the code."""
        if self.taps <= SMALL or self._shares_code(target):
            return False
        return target.registers == 32 and self.size_out[1] >= (14 if self.quantised is None else 28)

    def _declared(self) -> te.DeclaredTensor:
        operands, q = self.operands, self.quantised
        x = te.tensor("x", operands["x"].dtype, self.image, pad=self.pad)
        real = q is None or self.narrow
        w = te.tensor("w", "float32" if real else "int8", self.weights)
        bias = te.tensor("bias", "float32" if real else "int32", (self.channels,))
        scale = te.tensor("scale", "float32", (self.channels,))
        rows, columns = self.size_out
        axes = n, y, xo, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        over = ky, kx = te.reduce_axes(ky=self.kernel[0], kx=self.kernel[1])
        read = x[n, self.row(y, ky) - self.pads[0], self.column(xo, kx) - self.pads[1], c]
        read = te.real(read) if self.narrow else read
        total = te.sum(read * w[ky, kx, c], over=over) + bias[c]
        value = self.finished(total, None if q is None else scale[c])
        return te.compute("out", self.output.dtype, axes, value)
