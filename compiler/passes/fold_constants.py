"""Evaluate nodes at compile time if all their inputs are constant.

`fold_constants` keeps the Dequantize of a constant, because patterns recognise weights as integers
with a scale, and what moves its elements, so that the integers are moved instead. Everything
computed from it is folded, down to the integers of a later Quantize. `fold_dequantize` folds the
rest for the host's float operators.
"""

import numpy as np

from ..graph import Graph, evaluate_operator
from ..graph import operators as ops
from ..graph.operator import Operator
from ..rewriting import GraphPattern, Rule, Site, constant, each, either, op, rewrite, rule
from .sink_dequantize import MOVES, join_constants

CONSTANT = constant("names")

SCALED = op(ops.Dequantize, constant(), value="names")
"""Integers with a scale, such as weights or position embeddings."""


def _data(site: Site, name: str) -> np.ndarray:
    if site.is_constant(name):
        return site.data(name)
    node = site.view.producer(name)
    assert node is not None, "a Dequantize of a constant"
    return evaluate_operator(node.attributes, [site.data(one) for one in node.inputs])


def folding(operand: GraphPattern, kept: type[Operator] | tuple[type[Operator], ...]) -> Rule:
    """Return the rule that computes nodes of these operands, unless their operators are kept."""

    @rule(op(Operator, each(operand), where=lambda function: not isinstance(function, kept)))
    def fold(site: Site, names: tuple[str, ...]) -> str | None:
        """f(constants) -> constant."""
        arrays = [_data(site, name) for name in names]
        data = evaluate_operator(site.root.attributes, arrays)
        return site.constant(data, f"{site.root.output.name}.folded")

    return fold


FOLD_ALL = folding(CONSTANT, ())
FOLD = folding(CONSTANT, ops.Dequantize)
FOLD_SCALED = folding(either(CONSTANT, SCALED), (ops.Dequantize, ops.Pad, *MOVES))
"""f(Dequantize(constants)) -> constant, where f computes."""


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constant, except Dequantize, by constants."""
    return rewrite(graph, FOLD, join_constants, FOLD_SCALED)


def fold_dequantize(graph: Graph) -> Graph:
    """Replace all nodes whose inputs are constant by constants."""
    return rewrite(graph, FOLD_ALL)
