"""Annotate integer values with the quantisation that only a later Dequantize gives.

ONNX graph inputs have no quantisation, but reports and the requantising passes need it.
"""

from ..graph import Graph, Node, Quantisation, TensorType, Value
from ..graph import operators as ops
from .patterns import quantisation_of
from .shift_unsigned import OFFSET

KEEPING = (ops.Reshape, ops.Transpose, ops.Shift, ops.Slice, ops.Gather, ops.MaxPool, ops.Concat)
"""Operators whose operands have the quantisation of the result (Shift: offset by 128)."""


def annotate_quantisation(graph: Graph) -> Graph:
    """Give integer values without quantisation that of the per-tensor Dequantize after them."""
    found: dict[str, Quantisation] = {}
    for node in reversed(graph.nodes):
        x = node.inputs[0]
        known = _known(node, found)
        if known is None or graph.is_constant(x) or graph.types[x].quantisation is not None:
            continue
        if isinstance(node.attributes, ops.Shift):
            offset = -OFFSET if graph.types[x].dtype == "int8" else OFFSET
            known = Quantisation(known.scale, known.zero_point + offset)
        for name in node.inputs[:1] if isinstance(node.attributes, ops.Gather) else node.inputs:
            found.setdefault(name, known)

    def annotated(value: Value) -> Value:
        kind = value.type
        if kind.quantisation is None and value.name in found:
            kind = TensorType(kind.dtype, kind.shape, found[value.name])
        return Value(value.name, kind)

    nodes = (
        Node(node.name, node.attributes, node.inputs, tuple(map(annotated, node.outputs)))
        for node in graph.nodes
    )
    inputs = tuple(map(annotated, graph.inputs))
    return Graph(graph.name, inputs, graph.outputs, tuple(nodes), graph.constants)


def _known(node: Node, found: dict[str, Quantisation]) -> Quantisation | None:
    attributes = node.attributes
    if isinstance(attributes, ops.Dequantize):
        return quantisation_of(attributes) if attributes.axis is None else None
    if isinstance(attributes, KEEPING):
        return node.output.type.quantisation or found.get(node.output.name)
    return None
