"""Compute at compile time what depends on constants only.

Dequantize is left alone at first, since weights are recognised as integers with a scale;
`fold_dequantize` folds what is left of them for the host's float operators.
"""

from ..graph import Builder, Graph, Node, evaluate_operator, rewrite
from ..graph import operators as ops


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constant, except Dequantize, by constants."""
    return rewrite(graph, _fold)


def fold_dequantize(graph: Graph) -> Graph:
    """Replace all nodes whose inputs are constant by constants."""
    return rewrite(graph, _fold_any)


def _fold(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(constants) -> constant."""
    if isinstance(node.attributes, ops.Dequantize):
        return None
    return _fold_any(builder, node, graph)


def _fold_any(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f(constants) -> constant."""
    if not all(builder.is_constant(name) for name in node.inputs):
        return None
    arrays = [builder.data(name) for name in node.inputs]
    return builder.constant(
        evaluate_operator(node.attributes, arrays), f"{node.output.name}.folded"
    )
