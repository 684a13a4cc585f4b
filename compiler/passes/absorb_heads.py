"""Let matrix products read and write heads where they lie: attention needs no data moves for them.

A network reshapes channels to heads and transposes them to the front, for each operand, and back
for the result. A QMatMul takes heads side by side in the channels, and a transposed operand.
"""

from dataclasses import replace

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops

SWAP_HEADS = (0, 2, 1, 3)
"""[N, rows, heads, channels] <-> [N, heads, rows, channels]."""

SWAP_LAST = (0, 1, 3, 2)
"""[N, heads, rows, channels] -> [N, heads, channels, rows]."""

SWAP_BOTH = (0, 2, 3, 1)
"""[N, rows, heads, channels] -> [N, heads, channels, rows]."""


def absorb_heads(graph: Graph) -> Graph:
    """Drop Transposes around QMatMul in favour of what its attributes can say."""
    return rewrite(graph, _absorb_operand, _absorb_result, _turn_earlier)


def _absorb_operand(builder: Builder, node: Node, graph: Graph) -> str | None:
    """QMatMul(Transpose(x)) -> QMatMul(Reshape(x)), for either operand."""
    operator = node.attributes
    if not isinstance(operator, ops.QMatMul):
        return None
    for index, known in enumerate(((SWAP_HEADS,), (SWAP_HEADS, SWAP_LAST, SWAP_BOTH))):
        transpose = builder.producer(node.inputs[index])
        if operator.joined[index] or transpose is None:
            continue
        if not isinstance(transpose.attributes, ops.Transpose):
            continue
        permutation = transpose.attributes.permutation
        if permutation not in known:
            continue
        (x,) = transpose.inputs
        joined = list(operator.joined)
        if permutation != SWAP_LAST:
            n, rows, heads, channels = builder.types[x].shape
            x = builder.emit(ops.Reshape((n, 1, rows, heads * channels)), [x], node.name)
            joined[index] = True
        operator = replace(
            operator,
            transposed=operator.transposed != (permutation != SWAP_HEADS),
            joined=(joined[0], joined[1], joined[2]),
        )
        operands = list(node.inputs)
        operands[index] = x
        quantisation = node.output.type.quantisation
        return builder.emit(operator, operands, node.name, quantisation=quantisation)
    return None


def _absorb_result(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Transpose(QMatMul(a, b)) -> Reshape(QMatMul(a, b)), heads side by side."""
    product = builder.producer(node.inputs[0])
    if node.attributes != ops.Transpose(SWAP_HEADS) or product is None:
        return None
    operator = product.attributes
    if not isinstance(operator, ops.QMatMul) or operator.joined[2]:
        return None
    value = product.output
    if len(graph.users(value.name)) != 1 or graph.is_output(value.name):
        return None
    first, second, _ = operator.joined
    joined = replace(operator, joined=(first, second, True))
    quantisation = value.type.quantisation
    result = builder.emit(joined, product.inputs, product.name, quantisation=quantisation)
    return builder.emit(ops.Reshape(node.output.type.shape), [result], node.name)


def _turn_earlier(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Transpose(Reshape(QMatMul)) of rank 3 -> Reshape(Transpose(QMatMul)), for one image."""
    reshape = builder.producer(node.inputs[0])
    if not isinstance(node.attributes, ops.Transpose) or reshape is None:
        return None
    product = builder.producer(reshape.inputs[0])
    if product is None or not isinstance(product.attributes, ops.QMatMul):
        return None
    shape = builder.types[reshape.inputs[0]].shape
    if reshape.attributes != ops.Reshape(shape[1:]) or shape[0] != 1:
        return None
    permutation = (0, *(axis + 1 for axis in node.attributes.permutation))
    turned = builder.emit(ops.Transpose(permutation), reshape.inputs, node.name)
    return builder.emit(ops.Reshape(node.output.type.shape), [turned], node.name)
