"""`wgmma`: products of warpgroups with operands in shared memory, computed as late as allowed.

Each warp computes its 16 rows of the 64 by itself, when it waits; so operands that are overwritten
too early give wrong results. A descriptor of 64 bits says where a matrix lies: start address,
leading and stride byte offset (each divided by 16, from bits 0, 16 and 32 on) and, in bits 62 and
63, the swizzle: bits 4 to 6 of an address are XORed with bits 7 to 9, or fewer of them.
"""

from dataclasses import dataclass

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import builds, unsupported
from .faults import FaultKind, LaneFault
from .fragments import a_index, sum_index
from .matrices import ELEMENT_TYPES, U32, multiply, registers, widen
from .syntax import BitPattern, PtxInstruction, RegisterVector, VirtualRegister

U64 = np.dtype(np.uint64)
ROW_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Row size of an 8-row swizzle pattern, by the swizzle mode in the descriptor."""

DEPTH_BYTES = 32
"""Bytes of a row of A, or of a column of B, that one instruction multiplies."""


@dataclass(slots=True)
class PendingProducts:
    """Products that were issued and not waited for, in order, with the commits of each lane."""

    queue: list[tuple[np.ndarray, np.ndarray, "WarpgroupProduct", tuple[np.ndarray, ...]]]
    committed: np.ndarray
    counts: np.ndarray

    def complete(self, batch: BlockBatch, lanes: np.ndarray, newest: int) -> None:
        """Compute the products of `lanes`, except for those of the `newest` groups of each."""
        waiting = np.zeros(batch.count, bool)
        waiting[lanes] = True
        kept = []
        for ids, groups, product, values in self.queue:
            done = waiting[ids] & (groups < self.committed[ids] - newest)
            if done.any():
                product.compute(ids[done], tuple(value[done] for value in values))
                self.counts[ids[done]] -= 1
            if not done.all():
                rest = ~done
                kept.append((ids[rest], groups[rest], product, tuple(v[rest] for v in values)))
        self.queue = kept


def pending_products(batch: BlockBatch) -> PendingProducts:
    """The pending products of a batch, made with the first `wgmma`."""
    if batch.products is None:
        zeros = np.zeros(batch.count, np.int64)
        batch.products = PendingProducts([], zeros, zeros.copy())
    return batch.products


def refuse_pending(batch: BlockBatch, step: Step) -> Step:
    """Refuse to touch results of `wgmma` before they are waited for."""
    pending = pending_products(batch)

    def run(lanes) -> None:
        if pending.counts[lanes].any():
            lane = int(batch.ids(lanes)[int(np.argmax(pending.counts[lanes] > 0))])
            raise LaneFault(FaultKind.PENDING_PRODUCT, "its sums are used", lane)
        step(lanes)

    return run


def _field(descriptors: np.ndarray, low: int, bits: int) -> np.ndarray:
    mask = np.uint64((1 << bits) - 1)
    return ((descriptors >> np.uint64(low)) & mask).astype(np.int64)


def _addresses(descriptors: np.ndarray, rows: np.ndarray, offsets: np.ndarray, major: bool):
    """Addresses of 16-byte pieces, one row of them for each descriptor.

    `rows` counts lines of contiguous bytes, `offsets` are bytes within a line. `major` tells
    whether lines run along the depth; otherwise they run along the rows of A or columns of B.
    """
    start, leading, stride = (_field(descriptors, low, 14)[:, None] * 16 for low in (0, 16, 32))
    mode = int(_field(descriptors[:1], 62, 2)[0])
    width = ROW_BYTES[mode]
    if mode == 0 and not major:
        leading, stride = stride, leading
    line = start + rows // 8 * stride + rows % 8 * width
    address = line + offsets // width * leading + offsets % width
    return address ^ (address >> 7 & (width // 16 - 1)) << 4


class WarpgroupProduct:
    """One `wgmma.mma_async`, compiled."""

    def __init__(self, batch: BlockBatch, instruction: PtxInstruction):
        self.batch = batch
        parts = instruction.parts
        shape = next(part for part in parts if part.startswith("m64n"))
        self.columns = int(shape[4:].split("k")[0])
        kinds = [part for part in parts if part in ELEMENT_TYPES or part in ("f32", "s32")]
        sum_kind, self.a_kind, self.b_kind = kinds
        self.elements = 4 // ELEMENT_TYPES[self.a_kind].itemsize
        self.depth = DEPTH_BYTES // 4 * self.elements
        self.sum_type = TYPES[sum_kind]
        if self.sum_type.itemsize != 4 or "sp" in parts or int(shape.split("k")[1]) != self.depth:
            raise unsupported(instruction)
        sums, a, b, scale, *constants = instruction.operands
        numbers = [c.bits for c in constants if isinstance(c, BitPattern)] + [0, 0]
        integers = self.sum_type == np.int32
        self.signs = (1, 1) if integers else (numbers[0], numbers[1])
        in_registers = isinstance(a, RegisterVector)
        transposed = [0, 0] if integers or len(constants) < 3 else numbers[2:-2]
        self.transpose_b = bool(transposed[-1])
        self.transpose_a = bool(transposed[0]) and not in_registers
        self.saturate = "satfinite" in parts
        self.targets = [batch.row(register, U32) for register in registers(sums)]
        if len(self.targets) != self.columns // 2:
            raise unsupported(instruction)
        self.a_rows = (
            [batch.source(register, U32) for register in registers(a)] if in_registers else None
        )
        self.a_descriptor = None if in_registers else batch.source(a, U64)
        self.b_descriptor = batch.source(b, U64)
        self.scale = batch.predicate(scale)

    def issue(self, lanes) -> tuple[np.ndarray, ...]:
        """Read the operands that are registers."""
        if self.a_descriptor is not None:
            a = self.a_descriptor[lanes].copy()
        else:
            a = np.stack([row[lanes] for row in self.a_rows or []], axis=-1)
        return a, self.b_descriptor[lanes].copy(), np.array(self.scale(lanes))

    def _load(self, ids, descriptors, first_row, count: int, kind: str, transpose: bool):
        """A matrix as float32 `[warps, count, depth]`; `first_row` is one for each warp."""
        width = ELEMENT_TYPES[kind].itemsize
        lines, line_bytes = (self.depth, count * width) if transpose else (count, DEPTH_BYTES)
        rows = np.repeat(np.arange(lines), line_bytes // 16)[None]
        offsets = np.tile(np.arange(0, line_bytes, 16), lines)[None]
        if transpose:
            offsets = offsets + first_row[:, None] * width
        else:
            rows = rows + first_row[:, None]
        addresses = _addresses(descriptors, rows, offsets, not transpose)
        lanes = np.repeat(ids, addresses.shape[1])
        shared, flat = self.batch.shared, addresses.ravel()
        words = shared.load(self.batch, lanes, flat, 4, 4)
        offsets = shared.locate(self.batch, lanes, flat, 16, store=False)
        self.batch.shared_shadow.refuse_unfenced(self.batch, lanes, offsets, 16, "reads")
        values = widen(words, kind).reshape(len(ids), lines, -1)
        return values.transpose(0, 2, 1) if transpose else values

    def compute(self, ids: np.ndarray, values: tuple[np.ndarray, ...]) -> None:
        """Multiply for the whole warps in `ids`."""
        batch = self.batch
        firsts = ids[::32]
        a, b, scale = values
        rank = batch.own_warps[firsts] % 4
        if self.a_descriptor is not None:
            left = self._load(firsts, a[::32], 16 * rank, 16, self.a_kind, self.transpose_a)
        else:
            flat = a.reshape(len(firsts), -1)
            left = widen(flat, self.a_kind)[:, a_index(16, self.depth, self.elements)]
        zero = np.zeros(len(firsts), np.int64)
        right = self._load(firsts, b[::32], zero, self.columns, self.b_kind, self.transpose_b)
        words = np.stack([target[ids] for target in self.targets], axis=-1)
        # The sums are tiles of 8 columns, each laid out as those of mma.
        tiles = words.reshape(len(firsts), 32, self.columns // 8, 4).transpose(0, 2, 1, 3)
        tiles = np.ascontiguousarray(tiles).reshape(len(firsts), -1, 128).view(self.sum_type)
        index = sum_index(16, 1)
        sums = tiles[:, :, index].transpose(0, 2, 1, 3).reshape(len(firsts), 16, self.columns)
        sums = np.where(scale[::32, None, None], sums, self.sum_type.type(0))
        left = left * np.float32(self.signs[0] * self.signs[1])
        total = multiply(left, right.transpose(0, 2, 1), sums, self.saturate)
        tiles = total.reshape(len(firsts), 16, -1, 8).transpose(0, 2, 1, 3)
        placed = np.empty((len(firsts), self.columns // 8, 128), self.sum_type)
        placed[:, :, index] = tiles
        words = placed.view(np.uint32).reshape(len(firsts), -1, 32, 4).transpose(0, 2, 1, 3)
        words = words.reshape(len(ids), -1)
        for number, target in enumerate(self.targets):
            target[ids] = words[:, number]


def product_registers(instruction: PtxInstruction) -> set[str]:
    """Names of the accumulator registers of a `wgmma.mma_async`."""
    if instruction.name != "wgmma" or "mma_async" not in instruction.parts:
        return set()
    sums = registers(instruction.operands[0])
    return {register.name for register in sums if isinstance(register, VirtualRegister)}


@builds("wgmma")
def build_wgmma(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`wgmma.mma_async` with its fence, commit and wait."""
    pending = pending_products(batch)
    parts = instruction.parts
    if "fence" in parts:
        return lambda lanes: None
    if "commit_group" in parts:

        def commit(lanes) -> None:
            pending.committed[lanes] += 1

        return commit
    if "wait_group" in parts:
        count = instruction.operands[0]
        if not isinstance(count, BitPattern):
            raise unsupported(instruction)
        newest = count.bits
        return lambda lanes: pending.complete(batch, batch.ids(lanes), newest)
    product = WarpgroupProduct(batch, instruction)

    def issue(lanes) -> None:
        ids = batch.ids(lanes)
        pending.queue.append((ids, pending.committed[ids], product, product.issue(lanes)))
        pending.counts[ids] += 1
        batch.product_counts[batch.warps[ids[::32]]] += 1

    return issue
