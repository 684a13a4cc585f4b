"""Decide where the second operand of a matrix product is transposed: in LOAD, or on the host.

LOAD transposes byte by byte, and main memory takes as long for a byte as for a whole burst, unless
the machine has `transposed_weights`. This costs nothing if the product takes longer anyway: on a
small array, or with many rows. Otherwise the host transposes, between two segments.
"""

import math
from dataclasses import replace

from ...isa.configuration import Configuration
from ...isa.durations import tile_cycles
from ..accelerator.kernels.matmul import passes
from ..accelerator.strided_copy import transposed_cycles
from ..graph import Graph, QMatMul
from ..graph.operators import Multiplying, QMatMulSums, Reshape, Transpose
from ..rewriting import Site, rewrite, rule_of, value


def transpose_on_host(graph: Graph, configuration: Configuration) -> Graph:
    """Replace transposed operands by a Transpose if LOAD would be too slow."""

    @rule_of(
        *((QMatMul, QMatMulSums), value("a"), value("b")),
        capture="product",
        where=lambda p: p.transposed,
    )
    def transpose(site: Site, product: QMatMul | QMatMulSums, a: str, b: str) -> str | None:
        """QMatMul(a, b transposed) -> QMatMul(a, Transpose(b)), if LOAD is slower than GEMM."""
        shape = site.shape_of(b)
        product_takes = product_cycles(product, site.shape_of(a), shape, configuration)
        if transposed_cycles(math.prod(shape), configuration) <= product_takes:
            return None
        first, joined, last = product.joined
        if joined:
            shared = product.heads // product.repeats
            split = (shape[0], shape[2], shared, shape[3] // shared)
            b = site.emit(Reshape(split), b)
        b = site.emit(Transpose((0, 2, 3, 1) if joined else (0, 1, 3, 2)), b)
        return site.become(replace(product, transposed=False, joined=(first, False, last)), a, b)

    return rewrite(graph, transpose)


def product_cycles(
    operator: Multiplying, a: tuple[int, ...], b: tuple[int, ...], configuration: Configuration
) -> int:
    """Estimated cycles of GEMM: one per row of `a`, for each tile of the transposed `b`."""
    depth = b[3] // (operator.heads // operator.repeats) if operator.joined[1] else b[3]
    tiles = -(-depth // configuration.lanes_in) * -(-b[2] // configuration.lanes_out)
    tiles *= passes(operator, a[2], depth, b[2], configuration)
    return a[0] * operator.heads * tiles * max(a[2], tile_cycles(configuration))
