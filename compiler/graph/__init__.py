"""The graph IR: the computation of a network, independent of loops and of the machine."""

from .build import Builder, drop_unused
from .evaluate import (
    accelerated_nodes,
    evaluate,
    evaluate_node,
    evaluate_operator,
    evaluate_outputs,
    is_accelerated,
)
from .ir import Constant, Graph, Node, Output, Value
from .operators import (
    Operator,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QInterleave,
    QLut,
    QMatMul,
    QMaxPool,
    QMul,
    QReshape,
    QResize,
    QSlice,
    Rearranging,
)
from .text import parse_graph, print_graph
from .types import Quantisation, TensorType
from .verify import verify

__all__ = [
    "Builder", "Constant", "Graph", "Node", "Operator", "Output", "QAdd", "QAvgPool", "QConcat",
    "QConv", "QInterleave", "QLut", "QMatMul", "QMaxPool", "QMul", "QReshape", "QResize", "QSlice",
    "Quantisation", "Rearranging", "TensorType", "Value", "accelerated_nodes", "drop_unused",
    "evaluate", "evaluate_node", "evaluate_operator", "evaluate_outputs", "is_accelerated",
    "parse_graph", "print_graph", "verify",
]  # fmt: skip
