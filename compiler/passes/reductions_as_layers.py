"""Rewrite what lies between layers as layers: means, maxima, factors and terms of channels.

A mean over channels is a product with equal weights. A mean or maximum over rows is a pool. A
maximum over channels is one, too, of the pixels in the place of channels. Batch normalisation
behind a function that is no layer is a depthwise convolution of single pixels.
"""

import math

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, computed, constant, op, rewrite, rule, value
from .fold_batch_normalisation import scale_and_offset
from .patterns import TO_FIRST, TO_LAST, is_float32, is_per_tensor, reshaped

ADD, MULTIPLY = ops.Binary("Add"), ops.Binary("Mul")
IMAGE = 4

POINT = ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), 1)


@rule(op(ops.Reduce, value("x"), capture="reduce", result=is_float32))
def reduce_by_layer(site: Site, x: str, reduce: ops.Reduce) -> str | None:
    """Mean or maximum over channels or rows -> Conv, MatMul, AveragePool or MaxPool."""
    user, made = site.view.only_user(site.root.output.name), site.view.producer(x)
    if user is None or isinstance(user.attributes, ops.Binary) or made is None:
        return None  # statistics of a norm
    if made.attributes == ops.Binary("Pow") or len({*made.inputs}) < len(made.inputs):
        return None  # its squares
    return _reduced(site, x, reduce)


@rule(op(ops.Reduce, value("x"), capture="reduce", result=is_float32))
def recognise_reductions(site: Site, x: str, reduce: ops.Reduce) -> str | None:
    """Quantize(mean or maximum of Dequantize(x)) -> Quantize of a layer of Dequantize(x).

    Write means and maxima between integers as layers.
    """
    ends = site.view.producer(x), site.view.only_user(site.root.output.name)
    kinds = ops.Dequantize, ops.Quantize
    if not all(
        node is not None and isinstance(node.attributes, kind) and is_per_tensor(node.attributes)
        for node, kind in zip(ends, kinds, strict=True)
    ):
        return None
    return _reduced(site, x, reduce, integers=True)


def _reduced(site: Site, x: str, reduce: ops.Reduce, *, integers: bool = False) -> str | None:
    """Emit the layer of a mean or maximum, with weights as integers where others are."""
    shape = site.shape_of(x)
    if reduce.kind not in ("ReduceMean", "ReduceMax"):
        return None
    if integers and len(shape) >= IMAGE and reduce.axes in _pixel_axes(len(shape)):
        return _pooled(site, x, reduce)
    if len(reduce.axes) != 1:
        return None
    (axis,), count = reduce.axes, shape[reduce.axes[0]]
    image, mean = len(shape) == IMAGE, reduce.kind == "ReduceMean"
    if not (image and axis == 1) and not (len(shape) == 3 and axis in (1, 2)):
        return None
    channels = axis == 1 if image else axis == 2
    if channels and mean:
        ones = np.ones((1, count, 1, 1) if image else (count, 1), np.int8)
        data = ones if integers else ones * np.float32(1 / count)
        weights = site.constant(data, f"{site.root.name}.weights")
        if integers:
            weights = site.emit(ops.Dequantize((float(np.float32(1 / count)),), (0,)), weights)
        return reshaped(site, site.emit(POINT if image else ops.MatMul(), x, weights), site.shape)
    if image:
        x = site.emit(ops.Transpose(TO_LAST), x)
    rows = x
    if channels:
        n, pixels = shape[0], math.prod(shape) // shape[0] // count
        whole = reshaped(site, x, (n, pixels, count))
        rows = site.emit(ops.Transpose((0, 2, 1)), whole)
    n, count, width = site.shape_of(rows)
    columns = site.emit(ops.Transpose(TO_FIRST), reshaped(site, rows, (n, 1, count, width)))
    pool = (ops.AveragePool if mean else ops.MaxPool)((1, count), (1, 1), (0, 0, 0, 0))
    return reshaped(site, site.emit(pool, columns), site.shape)


def _pixel_axes(rank: int) -> tuple[tuple[int, ...], ...]:
    """Return the axes of pixels: all of them, or rows or columns of an image, or channels last."""
    return ((2,), (3,), (2, 3), (1, 2)) if rank == IMAGE else (tuple(range(2, rank)),)


def _pooled(site: Site, x: str, reduce: ops.Reduce) -> str:
    """Emit the pool of a mean or maximum over pixels, whose channels may be last."""
    n, *rest = site.shape_of(x)
    last = reduce.axes == (1, 2)
    if last:
        x = site.emit(ops.Transpose(TO_FIRST), x)
    elif len(rest) >= IMAGE:
        x = reshaped(site, x, (n, *rest[:2], math.prod(rest[2:])))
    extents = site.shape_of(x)[2:]
    whole = last or len(reduce.axes) > 1
    kernel = tuple(size if whole or 2 + i in reduce.axes else 1 for i, size in enumerate(extents))
    pool = (ops.AveragePool if reduce.kind == "ReduceMean" else ops.MaxPool)(
        kernel, (1, 1), (0,) * 4
    )
    result = site.emit(pool, x)
    return reshaped(site, site.emit(ops.Transpose(TO_LAST), result) if last else result, site.shape)


_SCALED = op(MULTIPLY, computed("x"), constant("factor"), capture="times",
             private=True, commutative=True)  # fmt: skip


@rule(op(ADD, _SCALED, constant("offset"), result=is_float32, commutative=True))
def normalise_by_layer(site: Site, x: str, factor: str, offset: str) -> str | None:
    """x * f + c of the channels of an image, behind a function -> a depthwise Conv."""
    shape, made = site.shape, site.view.producer(x)
    if len(shape) != IMAGE or shape != site.shape_of(x) or made is None:
        return None
    if not isinstance(made.attributes, ops.Unary | ops.Binary):
        return None
    product = site.node("times")
    found = [
        scale_and_offset(node, name, site.data(name), 1, shape[1], IMAGE)
        for node, name in ((product, factor), (site.root, offset))
    ]
    if found[0] is None or found[1] is None or len({*found[0].factor.tolist()}) == 1:
        return None
    weights = found[0].factor.astype(np.float32).reshape(-1, 1, 1, 1)
    parts = (
        site.constant(data, f"{site.root.name}.{name}")
        for name, data in (("weights", weights), ("bias", found[1].offset.astype(np.float32)))
    )
    return site.emit(ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), shape[1]), x, *parts)


def reductions_as_layers(graph: Graph) -> Graph:
    """Rewrite means, maxima and norms by channel as layers."""
    return rewrite(graph, reduce_by_layer, normalise_by_layer)
