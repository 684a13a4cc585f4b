"""Recognise a constant added to each channel of a quantised value -> a 1x1 convolution of channels.

Some quantisers handle one operator at a time. They leave a layer's bias after the layer, with a
scale of its own. Here, the bias becomes an integer in units of input scale over weight, rounded
like the bias of any layer. Each channel takes the weight whose rounding changes the fewest of its
256 results, usually none.
"""

import numpy as np

from ...isa.numbers import quantise_output
from ..graph import Quantisation
from ..graph import operators as ops
from ..rewriting import Site, op, rule
from .patterns import (
    dequantised,
    known,
    known_data,
    of_images,
    quantised,
    result_of,
    scale_of,
)

MAX_WEIGHT = 127

MAX_MISSES = 2
"""Number of the 256 inputs for which a channel may differ from the definition, by one."""


X = dequantised("x", constant=False)


@rule(
    quantised(op(ops.Binary("Add"), X, known("terms"), capture="add", commutative=True)),
)
def recognise_biases(site: Site, x: str, terms: str) -> str | None:
    """Quantize(clamps(Add(Dequantize(x), constant))) -> QConv(x), a weight and a bias a channel.

    Replace quantised additions of one constant per channel by QConv.
    """
    addends, shape, label = known_data(site.view, terms), site.shape_of(x), site.node("add").name
    if addends is None or addends.size == 1 or not shape:
        return None  # a single number becomes a table, which is exact
    if not addends.size == addends.shape[-1] == shape[-1]:
        return None
    given, (y, (low, high)) = scale_of(site, "x"), result_of(site)
    fitted = fit_biases(addends.reshape(-1), given, y, low, high)
    if fitted is None:
        return None
    weights, biases, scales = fitted
    operator = ops.QConv(
        *("depthwise", (1, 1), (0, 0, 0, 0), (1, 1), len(weights)),
        *(given.zero_point, y.zero_point, low, high),
    )
    weights = weights.reshape(1, 1, 1, -1)
    held = site.constants(label, weights=weights, bias=biases, scale=scales)
    return of_images(site, operator, x, held=held, label=label, quantisation=y)


def fit_biases(
    terms: np.ndarray, x: Quantisation, y: Quantisation, low: int, high: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Find integers with which `requantise(x * weight + bias, scale)` is the float32 definition.

    Parameters
    ----------
    terms : float32[C]
        The addend of each channel.
    x, y : Quantisation
        Quantisations of the value and of the result.
    low, high : int
        Limits of the result.

    Returns
    -------
    int8[C] weights, int32[C] biases and float32[C] scales, or None where a channel differs from the
    definition for more than `MAX_MISSES` inputs, or by more than one.
    """
    inputs = np.arange(-128, 128)
    real = (inputs - x.zero_point).astype(np.float32) * np.float32(x.scale)
    wanted = np.rint((real[:, None] + terms) / np.float32(y.scale)) + np.float32(y.zero_point)
    wanted = np.clip(wanted, low, high).astype(np.int8)
    ratios = terms.astype(np.float64) / x.scale
    if not (np.abs(ratios) * MAX_WEIGHT < 2**30).all():
        return None
    candidates = np.arange(1, MAX_WEIGHT + 1)
    offsets = ratios[:, None] * candidates
    order = np.argsort(np.abs(offsets - np.rint(offsets)) / candidates, axis=1, kind="stable")
    fewest = np.full(len(terms), len(inputs))
    weights, biases = np.zeros(len(terms), np.int8), np.zeros(len(terms), np.int32)
    scales = np.ones(len(terms), np.float32)
    for rank in range(MAX_WEIGHT):
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
    return (weights, biases, scales) if fewest.max(initial=0) <= MAX_MISSES else None
