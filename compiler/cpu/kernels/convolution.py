"""Convolution of NHWC arrays, and the matrix product as its case of one tap.

The shape and the target decide how it is done: directly (`direct_convolution`), or with fewer
products (`winograd`, `byte_winograd`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ..target import CpuTarget
from .byte_winograd import ByteWinogradPlanner
from .description import Array, KernelSchedule
from .direct_convolution import DirectPlanner
from .quantised import Requantisation, Residual
from .windows import Pair, WindowLayer
from .winograd import WinogradPlanner

ConvolutionPlanner = DirectPlanner | WinogradPlanner | ByteWinogradPlanner


@dataclass(frozen=True, slots=True)
class Convolution(WindowLayer):
    """`out[n, y, x, o] = sum(x[n, y * s + ky * d - top, ..., i] * w[ky, kx, i, o]) + bias[o]`.

    Operands are `x` as [N, H, W, I], `w` as [KH, KW, I, O], `bias` [O] (float32, or int32 for
    bytes), for bytes `scale` float32[O], and `residual` like the output where there is one. The
    output is [N, OH, OW, O]. All but `x` and `residual` are constants.

    Parameters
    ----------
    batch, height, width, channels_in, channels_out
        Extents.
    kernel, strides, dilations
        Of the window, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    activation
        Follows a float32 kernel, one of `ACTIVATIONS`.
    residual
        Whether an array is added before the activation; float32 alone.
    quantised
        None for float32.
    winograd
        Whether windows of 3x3 may be done by Winograd's method where that is faster; float32 sums
        are then rounded differently.
    narrow
        Whether sums of bytes are known to stay below 2**25, bias included, as Winograd's method
        needs.
    added
        For bytes, how a residual of bytes is added to the kernel's own.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    activation: str = ""
    residual: bool = False
    quantised: Requantisation | None = None
    winograd: bool = True
    narrow: bool = False
    added: Residual | None = None
    title = "convolution"

    def __post_init__(self) -> None:
        WindowLayer.__post_init__(self)
        if self.quantised and (self.residual or self.activation):
            raise CompileError(
                "convolution: a quantised kernel has neither residual nor activation; give its "
                "limits `low` and `high`, and `added` to add bytes"
            )
        if self.added and not self.quantised:
            raise CompileError("convolution: `added` is for bytes; give `residual` for float32")

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        found = WindowLayer.operands.__get__(self)
        return {**found, "residual": self.output} if self.residual or self.added else found

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        found = WindowLayer.output.__get__(self)
        return Array(self.added.quantised.dtype_out, found.shape) if self.added else found

    def planner(self, target: CpuTarget) -> ConvolutionPlanner:
        """The method that is used on a target."""
        unit = self.strides == self.dilations == (1, 1)
        if self.winograd and unit and self.kernel == (3, 3):
            q = self.quantised
            if q is None and (planner := WinogradPlanner(self, target)).is_faster:
                return planner
            if q and self.narrow and not q.guarded:
                planner = ByteWinogradPlanner(self, target)
                if planner.is_faster:
                    return planner
        return DirectPlanner(self, target)

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule for a target."""
        return self.planner(target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """The tensors of the declaration that follow from weights and bias."""
        return self.planner(target).prepare(constants)


def matrix_product(
    rows: int,
    inner: int,
    columns: int,
    activation: str = "",
    residual: bool = False,
    quantised: Requantisation | None = None,
) -> Convolution:
    """`out[m, n] = sum(x[m, k] * w[k, n]) + bias[n]`, as a convolution of `rows` pixels.

    Arrays have two more dimensions of one: `x` is [1, 1, M, K], `w` [1, 1, K, N].
    """
    return Convolution(
        1, 1, rows, inner, columns, activation=activation, residual=residual, quantised=quantised
    )
