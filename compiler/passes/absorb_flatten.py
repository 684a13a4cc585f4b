"""Turn a dense layer behind a flatten into a window over the whole image: no data moves.

The flattened order of the weights' rows is put back into [KH, KW, C], from either layout.
"""

from ..graph import Builder, Graph, Node, is_accelerated, rewrite
from ..graph import operators as ops
from .patterns import TO_FIRST


def absorb_flatten(graph: Graph) -> Graph:
    """Let dense layers read the image that an accelerated operator made, without Reshape."""
    return rewrite(graph, _absorb)


def _absorb(builder: Builder, node: Node, graph: Graph) -> str | None:
    """QConv(Reshape(Transpose?(x))), 1x1 on a flattened image -> QConv(x), a window of all."""
    dense = node.attributes
    if not isinstance(dense, ops.QConv) or dense.kind != "dense":
        return None
    flat = builder.types[node.inputs[0]].shape
    reshape = builder.producer(node.inputs[0])
    if reshape is None or not isinstance(reshape.attributes, ops.Reshape) or flat[1:3] != (1, 1):
        return None
    source = builder.producer(reshape.inputs[0])
    first = source is not None and source.attributes == ops.Transpose(TO_FIRST)
    x = source.inputs[0] if first and source is not None else reshape.inputs[0]
    maker = builder.producer(x)
    shape = builder.types[x].shape
    if maker is None or not is_accelerated(maker) or len(shape) != 4 or shape[0] != flat[0]:
        return None
    _, height, width, depth = shape
    weights = builder.data(node.inputs[1])
    channels = weights.shape[-1]
    if first:
        kernel = weights.reshape(depth, height, width, channels).transpose(1, 2, 0, 3)
    else:
        kernel = weights.reshape(height, width, depth, channels)
    operands = [x, builder.constant(kernel, f"{node.name}.weights"), *node.inputs[2:]]
    quantisation = node.output.type.quantisation
    return builder.emit(dense, operands, node.name, quantisation=quantisation)
