"""Copies into shared memory that one instruction carries out: a box of a tensor, by a tensor map.

They are those of pipelined loops whose boxes a map can express. What lies outside of the tensor
becomes zeros, as it does in copies by threads. Each slot of the loop has two mbarriers in shared
memory. A phase of the first ends once all bytes of its copies are there; one of the second, once
all warps have read them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import ProgramError
from ...isa.expressions import Affine, Read
from ...tensor_map import TensorMap
from ..cpu.codegen.layout import Tiles
from ..te.affine import scaled, total
from ..te.nodes import LEAVES, Allocate, Assign, Barrier, Block, For, Nest, Update, nodes
from ..te.program import Program
from ..te.target import BLOCKS, SHARED
from ..tensor import Tensor
from .blocks import copies_ahead, operands_of

MBARRIER_BYTES = 8
SLOT_BYTES = 2 * MBARRIER_BYTES
"""Bytes of the mbarriers of a slot."""


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """A copy by a tensor map.

    Parameters
    ----------
    source
        The tensor in main memory.
    map
        Its map.
    origin
        The first element of the box in the source, outermost dimension first.
    slots
        Of the buffer.
    """

    source: str
    map: TensorMap
    origin: tuple[Affine, ...]
    slots: int


def bulk_copies(kernel: Nest, program: Program, tiles: Mapping[str, Tiles]) -> dict[str, BulkCopy]:
    """Find the copies of a kernel that tensor maps can express, keyed by the buffers they fill."""
    ahead = copies_ahead(loop) if (loop := _pipelined((kernel,))) else ()
    boxes = {node.tensor.name: node for node in ahead if isinstance(node, Allocate)}
    own = {node.tensor.name for node in nodes((kernel,)) if isinstance(node, Allocate)}
    rows, found = operands_of(kernel), dict[str, BulkCopy]()
    for node in ahead:
        if not isinstance(node, Nest) or node.stage not in boxes.keys() & rows.keys():
            continue
        (copy,) = (inner for inner in nodes((node,)) if isinstance(inner, Assign))
        assert isinstance(copy.value, Read)
        source = program.tensors[copy.value.tensor]
        whole = program.domains[source.name] == tuple((0, extent) for extent in source.shape)
        if whole and not source.pad and source.name not in own | tiles.keys():
            one = _expressed(copy, source, boxes[node.stage], rows[node.stage])
            found |= {node.stage: one} if one else {}
    return found


def has_producer(kernel: Nest, copies: Mapping[str, BulkCopy]) -> bool:
    """Whether one thread can start all copies of the pipelined loop without a barrier in it.

    So maps carry out the copies, and iterations share nothing but slots.
    """
    loop = _pipelined((kernel,))
    if loop is None or not copies:
        return False
    ahead = copies_ahead(loop)
    copied = {node.stage for node in ahead if isinstance(node, Nest)}
    rest = loop.body[len(ahead) + 1 :]
    shared = {
        one.tensor.name
        for one in nodes((kernel,))
        if isinstance(one, Allocate) and one.scope == SHARED
    }
    apart = all(
        not isinstance(one, Barrier)
        and not (isinstance(one, (Assign, Update)) and one.target.tensor in shared)
        for one in nodes(rest)
    )
    return apart and copied <= copies.keys()


def _pipelined(block: Block) -> For | None:
    """The pipelined loop that a block runs once, so that its phases are those of its iterations."""
    for node in block:
        if isinstance(node, For) and copies_ahead(node):
            return node
        once = not isinstance(node, For) or node.kind in BLOCKS or node.extent == 1
        if once and not isinstance(node, LEAVES) and (found := _pipelined(node.body)):
            return found
    return None


def _expressed(copy: Assign, source: Tensor, box: Allocate, row_bytes: int) -> BulkCopy | None:
    """Return the copy of a box by a tensor map; None if no map puts its elements in place."""
    assert isinstance(copy.value, Read)
    read, written = copy.value.index, copy.target.index
    size = np.dtype(source.dtype).itemsize
    if len(read) != len(written) or (source.dtype, box.shape[-1] * size) != (
        box.tensor.dtype,
        row_bytes,
    ):
        return None
    apart = [total(one, scaled(other, -1)) for one, other in zip(read, written, strict=True)]
    if any(one.terms for one in apart):
        return None
    strides = [size * math.prod(source.shape[place:]) for place in range(1, len(read))]
    extents = source.shape[::-1], tuple(reversed(strides)), box.shape[::-1]
    try:
        found = TensorMap(source.dtype, *extents, swizzle_bytes=row_bytes)
    except ProgramError:
        return None
    origin = (total(start, one) for start, one in zip(box.origin, apart, strict=True))
    return BulkCopy(source.name, found, tuple(origin), box.slots)
