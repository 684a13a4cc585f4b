"""Pooling in float32, over windows and over whole images."""

import math
from dataclasses import replace

from ..cpu.kernels.pooling import Pooling, PoolingPlaces
from ..graph import Node, TensorType
from ..graph import operators as ops
from ..rewriting import op, value
from .kernel import HostKernel, HostScope, matcher, matcher_of

MAX_TAPS = 25
"""Maximum window for indices of maxima; its code grows with it."""


def has_floats(kind: TensorType) -> bool:
    """Whether a tensor is float32 and not empty."""
    return kind.dtype == "float32" and kind.elements > 0


X = value("x", where=has_floats)


def is_last(pool: ops.MaxPool | ops.MaxPoolIndices | ops.AveragePool) -> bool:
    """Whether a pool is one of images, channels last."""
    return pool.is_image and pool.channels_last


@matcher(
    op(ops.MaxPool, X, capture="pool", where=is_last),
    op(ops.AveragePool, X, capture="pool", where=lambda p: is_last(p) and p.dilations == (1, 1)),
)
def match_pool(
    scope: HostScope, node: Node, pool: ops.MaxPool | ops.AveragePool, x: str
) -> HostKernel | None:
    """Match a MaxPool or AveragePool, channels last."""
    window = (pool.kernel, pool.strides, pool.pads, pool.dilations)
    description = Pooling(*scope.image(x), *window)
    if isinstance(pool, ops.AveragePool):
        counted = {"count_include_pad": pool.count_include_pad, "overhang": pool.overhang}
        description = replace(description, average=True, **counted)
    if _somewhere_padding_alone(description):
        return None
    exact = not description.average
    return HostKernel(description, {"x": x}, nodes=(node,), exact=exact)


@matcher_of(
    ops.MaxPoolIndices,
    X,
    capture="pool",
    where=lambda p: is_last(p) and not p.columns_first and math.prod(p.kernel) <= MAX_TAPS,
)
def match_indices(
    scope: HostScope, node: Node, pool: ops.MaxPoolIndices, x: str
) -> HostKernel | None:
    """Match MaxPoolIndices, channels last."""
    window = (pool.kernel, pool.strides, pool.pads, pool.dilations)
    if _somewhere_padding_alone(Pooling(*scope.image(x), *window)):
        return None
    places = PoolingPlaces(*scope.image(x), *window)
    return HostKernel(places, {"x": x}, nodes=(node,), exact=not any(pool.pads))


KINDS = ("ReduceMean", "ReduceMax")


@matcher(op(ops.Reduce, X, capture="reduce", where=lambda r: r.kind in KINDS))
def match_reduction(scope: HostScope, node: Node, reduce: ops.Reduce, x: str) -> HostKernel | None:
    """Match a ReduceMean or ReduceMax over the pixels of [N, H, W, C], as Pooling of one window."""
    if len(scope.shape(x)) != 4 or sorted(reduce.axes) != [1, 2]:
        return None
    average, shape = reduce.kind == "ReduceMean", scope.image(x)
    description = Pooling(*shape, shape[1:3], average=average)
    return HostKernel(description, {"x": x}, nodes=(node,), exact=not average)


def _somewhere_padding_alone(pooling: Pooling) -> bool:
    """Whether some window has no pixel; its maximum is then minus infinity, its mean NaN."""
    rows, columns = replace(pooling, count_include_pad=False).counted
    return not (rows.all() and columns.all())


MATCHERS = (match_pool, match_indices, match_reduction)
