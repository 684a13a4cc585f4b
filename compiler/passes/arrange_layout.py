"""Cancel layout changes: Transpose sinks below elementwise operators until it meets its inverse.

Each recognised operator stands between a Transpose from ONNX's channels-first layout and one back.
All of them move towards the outputs and merge. The host runs those that remain.
"""

from dataclasses import replace

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, each, either, op, rewrite, rule, rule_of, value
from .moved_elements import TURNS, moved_elements
from .patterns import TO_FIRST, reshaped, to_image

Permutation = tuple[int, ...]


def has_one_tap(site: Site) -> bool:
    """Tell whether each pixel of a convolution's result depends on the pixel in its place alone."""
    layer, weights = site.root.attributes, site.shape_of(site.root.inputs[1])
    assert isinstance(layer, ops.QConv), "rules match no other operator"
    return weights[:2] == (1, 1) and layer.strides == (1, 1) and not any(layer.pads)


TRANSPOSED = op(ops.Transpose, value("x"), capture="turn")
"""A Transpose that sinks below its user."""


def inverse(permutation: Permutation) -> Permutation:
    """Return the permutation that undoes another."""
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


@rule_of(
    ops.Transpose,
    value("x"),
    where=lambda turn: turn.permutation == tuple(range(len(turn.permutation))),
)
def drop_identity(site: Site, x: str) -> str | None:
    """Transpose(x) that leaves all axes in order -> x."""
    return x


@rule(op(ops.Transpose, TRANSPOSED, capture="outer"))
def merge_transposes(site: Site, outer: ops.Transpose, turn: ops.Transpose, x: str) -> str | None:
    """Transpose(Transpose(x, p), q) -> Transpose(x, p[q])."""
    return site.emit(ops.Transpose(tuple(turn.permutation[axis] for axis in outer.permutation)), x)


@rule(op(ops.Transpose, op(ops.Reshape, op(ops.Transpose, value()))))
def straighten(site: Site) -> str | None:
    """Transpose(Reshape(Transpose(x))) that leaves all elements in order -> Reshape(x)."""
    x, places = moved_elements(site.view, site.root.output.name, TURNS)
    ordered = np.array_equal(places.ravel(), np.arange(places.size))
    return site.emit(ops.Reshape(site.shape), x) if ordered else None


@rule(op(ops.Transpose, value("x"), capture="turn"))
def transpose_to_reshape(site: Site, turn: ops.Transpose, x: str) -> str | None:
    """Transpose that leaves all axes longer than 1 in order -> Reshape."""
    shape = site.shape_of(x)
    long = [axis for axis in turn.permutation if shape[axis] != 1]
    return site.emit(ops.Reshape(site.shape), x) if long == sorted(long) else None


@rule(op(ops.Reshape, value("x")))
def drop_same_shape(site: Site, x: str) -> str | None:
    """Reshape(x) to the shape that it has -> x."""
    return x if site.shape_of(x) == site.shape else None


@rule(op(ops.Reshape, op(ops.Reshape, value("x")), capture="outer"))
def merge_reshapes(site: Site, outer: ops.Reshape, x: str) -> str | None:
    """Reshape(Reshape(x)) -> Reshape(x)."""
    return site.emit(outer, x)


@rule(
    op((ops.QLut, ops.Shift, ops.Unary, ops.Cast), TRANSPOSED, ..., capture="function"),
    op(ops.OwnFunction, TRANSPOSED, capture="function"),
)
def sink_below_elementwise(
    site: Site, function: ops.Operator, turn: ops.Transpose, x: str
) -> str | None:
    """f(Transpose(x)) -> Transpose(f(x)), perhaps with a table beside it."""
    return site.emit(turn, site.become(function, x, *site.root.inputs[1:]))


