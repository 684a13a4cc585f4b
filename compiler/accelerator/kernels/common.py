"""Helpers for kernel builders: padded tensors, the requantising epilogue, windows."""

import numpy as np

from ....isa.configuration import Configuration
from ....isa.expressions import Affine, Call, Expression, Literal, Op
from ...graph import Graph
from ...tensor import Axis, Tensor

OWN_NAMES = frozenset({"acc", "bias", "scale", "table", "w"})
"""Names that kernels give to tensors; an activation may have the same name."""


def channel_block(configuration: Configuration) -> int:
    """The number of channels of every activation in memory is a multiple of this."""
    return max(configuration.lanes_in, configuration.lanes_out)


def padded(count: int, block: int) -> int:
    """Round up to a multiple of `block`."""
    return -(-count // block) * block


def activation(
    name: str, graph: Graph, configuration: Configuration, pad: int = 0, *, again: bool = False
) -> Tensor:
    """The tensor of a graph value int8[N, H, W, C] in memory, with padded channels.

    `again` makes a second tensor, for a value that a kernel reads as two operands.
    """
    *outer, channels = graph.types[name].shape
    shape = (*outer, padded(channels, channel_block(configuration)))
    own = f"again {name}" if again else tensor_name(name)
    return Tensor(own, "int8", shape, pad, name)


def tensor_name(value: str) -> str:
    """The tensor name of a graph value: its own name, unless another tensor may have it."""
    return f"value {value}" if value in OWN_NAMES or " " in value else value


def axes_of(tensor: Tensor) -> tuple[Axis, ...]:
    """Data axes n, y, x, c of an activation."""
    return tuple(Axis(name, extent) for name, extent in zip("nyxc", tensor.shape, strict=True))


def pointwise_index() -> tuple[Affine, ...]:
    """The index of the computed element."""
    return tuple(Affine.of(**{axis: 1}) for axis in "nyxc")


def window(strides, dilations, pads) -> tuple[Affine, Affine]:
    """Row and column that a window reads, with axes y, x, ky, kx."""
    top, left = pads[0], pads[1]
    return (
        Affine.of(-top, y=strides[0], ky=dilations[0]),
        Affine.of(-left, x=strides[1], kx=dilations[1]),
    )


def epilogue(total: Expression, zero_point: int, low: int, high: int) -> Expression:
    """Add the zero point to a requantised total, saturate and clamp."""
    shifted = Call(Op.ADD, (total, Literal(zero_point)))
    return Call(Op.CLAMP, (shifted, Literal(low), Literal(high)))


def requantised(total: Expression, bias: Expression, scale: Expression) -> Expression:
    """`requantise(total + bias, scale)`."""
    return Call(Op.REQUANTISE, (Call(Op.ADD, (total, bias)), scale))


def scalars(bias: int, scale: float, channels: int) -> dict[str, np.ndarray]:
    """A bias and a scale, repeated for every channel as PARAM needs them."""
    return {
        "bias": np.full(channels, bias, dtype=np.int32),
        "scale": np.full(channels, scale, dtype=np.float32),
    }


def widen(values: np.ndarray, axis: int, size: int, fill: float = 0) -> np.ndarray:
    """Pad one axis of a constant to `size`."""
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, size - values.shape[axis])
    return np.pad(values, widths, constant_values=fill)
