"""The meaning of a program: its instructions executed one after the other, in NumPy.

Every simulator, the hardware and the netlist must equal this definition bit for bit. It favours
clarity; `tilewright.sim` has a fast implementation.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from ..errors import ProgramError
from .configuration import SCRATCHPADS, Configuration, Memory
from .instructions import (
    Gemm,
    Halt,
    Instruction,
    Load,
    ReduceMode,
    ResultKind,
    Statistic,
    Store,
    Vector,
)
from .laws import ARRAYS, evaluate
from .numbers import quantise_output
from .packed_weights import unpack_tiles
from .row_statistics import entries_of, row_parameters, wide


class Machine:
    """State of one accelerator: scratchpads, zero at reset, and the data window of main memory.

    Parameters
    ----------
    configuration
        The machine's sizes.
    dram
        uint8[bytes]: the data window; instructions address it from 0. Changed in place.

    Attributes
    ----------
    memories : dict[Memory, uint8[bytes]]
        Every memory as bytes, little endian.
    """

    def __init__(self, configuration: Configuration, dram: np.ndarray) -> None:
        if dram.dtype != np.uint8 or dram.ndim != 1:
            raise ProgramError(f"data window: expected uint8[bytes], got {dram.dtype}{dram.shape}")
        self.configuration = configuration
        self.memories: dict[Memory, np.ndarray] = {
            memory: np.zeros(configuration.size_bytes(memory), dtype=np.uint8)
            for memory in SCRATCHPADS
        }
        self.memories[Memory.DRAM] = dram

    def view(self, memory: Memory) -> np.ndarray:
        """A scratchpad as rows of its elements.

        int8[rows, lanes] for ACT, WGT and LUT (as tables of 256), int32[rows, lanes] for ACC,
        uint32[rows, vector_lanes, 2] (bias bits, scale bits) for PARAM.
        """
        configuration, data = self.configuration, self.memories[memory]
        if memory is Memory.ACC:
            return data.view(np.int32).reshape(-1, configuration.lanes_out)
        if memory is Memory.PARAM:
            return data.view(np.uint32).reshape(-1, configuration.vector_lanes, 2)
        lanes = {
            Memory.ACT: configuration.lanes_in,
            Memory.WGT: configuration.lanes_out,
            Memory.LUT: 256,
        }[memory]
        return data.view(np.int8).reshape(-1, lanes)

    def run(self, program: Iterable[Instruction]) -> None:
        """Execute in program order up to HALT.

        Raises
        ------
        ProgramError
            When an access exceeds a memory; the message names index and operand.
        """
        for index, instruction in enumerate(program):
            if isinstance(instruction, Halt):
                return
            self.execute(instruction, index)

    def execute(self, instruction: Instruction, index: int = 0) -> None:
        """Execute one instruction; tokens have no meaning in program order."""
        check_bounds(instruction, self.configuration, self.memories[Memory.DRAM].size, index)
        if isinstance(instruction, Load):
            self._load(instruction)
        elif isinstance(instruction, Store):
            self._store(instruction)
        elif isinstance(instruction, Gemm):
            self._gemm(instruction)
        elif isinstance(instruction, Vector):
            self._vector(instruction)

    def _load(self, load: Load) -> None:
        target, dram = self.memories[load.destination], self.memories[Memory.DRAM]
        for source, local in zip(load.addresses("memory"), load.addresses("local"), strict=True):
            run = slice(local, local + load.run_bytes("local", self.configuration))
            values = dram[source : source + load.length]
            if load.unpack:
                target[run] = unpack_tiles(values, self.configuration)
            elif load.transpose:
                target[run][:: self.configuration.lanes_out] = values
            else:
                target[run] = load.value if load.fill else values

    def _store(self, store: Store) -> None:
        source, dram = self.memories[store.source], self.memories[Memory.DRAM]
        for local, target in zip(store.addresses("local"), store.addresses("memory"), strict=True):
            dram[target : target + store.length] = source[local : local + store.length]

    def _gemm(self, gemm: Gemm) -> None:
        act, acc = self.view(Memory.ACT), self.view(Memory.ACC)
        tiles = self.view(Memory.WGT).reshape(
            -1, self.configuration.lanes_in, self.configuration.lanes_out
        )
        rows = gemm.rows()
        shape = (gemm.tiles(), rows)
        act_rows = gemm.addresses("act").reshape(shape)
        acc_rows = gemm.addresses("acc").reshape(shape)
        wgt_tiles = gemm.addresses("wgt").reshape(shape)[:, 0]
        first = first_steps(gemm)
        for step in range(shape[0]):
            tile = tiles[wgt_tiles[step]].astype(np.int32)
            vectors = act[act_rows[step]].astype(np.int32)
            if gemm.depthwise:
                products = depthwise_sums(gemm, vectors, tile, self.configuration)
            else:
                products = vectors @ tile
            for row in range(rows):
                address = acc_rows[step, row]
                acc[address] = products[row] if first[step] else acc[address] + products[row]

    def _vector(self, vector: Vector) -> None:
        lanes = self.configuration.vector_lanes
        act = self.memories[Memory.ACT].view(np.int8).reshape(-1, lanes)
        acc = self.memories[Memory.ACC].view(np.int32).reshape(-1, lanes)
        param = self.view(Memory.PARAM) if vector.bias or vector.scale else None
        a_rows, b_rows = vector.addresses("a"), vector.addresses("b")
        dst_rows, param_rows = vector.addresses("dst"), vector.addresses("param")
        reductions = 1
        for loop in vector.reduce_loops:
            reductions *= loop.extent
        outputs = a_rows.size // reductions
        a_source = acc if vector.a_from_acc else act
        rows = _Rows(vector, self) if vector.has_rows else None
        for output in range(outputs):
            steps = slice(output * reductions, (output + 1) * reductions)
            a = a_source[a_rows[steps]].astype(np.int32)
            b = act[b_rows[steps]].astype(np.int32) if vector.combine.reads("b") else None
            t = reduce_steps(vector, combine_operands(vector, a, b), axis=0)
            row = None if param is None else param[param_rows[steps][0]]
            result = finish(vector, t, row, self.view(Memory.LUT))
            if rows:
                result = rows.take(output, byte_values(vector, t, row), result)
            if vector.result is not ResultKind.NONE:
                (acc if vector.to_acc else act)[dst_rows[steps][0]] = result


def first_steps(gemm: Gemm) -> np.ndarray:
    """Whether each tile iteration overwrites its accumulators, bool[tiles]."""
    if gemm.accumulate:
        return np.zeros(gemm.tiles(), dtype=bool)
    first = np.ones(1, dtype=bool)
    for loop in gemm.tile_loops:
        here = np.ones(loop.extent, dtype=bool)
        if loop.strides[2] == 0:
            here[1:] = False
        first = (first[:, None] & here).reshape(-1)
    return first


def depthwise_sums(
    gemm: Gemm, vectors: np.ndarray, tile: np.ndarray, configuration: Configuration
) -> np.ndarray:
    """Values that a depthwise GEMM adds to its accumulators in the steps of one tile.

    Parameters
    ----------
    vectors
        int32[..., rows, lanes_in]: the ACT row of every step.
    tile
        int32[..., lanes_in, lanes_out].

    Returns
    -------
    int32[..., rows, lanes_out].
    """
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    channels = gemm.part * lanes_out + np.arange(lanes_out) % lanes_in
    run, lines, taps = gemm.run_steps(), gemm.run_lines(configuration), configuration.depthwise_taps
    streamed = vectors[..., channels]
    runs = streamed.reshape(*streamed.shape[:-2], -1, lines, run, lanes_out)
    sums = np.zeros_like(runs)
    for line in range(min(configuration.window_lines, lines)):
        for tap in range(min(taps, run)):
            weights = tile[..., None, None, line * taps + tap, None, :]
            sums[..., line:, tap:, :] += runs[..., : lines - line, : run - tap, :] * weights
    return sums.reshape(streamed.shape)


def combine_operands(vector: Vector, a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """`x` of every step: int32 of the operands' shape, wrapping."""
    values = {
        "a": a,
        "b": b,
        "a_multiplier": np.int32(1 if vector.a_from_acc else vector.a_multiplier),
        "b_multiplier": np.int32(vector.b_multiplier),
    }
    return evaluate(vector.combine.tree, values, ARRAYS)