@rule(
    op(ops.QLut, op(ops.Reshape, TRANSPOSED), ..., capture="function"),
    op(ops.QConv, op(ops.Reshape, TRANSPOSED), ..., capture="function"),
)
def sink_both(
    site: Site, function: ops.QLut | ops.QConv, turn: ops.Transpose, x: str
) -> str | None:
    """f(Reshape(Transpose(x))) -> Reshape(Transpose(f(x))), for functions of elements or pixels."""
    shape, whole = site.shape_of(x), isinstance(function, ops.QConv)
    if whole:
        last = len(shape) - 1
        channels = site.shape_of(site.root.inputs[0])[-1]
        if not has_one_tap(site) or turn.permutation[last] != last or shape[last] != channels:
            return None
    result = site.become(function, to_image(site, x), *site.root.inputs[1:])
    kept = (*shape[:-1], site.shape[-1]) if whole else shape
    return site.emit(ops.Reshape(site.shape), site.emit(turn, reshaped(site, result, kept)))


@rule(op((ops.Quantize, ops.Dequantize), TRANSPOSED, capture="scaling"))
def sink_below_quantisation(
    site: Site, scaling: ops.Quantize | ops.Dequantize, turn: ops.Transpose, x: str
) -> str | None:
    """Quantize | Dequantize(Transpose(x)) -> Transpose(Quantize | Dequantize(x))."""
    axis = None if scaling.axis is None else turn.permutation[scaling.axis]
    return site.emit(turn, site.emit(replace(scaling, axis=axis), x))


@rule(op((ops.QAdd, ops.QMul), each(either(TRANSPOSED, value("x"))), capture="add"))
def sink_below_add(
    site: Site, add: ops.QAdd | ops.QMul, turn: tuple[ops.Transpose | None, ...], x: tuple[str, ...]
) -> str | None:
    """QAdd | QMul(Transpose(a, p), b) -> Transpose(QAdd | QMul(a, Transpose(b, inverse p)), p).

    If b is not such a Transpose, only a Transpose to channels first sinks. A rule for the other
    direction would undo this one.
    """
    first = turn[0] if turn[0] == turn[1] else ops.Transpose(TO_FIRST)
    if first is None or first not in turn:
        return None
    back = ops.Transpose(inverse(first.permutation))
    images = [
        source if found == first else site.emit(back, name)
        for name, source, found in zip(site.root.inputs, x, turn, strict=True)
    ]
    return site.emit(first, site.become(add, *images))


@rule(op((ops.Pad, ops.Slice), TRANSPOSED, capture="cut"))
def sink_below_cut(site: Site, cut: ops.Pad | ops.Slice, turn: ops.Transpose, x: str) -> str | None:
    """Pad | Slice(Transpose(x)) -> Transpose(Pad | Slice(x))."""
    names = ("before", "after") if isinstance(cut, ops.Pad) else ("starts", "stops", "steps")
    order = inverse(turn.permutation)
    values = {name: tuple(getattr(cut, name)[axis] for axis in order) for name in names}
    return site.emit(turn, site.emit(replace(cut, **values), x))


@rule(op(ops.Concat, each(TRANSPOSED), capture="concat"))
def sink_below_concat(
    site: Site, concat: ops.Concat, turn: tuple[ops.Transpose, ...], x: tuple[str, ...]
) -> str | None:
    """Concat(Transpose(x, p), Transpose(y, p)) -> Transpose(Concat(x, y), p)."""
    if len(set(turn)) != 1:
        return None
    return site.emit(turn[0], site.emit(ops.Concat(turn[0].permutation[concat.axis]), *x))


SINKING = (
    *(drop_identity, merge_transposes, straighten, drop_same_shape, merge_reshapes),
    *(sink_below_elementwise, sink_both, sink_below_quantisation, sink_below_add, sink_below_cut),
    sink_below_concat,
)
"""Rules that move layout changes towards the outputs and merge them."""


def arrange_layout(graph: Graph) -> Graph:
    """Sink, merge and drop Transpose and Reshape.

    A Transpose of a one-pixel image is a Reshape, which cannot sink. So all Transposes sink first.
    """
    return rewrite(rewrite(graph, *SINKING), transpose_to_reshape, *SINKING)
