"""Quantised layers on the host, with the accelerator's very bits."""

from ..graph.operators import (
    Operator,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QLut,
    QMatMul,
    QMaxPool,
    QResize,
    QSlice,
    Quantize,
    Transpose,
)
from .integer_layers import match_layer
from .integer_movements import match_copy, match_join, match_transpose
from .integer_pools import match_pool
from .integer_products import match_product
from .integer_sums import match_sum, match_table
from .kernel import Matcher

MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {
    QConv: (match_layer,),
    QAdd: (match_sum,),
    QAvgPool: (match_pool,),
    QMaxPool: (match_pool,),
    QMatMul: (match_product,),
    QConcat: (match_join,),
    QResize: (match_copy,),
    QSlice: (match_copy,),
    Quantize: (match_transpose,),
    Transpose: (match_transpose,),
    QLut: (match_table,),
}
