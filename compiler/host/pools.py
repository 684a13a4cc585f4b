"""Pooling in float32, by windows and over whole images."""

from ..graph.operators import Operator
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {}
