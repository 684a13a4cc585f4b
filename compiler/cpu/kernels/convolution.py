"""Convolution of NHWC arrays, and the matrix product as its case of one tap.

How it is done is chosen by shape: directly (`direct_convolution`), or with fewer products
(`winograd`, `byte_winograd`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ....errors import CompileError
from ..target import Target
from .byte_winograd import ByteWinogradPlanner
from .description import Array, Plan
from .direct_convolution import DirectPlanner
from .quantised import Quantised, Residual
from .windows import check_windows, count_windows
from .winograd import WinogradPlanner


class Planner(Protocol):
    """A way to do one convolution on one target."""

    def plan(self) -> Plan:
        """Declaration, schedule and layouts."""
        ...

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The tensors of the declaration that follow from weights and bias."""
        ...


@dataclass(frozen=True, slots=True)
class Convolution:
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
        What follows a float32 kernel, one of `ACTIVATIONS`.
    residual
        Whether an array is added before the activation; float32 alone.
    quantised
        None for float32.
    winograd
        Whether windows of 3x3 may be done by Winograd's way where that is faster; float32 sums are
        then rounded otherwise.
    narrow
        Whether sums of bytes are known to stay below 2**25, bias included: Winograd's way needs it.
    added
        For bytes, how a residual of bytes is added to the kernel's own.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    activation: str = ""
    residual: bool = False
    quantised: Quantised | None = None
    winograd: bool = True
    narrow: bool = False
    added: Residual | None = None

    def __post_init__(self) -> None:
        check_windows(self, "convolution")
        if self.quantised and (self.residual or self.activation):
            raise CompileError(
                "convolution: a quantised kernel has neither residual nor activation; give its "
                "limits `low` and `high`, and `added` to add bytes"
            )
        if self.added and not self.quantised:
            raise CompileError("convolution: `added` is for bytes; give `residual` for float32")

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        return count_windows(self)

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        number = "float32" if self.quantised is None else self.quantised.dtype_in
        weight, total = ("float32", "float32") if self.quantised is None else ("int8", "int32")
        window = (*self.kernel, self.channels_in, self.channels_out)
        found = {
            "x": Array(number, (self.batch, self.height, self.width, self.channels_in)),
            "w": Array(weight, window),
            "bias": Array(total, (self.channels_out,)),
        }
        if self.quantised is not None:
            found["scale"] = Array("float32", (self.channels_out,))
        if self.residual or self.added:
            found["residual"] = self.output
        return found

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are packed once."""
        return ("w", "bias") if self.quantised is None else ("w", "bias", "scale")

    @property
    def output(self) -> Array:
        """What it gives."""
        last = self.added.quantised if self.added else self.quantised
        number = "float32" if last is None else last.dtype_out
        return Array(number, (self.batch, *self.size_out, self.channels_out))

    @property
    def macs(self) -> int:
        """Multiplications."""
        rows, columns = self.size_out
        taps = self.kernel[0] * self.kernel[1] * self.channels_in
        return self.batch * rows * columns * taps * self.channels_out

    def planner(self, target: Target) -> Planner:
        """The way that is taken."""
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

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        return self.planner(target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """The tensors of the declaration that follow from weights and bias."""
        return self.planner(target).prepare(constants)


def matrix_product(
    rows: int,
    inner: int,
    columns: int,
    activation: str = "",
    residual: bool = False,
    quantised: Quantised | None = None,
) -> Convolution:
    """`out[m, n] = sum(x[m, k] * w[k, n]) + bias[n]`, as a convolution of `rows` pixels.

    Arrays have two more dimensions of one: `x` is [1, 1, M, K], `w` [1, 1, K, N].
    """
    return Convolution(
        1, 1, rows, inner, columns, activation=activation, residual=residual, quantised=quantised
    )
