"""Static allocation of a loop program's buffers, where it does not use an arena.

Every slot of a buffer has its own region. The largest are placed first, each in the emptiest bank
that has room. So units that work on different buffers seldom compete for the port of a bank, and a
product does not use the bank of ACC that VECTOR reads. Two operands that one instruction reads from
ACT never share a bank, because a bank has one read port.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from ...aligned import round_down, round_up
from ...errors import CompileError
from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ...isa.expressions import reads_of
from ...wording import counted
from ..te.nodes import Allocate
from ..te.program import Program

Slot = tuple[str, int]
"""A buffer's name and the number of a slot."""


class StaticAllocation:
    """First element of every slot of every buffer.

    Parameters
    ----------
    program
        The program whose scratchpad buffers are placed.
    configuration
        The machine.
    weight_bytes
        Gives the bytes of a buffer of weights from its name and shape.

    Raises
    ------
    CompileError
        When a scratchpad is too small, or a bias and a scale that are read together have buffers
        of different shapes.
    """

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        weight_bytes: Callable[[str, tuple[int, ...]], int],
    ) -> None:
        self.configuration, self.weight_bytes = configuration, weight_bytes
        self.allocates = program.buffers
        self.partners = partners_of(program)
        self.rivals = self._rivals(program)
        self.bases: dict[Slot, int] = {}
        self.ends: dict[Memory, list[tuple[int, int]]] = {}
        for memory in SCRATCHPADS:
            self._place(program.kernel.name, memory)

    def base(self, name: str, slot: int) -> int:
        """First element of a buffer's slot."""
        return self.bases[self.partners.get(name, (name,))[0], slot]

    def taken(self, memory: Memory, units: int) -> Iterator[tuple[int, int]]:
        """The occupied parts of a scratchpad, half-open ranges of its `units` units."""
        unit = self.configuration.size_bytes(memory) // units
        for low, high in self.ends.get(memory, ()):
            yield low // unit, -(-high // unit)

    def _rivals(self, program: Program) -> set[frozenset[str]]:
        """Pairs of buffers in ACT that the same stage reads."""
        rivals = set()
        for nest in program.nests.values():
            if nest.compute is not None:
                names = {read.tensor for read in reads_of(nest.compute.body)} & set(self.allocates)
                inside = (n for n in names if self.allocates[n].scope == Memory.ACT.name)
                rivals |= set(map(frozenset, itertools.combinations(inside, 2)))
        return rivals

    def _place(self, kernel: str, memory: Memory) -> None:
        """A region for every buffer of a scratchpad."""
        wanted = [
            (self._size_bytes(memory, one), (one.tensor.name, slot))
            for one in self.allocates.values()
            if one.scope == memory.name
            and self.partners.get(one.tensor.name, (one.tensor.name,))[0] == one.tensor.name
            for slot in range(one.slots)
        ]
        wanted.sort(key=lambda item: -item[0])
        for spread in (True, False):
            taken = self._regions(memory, wanted, spread)
            if len(taken) == len(wanted):
                break
        else:
            raise CompileError(self._too_small(kernel, memory, wanted))
        for key, (start, _) in taken.items():
            self.bases[key] = start // memory.scratchpad.element_bytes
        self.ends[memory] = list(taken.values())

    def _regions(
        self, memory: Memory, wanted: list[tuple[int, Slot]], spread: bool
    ) -> dict[Slot, tuple[int, int]]:
        """First byte and end of every slot that fits, either spread over the banks or packed."""
        bank = self.configuration.bank_bytes(memory)
        size_bytes = self.configuration.size_bytes(memory)
        taken: dict[Slot, tuple[int, int]] = {}
        for size, key in wanted:
            apart = [
                (round_down(low, bank), round_up(end, bank))
                if frozenset((key[0], name)) in self.rivals
                else (low, end)
                for (name, _), (low, end) in taken.items()
            ]
            starts = {*range(0, size_bytes, bank), *(end for _, end in apart)}
            fitting = [
                start
                for start in starts
                if start + size <= size_bytes
                and all(end <= start or start + size <= low for low, end in apart)
            ]
            if not fitting:
                break
            crowd = [_crowd(start, size, bank, taken.values()) for start in fitting]
            start = min(crowd)[-1] if spread else min(fitting)
            taken[key] = (start, start + size)
        return taken

    def _size_bytes(self, memory: Memory, one: Allocate) -> int:
        """Bytes of one slot, rounded up to whole rows."""
        if memory is Memory.WGT:
            return self.weight_bytes(one.tensor.name, one.shape)
        held = memory.scratchpad
        rows = self.configuration.row_bytes(memory) * held.unit_rows
        written = self.configuration.vector_lanes * held.element_bytes if held.lanes else rows
        return round_up(math.prod(one.shape) * held.element_bytes, math.lcm(rows, written))

    def _too_small(self, kernel: str, memory: Memory, wanted) -> str:
        sizes = ", ".join(
            f"`{name}` {size} bytes" + (f" (slot {slot})" if slot else "")
            for size, (name, slot) in wanted
        )
        banks = self.configuration.banks(memory)
        apart = [one for one in self.rivals if one <= {name for _, (name, _) in wanted}]
        ports = "".join(
            f", where {' and '.join(f'`{name}`' for name in sorted(one))} must not share a bank"
            for one in sorted(apart, key=sorted)
        )
        return (
            f"kernel `{kernel}`: the buffers in {memory.name} ({sizes}) do not fit the "
            f"{self.configuration.size_bytes(memory)} bytes of configuration "
            f"`{self.configuration.name}` in {counted(banks, 'bank')}{ports}; split more, "
            f"compute copies further inside, or raise `{memory.scratchpad.depth}`"
        )


def partners_of(program: Program) -> dict[str, tuple[str, ...]]:
    """Buffers of PARAM that one stage reads together, element by element, by the name of each.

    Raises
    ------
    CompileError
        When their shapes or slots differ.
    """
    allocates = {
        name: node for name, node in program.buffers.items() if node.scope == Memory.PARAM.name
    }
    partners = {}
    for nest in program.nests.values():
        if nest.compute is None:
            continue
        indices = {read.tensor: read.index for read in reads_of(nest.compute.body)}
        for index in dict.fromkeys(indices.values()):
            pair = [allocates[n] for n, at in indices.items() if at == index and n in allocates]
            if len({(one.shape, one.slots) for one in pair}) > 1:
                raise CompileError(
                    f"stage `{nest.stage}`: {' and '.join(map(_shown, pair))} share the pairs of "
                    "PARAM; copy both in the same loop with the same box"
                )
            for one in pair:
                partners[one.tensor.name] = tuple(other.tensor.name for other in pair)
    return partners


def _crowd(
    start: int, size: int, bank: int, taken: Iterable[tuple[int, int]]
) -> tuple[int, int, int]:
    """Sort key of a place: the fewest banks first, then the least other data in them."""
    first, last = start // bank, (start + size - 1) // bank
    beside = sum(max(0, min(end, (last + 1) * bank) - max(low, first * bank)) for low, end in taken)
    return last - first, beside, start


def _shown(one: Allocate) -> str:
    slots = f" in {one.slots} slots" if one.slots > 1 else ""
    return f"`{one.tensor.name}` [{', '.join(map(str, one.shape))}]{slots}"
