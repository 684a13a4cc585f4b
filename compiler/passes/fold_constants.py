"""Evaluate nodes at compile time if all their inputs are constant.

`fold_constants` keeps Dequantize, because patterns recognise weights as integers with a scale.
Later, `fold_dequantize` folds the rest for the host's float operators.
"""

from ..graph import Graph, evaluate_operator
from ..graph import operators as ops
from ..graph.operator import Operator
from ..rewriting import Site, each, op, rewrite, rule, value

CONSTANTS = each(value("names", constant=True))


def _folded(site: Site, names: tuple[str, ...]) -> str:
    data = evaluate_operator(site.root.attributes, [site.data(name) for name in names])
    return site.constant(data, f"{site.root.output.name}.folded")


@rule(op(Operator, CONSTANTS))
def fold_any(site: Site, names: tuple[str, ...]) -> str | None:
    """f(constants) -> constant."""
    return _folded(site, names)


@rule(op(Operator, CONSTANTS, where=lambda function: not isinstance(function, ops.Dequantize)))
def fold(site: Site, names: tuple[str, ...]) -> str | None:
    """f(constants) -> constant, where f is not Dequantize."""
    return _folded(site, names)


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constant, except Dequantize, by constants."""
    return rewrite(graph, fold)


def fold_dequantize(graph: Graph) -> Graph:
    """Replace all nodes whose inputs are constant by constants."""
    return rewrite(graph, fold_any)