def reduce_steps(vector: Vector, x: np.ndarray, axis: int) -> np.ndarray:
    """Sum (wrapping) or maximum over the reduce loops, int32."""
    if vector.reduce is ReduceMode.MAX:
        return x.max(axis=axis)
    return x.sum(axis=axis, dtype=np.int32)


def finish(
    vector: Vector, t: np.ndarray, param: np.ndarray | None, tables: np.ndarray
) -> np.ndarray:
    """Everything after the reduction, but for the statistics of rows.

    Parameters
    ----------
    t
        int32[..., lanes].
    param
        uint32[..., lanes, 2]: bias and scale bits; None if neither is used.
    tables
        int8[lut_tables, 256].

    Returns
    -------
    int8[..., lanes], or int32[..., lanes] for ACC.
    """
    if vector.becomes_byte:
        result = byte_values(vector, t, param)
        if vector.gives_entries:
            return entries_of(tables, vector.table)[result.astype(np.int32) + 128]
        if vector.looks_up_bytes:
            return tables[vector.table][result.astype(np.int32) + 128]
        return result
    total = t + param[..., 0].view(np.int32) if vector.bias and param is not None else t
    if vector.stays_total:
        return total
    if vector.scale and param is not None:
        return wide(total, param[..., 1].view(np.float32))
    return wide(total, 1)


