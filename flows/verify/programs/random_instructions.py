"""Random instructions of every family, each legal by itself.

Shapes are drawn from the families' declarations (nests, operands, immediates), fitted into windows
of the memories, and kept only if the checker's own rules for one instruction accept them. Programs
concentrate on the ends of scratchpad banks, so they read what they wrote.
"""

import dataclasses
import random
from collections.abc import Sequence
from math import prod
from typing import Any

from ....isa.configuration import Configuration, Memory
from ....isa.instructions import (
    Gemm,
    Instruction,
    Load,
    Loop,
    ResultKind,
    Statistic,
    Store,
    Sync,
    Unit,
    Vector,
)
from ....isa.instructions.load import FLAGS
from ....isa.instructions.store import SOURCES
from ....isa.legality import has_faults
from ....isa.pipeline import GEMM_REVISIT_STEPS

Window = tuple[int, int]
"""First byte and end (exclusive) of a part of a memory."""

STEP_BUDGETS = (8, 40, 160)
"""Steps of a unit that one instruction may take; long ones are rare."""

SHARES = {"depthwise": 0.4, "accumulate": 0.4, "scale": 0.7, "lookup": 0.3}
"""Probability of flags that are not set in half of the instructions."""

MAX_SHARE = 0.004
"""Share of GEMMs and VECTORs that may take as many steps as one loop can count."""

PACKED_SHARE = 0.3
"""Share of LOADs that unpack weights, on a machine that can."""

TRANSPOSED_SHARE = 0.3
"""Share of LOADs that transpose, on a machine that can."""

ROW_SHARE = 0.5
"""Share of VECTORs that may have rows and wide results, on a machine that can."""

UNUSED = {"result": ResultKind.USUAL, "statistic": Statistic.NONE}
"""Fields of the others."""

HOT_ROWS = 24
"""Rows of a bank that a program mostly uses."""


def parameter_bytes(data_bytes: int) -> int:
    """Bytes at the start of the image that hold pairs of bias and scale."""
    return data_bytes // 8 // 8 * 8


