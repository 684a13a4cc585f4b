"""The graph IR: what a network computes, before anything is said about loops or the machine."""

from .build import Builder, Rule, drop_unused, rewrite, rewrite_once
from .evaluate import evaluate, evaluate_node, evaluate_operator, is_accelerated
from .ir import Constant, Graph, Node, Output, Quantisation, TensorType, Value
from .operators import ACCELERATED, Operator, QAdd, QAvgPool, QConv, QLut, QMaxPool
from .text import parse_graph, print_graph
from .verify import verify

__all__ = [
    "ACCELERATED",
    "Builder",
    "Constant",
    "Graph",
    "Node",
    "Operator",
    "Output",
    "QAdd",
    "QAvgPool",
    "QConv",
    "QLut",
    "QMaxPool",
    "Quantisation",
    "Rule",
    "TensorType",
    "Value",
    "drop_unused",
    "evaluate",
    "evaluate_node",
    "evaluate_operator",
    "is_accelerated",
    "parse_graph",
    "print_graph",
    "rewrite",
    "rewrite_once",
    "verify",
]
