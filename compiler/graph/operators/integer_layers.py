"""Convolutions and dense layers of int8, with int8 results or with their accumulators."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....errors import CompileError
from ....isa.numbers import EXACT_LIMIT
from ..operator import Operator, Pair, Quad, operator
from ..types import TensorType, Types
from .integer import SUM_BYTES, Accelerated, Requantising, patches_of
from .windows import window_extents

MAX_PATCH_ELEMENTS = 1 << 24
"""Limit on the elements of the unfolded input held at once; larger batches are split."""


@dataclass(frozen=True)
class Convolving(Accelerated):
    """Base of the convolutions, depthwise convolutions and dense layers.

    Padding has the value `zero_point_x`. A dense layer is a window over the whole input. It is 1x1,
    or larger if it absorbed a flatten.
    """

    __slots__ = ()
    reads_constants: ClassVar[bool] = True
    numpy_passes = 10
    kind: str
    strides: Pair
    pads: Quad
    dilations: Pair
    groups: int
    zero_point_x: int

    def image_of(self, types: Types) -> tuple[int, ...]:
        """Return [N, OH, OW, Co] for an image int8[N, H, W, Ci] and weights.

        Raises
        ------
        CompileError
            If they do not fit.
        """
        x, w, *parameters = types
        channels = w.shape[-1] if len(w.shape) == 4 else -1
        fits = (
            [t.dtype for t in types] == ["int8", w.dtype, "int32", "float32"][: len(types)]
            and w.dtype in ("int8", "int16")
            and len(x.shape) == len(w.shape) == 4
            and x.shape[3] == w.shape[2] * self.groups
            and channels % self.groups == 0
            and all(one.shape == (channels,) for one in parameters)
        )
        expected = "int8 [N,H,W,Ci], int8 or int16 [KH,KW,Ci/groups,Co]"
        self.expect(fits, f"{expected}, int32 and float32 [Co]" if parameters else expected, types)
        extents = window_extents(self, x.shape[1:3], w.shape[:2], self.dilations)
        return (x.shape[0], *extents, channels)

    def accumulators(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | int = 0) -> np.ndarray:
        """Return the accumulators, int32[N, OH, OW, Co], as exact sums.

        BLAS sums the products in float32 if no partial sum can reach 2**24, else in float64. A
        whole network therefore takes milliseconds.

        Raises
        ------
        CompileError
            If an accumulator overflows int32.
        """
        height, width, depth, channels = w.shape
        patches = patches_of(x, self, (height, width), self.dilations, self.zero_point_x)
        samples, rows, columns = patches.shape[:3]
        bound = int(np.abs(w.astype(np.int64)).sum(axis=(0, 1, 2)).max(initial=0)) * 128
        sums = np.empty((samples, rows, columns, channels), dtype=np.int64)
        part = channels // self.groups
        elements = rows * columns * height * width * depth * self.groups
        step = max(1, MAX_PATCH_ELEMENTS // max(1, elements))
        for first in range(0, samples, step):
            chosen = slice(first, first + step)
            if depth == 1 and bound < 2**31:
                sums[chosen] = _depthwise(patches[chosen], w)
                continue
            for group in range(self.groups):
                inputs = slice(group * depth, (group + 1) * depth)
                outputs = slice(group * part, (group + 1) * part)
                exact = np.float32 if bound < EXACT_LIMIT else np.float64
                matrix = w[..., outputs].reshape(-1, part).astype(exact)
                rows_of_taps = np.ascontiguousarray(patches[chosen][..., inputs], dtype=exact)
                product = rows_of_taps.reshape(-1, matrix.shape[0]) @ matrix
                sums[chosen, ..., outputs] = product.reshape(-1, rows, columns, part)
        sums += bias
        if sums.size and (sums.max() >= 2**31 or sums.min() < -(2**31)):
            raise CompileError(
                f"`{self.op}`: expected accumulators within int32, got "
                f"`{sums.min()}` to `{sums.max()}`; use smaller weights or fewer input channels"
            )
        return sums.astype(np.int32)


@operator("qconv", 4)
class QConv(Convolving, Requantising):
    """Convolution, depthwise convolution or dense layer, requantised.

    Inputs: x int8[N, H, W, Ci], w int8[KH, KW, Ci / groups, Co], or int16 if some exceed int8,
    bias int32[Co], scale float32[Co]. The accumulator is `sum(x_padded * w) + bias`; the bias
    already includes `-zero_point_x * sum(w)`. `spare` of the products of each result are not the
    model's: a pass added them, for example to split weights.
    """

    leads: ClassVar[bool] = True
    zero_point_y: int
    low: int = -128
    high: int = 127
    spare: int = 0

    def result_type(self, types: Types) -> TensorType:
        image = self.image_of(types)
        self.expect(0 <= self.spare <= np.prod(types[1].shape[:3]), "fewer spare products", types)
        return TensorType("int8", image)

    def compute(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray, scale: np.ndarray
    ) -> np.ndarray:
        return self.requantised(self.accumulators(x, w, bias), scale)


@operator("qsums", 2)
class QSums(Convolving):
    """Convolution, depthwise convolution or dense layer whose accumulators are the result.

    Inputs: x int8[N, H, W, Ci], w int8[KH, KW, Ci / groups, Co]. Result: the bytes of
    `sum(x_padded * w)`, int8[N, H, W, 4 * Co], little endian, since all data of the accelerator in
    main memory are bytes. The host reads them with `FromBytes`. `spare` is as in `QConv`.
    """

    result_bytes: ClassVar[int] = SUM_BYTES
    spare: int = 0

    def result_type(self, types: Types) -> TensorType:
        self.expect(0 <= self.spare <= np.prod(types[1].shape[:3]), "fewer spare products", types)
        *pixels, channels = self.image_of(types)
        return TensorType("int8", (*pixels, SUM_BYTES * channels))

    def compute(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return self.accumulators(x, w).astype("<i4").view(np.int8)


@operator("from_bytes")
class FromBytes(Operator):
    """Read accumulators: int8[..., 4 * C], little endian, as int32[..., C]."""

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype == "int8" and bool(x.shape) and x.shape[-1] % SUM_BYTES == 0
        self.expect(fits, f"int8 [...,C] with a multiple of {SUM_BYTES} channels", types)
        return TensorType("int32", (*x.shape[:-1], x.shape[-1] // SUM_BYTES))

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x).view("<i4")


def _depthwise(patches: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sum the taps of each channel: int8[N, OH, OW, KH, KW, C] -> int32[N, OH, OW, Co]."""
    height, width, _, channels = w.shape
    depth = patches.shape[-1]
    factors = w.reshape(height, width, depth, channels // depth).astype(np.int32)
    sums = np.zeros((*patches.shape[:3], depth, channels // depth), dtype=np.int32)
    for y in range(height):
        for x in range(width):
            sums += patches[:, :, :, y, x, :, None] * factors[y, x]
    return sums.reshape(*patches.shape[:3], channels)
