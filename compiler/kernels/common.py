"""What kernel builders share: padded tensors, the requantising epilogue, windows."""

import numpy as np

from ...isa.configuration import Configuration
from ...isa.expressions import Affine, Call, Expression, Literal, Op
from ..graph import Graph
from ..tensor import Axis, Tensor

OWN_NAMES = frozenset({"acc", "bias", "scale", "table", "w"})
"""Tensors that kernels make; an activation may have such a name too."""


def channel_block(configuration: Configuration) -> int:
    """Channels of every activation in memory are a multiple of this."""
    return max(configuration.lanes_in, configuration.lanes_out)


def padded(count: int, block: int) -> int:
    """The next multiple of `block`."""
    return -(-count // block) * block


def activation(
    name: str, graph: Graph, configuration: Configuration, pad: int = 0, *, again: bool = False
) -> Tensor:
    """A graph value int8[N, H, W, C] as it lies in memory, channels padded.

    `again` gives a second tensor of a value that a kernel reads as two operands.
    """
    *outer, channels = graph.types[name].shape
    shape = (*outer, padded(channels, channel_block(configuration)))
    own = f"again {name}" if again else tensor_name(name)
    return Tensor(own, "int8", shape, pad, name)


def tensor_name(value: str) -> str:
    """What kernels call a graph value: its name, unless that may mean another tensor."""
    return f"value {value}" if value in OWN_NAMES or " " in value else value


def axes_of(tensor: Tensor) -> tuple[Axis, ...]:
    """Data axes n, y, x, c of an activation."""
    return tuple(Axis(name, extent) for name, extent in zip("nyxc", tensor.shape, strict=True))


def pointwise_index() -> tuple[Affine, ...]:
    """The index of the element being computed."""
    return tuple(Affine.of(**{axis: 1}) for axis in "nyxc")


def window(strides, dilations, pads) -> tuple[Affine, Affine]:
    """Row and column that a sliding window reads, with axes y, x, ky, kx."""
    top, left = pads[0], pads[1]
    return (
        Affine.of(-top, y=strides[0], ky=dilations[0]),
        Affine.of(-left, x=strides[1], kx=dilations[1]),
    )


def epilogue(total: Expression, zero_point: int, low: int, high: int) -> Expression:
    """Zero point, saturation and clamp around a requantised total."""
    shifted = Call(Op.ADD, (total, Literal(zero_point)))
    return Call(Op.CLAMP, (shifted, Literal(low), Literal(high)))


def requantised(total: Expression, bias: Expression, scale: Expression) -> Expression:
    """`requantise(total + bias, scale)`."""
    return Call(Op.REQUANTISE, (Call(Op.ADD, (total, bias)), scale))


def scalars(bias: int, scale: float, channels: int) -> dict[str, np.ndarray]:
    """A bias and a scale repeated for every channel, as PARAM wants them."""
    return {
        "bias": np.full(channels, bias, dtype=np.int32),
        "scale": np.full(channels, scale, dtype=np.float32),
    }


def widen(values: np.ndarray, axis: int, size: int, fill: float = 0) -> np.ndarray:
    """Pad one axis of a constant to `size`."""
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, size - values.shape[axis])
    return np.pad(values, widths, constant_values=fill)
