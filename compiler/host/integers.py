"""Quantised layers on the host, with the accelerator's very bits."""

from ..graph.operators import Operator
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {}
