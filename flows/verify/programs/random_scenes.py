"""Short groups of instructions that aim at one corner each; `random_programs` mixes them.

A scene needs no tokens; they follow from the conflicts of the whole program.
"""

from collections.abc import Callable
from typing import Any

from ....isa.configuration import Memory
from ....isa.configuration_rules import PAGE_BYTES
from ....isa.instructions import Gemm, Instruction, Load, Loop, Store, Sync, Unit, Vector
from ....isa.instructions.store import SOURCES
from ....isa.legality import has_faults
from ....isa.pipeline import GEMM_REVISIT_STEPS
from .possible_corners import (
    LOCAL,
    LONG_BYTES,
    MOVING,
    READS,
    TINY_RUN,
    WRITES,
    granules,
    greatest_extent_fits,
)
from .random_instructions import ProgramDrawing, make_loops

Scene = list[Instruction]

TRIES = 30
"""Draws of an instruction before a plain one is used."""

TOUCHES = 200
"""Draws of an instruction that is to touch one place."""


class Scenes(ProgramDrawing):
    """Draws scenes; each method returns one."""

    # Transfers ---------------------------------------------------------------------------------

    def transfer(self, local: Memory, length: int, place: int, memory: int) -> Load | Store:
        """A run between a scratchpad and memory, either way where both exist."""
        if local not in LOCAL or (local is Memory.ACT and self.chance.random() < 0.5):
            return Store(source=local, length=length, local=place, memory=memory)
        return Load(destination=local, length=length, local=place, memory=memory)

    def boundaries(self) -> Scene:
        """A short run across the end of a beat, a burst, a page or a bank."""
        memories = (Memory.ACT, Memory.ACT, Memory.ACC, Memory.ACC, Memory.WGT, Memory.LUT)
        local = self.chance.choice(memories)
        size, bank = self.configuration.size_bytes(local), self.configuration.bank_bytes(local)
        widths = (self.configuration.bus_bytes, self.configuration.burst_bytes, PAGE_BYTES)
        widths = [width for width in widths if width < self.data_bytes]
        edge = self._multiple(self.chance.choice(widths), self.data_bytes)
        before, after = self._around(edge, self.data_bytes, size)
        place = self.chance.randint(0, size - before - after)
        if self.chance.random() < 0.4 and bank < size:
            middle = self._multiple(bank, size)
            place = max(0, min(middle - self.chance.randint(1, before + after), size))
            place = min(place, size - before - after)
        return [self.transfer(local, before + after, place, edge - before)]

    def _multiple(self, step: int, end: int) -> int:
        """A multiple of `step` strictly between 0 and `end`."""
        return step * self.chance.randint(1, (end - 1) // step)

    def _around(self, edge: int, end: int, room: int) -> tuple[int, int]:
        """Bytes before and after an edge, at least one each, together at most `room`."""
        reach = self.chance.choice((2, self.configuration.bus_bytes, 48))
        before = self.chance.randint(1, max(1, min(reach, edge, room - 1)))
        return before, self.chance.randint(1, max(1, min(reach, end - edge, room - before)))

    def long_run(self) -> Scene:
        """A whole scratchpad, or more bursts than may be in flight, in one run."""
        local = self.chance.choice((*LOCAL, Memory.ACC))
        size = self.configuration.size_bytes(local)
        flying = self.configuration.outstanding_bursts * self.configuration.burst_bytes
        most = min(size, LONG_BYTES, self.data_bytes // 2)
        length = most
        if flying < most and self.chance.random() < 0.6:
            length = self.chance.randint(flying + 1, most)
        place = self.chance.choice((0, size - length))
        return [self.transfer(local, length, place, self._memory(local, length))]

    def _memory(self, local: Memory, length: int) -> int:
        """A random legal start of a run in memory; runs for PARAM start at a pair."""
        if local is Memory.PARAM:
            return self.chance.randint(0, (self.data_bytes - length) // 8) * 8
        return self.chance.randint(0, self.data_bytes - length)

    def byte_runs(self) -> Scene:
        """Many runs of one byte, or overlapping runs of less than a beat."""
        local = self.chance.choice((*LOCAL[:2], *LOCAL[:2], Memory.LUT, Memory.ACC))
        length = self.chance.choice((1, 1, 2, 3, self.configuration.bus_bytes - 1))
        extents = self.extents(self.configuration.dma_loops, 48)
        if len(extents) == 1 or self.configuration.dma_loops == 1:
            most = min(1 << self.configuration.extent_bits, 40)
            extents = [self.chance.randint(min(16, most), most)]
        near = self.configuration.size_bytes(local) - length, self.data_bytes - length
        bases, moves = [], []
        for room in near:
            base, strides = self.walk(extents, 1, room)
            bases.append(base)
            moves.append(strides)
        if local in LOCAL and self.chance.random() < 0.6:
            loops = make_loops(extents, [moves[1], moves[0]])
            return [
                Load(destination=local, length=length, memory=bases[1], local=bases[0], loops=loops)
            ]
        source = local if local in SOURCES else Memory.ACT
        if self.configuration.size_bytes(source) < near[0]:
            return [self.load()]
        loops = make_loops(extents, moves)
        return [Store(source=source, length=length, local=bases[0], memory=bases[1], loops=loops)]

    def pads(self) -> Scene:
        """A copied tile with fills above, below, left and right."""
        chance = self.chance
        place = chance.choice((Memory.ACT, Memory.ACT, Memory.WGT, Memory.LUT))
        room = min(self.configuration.size_bytes(place), 1024)
        unit = 1 if room < 20 * self.configuration.lanes_in else chance.choice((1, 1, 4))
        left, right, top, bottom = (chance.choice((1, 1, 2)) for _ in range(4))
        width = chance.randint(1, 4) + left + right
        lines = chance.randint(2, 5)
        if (lines + top + bottom) * width * unit > room:
            left = right = top = bottom = unit = 1
            lines, width = 2, 3
        line, length = width * unit, (width - left - right) * unit
        size = self.configuration.size_bytes(place)
        base = chance.randint(0, size - (lines + top + bottom) * line)
        first, end = base + top * line, base + (top + lines) * line
        value = chance.choice((0, 128, 255, chance.randrange(256)))

        def fill(local: int, length: int, *loops: Loop) -> Load:
            return Load(
                destination=place, fill=True, value=value, length=length, local=local, loops=loops
            )

        stride = chance.randint(0, (self.data_bytes - length) // lines)
        start = chance.randint(0, self.data_bytes - length - (lines - 1) * stride)
        down = Loop(lines, (0, line))
        scene: Scene = [
            fill(base, top * line),
            fill(end, bottom * line),
            fill(first, left * unit, down),
            fill(first + left * unit + length, right * unit, down),
            Load(
                destination=place,
                length=length,
                memory=start,
                local=first + left * unit,
                loops=(Loop(lines, (stride, line)),),
            ),
        ]
        chance.shuffle(scene)
        return scene

    # Ends of fields ----------------------------------------------------------------------------

    def spans(self) -> Scene:
        """A loop of two iterations whose operands jump from end to end of their memories."""
        family = self.chance.choices((Load, Gemm, Vector, Store), (6, 3, 7, 3))[0]
        return self._two_steps(
            family, lambda room: self.chance.choice((room, -room, room, -room, 1, 0))
        )

    def banks(self) -> Scene:
        """A GEMM or VECTOR whose operands step from a bank into another."""
        family = self.chance.choice((Gemm, Vector))
        return self._two_steps(family, lambda room: self.chance.randint(-room, room))

    def _two_steps(self, family: type[Instruction], draw: Callable[[int], int]) -> Scene:
        nest = self.chance.choice(tuple(family.nests))
        for _ in range(TRIES):
            lies, fields = self._plain(family)
            places, moves = {}, {}
            for operand, memory in lies.items():
                count = granules(family, operand, memory, self.configuration, self.data_bytes)
                count -= fields.get("length", 1) - 1
                stride = draw(count - 1) if operand in family.nests[nest] else 0
                low, high = max(0, -stride), count - 1 - max(0, stride)
                places[operand] = self.chance.randint(min(low, high), max(low, high))
                moves[operand] = stride
            strides = tuple(moves[operand] for operand in family.nests[nest])
            loops: dict[str, Any] = {nest: (Loop(2, strides),)}
            made = family(**fields, **places, **loops)
            if not has_faults(made, self.configuration, self.data_bytes):
                return [made]
        return [self.vector()]

    def _plain(
        self, family: type[Instruction], length: int = 0
    ) -> tuple[dict[str, Memory], dict[str, Any]]:
        """Memories of the operands, and values for all fields except operands and loops."""
        lies = {o.name: self.chance.choice(tuple(family.places[o.name])) for o in family.operands}
        told: dict[str, Any] = {}
        for operand, memory in lies.items():
            told |= family.places[operand][memory]
        if "length" in {field.name for field in family.own_fields(self.configuration)}:
            told["length"] = length or self.chance.choice((1, 1, 2, 8))
        return lies, self.fields(family, **told)

    def greatest(self) -> Scene:
        """A loop of the greatest extent, once per program; otherwise a plain instruction."""
        nests = [
            (family, nest)
            for family in MOVING
            for nest in family.nests
            if greatest_extent_fits(family, nest, self.configuration)
        ]
        if self.long_ones or not nests:
            return [self.vector()]
        self.long_ones += 1
        family, nest = self.chance.choice(nests)
        extents = [1 << self.configuration.extent_bits]
        inner = nest == "row_loops" and extents[0] > self.configuration.rows(Memory.ACC)
        if inner:
            extents.append(GEMM_REVISIT_STEPS)
        for _ in range(TRIES):
            lies, fields = self._plain(family, length=1)
            places, moves = {}, {}
            for operand, memory in lies.items():
                room = granules(family, operand, memory, self.configuration, self.data_bytes)
                moved = operand in family.nests[nest]
                place, strides = self.walk(extents if moved else [], 1, room)
                if operand == "acc" and nest == "row_loops":
                    strides = [0, 1] if inner else [1]
                    place = self.chance.randint(0, room - extents[-1])
                places[operand], moves[operand] = place, strides
            strides = [moves[operand] for operand in family.nests[nest]]
            loops: dict[str, Any] = {nest: make_loops(extents, strides)}
            made = family(**fields, **places, **loops)
            if not has_faults(made, self.configuration, self.data_bytes):
                return [made]
        return [self.vector()]

    # Order -------------------------------------------------------------------------------------

    def tiny(self, unit: Unit) -> Instruction:
        """An instruction of one step."""
        if unit is Unit.LOAD:
            return self.load(1)
        if unit is Unit.GEMM:
            return self.gemm(1)
        return self.vector(1) if unit is Unit.VECTOR else self.store(1)

    def tiny_run(self) -> Scene:
        """Instructions of one step back to back on one unit."""
        unit = self.chance.choice(tuple(Unit))
        return [self.tiny(unit) for _ in range(self.chance.randint(TINY_RUN, 2 * TINY_RUN))]

    def flood(self) -> Scene:
        """More instructions than a queue holds, the first of which waits for another unit."""
        pair = self.hazard()
        waiting = pair[-1].home
        assert waiting is not None
        return [*pair, *(self.tiny(waiting) for _ in range(self.configuration.queue_depth + 1))]

    def bare_syncs(self) -> Scene:
        """SYNCs that neither wait nor signal."""
        return [Sync(target=self.chance.choice(tuple(Unit))) for _ in range(4)]

    def hazard(self) -> Scene:
        """Two tiny instructions of different units that only a token keeps in order."""
        first, second = self.chance.sample(tuple(Unit), 2)
        kinds = [
            (memory, earlier, later)
            for earlier, ours in ((True, WRITES[first]), (False, READS[first]))
            for later, theirs in ((True, WRITES[second]), (False, READS[second]))
            for memory in sorted(ours & theirs)
            if earlier or later or memory is not Memory.DRAM
        ]
        if not kinds:
            return self.hazard()
        memory, earlier, later = self.chance.choice(kinds)
        if memory is Memory.DRAM:
            row = other = self.chance.randrange(self.data_bytes - 64)
        else:
            row = other = self.chance.randrange(self.configuration.rows(memory))
        if memory is not Memory.DRAM and earlier == later and self.chance.random() < 0.7:
            depth = self.configuration.depth(memory)
            other = row // depth * depth + self.chance.randrange(depth)
        return [self.touch(first, memory, row, earlier), self.touch(second, memory, other, later)]

    def touch(self, unit: Unit, memory: Memory, row: int, writes: bool = False) -> Instruction:
        """A tiny instruction that reads or writes a row of a scratchpad, or a byte of memory."""
        (family,) = (family for family in MOVING if family.unit is unit)
        byte = row if memory is Memory.DRAM else row * self.configuration.row_bytes(memory)
        for _ in range(TOUCHES):
            lies, fields = self._plain(family)
            places = {}
            for operand, found in lies.items():
                granule = family.granule(operand, found, self.configuration)
                count = granules(family, operand, found, self.configuration, self.data_bytes)
                last = count - fields.get("length", 1)
                near = found is memory and self.chance.random() < 0.8
                places[operand] = byte // granule if near else self.chance.randint(0, last)
            made = family(**fields, **places)
            if has_faults(made, self.configuration, self.data_bytes):
                continue
            if any(
                (access.memory, access.writes) == (memory, writes)
                and access.low <= byte <= access.high
                for access in made.accesses(self.configuration)
            ):
                return made
        return self.tiny(unit)

    # Numbers -----------------------------------------------------------------------------------

    def wraps(self) -> Scene:
        """Accumulators near the ends of 32 bits, and sums that go over them."""
        configuration, chance = self.configuration, self.chance
        slices = configuration.lanes_out // configuration.vector_lanes
        row_bytes = configuration.row_bytes(Memory.PARAM)
        param = chance.randrange(configuration.rows(Memory.PARAM))
        acc = chance.randrange(configuration.rows(Memory.ACC))
        act = self._filled(Memory.ACT, configuration.vector_lanes)
        reading = self._filled(Memory.ACT, configuration.lanes_in)
        reading = min(reading, configuration.rows(Memory.ACT) - 3)
        tile = self._filled(Memory.WGT, configuration.lanes_in * configuration.lanes_out)
        again = Loop(2, (1, 0, 0))
        low, high = (self.number(range(-128, 128), 0) for _ in range(2))
        return [
            Load(destination=Memory.PARAM, length=row_bytes, memory=0, local=param * row_bytes),
            Vector(
                to_acc=True, bias=True, a=act, dst=acc * slices, param=param,
                map_loops=(Loop(slices, (1, 0, 0, 0)),),
            ),
            Gemm(
                accumulate=True, act=reading, wgt=tile, acc=acc,
                tile_loops=(again, again)[: configuration.tile_loops],
            ),
            Vector(
                a_from_acc=True, bias=chance.random() < 0.3, scale=chance.random() < 0.3,
                a=acc * slices, dst=act, param=param,
                low=min(low, high), high=max(low, high),
                reduce_loops=(Loop(chance.choice((2, 3)), (0, 0)),),
            ),
        ]  # fmt: skip

    def _filled(self, memory: Memory, granule: int) -> int:
        """A place that a load at the start has probably filled, in granules."""
        return self.operand([], memory, granule, self.chance.choice(self.hot[memory]))[0]

    def soonest(self) -> Scene:
        """As many rows as lanes, and accumulators visited again after the fewest legal steps."""
        configuration, chance = self.configuration, self.chance
        rows = max(configuration.lanes_in, GEMM_REVISIT_STEPS)
        rows = min(rows, 1 << configuration.extent_bits)
        move = rows - GEMM_REVISIT_STEPS
        tiles = Loop(chance.choice((1, 2, 2, 3)), (chance.choice((0, 1)), 0, move))
        made = Gemm(
            accumulate=chance.random() < 0.5,
            act=chance.randrange(4),
            wgt=self._filled(Memory.WGT, configuration.lanes_in * configuration.lanes_out),
            acc=chance.randrange(4),
            tile_loops=(tiles,),
            row_loops=(Loop(rows, (1, 1)),),
        )
        return [self.gemm() if has_faults(made, configuration, self.data_bytes) else made]
