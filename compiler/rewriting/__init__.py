"""Rewriting of graphs: patterns of operators as data, rules made of patterns, and a driver.

A pass is a rule or a list of rules. The matchers of host kernels and the quantiser use the same
patterns.
"""

from .patterns import (
    GraphMatch,
    GraphPattern,
    GraphView,
    computed,
    constant,
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
from .rules import Rule, Site, rule, rule_of

__all__ = [
    "GraphMatch", "GraphPattern", "GraphView", "Rule", "Site", "computed", "constant", "each",
    "either", "first_match", "fits", "number", "op", "repeated", "rewrite", "rewrite_once", "rule",
    "rule_of", "value",
]  # fmt: skip
