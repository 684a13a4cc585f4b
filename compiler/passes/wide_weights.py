"""Nine-bit weights as sums of int8 weights, for the host, and where WGT has too few tiles.

Some models, such as TFLite's older ones, have uint8 weights with zero points in the middle of the
range. Without the zero point, such a weight may exceed int8. It is split into int8 terms, which
multiply copies of the input: `x * w = x * a + x * b`. The accelerator seldom needs copies.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...isa.numbers import int8_terms
from ..graph import Graph, Node, Quantisation
from ..graph import operators as ops
from ..rewriting import Site, computed, constant, rewrite, rule_of, value
from .patterns import TO_FIRST, TO_LAST

CHANNELS = 3
"""Axis of an image's channels, channels last."""


USUAL_LANES = 16
"""Lanes for which copies are chosen; the copies are right for any machine."""


def narrow_weights(graph: Graph, wanted: Callable[[Node], bool]) -> tuple[Graph, dict[str, str]]:
    """Replace weights beyond int8 of some layers; also return the new names of their results."""
    names: dict[str, str] = {}

    @rule_of(
        *(ops.QConv, computed("x")),
        constant("w", where=lambda kind: kind.dtype == "int16"),
        *(value("bias"), value("scale")),
        capture="layer",
    )
    def narrow(site: Site, layer: ops.QConv, x: str, w: str, bias: str, scale: str) -> str | None:
        """QConv(x) with int16 weights -> QConv of copies of x with int8 weights."""
        if not wanted(site.root):
            return None
        terms, label = int8_terms(site.data(w)), site.root.name
        repeat = _repeat_channels if layer.groups == 1 else _repeat_pixels
        narrowed, image, kernel = repeat(site, layer, x, terms, label)
        weights, result = site.constant(kernel, f"{label}.weights"), site.root.output.name
        names[result] = site.become(narrowed, image, weights, bias, scale)
        return names[result]

    return rewrite(graph, narrow), names


Narrowed = tuple[ops.QConv, str, np.ndarray]
"""A layer whose `spare` counts the products that terms after the first add; its input, weights."""


def _repeat_channels(
    site: Site, layer: ops.QConv, image: str, terms: list[np.ndarray], label: str
) -> Narrowed:
    """Append the channels that need a further term, or the whole image if that takes less work."""
    height, width, depth, channels = terms[0].shape
    window = height * width * lane_blocks(channels)
    everything, given = np.arange(depth), _is_given(site, image)
    needed = [np.flatnonzero(term.any(axis=(0, 1, 3))) for term in terms[1:]]
    for index, some in enumerate(needed):
        work = lane_blocks(depth) * lane_blocks(len(some)) + lane_blocks(depth + len(some)) * window
        if not given and work >= lane_blocks(2 * depth) * window:
            needed[index] = everything
    x = site.quantisation_of(image)
    if given:
        indices = site.constant(np.concatenate([everything, *needed]), f"{label}.channels")
        turned = site.emit(ops.Transpose(TO_FIRST), image, label=label)
        gathered = site.emit(ops.Gather(TO_FIRST.index(CHANNELS)), turned, indices, label=label)
        joined = site.emit(ops.Transpose(TO_LAST), gathered, label=label)
    else:
        further = [
            image
            if len(some) == depth
            else _select(site, image, some, layer.zero_point_x, x, label)
            for some in needed
        ]
        concat = ops.QConcat(CHANNELS)
        joined = site.emit(concat, image, *further, label=label, quantisation=x)
    kernels = [term[:, :, some] for term, some in zip(terms, [everything, *needed], strict=True)]
    kernel = np.concatenate(kernels, axis=2)
    spare = height * width * (kernel.shape[2] - depth)
    return replace(layer, spare=spare), joined, kernel


def _is_given(site: Site, image: str) -> bool:
    """Tell whether an image is an input of the model, or the host's form of one."""
    producer = site.view.producer(image)
    if producer is None:
        return True
    simple = isinstance(producer.attributes, (ops.Quantize, ops.Shift, ops.Transpose, ops.Reshape))
    return simple and _is_given(site, producer.inputs[0])


def lane_blocks(channels: int) -> int:
    """Return the number of blocks of lanes that channels fill."""
    return -(-channels // USUAL_LANES)


def _select(
    site: Site, image: str, channels: np.ndarray, zero: int, x: Quantisation | None, label: str
) -> str:
    """Emit some channels of an image, by a 1x1 convolution that keeps every value."""
    depth, count = site.shape_of(image)[CHANNELS], len(channels)
    weights = np.zeros((1, 1, depth, count), np.int8)
    weights[0, 0, channels, np.arange(count)] = 1
    window = ("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1)
    return site.emit(
        ops.QConv(*window, zero, zero, spare=depth),
        image,
        site.constant(weights, f"{label}.selection"),
        site.constant(np.full(count, -zero, np.int32), f"{label}.selection.bias"),
        site.constant(np.ones(count, np.float32), f"{label}.selection.scale"),
        label=label,
        quantisation=x,
    )


def _repeat_pixels(
    site: Site, layer: ops.QConv, image: str, terms: list[np.ndarray], label: str
) -> Narrowed:
    """Repeat every row, or every column of dilated rows, once for each term.

    Groups keep their channels apart, so copies cannot lie side by side there. Rows that are dilated
    along with the columns get rows of zeros in between.
    """
    taps = terms[0][..., 0].size
    if 1 not in layer.dilations:
        terms = [_spread_rows(term, layer.dilations[0]) for term in terms]
        layer = replace(layer, dilations=(1, layer.dilations[1]))
    count, axis = len(terms), 0 if layer.dilations[0] == 1 else 1
    factors = (count, 1) if axis == 0 else (1, count)
    resized = site.emit(
        ops.QResize(factors), image, label=label, quantisation=site.quantisation_of(image)
    )
    shape = list(terms[0].shape)
    shape[axis] *= count
    kernel = np.stack(terms, axis=axis + 1).reshape(shape)
    rows, columns = factors
    wide = replace(
        layer,
        strides=(layer.strides[0] * rows, layer.strides[1] * columns),
        pads=tuple(np.multiply(layer.pads, (rows, columns) * 2).tolist()),
        spare=kernel[..., 0].size - taps,
    )
    return wide, resized, kernel


def _spread_rows(weights: np.ndarray, dilation: int) -> np.ndarray:
    """Put rows of zeros between the rows of a window."""
    spread = np.zeros(((len(weights) - 1) * dilation + 1, *weights.shape[1:]), weights.dtype)
    spread[::dilation] = weights
    return spread
