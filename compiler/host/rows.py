"""What works on rows: softmax, normalisations and reductions."""

from ..graph.operators import Operator
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {}
