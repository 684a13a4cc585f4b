"""Operators of the graph IR: one frozen dataclass each, its fields are its attributes.

The first nine are the accelerator's: integer operators on int8[N, H, W, C] with one exact meaning
(`integer_kernels`). All others run on the host, on any layout, as ONNX defines them
(`host_kernels`). What an operator's output looks like stands in `infer`. Operators that no pass
looks at are not here but in files of their own (`families`).

Windows are (y, x) pairs and pads are (top, left, bottom, right). QConv, QAdd, QAvgPool and
QMatMul end alike, with `requantise` of the contract:

    y = clamp(saturate8(requantise(accumulator, scale) + zero_point_y), low, high)
"""

from dataclasses import dataclass
from typing import ClassVar

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """Base of all operators; `op` is the name in text, reports and kernel tables."""

    op: ClassVar[str] = ""


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


MOVEMENTS: tuple[type[Operator], ...] = (QConcat, QResize, QSlice)
"""Operators of the accelerator that compute nothing: only the place of an element changes."""

ACCELERATED: tuple[type[Operator], ...] = (
    *(QConv, QAdd, QAvgPool, QMaxPool, QLut, QMatMul),
    *MOVEMENTS,
)
"""Operators that have an integer meaning and may run on the accelerator."""

CLAMPING = (QConv, QAdd, QAvgPool, QMaxPool, QMatMul)
"""Those of them that clamp their results, between `low` and `high`."""


@dataclass(frozen=True, slots=True)
class Quantize(Operator):
    """float32 -> integers: `saturate(round_half_even(x / scale) + zero_point)`.

    One scale and zero point for all (`axis` None), or one for each index of `axis`.
    """

    op: ClassVar[str] = "quantize"
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dtype: str
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Dequantize(Operator):
    """Integers -> float32: `float32(x - zero_point) * scale`; see `Quantize`."""

    op: ClassVar[str] = "dequantize"
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Shift(Operator):
    """uint8 -> int8 (minus 128) or int8 -> uint8 (plus 128); exact."""

    op: ClassVar[str] = "shift"


@dataclass(frozen=True, slots=True)
class Reshape(Operator):
    """The same elements in the same order, in another shape."""

    op: ClassVar[str] = "reshape"
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transpose(Operator):
    """Axis i of the output is axis `permutation[i]` of the input."""

    op: ClassVar[str] = "transpose"
    permutation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pad(Operator):
    """Surround with `value`: `before[i]` and `after[i]` elements on axis i (not negative)."""

    op: ClassVar[str] = "pad"
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Slice(Operator):
    """`x[starts[i]:stops[i]:steps[i]]` on each axis i, all in range and steps positive."""

    op: ClassVar[str] = "slice"
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Concat(Operator):
    """Join along `axis`."""

    op: ClassVar[str] = "concat"
    axis: int


@dataclass(frozen=True, slots=True)
class Gather(Operator):
    """Pick the second input's indices along `axis` of the first."""

    op: ClassVar[str] = "gather"
    axis: int


@dataclass(frozen=True, slots=True)
class Cast(Operator):
    """Convert elements to `dtype`."""

    op: ClassVar[str] = "cast"
    dtype: str


@dataclass(frozen=True, slots=True)
class Conv(Operator):
    """Convolution in ONNX's layout: x [N, Ci, H, W], w [Co, Ci / groups, KH, KW], bias [Co].

    With `channels_last`, x and y are [N, H, W, C] and w is [KH, KW, Ci / groups, Co].
    """

    op: ClassVar[str] = "conv"
    strides: Pair
    pads: Quad
    dilations: Pair
    groups: int
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class MatMul(Operator):
    """Matrix product of the last two axes, the others broadcast."""

    op: ClassVar[str] = "matmul"


@dataclass(frozen=True, slots=True)
class MaxPool(Operator):
    """Max pooling in ONNX's layout, x [N, C, H, W] of any type; padding never wins.

    With `channels_last`, x and y are [N, H, W, C].
    """

    op: ClassVar[str] = "maxpool"
    kernel: Pair
    strides: Pair
    pads: Quad
    dilations: Pair = (1, 1)
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class AveragePool(Operator):
    """Average pooling in ONNX's layout, x float32[N, C, H, W].

    The divisor counts padding or not (`count_include_pad`); it never counts `overhang`, the rows
    and columns that the last windows reach beyond the padding (ONNX's `ceil_mode`). With
    `channels_last`, x and y are [N, H, W, C].
    """

    op: ClassVar[str] = "averagepool"
    kernel: Pair
    strides: Pair
    pads: Quad
    count_include_pad: bool = False
    overhang: Pair = (0, 0)
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class Unary(Operator):
    """An elementwise function of one tensor; `kind` and `parameters` as in ONNX."""

    op: ClassVar[str] = "unary"
    kind: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary(Operator):
    """An elementwise function of two tensors of one type, broadcast; `kind` as in ONNX."""

    op: ClassVar[str] = "binary"
    kind: str


@dataclass(frozen=True, slots=True)
class Softmax(Operator):
    """Softmax over the axes from `axis` to `stop` (exclusive) together; its logarithm if `log`."""

    op: ClassVar[str] = "softmax"
    axis: int
    stop: int
    log: bool = False


@dataclass(frozen=True, slots=True)
class Reduce(Operator):
    """Reduce over `axes`; `kind` as in ONNX, or LastArgMax, LastArgMin: of equals, the last."""

    op: ClassVar[str] = "reduce"
    kind: str
    axes: tuple[int, ...]
    keep: bool


OPERATORS: dict[str, type[Operator]] = {
    operator.op: operator
    for operator in (
        *ACCELERATED,
        *(Quantize, Dequantize, Shift, Reshape, Transpose, Pad, Slice, Concat, Gather, Cast),
        *(Conv, MatMul, MaxPool, AveragePool, Unary, Binary, Softmax, Reduce),
    )
}
"""Every operator by its name."""
