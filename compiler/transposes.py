"""Who transposes the second operand of a matrix product: LOAD, or the host.

LOAD can, byte by byte, and main memory answers one byte as slowly as a whole burst. That costs
nothing where the product takes longer anyway: on a small array, or with many rows. Elsewhere the
host transposes, between two segments.
"""

from dataclasses import replace

from ..isa.configuration import Configuration
from ..isa.durations import tile_cycles
from .accelerator.estimate import LATENCY_CYCLES
from .graph import Builder, Graph, Node, QMatMul, rewrite
from .graph.operators import Reshape, Transpose
from .kernels.matmul import passes


def transpose_on_host(graph: Graph, configuration: Configuration) -> Graph:
    """Replace transposed operands that LOAD would be too slow for by a Transpose."""

    def rule(builder: Builder, node: Node, old: Graph) -> str | None:
        operator = node.attributes
        if not isinstance(operator, QMatMul) or not operator.transposed:
            return None
        a, b = (builder.types[name].shape for name in node.inputs)
        if load_cycles(b, configuration) <= product_cycles(operator, a, b, configuration):
            return None
        x = node.inputs[1]
        first, joined, last = operator.joined
        if joined:
            split = (b[0], b[2], operator.heads, b[3] // operator.heads)
            x = builder.emit(Reshape(split), [x], node.name)
        x = builder.emit(Transpose((0, 2, 3, 1) if joined else (0, 1, 3, 2)), [x], node.name)
        plain = replace(operator, transposed=False, joined=(first, False, last))
        quantisation = node.output.type.quantisation
        return builder.emit(plain, [node.inputs[0], x], node.name, quantisation=quantisation)

    return rewrite(graph, rule)


def load_cycles(shape: tuple[int, ...], configuration: Configuration) -> int:
    """About how long LOAD takes to transpose an operand int8[shape], in runs of one byte."""
    n, outer, rows, channels = shape
    bursts = configuration.outstanding_bursts
    return n * outer * rows * channels * max(bursts, LATENCY_CYCLES) // bursts


def product_cycles(
    operator: QMatMul, a: tuple[int, ...], b: tuple[int, ...], configuration: Configuration
) -> int:
    """About how long GEMM takes: a row of `a` for each tile of the transposed operand `b`."""
    depth = b[3] // operator.heads if operator.joined[1] else b[3]
    tiles = -(-depth // configuration.lanes_in) * -(-b[2] // configuration.lanes_out)
    tiles *= passes(operator)
    return a[0] * operator.heads * tiles * max(a[2], tile_cycles(configuration))
