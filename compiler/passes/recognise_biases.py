"""Recognise a constant added to each channel of a quantised value -> a 1x1 convolution of channels.

Quantisers that look at one operator at a time leave a layer's bias behind the layer, with a change
of scale of its own. What is added becomes an integer in units of input scale over weight, rounded
as the bias of any layer is; each channel takes the weight whose rounding changes the fewest of its
256 results, mostly none.
"""

import numpy as np

from ...isa.numbers import quantise_output
from ..graph import Builder, Graph, Node, Quantisation, evaluate_operator, rewrite
from ..graph import operators as ops
from .patterns import (
    dequantised,
    from_image,
    quantisation_of,
    quantised_output,
    strip_clamps,
    to_image,
)

LARGEST_WEIGHT = 127

MOST_MISSES = 2
"""Inputs, of 256, for which a channel may differ from the definition, by one."""


def recognise_biases(graph: Graph) -> Graph:
    """Replace quantised additions of one constant per channel by QConv."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(clamps(Add(Dequantize(x), constant))) -> QConv(x), a weight and a bias a channel."""
    target = quantised_output(node)
    if target is None:
        return None
    name, clamp = strip_clamps(builder, node.inputs[0])
    add = builder.producer(name)
    if add is None or add.attributes != ops.Binary("Add"):
        return None
    for value, addend in (add.inputs, add.inputs[::-1]):
        found = dequantised(builder, value)
        terms = _constant(builder, addend)
        if found is not None and terms is not None and not builder.is_constant(found[0]):
            break
    else:
        return None
    x, quantisation = found
    shape = builder.types[x].shape
    if terms.size == 1 or not shape or not terms.size == terms.shape[-1] == shape[-1]:
        return None  # one number makes a table, which is exact
    y = quantisation_of(target)
    low, high = clamp.bounds(target)
    fitted = fit_biases(terms.reshape(-1), quantisation, y, low, high)
    if fitted is None:
        return None
    weights, biases, scales = fitted
    operator = ops.QConv(
        "depthwise",
        (1, 1),
        (0, 0, 0, 0),
        (1, 1),
        len(weights),
        quantisation.zero_point,
        y.zero_point,
        low,
        high,
    )
    operands = [
        to_image(builder, x, add.name),
        builder.constant(weights.reshape(1, 1, 1, -1), f"{add.name}.weights"),
        builder.constant(biases, f"{add.name}.bias"),
        builder.constant(scales, f"{add.name}.scale"),
    ]
    result = builder.emit(operator, operands, add.name, quantisation=y)
    return from_image(builder, result, node.output.type.shape, add.name)


def _constant(builder: Builder, name: str) -> np.ndarray | None:
    """Return a constant float32 array, quantised or not."""
    if builder.types[name].dtype != "float32":
        return None
    if builder.is_constant(name):
        return builder.data(name)
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Dequantize):
        return None
    if not builder.is_constant(node.inputs[0]):
        return None
    return evaluate_operator(node.attributes, [builder.data(node.inputs[0])])


def fit_biases(
    terms: np.ndarray, x: Quantisation, y: Quantisation, low: int, high: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Find integers with which `requantise(x * weight + bias, scale)` is the float32 definition.

    Parameters
    ----------
    terms : float32[C]
        What is added to each channel.
    x, y : Quantisation
        Of the value and of the result.
    low, high : int
        Limits of the result.

    Returns
    -------
    int8[C] weights, int32[C] biases and float32[C] scales, or None where a channel differs from the
    definition for more than `MOST_MISSES` inputs, or by more than one.
    """
    inputs = np.arange(-128, 128)
    real = (inputs - x.zero_point).astype(np.float32) * np.float32(x.scale)
    wanted = np.rint((real[:, None] + terms) / np.float32(y.scale)) + np.float32(y.zero_point)
    wanted = np.clip(wanted, low, high).astype(np.int8)
    ratios = terms.astype(np.float64) / x.scale
    if not (np.abs(ratios) * LARGEST_WEIGHT < 2**30).all():
        return None
    candidates = np.arange(1, LARGEST_WEIGHT + 1)
    offsets = ratios[:, None] * candidates
    order = np.argsort(np.abs(offsets - np.rint(offsets)) / candidates, axis=1, kind="stable")
    fewest = np.full(len(terms), len(inputs))
    weights, biases = np.zeros(len(terms), np.int8), np.zeros(len(terms), np.int32)
    scales = np.ones(len(terms), np.float32)
    for rank in range(LARGEST_WEIGHT):
        left = np.flatnonzero(fewest)
        if not left.size:
            break
        weight = candidates[order[left, rank]]
        bias = (np.rint(ratios[left] * weight) - x.zero_point * weight).astype(np.int32)
        scale = (x.scale / (weight * y.scale)).astype(np.float32)
        found = quantise_output(inputs[:, None] * weight + bias, scale, y.zero_point, low, high)
        apart = np.abs(found.astype(np.int64) - wanted[:, left])
        misses = np.where(apart.max(axis=0) > 1, len(inputs), (apart > 0).sum(axis=0))
        better = misses < fewest[left]
        chosen = left[better]
        fewest[chosen] = misses[better]
        weights[chosen], biases[chosen], scales[chosen] = (
            part[better] for part in (weight, bias, scale)
        )
    return (weights, biases, scales) if fewest.max(initial=0) <= MOST_MISSES else None
