"""Convolution of NHWC arrays, and the matrix product as its case of one tap.

The shape and the target select the method: directly (`direct_convolution`), in groups of
channels (`grouped_convolution`, `depthwise`), or with fewer products (`winograd`, `byte_winograd`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from typing_extensions import override

from ....errors import CompileError
from ... import te
from ..target import CpuTarget
from .byte_winograd import ByteWinogradPlanner
from .depthwise import DepthwisePlanner
from .description import Array, KernelSchedule, activated
from .direct_convolution import DirectPlanner
from .grouped_convolution import GroupedPlanner
from .quantised import Requantisation, Residual, check_small_pairs
from .windows import Pair, Windowed
from .winograd import WinogradPlanner


class ConvolutionPlanner(Protocol):
    """A method: the declaration and schedule of one convolution for one target."""

    def plan(self) -> KernelSchedule:
        """Declaration, schedule and layouts."""
        ...

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the declared tensors that are computed from weights and bias."""
        ...


@dataclass(frozen=True, slots=True)
class Convolution(Windowed):
    """`out[n, y, x, o] = sum(x[n, y * s + ky * d - top, ..., i] * w[ky, kx, i, o]) + bias[o]`.

    Operands are `x` as [N, H, W, I], `w` as [KH, KW, I / groups, O], `bias` [O] (float32, or int32
    for bytes), for bytes `scale` float32[O], and `residual` like the output, if there is one. The
    output is [N, OH, OW, O]. All but `x` and `residual` are constants.

    Parameters
    ----------
    batch, height, width, channels_in, channels_out
        Extents.
    kernel, strides, dilations
        Extents of the window and its steps, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    activation
        Follows a float32 kernel, one of `ACTIVATIONS`.
    residual
        Whether an array is added before the activation; float32 alone.
    quantised
        None for float32; else bytes are requantised.
    winograd
        Whether windows of 3x3 may be done by Winograd's method where that is faster; float32 sums
        are then rounded differently.
    narrow
        Whether sums of bytes are known to be small, bias included: below 2**25, as Winograd's
        method needs, or below 2**24 where each channel is a group. The latter are computed in
        float32, which is exact and takes half the instructions, as there is no fused multiply-add
        of int32.
    small_pairs
        Whether `quantised.has_small_pairs` holds for the weights, so that instructions may be used
        whose sums of two products saturate.
    added
        The addition of a residual of bytes to the results of a kernel of bytes.
    groups
        Number of groups of channels; divides both numbers of channels. Only a convolution of one
        group adds a residual.
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
    small_pairs: bool = False
    added: Residual | None = None
    groups: int = 1
    title = "convolution"

    def __post_init__(self) -> None:
        Windowed.__post_init__(self)
        if self.quantised and (self.residual or self.activation):
            raise CompileError(
                "convolution: a quantised kernel has neither residual nor activation; give its "
                "limits `low` and `high`, and `added` to add bytes"
            )
        if self.added and not self.quantised:
            raise CompileError("convolution: `added` is for bytes; give `residual` for float32")
        if self.channels_in % self.groups or self.channels_out % self.groups:
            raise CompileError(
                f"grouped convolution: {self.groups} groups do not divide {self.channels_in} and "
                f"{self.channels_out} channels; choose a divisor of both"
            )
        if self.groups > 1 and (self.residual or self.added):
            raise CompileError(
                "grouped convolution: groups take no residual; add it in a kernel of its own"
            )

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group."""
        return 1 < self.groups == self.channels_in == self.channels_out

    @property
    def weights(self) -> tuple[int, ...]:
        """Extents of the weights, output channels last."""
        return (*self.kernel, self.channels_in // self.groups, self.channels_out)

    @property
    def image(self) -> tuple[int, ...]:
        """Extents of `x`."""
        return (self.batch, self.height, self.width, self.channels_in)

    @property
    def pad(self) -> int:
        """The number that stands for zero in the padding."""
        return 0 if self.quantised is None else self.quantised.zero_point_in

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        q = self.quantised
        number, weight, total = ("float32",) * 3 if q is None else (q.dtype_in, "int8", "int32")
        channels = (self.channels_out,)
        found = {
            "x": Array(number, self.image),
            "w": Array(weight, self.weights),
            "bias": Array(total, channels),
        }
        if q is not None and q.is_scaled:
            found["scale"] = Array("float32", channels)
        return {**found, "residual": self.output} if self.residual or self.added else found

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls; they are packed once."""
        scaled = self.quantised is not None and self.quantised.is_scaled
        return ("w", "bias", "scale") if scaled else ("w", "bias")

    @property
    @override
    def output(self) -> Array:
        last = self.added.quantised if self.added else self.quantised
        number = "float32" if last is None else last.dtype_out
        return Array(number, (self.batch, *self.size_out, self.channels_out))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return math.prod((*self.weights[:-1], *self.output.shape))

    def finished(
        self, total: te.TensorExpression, scale: te.TensorExpression | None
    ) -> te.TensorExpression:
        """The result for a sum: a byte, or a number with its activation."""
        if self.quantised is None:
            return activated(total, self.activation, self.title)
        assert scale is not None
        return self.quantised.requantised(total, scale)

    def moved_bias(self, constants: Mapping[str, np.ndarray], shift: int = 0) -> np.ndarray:
        """The bias minus the parts of the zero point and of the activations' shift: int64[O]."""
        assert self.quantised is not None
        w = constants["w"].astype(np.int64)
        moved = self.quantised.moved + shift
        return constants["bias"] - moved * w.sum(axis=tuple(range(w.ndim - 1)))

    def planner(self, target: CpuTarget) -> ConvolutionPlanner:
        """The method that is used on a target."""
        if self.is_depthwise:
            return DepthwisePlanner(self, target)
        if self.groups > 1:
            return GroupedPlanner(self, target)
        direct = DirectPlanner(self, target)
        if direct.matrix:
            return direct
        unit = self.strides == self.dilations == (1, 1)
        if self.winograd and unit and self.kernel == (3, 3):
            q = self.quantised
            if q is None and (planner := WinogradPlanner(self, target)).is_faster:
                return planner
            if q and self.narrow and not q.guarded:
                planner = ByteWinogradPlanner(self, target)
                if planner.is_faster_than(direct.product.rate):
                    return planner
        return direct

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        return self.planner(target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """Return the declared tensors that are computed from weights and bias.

        Raises
        ------
        InputError
            When the weights are not as the description says.
        """
        if self.small_pairs:
            check_small_pairs(constants["w"], self.title)
        return self.planner(target).prepare(constants)


def matrix_product(
    rows: int,
    inner: int,
    columns: int,
    activation: str = "",
    residual: bool = False,
    quantised: Requantisation | None = None,
    small_pairs: bool = False,
) -> Convolution:
    """`out[m, n] = sum(x[m, k] * w[k, n]) + bias[n]`, as a convolution of `rows` pixels.

    Arrays have two more dimensions of one: `x` is [1, 1, M, K], `w` [1, 1, K, N].
    """
    return Convolution(
        *(1, 1, rows, inner, columns),
        activation=activation,
        residual=residual,
        quantised=quantised,
        small_pairs=small_pairs,
    )
