"""Recognise quantised convolutions and dense layers: Dequantize, Conv or MatMul, Quantize -> QConv.

The scale is computed in binary32 in the order of ONNX Runtime's QLinearConv: input times weight,
divided by output. A bias is an integer in units of input scale times weight scale.
"""

from dataclasses import dataclass

import numpy as np

from ...errors import CompileError
from ..graph import Builder, Graph, Node, Quantisation, rewrite
from ..graph import operators as ops
from ..graph.operator import Pair, Quad
from .patterns import (
    TO_FIRST,
    TO_LAST,
    Clamp,
    dequantised,
    from_image,
    image_shape,
    quantisation_of,
    quantised_output,
    strip_clamps,
)
from .wide_weights import is_exact, split_weights

CHANNELS = 3
"""Axis of an image's channels, channels last."""

SAME_SCALE = 2.0**-18
"""Relative difference up to which a bias's scale counts as the product of the others' scales."""


@dataclass(frozen=True, slots=True)
class Weights:
    """int16 weights [Co, ...] or [K, Co], zero point subtracted, and float32 scales [Co]."""

    data: np.ndarray
    scales: np.ndarray


def recognise_convolutions(graph: Graph) -> Graph:
    """Replace quantised Conv and MatMul, their bias, Relu and Clip included, by QConv."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(clamps(Add?(Conv | MatMul))) -> QConv between layout changes."""
    target = quantised_output(node)
    if target is None:
        return None
    name, clamp = strip_clamps(builder, node.inputs[0])
    producer = builder.producer(name)
    addend = None
    if producer is not None and producer.attributes == ops.Binary("Add"):
        known = [_is_known(builder, operand) for operand in producer.inputs]
        if known.count(True) != 1:
            return None
        addend = producer.inputs[known.index(True)]
        producer = builder.producer(producer.inputs[known.index(False)])
    if producer is None:
        return None
    if isinstance(producer.attributes, ops.Conv):
        return _convolution(builder, producer, addend, clamp, target)
    if isinstance(producer.attributes, ops.MatMul):
        return _dense(builder, producer, addend, clamp, target)
    return None


def _convolution(
    builder: Builder, node: Node, addend: str | None, clamp: Clamp, target: ops.Quantize
) -> str | None:
    conv = node.attributes
    found = dequantised(builder, node.inputs[0])
    weights = _weights(builder, node.inputs[1], axis=0)
    if found is None or weights is None or not isinstance(conv, ops.Conv):
        return None
    x, quantisation = found
    channels = weights.data.shape[0]
    terms = [(name, (channels,)) for name in node.inputs[2:]]
    terms += [(addend, (1, channels, 1, 1))] if addend else []
    bias = _bias(builder, terms, weights, quantisation)
    if bias is None:
        return None
    depthwise = conv.groups > 1 and conv.groups == builder.types[x].shape[1]
    image = builder.emit(ops.Transpose(TO_LAST), [x], node.name)
    window = _QConvShape(
        "depthwise" if depthwise else "conv", conv.strides, conv.pads, conv.dilations, conv.groups
    )
    kernel = weights.data.transpose(2, 3, 1, 0)
    result = _emit(
        builder, node.name, image, kernel, bias, weights, quantisation, window, clamp, target
    )
    return result and builder.emit(ops.Transpose(TO_FIRST), [result], node.name)


