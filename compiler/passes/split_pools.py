"""Pools in forms that need few loops of VECTOR, for machines with one loop over reduced elements.

A window of rows and columns needs two loops, unless it covers all columns: then the elements lie
side by side. A maximum over a window is the maximum, over its rows, of maxima over its columns. An
average has the sums of a depthwise convolution with weights of one, which GEMM computes.
"""

from dataclasses import replace

import numpy as np

from ...isa.configuration import Configuration
from ..graph import Graph, QAvgPool, QConv, QMaxPool
from ..rewriting import Site, op, rewrite, rule, value


def split_pools(graph: Graph, configuration: Configuration) -> Graph:
    """Replace pools whose windows need more loops than the configuration has."""

    def fits(site: Site, x: str, pool: QAvgPool | QMaxPool) -> bool:
        return loops_of(pool, site.shape_of(x), configuration) <= configuration.reduce_loops

    @rule(op(QMaxPool, value("x"), capture="pool", where=lambda pool: 1 not in pool.kernel))
    def split(site: Site, pool: QMaxPool, x: str) -> str | None:
        """QMaxPool(x) -> QMaxPool(QMaxPool(x)): over columns, then over rows."""
        if fits(site, x, pool):
            return None
        (top, left, bottom, right), (rows, columns) = pool.pads, pool.kernel
        across = replace(
            pool, kernel=(1, columns), strides=(1, pool.strides[1]), pads=(0, left, 0, right),
            dilations=(1, pool.dilations[1]), low=-128, high=127,
        )  # fmt: skip
        down = replace(
            pool, kernel=(rows, 1), strides=(pool.strides[0], 1), pads=(top, 0, bottom, 0),
            dilations=(pool.dilations[0], 1),
        )  # fmt: skip
        return site.become(down, site.emit(across, x))

    @rule(op(QAvgPool, value("x"), capture="pool"))
    def convolve(site: Site, pool: QAvgPool, x: str) -> str | None:
        """QAvgPool(x) -> QConv(x), depthwise, with weights of one."""
        if fits(site, x, pool):
            return None
        (rows, columns), channels = pool.kernel, site.shape_of(x)[3]
        kind = "depthwise" if channels > 1 else "conv"
        convolution = QConv(
            kind, pool.strides, pool.pads, (1, 1), channels, pool.zero_point_x, pool.zero_point_y,
            pool.low, pool.high, spare=rows * columns,
        )  # fmt: skip
        ones = np.ones((rows, columns, 1, channels), np.int8)
        bias = np.full(channels, pool.constant, np.int32)
        scale = np.full(channels, pool.scale, np.float32)
        names = site.constants(x, ones=ones, bias=bias, scale=scale)
        return site.become(convolution, x, *names)

    return rewrite(graph, split, convolve)


def loops_of(
    pool: QAvgPool | QMaxPool, shape: tuple[int, ...], configuration: Configuration
) -> int:
    """Return the loops that a pool of an image [N, H, W, C] needs over its window."""
    rows, columns = pool.kernel
    longest = 1 << configuration.extent_bits
    plain = isinstance(pool, QAvgPool) or pool.dilations == (1, 1)
    whole = columns == shape[2] + pool.pads[1] + pool.pads[3]
    if plain and whole and rows * columns <= longest:
        return 1
    return sum(1 if count <= longest else 2 for count in pool.kernel if count > 1)
