"""Estimate the work of a loop, to tell whether several threads are worth their start."""

import math
from collections.abc import Iterator

import numpy as np

from ....isa.expressions import Call, Expression, Op, Read, reads_of
from ...te.nodes import LEAVES, Assign, Block, For, InstructionNest, Update, nodes
from ...te.program import Program
from ...te.target import Kind
from .dot_products import instruction_of
from .lower_values import is_product

MIN_OPERATIONS = 3 << 12
"""Vector operations from which threads share a loop: about two microseconds of one thread."""

MIN_BYTES = 1 << 17
"""Bytes of arrays from which they do too: the first cache does not hold them."""

MATRIX_PRODUCT = 8
"""Speed of a matrix instruction relative to vector operations."""

COSTS = {
    **dict.fromkeys((Op.DIVIDE, Op.SQRT), 8),
    Op.DECAY: 12,
    **dict.fromkeys((Op.EXP, Op.LOG), 16),
    **dict.fromkeys((Op.ERF, Op.SIGMOID, Op.SIN, Op.COS, Op.TANH), 24),
}
"""Vector operations of elementary functions; all others count as one."""


def is_long(loop: For, program: Program, lanes: int) -> bool:
    """Whether a loop takes longer than threads take to start."""
    if operations_of((loop,), lanes) >= MIN_OPERATIONS:
        return True
    arrays = (program.tensors.get(name) for name in {read.tensor for read in _elements(loop)})
    sizes = (math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in arrays if a is not None)
    return sum(sizes) >= MIN_BYTES


def operations_of(block: Block, lanes: int) -> int:
    """Vector operations of all nodes of a block, if all guards hold."""
    count = 0
    for node in block:
        if isinstance(node, For):
            times = -(-node.extent // lanes) if node.kind is Kind.VECTORISED else node.extent
            count += times * operations_of(node.body, lanes)
        elif isinstance(node, (Assign, Update)):
            fused = isinstance(node, Update) and is_product(node.value)
            count += _operations(node.value) + (not fused)
        elif isinstance(node, InstructionNest) and instruction_of(node).unit:
            count += operations_of(node.body, lanes) // MATRIX_PRODUCT
        elif not isinstance(node, LEAVES):
            count += operations_of(node.body, lanes)
    return count


def _elements(loop: For) -> Iterator[Read]:
    """The elements that a loop reads and writes."""
    for node in nodes((loop,)):
        if isinstance(node, (Assign, Update)):
            yield from (node.target, *reads_of(node.value))


def _operations(tree: Expression) -> int:
    if not isinstance(tree, Call):
        return 0
    return COSTS.get(tree.op, 1) + sum(map(_operations, tree.arguments))
