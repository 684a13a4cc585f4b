"""Store the host's float images in the layout of its kernels: [N, H, W, C].

Every float32 convolution and pool gets a Transpose before it and one after it. The latter sinks
below operators that work element by element or along axes, until the next Transpose cancels it.
A Transpose that remains after a resize moves in front of it if the image is smaller there.
Results keep their bits, but reductions may add in another order.
"""

import math
from dataclasses import replace

from ..graph import Graph
from ..graph import operators as ops
from ..graph.operators import Interpolate, Where
from ..graph.operators.pooling import Pool
from ..rewriting import Site, computed, each, either, op, rewrite, rewrite_once, rule, value
from .arrange_layout import SINKING, transpose_to_reshape
from .patterns import TO_FIRST, TO_LAST, is_float32, some_operand_fills

WINDOW_TO_LAST = (2, 3, 1, 0)
"""Transposes [Co, Ci, KH, KW] to [KH, KW, Ci, Co]."""

FIRST = ops.Transpose(TO_FIRST)

IMAGE = op(FIRST, value("image"))
"""A Transpose of `image` to [N, C, H, W]."""


LAYER = {"capture": "window", "where": lambda layer: layer.is_image and not layer.channels_last}


@rule(
    op((ops.Conv, ops.MaxPool, ops.AveragePool), result=is_float32, **LAYER),
    op(ops.MaxPoolIndices, value(where=is_float32), **LAYER),
)
def change_layout(site: Site, window: ops.Conv | Pool) -> str | None:
    """f(x) -> Transpose(f of channels last(Transpose(x)))."""
    x, *others = site.root.inputs
    if isinstance(window, ops.Conv):
        others[0] = _moved(site, others[0], WINDOW_TO_LAST)
    image = _moved(site, x, TO_LAST)
    return site.emit(FIRST, site.emit(replace(window, channels_last=True), image, *others))


def _moved(site: Site, name: str, permutation: tuple[int, ...]) -> str:
    """Emit a Transpose; a constant is transposed at compile time."""
    if site.is_constant(name):
        return site.constant(site.data(name).transpose(permutation), f"{name}.last")
    return site.emit(ops.Transpose(permutation), name)


@rule(op((ops.Binary, ops.OwnFunction, Where), each(either(IMAGE, value())), capture="function"))
def sink_below_broadcast(
    site: Site, function: ops.Operator, image: tuple[str | None, ...]
) -> str | None:
    """f(Transpose(a), b) -> Transpose(f(a, b with channels last)), where a is not broadcast."""
    names = site.root.inputs
    if not some_operand_fills(site, image):
        return None
    if any(
        found is None and len(site.shape_of(name)) != 4 and not _is_held(site, name)
        for name, found in zip(names, image, strict=True)
    ):
        return None
    operands = [found or _broadcast(site, name) for name, found in zip(names, image, strict=True)]
    return site.emit(FIRST, site.emit(function, *operands))


def _is_held(site: Site, name: str) -> bool:
    return site.is_constant(name) or site.elements_of(name) == 1


def _broadcast(site: Site, name: str) -> str:
    """Return the channels-last form of a value that broadcasts to [N, C, H, W]."""
    shape = site.shape_of(name)
    if site.elements_of(name) == 1:
        return name
    if site.is_constant(name):
        whole = site.data(name).reshape((1,) * (4 - len(shape)) + shape)
        return site.constant(whole.transpose(TO_LAST), f"{name}.last")
    return _moved(site, name, TO_LAST)


@rule(op(ops.Reduce, IMAGE, capture="reduce"))
def sink_below_reduce(site: Site, reduce: ops.Reduce, image: str) -> str | None:
    """Reduce(Transpose(x)) -> Transpose(Reduce(x)), if anything is left to transpose."""
    axes = tuple(sorted(TO_FIRST[axis] for axis in reduce.axes))
    result = site.emit(ops.Reduce(reduce.kind, axes, reduce.keep), image)
    if reduce.keep:
        return site.emit(FIRST, result)
    left = [TO_FIRST[axis] for axis in range(4) if axis not in reduce.axes]
    return site.emit(ops.Transpose(tuple(sorted(left).index(axis) for axis in left)), result)


@rule(op((ops.Gather, Interpolate, ops.CumSum), IMAGE, ..., capture="along"))
def sink_below_axis(
    site: Site, along: ops.Gather | Interpolate | ops.CumSum, image: str
) -> str | None:
    """f(Transpose(x)) -> Transpose(f(x)) for f along an axis, if it gives an image."""
    if len(site.shape) != 4:
        return None
    moved = replace(along, axis=TO_FIRST[along.axis])
    return site.emit(FIRST, site.emit(moved, image, *site.root.inputs[1:]))


@rule(op(ops.Softmax, IMAGE, capture="softmax"))
def sink_below_softmax(site: Site, softmax: ops.Softmax, image: str) -> str | None:
    """Softmax(Transpose(x)) -> Transpose(Softmax(x)), if its axes stay side by side."""
    axes = sorted(TO_FIRST[axis] for axis in range(softmax.axis, softmax.stop))
    if not axes or axes[-1] - axes[0] >= len(axes):
        return None
    moved = replace(softmax, axis=axes[0], stop=axes[-1] + 1)
    return site.emit(FIRST, site.emit(moved, image))


RESIZED = op((ops.Gather, Interpolate), value("image"), ..., capture="along", private=True)


@rule(op(FIRST, RESIZED))
def rise_above_axis(site: Site, along: ops.Gather | Interpolate, image: str) -> str | None:
    """Transpose(f(x)) -> f(Transpose(x)) for f along an axis, if that moves fewer elements."""
    if len(site.shape_of(image)) != 4 or site.elements_of(image) >= math.prod(site.shape):
        return None
    moved = replace(along, axis=TO_LAST[along.axis])
    return site.emit(moved, site.emit(FIRST, image), *site.node("along").inputs[1:])


