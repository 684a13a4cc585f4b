"""Let layout changes meet and vanish: Transpose sinks below elementwise operators and cancels.

The recognised operators stand between Transposes from ONNX's channels-first layout and back. All
move towards the outputs, merge, and what still moves data at the end is the host's.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .patterns import TO_FIRST

ELEMENTWISE = (ops.QLut, ops.Shift, ops.Unary)
"""Operators that read one tensor element by element (a table beside it)."""


def arrange_layout(graph: Graph) -> Graph:
    """Sink, merge and drop Transpose and Reshape.

    Of an image of one pixel a Transpose is a Reshape, which would not sink: all sink before.
    """
    return rewrite(rewrite(graph, *SINKING), transpose_to_reshape, *SINKING)


def transposed(builder: Builder, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return what a Transpose reads, and its permutation."""
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Transpose):
        return None
    return node.inputs[0], node.attributes.permutation


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def _unpermuted(values: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return per-axis values of a transposed tensor in the order of the tensor before."""
    return tuple(values[i] for i in inverse(permutation))


def _merge_transposes(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Transpose(Transpose(x, p), q) -> Transpose(x, p[q]); the identity -> x."""
    if not isinstance(node.attributes, ops.Transpose):
        return None
    permutation = node.attributes.permutation
    if permutation == tuple(range(len(permutation))):
        return node.inputs[0]
    inner = transposed(builder, node.inputs[0])
    if inner is None:
        return None
    merged = ops.Transpose(tuple(inner[1][axis] for axis in permutation))
    return builder.emit(merged, [inner[0]], node.name)


def transpose_to_reshape(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Transpose that leaves all axes longer than 1 in order -> Reshape."""
    if not isinstance(node.attributes, ops.Transpose):
        return None
    shape = builder.types[node.inputs[0]].shape
    long = [axis for axis in node.attributes.permutation if shape[axis] != 1]
    if long != sorted(long):
        return None
    return builder.emit(ops.Reshape(node.output.type.shape), node.inputs, node.name)


def _merge_reshapes(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Reshape(Reshape(x)) -> Reshape(x); to the shape it has -> x."""
    if not isinstance(node.attributes, ops.Reshape):
        return None
    if builder.types[node.inputs[0]].shape == node.attributes.shape:
        return node.inputs[0]
    inner = builder.producer(node.inputs[0])
    if inner is None or not isinstance(inner.attributes, ops.Reshape):
        return None
    return builder.emit(node.attributes, inner.inputs, node.name)


def _sink_below_elementwise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(Transpose(x)) -> Transpose(f(x))."""
    found = (
        transposed(builder, node.inputs[0]) if isinstance(node.attributes, ELEMENTWISE) else None
    )
    if found is None:
        return None
    x, permutation = found
    operands = [x, *node.inputs[1:]]
    quantisation = node.output.type.quantisation
    result = builder.emit(node.attributes, operands, node.name, quantisation=quantisation)
    return builder.emit(ops.Transpose(permutation), [result], node.name)


def _sink_below_quantisation(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize | Dequantize(Transpose(x)) -> Transpose(Quantize | Dequantize(x))."""
    old = node.attributes
    if not isinstance(old, (ops.Quantize, ops.Dequantize)):
        return None
    found = transposed(builder, node.inputs[0])
    if found is None:
        return None
    x, permutation = found
    axis = None if old.axis is None else permutation[old.axis]
    if isinstance(old, ops.Quantize):
        new = ops.Quantize(old.scales, old.zero_points, old.dtype, axis)
    else:
        new = ops.Dequantize(old.scales, old.zero_points, axis)
    result = builder.emit(new, [x], node.name)
    return builder.emit(ops.Transpose(permutation), [result], node.name)


def _sink_below_add(builder: Builder, node: Node, graph: Graph) -> str | None:
    """QAdd(Transpose(a, p), b) -> Transpose(QAdd(a, Transpose(b, inverse p)), p).

    Where b is no such Transpose, only the one to channels first sinks: the other way round would
    undo it again.
    """
    if not isinstance(node.attributes, ops.QAdd):
        return None
    found = [transposed(builder, name) for name in node.inputs]
    permutations = [inner[1] for inner in found if inner is not None]
    if len(permutations) == 2 and permutations[0] == permutations[1]:
        permutation = permutations[0]
    elif TO_FIRST in permutations:
        permutation = TO_FIRST
    else:
        return None
    operands = [
        inner[0]
        if inner is not None and inner[1] == permutation
        else builder.emit(ops.Transpose(inverse(permutation)), [name], node.name)
        for name, inner in zip(node.inputs, found, strict=True)
    ]
    quantisation = node.output.type.quantisation
    result = builder.emit(node.attributes, operands, node.name, quantisation=quantisation)
    return builder.emit(ops.Transpose(permutation), [result], node.name)


def _sink_below_pad(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Pad(Transpose(x)) -> Transpose(Pad(x))."""
    old = node.attributes
    found = transposed(builder, node.inputs[0]) if isinstance(old, ops.Pad) else None
    if found is None or not isinstance(old, ops.Pad):
        return None
    x, p = found
    new = ops.Pad(_unpermuted(old.before, p), _unpermuted(old.after, p), old.value)
    result = builder.emit(new, [x], node.name)
    return builder.emit(ops.Transpose(p), [result], node.name)


def _sink_below_slice(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Slice(Transpose(x)) -> Transpose(Slice(x))."""
    old = node.attributes
    found = transposed(builder, node.inputs[0]) if isinstance(old, ops.Slice) else None
    if found is None or not isinstance(old, ops.Slice):
        return None
    x, p = found
    new = ops.Slice(
        _unpermuted(old.starts, p), _unpermuted(old.stops, p), _unpermuted(old.steps, p)
    )
    result = builder.emit(new, [x], node.name)
    return builder.emit(ops.Transpose(p), [result], node.name)


def _sink_below_concat(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Concat(Transpose(x, p), Transpose(y, p)) -> Transpose(Concat(x, y), p)."""
    if not isinstance(node.attributes, ops.Concat):
        return None
    found = [transposed(builder, name) for name in node.inputs]
    sources = [inner[0] for inner in found if inner is not None]
    permutations = {inner[1] for inner in found if inner is not None}
    if len(sources) != len(found) or len(permutations) != 1:
        return None
    (permutation,) = permutations
    joined = ops.Concat(permutation[node.attributes.axis])
    result = builder.emit(joined, sources, node.name)
    return builder.emit(ops.Transpose(permutation), [result], node.name)


SINKING = (
    _merge_transposes,
    _merge_reshapes,
    _sink_below_elementwise,
    _sink_below_quantisation,
    _sink_below_add,
    _sink_below_pad,
    _sink_below_slice,
    _sink_below_concat,
)
"""Rules that bring layout changes towards the outputs and together."""
