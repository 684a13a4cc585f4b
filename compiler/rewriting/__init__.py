"""Patterns of operators as data, rules made of them, and the driver that applies rules to a graph.

Passes are lists of rules; matchers of host kernels and the quantiser use the same patterns.
"""

from .patterns import (
    GraphMatch,
    GraphPattern,
    GraphView,
    each,
    either,
    first_match,
    fits,
    number,
    op,
    repeated,
    value,
)
from .rewriter import rewrite, rewrite_once
from .rules import Rule, Site, rule

__all__ = [
    "GraphMatch",
    "GraphPattern",
    "GraphView",
    "Rule",
    "Site",
    "each",
    "either",
    "first_match",
    "fits",
    "number",
    "op",
    "repeated",
    "rewrite",
    "rewrite_once",
    "rule",
    "value",
]
