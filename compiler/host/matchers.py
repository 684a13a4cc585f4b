"""Table of all matchers, by the operator at which a kernel begins."""

from functools import cache

from ..graph.operator import Operator
from . import (
    chains,
    fused_attention,
    integer_layers,
    integer_products,
    interpolations,
    layers,
    own_kernels,
    pools,
    products,
    rows,
)
from .kernel import Matcher

ORDERED: tuple[Matcher, ...] = (
    *(*integer_products.MATCHERS, *integer_layers.MATCHERS),
    *fused_attention.MATCHERS,
    *(*layers.MATCHERS, *pools.MATCHERS, *interpolations.MATCHERS, *products.MATCHERS),
    *(*rows.MATCHERS, *chains.MATCHERS, *own_kernels.MATCHERS),
)
"""All matchers; the first one that finds a kernel wins."""


@cache
def matchers_of(kind: type[Operator]) -> tuple[Matcher, ...]:
    """Return the matchers of kernels that begin at an operator of a class."""
    return tuple(one for one in ORDERED if issubclass(kind, one.kinds))
