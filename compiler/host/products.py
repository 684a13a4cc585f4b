"""Matrix products in float32, of weights and of two activations."""

from ..graph.operators import Operator
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {}
