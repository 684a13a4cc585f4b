"""Convolution of NHWC arrays, or of an image in planes.

The shape and the target select the method: as a matrix product (one tap), directly
(`direct_convolution`, `planar_convolution`), in groups of channels (`grouped_convolution`,
`depthwise`), or with fewer products (`winograd`, `byte_winograd`).
"""

from dataclasses import dataclass

from typing_extensions import override

from ....errors import CompileError
from ..target import CpuTarget
from .byte_winograd import ByteWinogradPlanner
from .choices import Choice, Choices
from .depthwise import DepthwisePlanner
from .description import Array, Planner
from .direct_convolution import DirectPlanner
from .epilogue import WITH_BIAS, Epilogue
from .grouped_convolution import GroupedPlanner
from .matrix_product import MatrixPlanner, MatrixProduct
from .planar_convolution import PlanarPlanner
from .product import Product
from .windows import Pair, Windowed
from .winograd import WinogradPlanner


@dataclass(frozen=True, slots=True)
class Convolution(Windowed, Product):
    """The epilogue of `sum(x[n, y * s + ky * d - top, ..., i] * w[ky, kx, i, o])`.

    Operands are `x` as [N, H, W, I], `w` as [KH, KW, I / groups, O], and those of the epilogue. The
    output is [N, OH, OW, O].

    Parameters
    ----------
    batch, height, width, channels_in, channels_out
        Extents.
    kernel, strides, dilations
        Extents of the window and its steps, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    dtype
        Type of `x`: float32, or int8 or uint8 with weights of int8.
    zero_point
        The number of the padding.
    epilogue
        The function of each sum.
    winograd
        Whether windows of 3x3 may be done by Winograd's method where that is faster; float32 sums
        are then rounded differently.
    narrow
        Whether sums of bytes are known to be small, bias included: below 2**25, as Winograd's
        method needs, or below 2**24 where each channel is a group. The latter are computed in
        float32, which is exact and takes half the instructions, as there is no fused multiply-add
        of int32.
    small_pairs
        Whether `quantised.has_small_pairs` holds for the weights.
    groups
        Number of groups of channels; divides both numbers of channels.
    computed
        Whether `w` is an operand of each call; only in float32, one group or one for each channel.
    planes
        Whether `x` lies as [N, I, H, W], with few channels; only in float32 and one group.
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
    dtype: str = "float32"
    zero_point: int = 0
    epilogue: Epilogue = WITH_BIAS
    winograd: bool = True
    narrow: bool = False
    small_pairs: bool = False
    groups: int = 1
    planes: bool = False
    computed: bool = False
    choice: Choice = ()
    title = "convolution"

    def __post_init__(self) -> None:
        Windowed.__post_init__(self)
        Product.__post_init__(self)
        if self.channels_in % self.groups or self.channels_out % self.groups:
            raise CompileError(
                f"grouped convolution: {self.groups} groups do not divide {self.channels_in} and "
                f"{self.channels_out} channels; choose a divisor of both"
            )
        if self.planes and (self.groups > 1 or self.dtype != "float32"):
            raise CompileError(
                "convolution: `planes` is for float32 and one group; give `x` channels last"
            )

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group."""
        return 1 < self.groups == self.channels_in == self.channels_out

    @property
    def is_matrix(self) -> bool:
        """Whether pixels are rows of a matrix: one tap, no border, no stride."""
        one = self.kernel == self.strides == (1, 1) and not any(self.pads)
        return one and self.groups == 1 and not self.planes

    @property
    def weights(self) -> tuple[int, ...]:
        """Extents of the weights, output channels last."""
        return (*self.kernel, self.channels_in // self.groups, self.channels_out)

    @property
    def image(self) -> tuple[int, ...]:
        """Extents of `x`."""
        if self.planes:
            return (self.batch, self.channels_in, self.height, self.width)
        return (self.batch, self.height, self.width, self.channels_in)

    @property
    @override
    def factors(self) -> tuple[Array, Array]:
        weights = "float32" if self.dtype == "float32" else "int8"
        return Array(self.dtype, self.image), Array(weights, self.weights)

    @property
    @override
    def extents(self) -> tuple[int, ...]:
        return (self.batch, *self.size_out, self.channels_out)

    @override
    def method(self, target: CpuTarget, choices: Choices) -> Planner:
        if self.planes:
            return PlanarPlanner(self, target, choices)
        if self.is_matrix and not self.computed:
            rows = self.batch * self.height * self.width
            extents, pairs = (rows, self.channels_in, self.channels_out), self.small_pairs
            product = MatrixProduct(*extents, self.dtype, self.epilogue, small_pairs=pairs)
            return MatrixPlanner(product, target, choices)
        if self.is_depthwise:
            return DepthwisePlanner(self, target, choices)
        if self.groups > 1:
            return GroupedPlanner(self, target, choices)
        name, others = self._methods(target)
        if choices.pick_name("method", name, others) == "direct":
            return DirectPlanner(self, target, choices)
        planner = WinogradPlanner if self.dtype == "float32" else ByteWinogradPlanner
        return planner(self, target, choices)

    def _methods(self, target: CpuTarget) -> tuple[str, tuple[str, ...]]:
        """The method that is probably faster, and those that are possible."""
        unit = self.strides == self.dilations == (1, 1)
        if self.computed or not (self.winograd and unit and self.kernel == (3, 3)):
            return "direct", ()
        direct = DirectPlanner(self, target, Choices())
        if self.dtype == "float32":
            fits, faster = True, WinogradPlanner(self, target, Choices()).is_faster
        elif ByteWinogradPlanner.computes(self):
            planner = ByteWinogradPlanner(self, target, Choices())
            fits, faster = planner.fits, planner.is_faster_than(direct.way.rate)
        else:
            return "direct", ()
        name = "winograd" if faster and not direct.matrix else "direct"
        return name, ("direct", "winograd") if fits else ()
