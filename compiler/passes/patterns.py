"""What the recognising passes share: reading quantised patterns backwards, and changing layouts.

Patterns are read from the builder, where everything above the node at hand is already rewritten.
"""

from dataclasses import dataclass

import numpy as np

from ..graph import Builder, Graph, Node, Quantisation, evaluate_operator
from ..graph import operators as ops

TO_LAST = (0, 2, 3, 1)
"""Transposes [N, C, H, W] to [N, H, W, C]."""

TO_FIRST = (0, 3, 1, 2)
"""Transposes [N, H, W, C] to [N, C, H, W]."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """Limits that Relu and Clip set before a Quantize, in real numbers."""

    low: float = -np.inf
    high: float = np.inf

    def bounds(self, target: ops.Quantize) -> tuple[int, int]:
        """Return the limits as integers of `target`.

        Exact: quantising is monotone, so clamping before it equals clamping after it by the
        quantised limits.
        """
        limits = np.array([self.low, self.high], dtype=np.float32)
        with np.errstate(invalid="ignore"):
            low, high = target.compute(limits)
        return int(low), int(high)

    def after(self, inner: tuple[float, ...]) -> "Clamp":
        """Return both clamps as one: what `inner` lets through is clamped by this one."""
        low, high = np.clip(inner, self.low, self.high)
        return Clamp(float(low), float(high))


def clamp_limits(operator: ops.Operator) -> tuple[float, ...] | None:
    """Return the lowest and highest value that Relu or Clip gives; None for other operators."""
    if not isinstance(operator, ops.Unary) or operator.kind not in ("Relu", "Clip"):
        return None
    return operator.parameters if operator.kind == "Clip" else (0.0, np.inf)


def quantised_output(node: Node) -> ops.Quantize | None:
    """Return the attributes of a per-tensor Quantize to int8; None for any other node.

    None too where there is nothing to quantise: the accelerator has no loops of no steps.
    """
    attributes = node.attributes
    if not isinstance(attributes, ops.Quantize) or not node.output.type.elements:
        return None
    return attributes if attributes.axis is None and attributes.dtype == "int8" else None


def quantisation_of(target: ops.Quantize | ops.Dequantize) -> Quantisation:
    """Return a per-tensor operator's quantisation."""
    return Quantisation(target.scales[0], target.zero_points[0])


def strip_clamps(builder: Builder, name: str) -> tuple[str, Clamp]:
    """Walk back through Relu and Clip and return what they clamp, and to what."""
    clamp = Clamp()
    while True:
        node = builder.producer(name)
        limits = None if node is None else clamp_limits(node.attributes)
        if node is None or limits is None:
            return name, clamp
        clamp, name = clamp.after(limits), node.inputs[0]


def dequantised(builder: Builder, name: str) -> tuple[str, Quantisation] | None:
    """Return the int8 value and its quantisation behind a per-tensor Dequantize."""
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Dequantize):
        return None
    source = node.inputs[0]
    if node.attributes.axis is not None or builder.types[source].dtype != "int8":
        return None
    return source, quantisation_of(node.attributes)


def known_number(builder: Builder, name: str) -> np.float32 | None:
    """Return the only element of a float constant, quantised or not; None for any other value."""
    if builder.types[name].elements != 1 or builder.types[name].dtype != "float32":
        return None
    node = builder.producer(name)
    if node is None:
        return builder.data(name).reshape(-1)[0] if builder.is_constant(name) else None
    if not isinstance(node.attributes, ops.Dequantize) or not builder.is_constant(node.inputs[0]):
        return None
    return evaluate_operator(node.attributes, [builder.data(node.inputs[0])]).reshape(-1)[0]


def private(graph: Graph, name: str) -> bool:
    """Tell whether a value of the old graph is read once and shown nowhere."""
    return name in graph.types and len(graph.users(name)) == 1 and not graph.is_output(name)


def to_image(builder: Builder, x: str, node: str) -> str:
    """Emit a reshape of any tensor to rank 4, its last axis kept (nothing for rank 4)."""
    shape = builder.types[x].shape
    if len(shape) == 4:
        return x
    return builder.emit(ops.Reshape(image_shape(shape)), [x], node)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return [N, 1, middle, C] for a shape: first axis, the middle ones in one, last axis."""
    channels = shape[-1] if shape else 1
    first = shape[0] if len(shape) > 1 else 1
    middle = int(np.prod(shape[1:-1], dtype=np.int64)) if len(shape) > 2 else 1
    return (first, 1, middle, channels)


def from_image(builder: Builder, x: str, shape: tuple[int, ...], node: str) -> str:
    """Emit the reshape back from `to_image`."""
    if builder.types[x].shape == shape:
        return x
    return builder.emit(ops.Reshape(shape), [x], node)
