"""The accelerator's operators: on int8[N, H, W, C], each with one exact integer meaning.

What they compute stands in `integer_kernels`. Windows are (y, x) pairs and pads are (top, left,
bottom, right). QConv, QAdd, QAvgPool and QMatMul end alike, with `requantise` of the contract:

    y = clamp(saturate8(requantise(accumulator, scale) + zero_point_y), low, high)
"""

from dataclasses import dataclass
from typing import ClassVar

from .operator import Operator, Pair, Quad


@dataclass(frozen=True, slots=True)
class QConv(Operator):
    """Convolution, depthwise convolution or dense layer.

    Inputs: x int8[N, H, W, Ci], w int8[KH, KW, Ci / groups, Co], bias int32[Co],
    scale float32[Co]. The accumulator is `sum(x_padded * w) + bias`, where padding has the value
    `zero_point_x` and the bias already holds `-zero_point_x * sum(w)`. A dense layer is a window
    of the whole input: 1x1, or larger where it absorbed a flatten.
    """

    op: ClassVar[str] = "qconv"
    kind: str
    strides: Pair
    pads: Quad
    dilations: Pair
    groups: int
    zero_point_x: int
    zero_point_y: int
    low: int = -128
    high: int = 127


@dataclass(frozen=True, slots=True)
class QAdd(Operator):
    """Residual add: the accumulator is `a * multipliers[0] + b * multipliers[1] + constant`.

    Inputs: a, b int8[N, H, W, C]. `mismatches` counts the operand pairs, of 65,536, whose result
    differs from the float32 definition that the constants were fitted to.
    """

    op: ClassVar[str] = "qadd"
    multipliers: Pair
    constant: int
    scale: float
    zero_point_y: int
    low: int = -128
    high: int = 127
    mismatches: int = 0


@dataclass(frozen=True, slots=True)
class QAvgPool(Operator):
    """Average pooling: the accumulator is `sum(window) + constant`; padding is `zero_point_x`.

    Inputs: x int8[N, H, W, C]. `mismatches` counts the reachable sums whose result differs from
    the float32 definition that `scale` was fitted to.
    """

    op: ClassVar[str] = "qavgpool"
    kernel: Pair
    strides: Pair
    pads: Quad
    zero_point_x: int
    constant: int
    scale: float
    zero_point_y: int
    low: int = -128
    high: int = 127
    mismatches: int = 0


@dataclass(frozen=True, slots=True)
class QMaxPool(Operator):
    """Max pooling: largest value of the window, clamped; padding is -128.

    Inputs: x int8[N, H, W, C].
    """

    op: ClassVar[str] = "qmaxpool"
    kernel: Pair
    strides: Pair
    pads: Quad
    dilations: Pair = (1, 1)
    low: int = -128
    high: int = 127


@dataclass(frozen=True, slots=True)
class QLut(Operator):
    """Any function of one int8: `y = table[x + 128]`. Inputs: x int8[...], table int8[256]."""

    op: ClassVar[str] = "qlut"


@dataclass(frozen=True, slots=True)
class QMatMul(Operator):
    """Matrix products of two activations, one for each image and head, as attention has them.

    Inputs: a int8[N, heads, M, K], b int8[N, heads, K, L], or b int8[N, heads, L, K] if
    `transposed`. The result is int8[N, heads, M, L], and the accumulator
    `sum((a - zero_point_a) * (b - zero_point_b))`. Where `joined` says so, for a, b and the result,
    heads lie side by side in the channels: a is int8[N, 1, M, heads * K], and so on.
    """

    op: ClassVar[str] = "qmatmul"
    heads: int
    scale: float
    zero_point_a: int
    zero_point_b: int
    zero_point_y: int
    transposed: bool = False
    joined: tuple[bool, bool, bool] = (False, False, False)
    low: int = -128
    high: int = 127


@dataclass(frozen=True, slots=True)
class QConcat(Operator):
    """Join along `axis`. Inputs: int8[N, H, W, C] of one quantisation, alike on other axes."""

    op: ClassVar[str] = "qconcat"
    axis: int


@dataclass(frozen=True, slots=True)
class QResize(Operator):
    """Repeat pixels: `y[n, i, j, c] = x[n, i // factors[0], j // factors[1], c]`.

    Inputs: x int8[N, H, W, C].
    """

    op: ClassVar[str] = "qresize"
    factors: Pair


@dataclass(frozen=True, slots=True)
class QSlice(Operator):
    """`x[starts[i]:stops[i]:steps[i]]` on each axis i, all in range; the last step is 1.

    Inputs: x int8[N, H, W, C].
    """

    op: ClassVar[str] = "qslice"
    starts: Quad
    stops: Quad
    steps: Quad
