"""Every matcher in one table: operator at which a kernel begins -> who looks for it, in order."""

from ..graph.operators import Operator
from . import chains, integers, layers, pools, products, rows
from .kernel import Matcher

FAMILIES = (integers, layers, pools, products, rows, chains)
"""In the order in which they are asked."""

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {
    operator: tuple(matcher for family in FAMILIES for matcher in family.MATCHERS.get(operator, ()))
    for operator in {operator for family in FAMILIES for operator in family.MATCHERS}
}