class ProgramDrawing:
    """One program being drawn: its random generator and its hot windows."""

    def __init__(self, configuration: Configuration, seed: int, data_bytes: int) -> None:
        self.configuration = configuration
        self.chance = random.Random(seed)
        self.data_bytes = data_bytes
        self.long_ones = 0
        self.hot = {
            memory: [self._hot(memory, bank) for bank in range(configuration.banks(memory))]
            for memory in Memory
            if memory is not Memory.DRAM
        }
        quarter = data_bytes // 4
        self.hot[Memory.DRAM] = [(i * quarter, (i + 1) * quarter) for i in range(4)]

    def _hot(self, memory: Memory, bank: int) -> Window:
        """Hot window of a program in a bank: at its start, at its end, or in between."""
        size = self.configuration.bank_bytes(memory)
        tile = self.configuration.row_bytes(memory)
        if memory is Memory.WGT:
            tile *= self.configuration.lanes_in
            length = 3 * tile
        elif memory is Memory.LUT:
            length = size
        elif memory is Memory.PARAM:
            length = 4 * tile
        else:
            length = HOT_ROWS * tile
        length = min(length, size)
        last = (size - length) // tile
        start = self.chance.choice((0, last, self.chance.randint(0, last))) * tile
        return bank * size + start, bank * size + start + length

    def fill_scratchpads(self, most: int) -> list[Instruction]:
        """Loads of up to `most` hot windows, which give later instructions values to read."""
        loads: list[Instruction] = []
        for memory in (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT):
            windows = self.hot[memory]
            for low, high in self.chance.sample(windows, min(3, len(windows))):
                size = min(high - low, self.data_bytes // 2, 2048)
                start, end = self.pairs() if memory is Memory.PARAM else (0, self.data_bytes)
                size = min(size, (end - start) // 8 * 8)
                source = start + self.chance.randrange((end - start - size) // 8 + 1) * 8
                loads.append(Load(destination=memory, length=size, memory=source, local=low))
        self.chance.shuffle(loads)
        return loads[:most]

    def pairs(self) -> Window:
        """The part of the image with pairs of bias and scale."""
        return 0, parameter_bytes(self.data_bytes)

    # Pieces ------------------------------------------------------------------------------------

    def window(self, memory: Memory, banks: Sequence[int] | None = None) -> Window:
        """A hot window, or sometimes one or all banks."""
        if memory is Memory.DRAM and self.chance.random() < 0.2:
            return 0, self.data_bytes
        banks = range(len(self.hot[memory])) if banks is None else banks
        bank = self.chance.choice(banks)
        if memory is Memory.DRAM or self.chance.random() < 0.8:
            return self.hot[memory][bank]
        size = self.configuration.bank_bytes(memory)
        if len(banks) == len(self.hot[memory]) and self.chance.random() < 0.5:
            return 0, self.configuration.size_bytes(memory)
        return bank * size, (bank + 1) * size

    def extents(self, levels: int, budget: int) -> list[int]:
        """Extents of up to `levels` loops with a product of at most `budget`."""
        most = min(budget, 1 << self.configuration.extent_bits)
        count = self.chance.choice((self.chance.randint(0, levels), levels))
        extents: list[int] = []
        for rest in reversed(range(count)):
            room = most // prod(extents) >> rest
            if room >= 2:
                extents.append(self.chance.choice((2, 3, self.chance.randint(2, room), room)))
                extents[-1] = min(extents[-1], room)
        self.chance.shuffle(extents)
        return extents

    def walk(self, extents: Sequence[int], run: int, room: int) -> tuple[int, list[int]]:
        """Base and strides that keep `run` granules per step inside `room` granules."""
        strides: list[int] = []
        dense = run
        for extent in reversed(extents):
            stride = self.chance.choice(
                (dense, dense, 1, run, 0, run + 1, self.chance.randint(0, max(1, room // extent)))
            )
            strides.insert(0, self.chance.choice((1, 1, 1, -1)) * stride)
            dense = max(dense, extent * stride)
        while sum((n - 1) * abs(s) for n, s in zip(extents, strides, strict=True)) > room - run:
            worst = max(range(len(strides)), key=lambda i: (extents[i] - 1) * abs(strides[i]))
            strides[worst] = int(strides[worst] / 2)
        moves = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
        first = -sum(min(0, move) for move in moves)
        last = room - run - sum(max(0, move) for move in moves)
        return self.chance.choice((first, last, self.chance.randint(first, last))), strides

    def budget(self) -> int:
        """Steps for the next LOAD or STORE."""
        return self.chance.choices(STEP_BUDGETS, (50, 45, 5))[0]

    def long_budget(self) -> int:
        """Steps for the next GEMM or VECTOR; rarely a loop of the greatest extent."""
        if self.chance.random() < MAX_SHARE:
            return min(4096, 1 << self.configuration.extent_bits)
        return self.budget()

    def number(self, values: range, usual: int) -> int:
        """A number: often the default or a corner, otherwise most likely a small one."""
        corners = [each for each in (values[0], values[-1], -1, 0, 1, 128) if each in values]
        low, high = max(values[0], -128), min(values[-1], 255)
        drawn = usual, self.chance.choice(corners), self.chance.randint(low, high)
        return self.chance.choices(drawn, (4, 3, 3))[0]

    def fields(self, family: type[Instruction], **given: Any) -> dict[str, Any]:
        """Legal values for the immediate fields of a family; given values are kept."""
        defaults: dict[str, Any] = {
            field.name: field.default for field in dataclasses.fields(family)
        }
        for field in family.own_fields(self.configuration):
            if field.name in given:
                continue
            values = family.legal_values(field.name, self.configuration)
            if isinstance(values, range):
                usual = defaults[field.name]
                given[field.name] = self.number(values, usual if usual in values else values[0])
            elif len(values) == 2:
                share = SHARES.get(field.name, 0.5)
                given[field.name] = values[self.chance.random() < share]
            else:
                # The first ones are the plainest, and the most used.
                weights = (4, 3, *[1] * len(values))[: len(values)]
                given[field.name] = self.chance.choices(values, weights)[0]
        return given

    # Families ----------------------------------------------------------------------------------

    def load(self, budget: int | None = None) -> Load:
        """Draw a LOAD: a copy, a fill, packed weights, or columns of WGT."""
        if self.configuration.packed_weights != "none" and self.chance.random() < PACKED_SHARE:
            return self.packed_load(budget or self.budget())
        transposes = self.configuration.transposed_weights != "none"
        if transposes and self.chance.random() < TRANSPOSED_SHARE:
            return self.transposed_load(budget or self.budget())
        places = (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT)
        destination = self.chance.choices(places, (10, 5, 3, 2))[0]
        fill = self.chance.random() < (0.02 if destination is Memory.PARAM else 0.25)
        length, extents, unit, ends = self._copy(destination, budget or self.budget())
        remote = self.window(Memory.DRAM)
        if destination is Memory.PARAM and unit == 8:
            remote = self.pairs()
        (memory, local), loops = self._ends(length, extents, unit, (remote, ends))
        plain = {"fill": fill, **dict.fromkeys(FLAGS, False)}
        fields = self.fields(Load, destination=destination, length=length, **plain)
        return Load(**fields, memory=memory, local=local, loops=loops)

    def transposed_load(self, budget: int) -> Load:
        """Draw a LOAD of runs into lanes of WGT."""
        configuration, chance = self.configuration, self.chance
        low, high = self.window(Memory.WGT)
        room = min((high - low) // configuration.lanes_out, self.data_bytes)
        length = min(room, chance.choice((1, configuration.lanes_in, chance.randint(1, room))))
        extents = self.extents(configuration.dma_loops, max(1, budget // length))
        span = (length - 1) * configuration.lanes_out + 1
        local, local_moves = self.walk(extents, span, high - low)
        memory, memory_moves = self.walk(extents, length, self.data_bytes)
        return Load(
            destination=Memory.WGT, transpose=True, length=length, memory=memory,
            local=low + local, loops=make_loops(extents, [memory_moves, local_moves]),
        )  # fmt: skip

    def packed_load(self, budget: int) -> Load:
        """Draw a LOAD that unpacks weight tiles."""
        configuration, chance = self.configuration, self.chance
        tile, packed = configuration.tile_bytes, configuration.packed_tile_bytes
        step = min(configuration.packed_row_bytes, configuration.bus_bytes)
        low, high = self.window(Memory.WGT)
        first, room = low // tile, max(1, (high - low) // tile)
        tiles = min(chance.choice((1, 1, 2, 3)), room, self.data_bytes // packed)
        length = tiles * packed
        extents = self.extents(configuration.dma_loops, max(1, budget // (length // step)))
        local, local_moves = self.walk(extents, tiles, room)
        memory, memory_moves = self.walk(extents, length // step, self.data_bytes // step)
        moves = [[move * step for move in memory_moves], [move * tile for move in local_moves]]
        return Load(
            destination=Memory.WGT, unpack=True, length=length, memory=memory * step,
            local=(first + local) * tile, loops=make_loops(extents, moves),
        )  # fmt: skip

    def store(self, budget: int | None = None) -> Store:
        """Draw a STORE."""
        source = self.chance.choice(SOURCES)
        length, extents, unit, ends = self._copy(source, budget or self.budget())
        remote = self.window(Memory.DRAM)
        (local, memory), loops = self._ends(length, extents, unit, (ends, remote))
        fields = self.fields(Store, source=source, length=length)
        return Store(**fields, local=local, memory=memory, loops=loops)

    def _copy(self, memory: Memory, budget: int) -> tuple[int, list[int], int, Window]:
        """Run length in bytes, extents, alignment of everything in bytes, and local window."""
        low, high = self.window(memory)
        row = self.configuration.row_bytes(memory)
        piece = min(row, self.configuration.bus_bytes)
        unit = self.chance.choices((1, 4, row), (5, 2, 3))[0]
        if memory is Memory.PARAM:
            unit = self.chance.choices((8, 1), (19, 1))[0]
        longest = min(budget * piece, high - low, self.data_bytes // 8, 1024)
        lengths = (1, row, row + 1, self.chance.randint(1, 3 * row), longest)
        length = min(self.chance.choice(lengths), longest)
        length = max(length // unit, 1) * unit
        pieces = -(-length // piece) + 1
        extents = self.extents(self.configuration.dma_loops, max(1, budget // pieces))
        return length, extents, unit, (low, high)

    def _ends(
        self, length: int, extents: list[int], unit: int, windows: tuple[Window, Window]
    ) -> tuple[list[int], tuple[Loop, ...]]:
        bases, strides = [], []
        for low, high in windows:
            base, moves = self.walk(extents, length // unit, (high - low) // unit)
            bases.append(low // unit * unit + base * unit)
            strides.append([move * unit for move in moves])
        return bases, make_loops(extents, strides)

    def operand(
        self, extents: Sequence[int], memory: Memory, granule: int, window: Window
    ) -> tuple[int, list[int]]:
        """Base and strides of an operand that stays inside a window, in its granules."""
        base, strides = self.walk(extents, 1, (window[1] - window[0]) // granule)
        return window[0] // granule + base, strides

    def gemm(self, most: int | None = None) -> Gemm:
        """Draw a GEMM; draw again while it visits an ACC row again too early."""
        configuration = self.configuration
        for attempt in range(30):
            budget = most or self.long_budget()
            rows = self.extents(configuration.row_loops if attempt < 29 else 0, budget)
            duration = max(prod(rows), configuration.lanes_in, GEMM_REVISIT_STEPS)
            levels = configuration.tile_loops if attempt < 29 else 0
            least = self.chance.choice((1, 4, 16)) if duration <= 2 * configuration.lanes_in else 1
            longest = max(least, min(2 * budget, 4096) // duration)
            tiles = self.extents(levels, 1 if most == 1 else longest)
            bases, moves = [], []
            for name, (memory,) in Gemm.places.items():
                granule = Gemm.granule(name, memory, configuration)
                extents = tiles if name == "wgt" else tiles + rows
                base, strides = self.operand(extents, memory, granule, self.window(memory))
                if name == "acc" and len(tiles) > 0 and self.chance.random() < 0.6:
                    strides[self.chance.randrange(len(tiles))] = 0
                bases.append(base)
                moves.append(strides)
            instruction = Gemm(
                **self.fields(Gemm),
                act=bases[0],
                wgt=bases[1],
                acc=bases[2],
                tile_loops=make_loops(tiles, [m[: len(tiles)] for m in moves]),
                row_loops=make_loops(rows, [moves[0][len(tiles) :], moves[2][len(tiles) :]]),
            )
            if not has_faults(instruction, configuration, self.data_bytes):
                return instruction
        raise AssertionError("a GEMM without loops is legal")

    def vector(self, budget: int | None = None) -> Vector:
        """Draw a VECTOR of any operation; draw again while its operands conflict."""
        for attempt in range(30):
            most = budget or self.long_budget()
            instruction = self._vector(most if attempt < 29 else 1)
            if not has_faults(instruction, self.configuration, self.data_bytes):
                return instruction
        raise AssertionError("a VECTOR without loops is legal")

    def _vector(self, budget: int) -> Vector:
        configuration, chance = self.configuration, self.chance
        maps = self.extents(configuration.map_loops, budget)
        reduces = self.extents(configuration.reduce_loops, max(1, budget // prod(maps)))
        if chance.random() < 0.4:
            reduces = []
        from_acc, to_acc = chance.random() < 0.5, chance.random() < 0.25
        banks = list(range(configuration.act_banks))
        chance.shuffle(banks)
        lanes = configuration.vector_lanes
        acc, act = (Memory.ACC, 4 * lanes), (Memory.ACT, lanes)
        a_place, b_place = (acc if from_acc else act), act
        dst_place = acc if to_acc else act
        near = None if from_acc else banks[:1]
        a, a_moves = self.operand(maps + reduces, *a_place, self.window(a_place[0], near))
        b, b_moves = self.operand(maps + reduces, *b_place, self.window(Memory.ACT, banks[1:]))
        if from_acc == to_acc and not reduces and chance.random() < 0.3:
            dst, dst_moves = a, a_moves
        else:
            dst, dst_moves = self.operand(maps, *dst_place, self.window(dst_place[0]))
        rows = configuration.row_statistics != "none" and chance.random() < ROW_SHARE
        row = configuration.row_bytes(Memory.PARAM)
        inner = chance.randint(0, len(maps)) if rows else 0
        outer = maps[: len(maps) - inner]
        param, param_moves = self.operand(outer, Memory.PARAM, row, self.window(Memory.PARAM))
        param_moves += [0] * inner
        moves = [dst_moves, a_moves[: len(maps)], b_moves[: len(maps)], param_moves]
        fields = self.fields(Vector, a_from_acc=from_acc, to_acc=to_acc)
        if chance.random() < 0.8:
            bounds = fields["low"], fields["high"]
            fields |= {"low": min(bounds), "high": max(bounds)}
        if not rows:
            fields |= {name: value for name, value in UNUSED.items() if name in fields}
        drawn = Vector(
            **fields,
            dst=dst,
            a=a,
            b=b,
            param=param,
            map_loops=make_loops(maps, moves),
            reduce_loops=make_loops(reduces, [a_moves[len(maps) :], b_moves[len(maps) :]]),
        )
        if drawn.looks_up_entries:  # two tables, and constants before the first row of PARAM
            table = min(drawn.table, configuration.lut_tables - 2)
            drawn = dataclasses.replace(drawn, table=table, param=max(drawn.param, 1))
        return drawn

    def sync(self) -> Sync:
        """Draw a SYNC, which has only tokens."""
        return Sync(target=self.chance.choice(tuple(Unit)))


def make_loops(extents: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[Loop, ...]:
    """Loops of some extents, given every operand's strides."""
    return tuple(
        Loop(extent, tuple(moves[level] for moves in strides))
        for level, extent in enumerate(extents)
    )
