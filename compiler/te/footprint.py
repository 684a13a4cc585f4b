"""Memory use of a loop program, by scope."""

from collections import Counter

import numpy as np

from .nodes import LEAVES, Allocate, Block
from .program import Program


def footprint(program: Program) -> dict[str, int]:
    """Maximum bytes in use at a time, by scope; a buffer counts with all slots from its allocation.

    Inputs and constants of the kernel do not count. Whether the buffers fit an accelerator's
    scratchpads also depends on rows and banks, which the lowering decides.
    """
    return dict(_block_bytes(program.body))


def _block_bytes(block: Block) -> Counter[str]:
    """Buffers of a block live to its end; those of its inner blocks are never alive together."""
    own: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for node in block:
        if isinstance(node, Allocate):
            size = np.dtype(node.tensor.dtype).itemsize
            own[node.scope] += max(node.slots, 1) * size * node.elements
            most |= own
        elif not isinstance(node, LEAVES):
            most |= own + _block_bytes(node.body)
    return most
