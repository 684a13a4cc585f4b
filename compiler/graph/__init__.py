"""The graph IR: what a network computes, before anything is said about loops or the machine."""

from .build import Builder, drop_unused
from .evaluate import (
    accelerated_nodes,
    evaluate,
    evaluate_node,
    evaluate_operator,
    evaluate_outputs,
    is_accelerated,
)
from .ir import Constant, Graph, Node, Output, Quantisation, TensorType, Value
from .operators import (
    ACCELERATED,
    MOVEMENTS,
    Operator,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QLut,
    QMatMul,
    QMaxPool,
    QResize,
    QSlice,
)
from .text import parse_graph, print_graph
from .verify import verify

__all__ = [
    "ACCELERATED",
    "MOVEMENTS",
    "Builder",
    "Constant",
    "Graph",
    "Node",
    "Operator",
    "Output",
    "QAdd",
    "QAvgPool",
    "QConcat",
    "QConv",
    "QLut",
    "QMatMul",
    "QMaxPool",
    "QResize",
    "QSlice",
    "Quantisation",
    "TensorType",
    "Value",
    "accelerated_nodes",
    "drop_unused",
    "evaluate",
    "evaluate_node",
    "evaluate_operator",
    "evaluate_outputs",
    "is_accelerated",
    "parse_graph",
    "print_graph",
    "verify",
]
