"""Pooling in float32, by windows and over whole images."""

from dataclasses import replace

from ..cpu.kernels.pooling import Pooling
from ..graph import Node
from ..graph import operators as ops
from ..graph.operators import Operator
from .kernel import HostKernel, Matcher, Scope


def match_pool(scope: Scope, node: Node) -> HostKernel | None:
    """MaxPool or AveragePool of channels last -> Pooling."""
    pool, x = node.attributes, scope.graph.types[node.inputs[0]]
    if not isinstance(pool, (ops.MaxPool, ops.AveragePool)) or not pool.channels_last:
        return None
    if x.dtype != "float32" or not x.elements:
        return None
    batch, height, width, channels = x.shape
    description = Pooling(batch, height, width, channels, pool.kernel, pool.strides, pool.pads)
    if isinstance(pool, ops.MaxPool):
        description = replace(description, dilations=pool.dilations)
    else:
        description = replace(
            description,
            average=True,
            count_include_pad=pool.count_include_pad,
            overhang=pool.overhang,
        )
    if _somewhere_padding_alone(description):
        return None
    exact = not description.average
    return HostKernel(description, {"x": node.inputs[0]}, nodes=(node,), exact=exact)


def match_reduction(scope: Scope, node: Node) -> HostKernel | None:
    """ReduceMean or ReduceMax over the pixels of [N, H, W, C] -> Pooling of one window."""
    reduce, x = node.attributes, scope.graph.types[node.inputs[0]]
    if not isinstance(reduce, ops.Reduce) or reduce.kind not in ("ReduceMean", "ReduceMax"):
        return None
    if len(x.shape) != 4 or sorted(reduce.axes) != [1, 2]:
        return None
    if x.dtype != "float32" or not x.elements:
        return None
    average, (batch, height, width, channels) = reduce.kind == "ReduceMean", x.shape
    description = Pooling(batch, height, width, channels, (height, width), average=average)
    return HostKernel(description, {"x": node.inputs[0]}, nodes=(node,), exact=not average)


def _somewhere_padding_alone(pooling: Pooling) -> bool:
    """Whether a window has no pixel: its largest value is then minus infinity, its mean NaN."""
    rows, columns = replace(pooling, count_include_pad=False).counted
    return not (rows.all() and columns.all())


MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {
    ops.MaxPool: (match_pool,),
    ops.AveragePool: (match_pool,),
    ops.Reduce: (match_reduction,),
}
