"""Helpers for kernel builders: padded tensors and the requantising epilogue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from ....aligned import round_up
from ....errors import CompileError
from ....isa.configuration import Configuration
from ... import te
from ...graph import Graph, Node, QAdd, QAvgPool, QConv, QMatMul, QMul
from ...graph.operators import Operator, QNorm, QRotate
from ...tensor import Kernel

OWN_NAMES = frozenset(
    (
        *("acc", "bias", "centred", "digit", "epsilon", "factor", "fine", "kept", "offset"),
        *("partly", "product", "scale", "state", "table", "total", "w"),
    )
)
"""Names that kernels give to tensors; an activation may have the same name."""


@singledispatch
def kernel_of(operator: Operator, site: "StoredNode") -> Kernel:
    """Make the kernel of a node by the class of its operator; builders register themselves.

    Raises
    ------
    CompileError
        When no builder knows the operator.
    """
    known = ", ".join(sorted(kind.__name__ for kind in kernel_of.registry if kind is not object))
    raise CompileError(f"node `{site.node.name}`: no kernel for `{operator.op}`; known are {known}")


def channel_block(configuration: Configuration) -> int:
    """Every activation in memory has a multiple of this many channels."""
    return max(configuration.lanes_in, configuration.lanes_out)


def broadcast(pixel: Sequence[te.Index], shape: Sequence[int]) -> tuple[te.Index | int, ...]:
    """The index of an operand whose dimensions of one element serve all pixels."""
    *outer, channel = pixel
    sizes = zip(outer, shape, strict=False)
    return (*(axis if size > 1 else 0 for axis, size in sizes), channel)


def tensor_name(value: str) -> str:
    """The tensor name of a graph value: its own name, unless another tensor may have it."""
    return f"value {value}" if value in OWN_NAMES or " " in value else value


def stored(
    value: str, axes: Sequence[te.Index], element: te.TensorExpression, by: te.View | None = None
) -> te.DeclaredTensor:
    """The stage that defines a graph value."""
    return te.compute(tensor_name(value), "int8", axes, element, of=value, by=by)


def sums(value: str, axes: Sequence[te.Index], total: te.TensorExpression) -> te.DeclaredTensor:
    """The stage that stores the accumulators of a graph value, four bytes each."""
    return te.compute(tensor_name(value), "int32", axes, total, of=value)


Requantised = QAdd | QAvgPool | QConv | QMatMul | QMul | QNorm | QRotate
"""Operators whose result is requantised."""


def requantised(
    total: te.TensorExpression, channel: tuple[te.Index, ...], operator: Requantised
) -> te.TensorExpression:
    """`clamp(requantise(total + bias, scale) + zero point)`, a bias and a scale per channel."""
    shape = tuple(use.extent for axis in channel for use in axis.uses.values())
    bias, scale = te.tensor("bias", "int32", shape), te.tensor("scale", "float32", shape)
    value = te.requantise(total + bias[channel], scale[channel]) + operator.zero_point_y
    return te.clamp(value, operator.low, operator.high)


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node whose operands and result are int8[N, H, W, C] in memory, with padded channels."""

    node: Node
    graph: Graph
    configuration: Configuration

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a graph value in memory."""
        *outer, channels = self.graph.types[name].shape
        return (*outer, round_up(channels, channel_block(self.configuration)))

    def activation(self, name: str, pad: int = 0, *, again: bool = False) -> te.DeclaredTensor:
        """The tensor of a graph value in memory.

        `again` makes a second tensor, for a value that a kernel reads as two operands.
        """
        own = f"again {name}" if again else tensor_name(name)
        return te.tensor(own, "int8", self.shape(name), pad, of=name)

    @property
    def pixel(self) -> tuple[te.Index, te.Index, te.Index, te.Index]:
        """Data axes n, y, x, c of the result."""
        n, y, x, c = self.shape(self.node.output.name)
        batch, row, column, channel = te.axes(n=n, y=y, x=x, c=c)
        return batch, row, column, channel

    @property
    def channels(self) -> int:
        """Channels of the result in memory."""
        return self.shape(self.node.output.name)[-1]

    def kernel(
        self, element: te.TensorExpression, constants: Mapping[str, np.ndarray] | None = None
    ) -> Kernel:
        """The kernel whose result has this element at each pixel."""
        made = stored(self.node.output.name, self.pixel, element)
        return te.kernel(self.node.name, made, constants)

    def requantising(
        self,
        total: te.TensorExpression,
        operator: Requantised,
        constants: Mapping[str, np.ndarray],
    ) -> Kernel:
        """The kernel whose result is a requantised total at each pixel; see `requantised`."""
        return self.kernel(requantised(total, self.pixel[-1:], operator), constants)


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