def byte_values(vector: Vector, t: np.ndarray, param: np.ndarray | None) -> np.ndarray:
    """The int8 values before the look-up; parameters are as in `finish`."""
    total = t + param[..., 0].view(np.int32) if vector.bias and param is not None else t
    scale = param[..., 1].view(np.float32) if vector.scale and param is not None else None
    return quantise_output(total, scale, vector.zero_point, vector.low, vector.high)


class _Rows:
    """Rows of a VECTOR: entries beyond the bound become 0, and statistics go to PARAM."""

    def __init__(self, vector: Vector, machine: Machine) -> None:
        self.vector, self.param = vector, machine.view(Memory.PARAM)
        self.entries = np.zeros(256, np.int32)
        if vector.looks_up_entries:
            self.entries = entries_of(machine.view(Memory.LUT), vector.table)
        self.constants = 0, 0
        if vector.measured > Statistic.MAXIMUM:
            bias, scale = self.param[vector.param - 1, 0]
            self.constants = int(bias.view(np.int32)), int(scale)
        reductions = prod(loop.extent for loop in vector.reduce_loops)
        self.places = vector.addresses("param")[::reductions]
        self.outputs = vector.row_outputs()
        self.values: list[np.ndarray] = []

    def take(self, output: int, values: np.ndarray, result: np.ndarray) -> np.ndarray:
        """Take the int8 values of an output; return its result."""
        row, place = divmod(output, self.outputs)
        valid = place * values.size + np.arange(values.size) < self.vector.row_bound(row)
        self.values.append(values[valid].astype(np.int32))
        if place == self.outputs - 1:
            self._end(self.places[output], np.concatenate(self.values))
            self.values.clear()
        if self.vector.gives_entries:
            return np.where(valid, result, 0)
        return result

    def _end(self, address: int, values: np.ndarray) -> None:
        vector = self.vector
        centre = (vector.b_multiplier & 255 ^ 128) - 128
        entries = self.entries[values + 128]
        found = row_parameters(vector.measured, values, entries, centre, self.constants)
        for index, word in enumerate(found):
            if word is not None:
                self.param[address, :, index] = word & 0xFFFFFFFF


def check_bounds(
    instruction: Instruction, configuration: Configuration, data_bytes: int, index: int
) -> None:
    """Reject an instruction whose access exceeds a memory.

    Raises
    ------
    ProgramError
        When it does; the message has instruction, operand, bytes and the memory's size.
    """
    for access in instruction.accesses(configuration):
        dram = access.memory is Memory.DRAM
        size = data_bytes if dram else configuration.size_bytes(access.memory)
        if access.low < 0 or access.high >= size:
            raise ProgramError(
                f"instruction {index} ({instruction.mnemonic}): operand `{access.operand}` touches "
                f"bytes {access.low} to {access.high} of {access.memory.name}, which has {size} "
                "bytes; correct the address or the strides"
            )
