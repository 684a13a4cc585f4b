"""Lay the host's float images out as its kernels read them: [N, H, W, C].

Every convolution and pool of float32 gets a Transpose ahead and one behind. Those behind sink below
what works element by element or along axes, and vanish at the next one ahead. What an operator
computes keeps its bits, but reductions may add in another order.
"""

from ..graph import Builder, Graph, Node, rewrite, rewrite_once
from ..graph import operators as ops
from ..graph.operators import Interpolate, Where
from .arrange_layout import SINKING, transpose_to_reshape, transposed
from .patterns import TO_FIRST, TO_LAST

WINDOW_TO_LAST = (2, 3, 1, 0)
"""Transposes [Co, Ci, KH, KW] to [KH, KW, Ci, Co]."""

BROADCAST = (ops.Binary, Where)
"""Operators that work element by element on tensors which are broadcast."""


def channels_last(graph: Graph) -> Graph:
    """Give float convolutions and pools `channels_last`; Transposes meet and vanish."""
    changed = rewrite_once(graph, _change)
    if changed == graph:
        return graph
    rules = (*SINKING, *SINKING_IMAGES)
    return rewrite(rewrite(changed, *rules), transpose_to_reshape, *rules)


def _change(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(x) -> Transpose(f of channels last(Transpose(x)))."""
    old = node.attributes
    if node.output.type.dtype != "float32":
        return None
    operands = [*node.inputs]
    if isinstance(old, ops.Conv) and not old.channels_last:
        new = ops.Conv(old.strides, old.pads, old.dilations, old.groups, channels_last=True)
        operands[1] = _moved(builder, operands[1], WINDOW_TO_LAST, node)
    elif isinstance(old, ops.MaxPool) and not old.channels_last:
        new = ops.MaxPool(old.kernel, old.strides, old.pads, old.dilations, channels_last=True)
    elif isinstance(old, ops.AveragePool) and not old.channels_last:
        counted, overhang = old.count_include_pad, old.overhang
        new = ops.AveragePool(old.kernel, old.strides, old.pads, counted, overhang, True)
    else:
        return None
    operands[0] = _moved(builder, operands[0], TO_LAST, node)
    result = builder.emit(new, operands, node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)


def _moved(builder: Builder, name: str, permutation: tuple[int, ...], node: Node) -> str:
    """Emit a Transpose; a constant is moved at once."""
    if builder.is_constant(name):
        return builder.constant(builder.data(name).transpose(permutation), f"{name}.last")
    return builder.emit(ops.Transpose(permutation), [name], node.name)


def _image(builder: Builder, name: str) -> str | None:
    """Return the [N, H, W, C] that a Transpose makes [N, C, H, W] of."""
    found = transposed(builder, name)
    return found[0] if found is not None and found[1] == TO_FIRST else None


def _sink_below_broadcast(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(Transpose(a), b) -> Transpose(f(a, b with channels last)), where a is not broadcast."""
    if not isinstance(node.attributes, BROADCAST):
        return None
    shape = node.output.type.shape
    images = [_image(builder, name) for name in node.inputs]
    whole = (
        image is not None and builder.types[name].shape == shape
        for name, image in zip(node.inputs, images, strict=True)
    )
    if not any(whole):
        return None
    operands = []
    for name, image in zip(node.inputs, images, strict=True):
        moved = image or _broadcast(builder, name, node)
        if moved is None:
            return None
        operands.append(moved)
    result = builder.emit(node.attributes, operands, node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)


def _broadcast(builder: Builder, name: str, node: Node) -> str | None:
    """Return a tensor that is broadcast to [N, C, H, W] for [N, H, W, C]."""
    shape = builder.types[name].shape
    if builder.types[name].elements == 1:
        return name
    if builder.is_constant(name):
        whole = builder.data(name).reshape((1,) * (4 - len(shape)) + shape)
        return builder.constant(whole.transpose(TO_LAST), f"{name}.last")
    return _moved(builder, name, TO_LAST, node) if len(shape) == 4 else None


def _sink_below_reduce(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Reduce(Transpose(x)) -> Transpose(Reduce(x)), if anything is left to transpose."""
    old = node.attributes
    image = _image(builder, node.inputs[0]) if isinstance(old, ops.Reduce) else None
    if image is None or not isinstance(old, ops.Reduce):
        return None
    axes = tuple(sorted(TO_FIRST[axis] for axis in old.axes))
    result = builder.emit(ops.Reduce(old.kind, axes, old.keep), [image], node.name)
    if old.keep:
        return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)
    left = [TO_FIRST[axis] for axis in range(4) if axis not in old.axes]
    order = tuple(sorted(left).index(axis) for axis in left)
    return builder.emit(ops.Transpose(order), [result], node.name)


def _sink_below_interpolate(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Interpolate(Transpose(x)) -> Transpose(Interpolate(x))."""
    old = node.attributes
    image = _image(builder, node.inputs[0]) if isinstance(old, Interpolate) else None
    if image is None or not isinstance(old, Interpolate):
        return None
    moved = Interpolate(TO_FIRST[old.axis])
    result = builder.emit(moved, [image, *node.inputs[1:]], node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)


def _sink_below_flattened_pixels(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Reshape(Transpose(x)) to [N, C, pixels] -> Transpose(Reshape(x) to [N, pixels, C])."""
    if not isinstance(node.attributes, ops.Reshape):
        return None
    image = _image(builder, node.inputs[0])
    if image is None:
        return None
    n, height, width, channels = builder.types[image].shape
    if node.attributes.shape != (n, channels, height * width):
        return None
    result = builder.emit(ops.Reshape((n, height * width, channels)), [image], node.name)
    return builder.emit(ops.Transpose((0, 2, 1)), [result], node.name)


SINKING_IMAGES = (
    _sink_below_broadcast,
    _sink_below_reduce,
    _sink_below_interpolate,
    _sink_below_flattened_pixels,
)
"""Rules for Transposes from channels last to channels first alone."""
