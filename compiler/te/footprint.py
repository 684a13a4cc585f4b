"""How much of each scope a loop program holds at once."""

import math
from collections import Counter

import numpy as np

from .nodes import Allocate, Assign, Block, Let, Update
from .program import Program


def footprint(program: Program) -> dict[str, int]:
    """Most bytes in use at a time, by scope: of every buffer all slots, from allocation on.

    What the kernel is given is not counted. Whether an accelerator's scratchpads can hold it also
    depends on rows and banks, which a lowering decides.
    """
    return dict(_block_bytes(program.body))


def _elements(node: Allocate) -> int:
    """Elements of one slot."""
    if node.rolling is None:
        return math.prod(node.shape)
    return node.rolling.elements


def _block_bytes(block: Block) -> Counter[str]:
    """Buffers of a block live to its end; those of inner blocks take turns."""
    own: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for node in block:
        if isinstance(node, Allocate):
            size = np.dtype(node.tensor.dtype).itemsize
            own[node.scope] += max(node.slots, 1) * size * _elements(node)
            most |= own
        elif not isinstance(node, (Let, Assign, Update)):
            most |= own + _block_bytes(node.body)
    return most
