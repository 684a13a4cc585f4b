"""Fast functional simulation: the same results as `isa.semantics`, computed on whole tiles.

In some legal but rare instructions, steps depend on each other in a way that whole-tile arithmetic
does not preserve: an accumulator is visited twice outside a reduction, or a later step reads a
result. The definition itself executes these instructions.
"""

from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..isa.configuration import Memory
from ..isa.instructions import Gemm, Load, ResultKind, Store, Vector
from ..isa.instructions.loops import nest_addresses
from ..isa.semantics import Machine, combine_operands, depthwise_sums, finish, reduce_steps

EXACT_PRODUCTS = 1024
"""Number of int8 products (each at most 2**14) whose sum is exact in binary32's 24 bits."""

BLOCK_VALUES = 1 << 17
"""Values that VECTOR processes at once; a few arrays of this size fit a processor's cache."""

SHORT_RUNS = 4
"""Up to this many runs are copied one by one, without index arithmetic."""


class FunctionalMachine(Machine):
    """`isa.semantics.Machine` that executes an instruction as a few array operations."""

    def _load(self, load: Load) -> None:
        target = self.memories[load.destination]
        local = load.nest_of("local")
        if load.fill:
            if runs_overlap(load.length, local):
                index = load.addresses("local")[:, None] + np.arange(load.length)
                target[index] = load.value
            else:
                runs(target, load.local, local, load.length)[...] = load.value
            return
        if load.unpack or load.transpose:
            super()._load(load)
            return
        source = self.memories[Memory.DRAM]
        copy_runs(source, load.memory, load.nest_of("memory"), target, load.local, local, load)

    def _store(self, store: Store) -> None:
        copy_runs(
            self.memories[store.source],
            store.local,
            store.nest_of("local"),
            self.memories[Memory.DRAM],
            store.memory,
            store.nest_of("memory"),
            store,
        )

    def _gemm(self, gemm: Gemm) -> None:
        reductions = [loop for loop in gemm.tile_loops if loop.strides[2] == 0]
        blocks = [loop for loop in gemm.tile_loops if loop.strides[2] != 0]
        row_nest = [(loop.extent, loop.strides[1]) for loop in gemm.row_loops]
        acc_nest = [(loop.extent, loop.strides[2]) for loop in blocks] + row_nest
        if not all_distinct(acc_nest):
            super()._gemm(gemm)
            return
        act, acc, tiles = self.view(Memory.ACT), self.view(Memory.ACC), self._tiles()
        lanes_in, lanes_out = self.configuration.lanes_in, self.configuration.lanes_out
        act_reduced = _offsets(reductions, 0)
        wgt_reduced = _offsets(reductions, 1)
        act_rows = nest_addresses(
            gemm.act, tuple((loop.extent, loop.strides[0]) for loop in gemm.row_loops)
        )
        acc_rows = nest_addresses(gemm.acc, tuple(row_nest))
        wgt_blocks, acc_blocks = gemm.wgt + _offsets(blocks, 1), _offsets(blocks, 2)
        act_blocks = _offsets(blocks, 0)
        if gemm.depthwise:
            total = np.zeros((acc_blocks.size, acc_rows.size, lanes_out), dtype=np.int32)
            for act_move, wgt_move in zip(act_reduced, wgt_reduced, strict=True):
                vectors = act[act_rows + act_blocks[:, None] + act_move].astype(np.int32)
                weights = tiles[wgt_blocks + wgt_move].astype(np.int32)
                total += depthwise_sums(gemm, vectors, weights, self.configuration)
            targets = acc_rows + acc_blocks[:, None]
            acc[targets] = acc[targets] + total if gemm.accumulate else total
            return
        starts, block_of = np.unique(act_blocks, return_inverse=True)
        tiles_at_once = max(1, EXACT_PRODUCTS // lanes_in)
        for group, start in enumerate(starts):
            members = np.flatnonzero(block_of == group)
            total = np.zeros((act_rows.size, members.size, lanes_out), dtype=np.int32)
            for low in range(0, act_reduced.size, tiles_at_once):
                part = slice(low, low + tiles_at_once)
                index = act_rows[:, None] + (act_reduced[part] + start)
                depth = index.shape[1] * lanes_in
                left = act[index].reshape(act_rows.size, depth).astype(np.float32)
                right = tiles[wgt_reduced[part][:, None] + wgt_blocks[members]]
                right = right.transpose(0, 2, 1, 3).reshape(depth, -1).astype(np.float32)
                total += (left @ right).astype(np.int32).reshape(total.shape)
            targets = acc_rows[:, None] + acc_blocks[members]
            acc[targets] = acc[targets] + total if gemm.accumulate else total

    def _tiles(self) -> np.ndarray:
        configuration = self.configuration
        return self.view(Memory.WGT).reshape(-1, configuration.lanes_in, configuration.lanes_out)

    def _vector(self, vector: Vector) -> None:
        if vector.has_rows or vector.result is ResultKind.NONE:
            super()._vector(vector)
            return
        lanes = self.configuration.vector_lanes
        act = self.memories[Memory.ACT].view(np.int8).reshape(-1, lanes)
        acc = self.memories[Memory.ACC].view(np.int32).reshape(-1, lanes)
        reductions = prod(loop.extent for loop in vector.reduce_loops)
        a_rows = vector.addresses("a").reshape(-1, reductions)
        b_rows = vector.addresses("b").reshape(-1, reductions)
        dst_rows = vector.addresses("dst").reshape(-1, reductions)[:, 0]
        reads = [a_rows] if vector.a_from_acc == vector.to_acc else []
        if vector.combine.reads("b") and not vector.to_acc:
            reads.append(b_rows)
        if any(reads_results(dst_rows, rows) for rows in reads):
            super()._vector(vector)
            return
        param_rows = vector.addresses("param").reshape(-1, reductions)[:, 0]
        a_source, target = acc if vector.a_from_acc else act, acc if vector.to_acc else act
        param, tables = self.view(Memory.PARAM), self.view(Memory.LUT)
        outputs_at_once = max(1, BLOCK_VALUES // (reductions * lanes))
        for low in range(0, dst_rows.size, outputs_at_once):
            part = slice(low, low + outputs_at_once)
            a = a_source[a_rows[part]].astype(np.int32)
            b = act[b_rows[part]].astype(np.int32) if vector.combine.reads("b") else None
            x = combine_operands(vector, a, b)
            t = x[:, 0] if reductions == 1 else reduce_steps(vector, x, axis=1)
            row = param[param_rows[part]] if vector.bias or vector.scale else None
            target[dst_rows[part]] = finish(vector, t, row, tables)


def _offsets(loops, operand: int) -> np.ndarray:
    return nest_addresses(0, tuple((loop.extent, loop.strides[operand]) for loop in loops))


def runs_overlap(length: int, nest: tuple[tuple[int, int], ...] | list[tuple[int, int]]) -> bool:
    """Whether runs of a nest may share an element; True if a quick check cannot decide."""
    span = length
    for extent, stride in sorted(nest, key=lambda level: abs(level[1])):
        if extent == 1:
            continue
        if abs(stride) < span:
            return True
        span += (extent - 1) * abs(stride)
    return False


def all_distinct(nest: list[tuple[int, int]]) -> bool:
    """Whether no two iterations of a nest have the same address."""
    if not runs_overlap(1, nest):
        return True
    addresses = nest_addresses(0, tuple(nest))
    return np.unique(addresses).size == addresses.size


def runs(
    memory: np.ndarray, base: int, nest: tuple[tuple[int, int], ...], length: int
) -> np.ndarray:
    """A view of all runs of a nest, uint8[extents..., length]; the caller checks bounds."""
    shape = (*(extent for extent, _ in nest), length)
    return as_strided(memory[base:], shape, (*(stride for _, stride in nest), 1))


def copy_runs(
    source: np.ndarray,
    source_base: int,
    source_nest: tuple[tuple[int, int], ...],
    target: np.ndarray,
    target_base: int,
    target_nest: tuple[tuple[int, int], ...],
    instruction: Load | Store,
) -> None:
    """Copy runs in execution order; the last of overlapping runs wins."""
    length = instruction.length
    values = runs(source, source_base, source_nest, length)
    if not runs_overlap(length, target_nest):
        runs(target, target_base, target_nest, length)[...] = values
        return
    starts = nest_addresses(target_base, target_nest)
    if starts.size <= SHORT_RUNS or length > BLOCK_VALUES:
        for start, run in zip(starts, values.reshape(-1, length), strict=True):
            target[start : start + length] = run
    else:
        target[starts[:, None] + np.arange(length)] = values.reshape(-1, length)


def reads_results(written: np.ndarray, read: np.ndarray) -> bool:
    """Whether a step reads what an earlier output wrote.

    Parameters
    ----------
    written
        int64[outputs]: address of each result.
    read
        int64[outputs, reductions]: addresses each output is computed from.
    """
    low, high = written.min(), written.max()
    if read.max() < low or read.min() > high:
        return False
    outputs = np.arange(written.size)
    first_writer = np.full(high - low + 1, written.size, dtype=np.int64)
    first_writer[(written - low)[::-1]] = outputs[::-1]
    near = np.clip(read, low, high)
    readers = np.broadcast_to(outputs[:, None], read.shape)
    return bool(np.any((readers > first_writer[near - low]) & (near == read)))