def _dense(
    builder: Builder, node: Node, addend: str | None, clamp: Clamp, target: ops.Quantize
) -> str | None:
    found = dequantised(builder, node.inputs[0])
    weights = _weights(builder, node.inputs[1], axis=1)
    if found is None or weights is None or weights.data.ndim != 2:
        return None
    x, quantisation = found
    shape = builder.types[x].shape
    channels = weights.data.shape[1]
    terms = [(addend, (channels,))] if addend else []
    bias = _bias(builder, terms, weights, quantisation)
    if bias is None:
        return None
    image = x
    if len(shape) != 4:
        image = builder.emit(ops.Reshape(image_shape(shape)), [x], node.name)
    window = _QConvShape("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1)
    kernel = weights.data[None, None]
    result = _emit(
        builder, node.name, image, kernel, bias, weights, quantisation, window, clamp, target
    )
    return result and from_image(builder, result, (*shape[:-1], channels), node.name)


@dataclass(frozen=True, slots=True)
class _QConvShape:
    kind: str
    strides: Pair
    pads: Quad
    dilations: Pair
    groups: int


def _emit(
    builder: Builder,
    label: str,
    image: str,
    kernel: np.ndarray,
    bias: np.ndarray,
    weights: Weights,
    x: Quantisation,
    window: _QConvShape,
    clamp: Clamp,
    target: ops.Quantize,
) -> str | None:
    y = quantisation_of(target)
    scale = output_scale(label, x.scale, weights.scales, y.scale)
    terms = split_weights(kernel)
    kernel = np.concatenate(terms, axis=2)
    sums = kernel.astype(np.int64).sum(axis=(0, 1, 2))
    total = bias - x.zero_point * sums
    if len(terms) > 1:
        if window.groups > 1 or not is_exact(kernel, total, scale):
            return None
        image = builder.emit(ops.QConcat(CHANNELS), [image] * len(terms), label, quantisation=x)
    if np.abs(total).max(initial=0) >= 2**31:
        raise CompileError(
            f"layer `{label}`: expected a bias within int32, got `{total[np.abs(total).argmax()]}`"
            " (in units of input scale times weight scale); quantise with larger weight scales"
        )
    operator = ops.QConv(
        window.kind,
        window.strides,
        window.pads,
        window.dilations,
        window.groups,
        x.zero_point,
        y.zero_point,
        *clamp.bounds(target),
    )
    operands = [
        image,
        builder.constant(kernel, f"{label}.weights"),
        builder.constant(total.astype(np.int32), f"{label}.bias"),
        builder.constant(scale, f"{label}.scale"),
    ]
    return builder.emit(operator, operands, label, quantisation=y)


def output_scale(label: str, x: float, w: np.ndarray, y: float) -> np.ndarray:
    """Return `float32(float32(x * w) / y)`, raised to the smallest normal number where below.

    A scale below 2**-126 brings every accumulator to 0, so raising it changes nothing.

    Raises
    ------
    CompileError
        If a scale is not finite.
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = (np.float32(x) * w.astype(np.float32)) / np.float32(y)
    if not np.isfinite(scale).all():
        raise CompileError(
            f"layer `{label}`: expected a finite output scale, got `inf` (input scale `{x}`, "
            f"output scale `{y}`); quantise the model again"
        )
    return np.maximum(scale, np.finfo(np.float32).smallest_normal).astype(np.float32)


def _weights(builder: Builder, name: str, axis: int) -> Weights | None:
    """Return constant int8 weights behind a Dequantize; None for any other value."""
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Dequantize):
        return None
    if not builder.is_constant(node.inputs[0]):
        return None
    data = builder.data(node.inputs[0])
    attributes = node.attributes
    if data.dtype != np.int8 or attributes.axis not in (None, axis) or axis >= data.ndim:
        return None
    shape = [-1 if i == attributes.axis else 1 for i in range(data.ndim)]
    centred = data.astype(np.int16) - np.array(attributes.zero_points, np.int16).reshape(shape)
    scales = np.broadcast_to(np.array(attributes.scales, np.float32), (data.shape[axis],))
    return Weights(centred, scales)


def _is_known(builder: Builder, name: str) -> bool:
    node = builder.producer(name)
    if node is None:
        return builder.is_constant(name)
    return isinstance(node.attributes, ops.Dequantize) and builder.is_constant(node.inputs[0])


def _bias(
    builder: Builder,
    terms: list[tuple[str, tuple[int, ...]]],
    weights: Weights,
    x: Quantisation,
) -> np.ndarray | None:
    """Return the sum of the bias terms as int64[Co] in units of input scale times weight scale.

    An int32 bias quantised with that product (as converters do) is taken as it is; any other one
    is rounded to the nearest integer. A term is (value, shape that it may broadcast to); None
    where it does not.
    """
    channels = len(weights.scales)
    unit = np.float64(x.scale) * weights.scales.astype(np.float64)
    total = np.zeros(channels, dtype=np.int64)
    for name, shape in terms:
        node = builder.producer(name)
        scales = np.ones(1)
        zero = np.zeros(1, np.int64)
        data = None
        if node is not None and isinstance(node.attributes, ops.Dequantize):
            if not builder.is_constant(node.inputs[0]):
                return None
            data = builder.data(node.inputs[0]).astype(np.int64)
            scales = np.array(node.attributes.scales)
            zero = np.array(node.attributes.zero_points)
        elif builder.is_constant(name):
            data = builder.data(name).astype(np.float64)
        if data is None or not _broadcasts(data.shape, shape):
            return None
        data = np.broadcast_to(data.ravel(), (channels,)) - zero
        ratio = np.broadcast_to(scales / unit, (channels,))
        if np.issubdtype(data.dtype, np.integer) and (np.abs(ratio - 1) < SAME_SCALE).all():
            total += data
        else:
            total += np.rint(np.clip(data * ratio, -(2.0**40), 2.0**40)).astype(np.int64)
    return total


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether an array of `shape` broadcasts to `target`, leading ones aside."""
    rank = max(len(shape), len(target))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in (shape, target)]
    return all(size in (1, wanted) for size, wanted in zip(*padded, strict=True))
