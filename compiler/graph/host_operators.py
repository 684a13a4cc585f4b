"""The host's operators that passes know: on any layout, as ONNX defines them.

What they compute stands in `host_kernels`; operators that no pass looks at are in files of their
own (`families`). Windows are (y, x) pairs and pads are (top, left, bottom, right).
"""

from dataclasses import dataclass
from typing import ClassVar

from .operator import Operator, Pair, Quad


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
