"""Table of all matchers, by the operator at which a kernel begins."""

from collections.abc import Mapping

from ..graph.operator import Operator
from . import (
    chains,
    integer_layers,
    integer_movements,
    integer_products,
    interpolations,
    layers,
    pools,
    products,
    rows,
)
from .kernel import Matcher

ORDERED: tuple[Matcher, ...] = (
    *(*integer_layers.MATCHERS, *integer_movements.MATCHERS, *integer_products.MATCHERS),
    *(*layers.MATCHERS, *pools.MATCHERS, *interpolations.MATCHERS, *products.MATCHERS),
    *(*rows.MATCHERS, *chains.MATCHERS),
)
"""All matchers; the first one that finds a kernel wins."""

MATCHERS: Mapping[type[Operator], tuple[Matcher, ...]] = {
    kind: tuple(one for one in ORDERED if kind in one.kinds)
    for kind in {kind for one in ORDERED for kind in one.kinds}
}
