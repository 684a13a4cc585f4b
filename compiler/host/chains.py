"""Chains of elementwise operators, in one pass over memory."""

from ..graph.operators import Operator
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {}