@rule(op(ops.Reshape, IMAGE))
def sink_below_flattened_pixels(site: Site, image: str) -> str | None:
    """Reshape(Transpose(x)) to [N, C, pixels] -> Transpose(Reshape(x) to [N, pixels, C])."""
    n, height, width, channels = site.shape_of(image)
    if site.shape != (n, channels, height * width):
        return None
    result = site.emit(ops.Reshape((n, height * width, channels)), image)
    return site.emit(ops.Transpose((0, 2, 1)), result)


@rule(op(ops.Reshape, IMAGE, where=lambda split: len(split.shape) == 6))
def sink_below_split_channels(site: Site, image: str) -> str | None:
    """Reshape(Transpose(x)) that splits channels in three -> Transpose(Reshape(x))."""
    n, height, width, _ = site.shape_of(image)
    if site.shape[0] != n or site.shape[4:] != (height, width):
        return None
    split = site.emit(ops.Reshape((n, height, width, *site.shape[1:4])), image)
    return site.emit(ops.Transpose((0, 3, 4, 5, 1, 2)), split)


JOINED = op(
    ops.Reshape,
    op(ops.Transpose, value(), value="parts", where=lambda turn: len(turn.permutation) == 6),
)


@rule(op(ops.Transpose(TO_LAST), JOINED))
def rise_above_joined_pixels(site: Site, parts: str) -> str | None:
    """Transpose(Reshape(Transpose(x))) that joins pixels of parts -> Reshape(Transpose(x))."""
    n, channels, *image = site.shape_of(parts)
    if site.shape != (n, image[0] * image[1], image[2] * image[3], channels):
        return None
    turned = site.emit(ops.Transpose((0, 2, 3, 4, 5, 1)), parts)
    return site.emit(ops.Reshape(site.shape), turned)


@rule(
    op((ops.GeneralQuantize, ops.GeneralDequantize), IMAGE, value("scale"), ..., capture="scaling")
)
def sink_below_scaling(
    site: Site, scaling: ops.GeneralQuantize | ops.GeneralDequantize, image: str, scale: str
) -> str | None:
    """f(Transpose(x)) -> Transpose(f(x)) for one scale, computed at run time."""
    if site.elements_of(scale) > 1:
        return None
    return site.emit(FIRST, site.emit(scaling, image, *site.root.inputs[1:]))


@rule(op(ops.Transpose(TO_LAST), op(ops.Binary, value("a"), value("b"), capture="function")))
def rise_above_constant(site: Site, function: ops.Binary, a: str, b: str) -> str | None:
    """Transpose(f(constant, number)) -> f(transposed constant, number)."""
    if not all(_is_held(site, name) for name in (a, b)):
        return None
    return site.emit(function, *(_broadcast(site, name) for name in (a, b)))


OF_PLANES = op(
    *(ops.Conv, op(ops.Transpose(TO_LAST), value("x"))),
    *(op(ops.Transpose(WINDOW_TO_LAST), value("w")), ...),
    capture="conv",
    private=True,
    where=lambda c: c.channels_last and c.groups == 1 and c.strides == (1, 1) and not any(c.pads),
)


@rule(op(FIRST, either(OF_PLANES, op(ops.Unary, OF_PLANES, capture="function"))))
def multiply_planes(
    site: Site, conv: ops.Conv, x: str, w: str, function: ops.Unary | None
) -> str | None:
    """Transpose(Conv of one tap by computed weights(Transpose(x))) -> MatMul(w, x) + bias."""
    (samples, channels, *image), weights = site.shape_of(x), site.shape_of(w)
    if weights[2:] != (1, 1):
        return None
    matrix = site.emit(ops.Reshape(weights[:2]), w)
    planes = site.emit(ops.Reshape((samples, channels, image[0] * image[1])), x)
    result = site.emit(ops.MatMul(), matrix, planes)
    for bias in site.node("conv").inputs[2:]:
        result = site.emit(ops.Binary("Add"), result, site.emit(ops.Reshape((weights[0], 1)), bias))
    if function is not None:
        result = site.emit(function, result)
    return site.emit(ops.Reshape(site.shape), result)


@rule(op(ops.Conv, value(), value(), computed("bias"), result=is_float32, capture="conv"))
def add_computed_bias(site: Site, conv: ops.Conv, bias: str) -> str | None:
    """Conv(x, w, b) -> Conv(x, w) + b."""
    if not conv.channels_last:
        return None
    row = site.emit(ops.Reshape((1, 1, 1, site.shape[-1])), bias)
    return site.emit(ops.Binary("Add"), site.emit(conv, *site.root.inputs[:2]), row)


SINKING_IMAGES = (
    *(*SINKING, sink_below_broadcast, sink_below_reduce, sink_below_axis),
    *(sink_below_softmax, sink_below_scaling, rise_above_constant),
    *(sink_below_flattened_pixels, sink_below_split_channels, rise_above_joined_pixels),
)
"""Rules for all Transposes, then those from channels last to channels first alone."""


def channels_last(graph: Graph) -> Graph:
    """Give float convolutions and pools `channels_last`; Transposes meet and vanish."""
    changed = rewrite_once(graph, change_layout)
    if changed is graph and not any(isinstance(node.attributes, ops.QSums) for node in graph.nodes):
        return graph  # no image leaves its layer in float
    sunk = rewrite(rewrite(changed, *SINKING_IMAGES), transpose_to_reshape, *SINKING_IMAGES)
    planar = rewrite_once(rewrite(sunk, rise_above_axis), multiply_planes)
    return rewrite_once(planar, add_computed_bias)
