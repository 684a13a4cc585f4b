"""Compiled `isa.tokens.synthesise_tokens`: the same tokens, from arrays of footprints.

Instructions that are copies of each other differ only in their addresses. So the footprints of a
program are arrays, and C++ walks them. The first addresses decide on the banks; shapes that have
gaps are compared in Python, by the definition.
"""

import ctypes
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ...isa.footprints import (
    AccessAtZero,
    Shape,
    accesses_at_zero,
    banks_of_shape,
    shapes_meet,
)
from ...isa.instructions import Halt, Instruction, Sync, Unit
from ...isa.tokens import synthesise_tokens, with_tokens
from .native import library

_FOOTPRINT = np.dtype(
    [("unit", "i8"), ("reads", "u8"), ("writes", "u8"), ("dram_low", "i8"), ("dram_high", "i8"),
     ("first", "i8"), ("accesses", "i8")]
)  # fmt: skip
"""`Footprint` of `weave.cpp`."""

_UNBANKED = 1 << 62
"""Main memory counts as one bank of this size."""

_NO_ACCESS = ("opcode", 0, 0, 0, -1, Shape(0, ()), False, 1, 0, 0)
"""Pads the accesses of an instruction: a field that every instruction has, times 0."""

_Meet = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 5)


class _Program(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("footprints", ctypes.c_void_p),
        ("lows", ctypes.c_void_p),
        ("kinds", ctypes.c_void_p),
        ("token_limit", ctypes.c_int64),
        ("meet", _Meet),
    )


def weave(program: Sequence[Instruction], configuration: Configuration) -> tuple[Instruction, ...]:
    """Order all conflicts of a program by tokens, as `isa.tokens.synthesise_tokens` does.

    Raises
    ------
    ToolError
        Without a compiler.
    """
    bare = [one for one in program if not isinstance(one, Halt)]
    if not bare:
        return (Halt(),)
    table = _FootprintTable(bare, configuration)
    if table.outside:
        return synthesise_tokens(bare, configuration)
    failures: list[BaseException] = []

    def meet(one: int, other: int, offset: int, distance: int, row: int) -> int:
        try:
            return shapes_meet(table.shapes[one], table.shapes[other], offset, distance, row)
        except BaseException as problem:  # such as Ctrl-C, which must not pass through C++
            failures.append(problem)
            return 1

    # Each instruction waits for at most three units, and each time a SYNC may be needed.
    woven = np.empty((3, len(Unit) * len(bare)), dtype=np.int64)
    arguments = _Program(
        len(bare),
        table.width,
        table.footprints.ctypes.data,
        table.lows.ctypes.data,
        table.kinds.ctypes.data,
        configuration.token_limit,
        _Meet(meet),
    )
    rows = (ctypes.c_void_p * 3)(*(row.ctypes.data for row in woven))
    count = library().tilewright_weave(ctypes.byref(arguments), rows)
    if failures:
        raise failures[0]
    order, waits, signals = woven[:, :count].tolist()
    placed = [bare[what] if what >= 0 else Sync(target=Unit(-1 - what)) for what in order]
    return (*map(with_tokens, placed, waits, signals), Halt())


class _FootprintTable:
    """The footprints of a program as arrays.

    Attributes
    ----------
    footprints
        By `_FOOTPRINT`, one per instruction.
    lows
        First byte of each access, int64[instructions, width].
    kinds
        Accesses of each kind of instruction, by `Access` of `weave.cpp`, int64[kinds, width, 6].
    shapes
        The shapes that `kinds` numbers.
    outside
        Whether an access leaves its memory, so that not all of its banks have bits.
    """

    def __init__(self, program: Sequence[Instruction], configuration: Configuration) -> None:
        kinds: list[tuple[AccessAtZero, ...]] = []
        numbers: dict[int, int] = {}
        each = []
        for instruction in program:
            key = id(instruction.shared)
            if key not in numbers:
                numbers[key] = len(kinds)
                kinds.append(accesses_at_zero(instruction, configuration))
            each.append(numbers[key])
        self.width = max(2, *map(len, kinds))  # two names make `attrgetter` return a tuple
        padded = [(*kind, *[_NO_ACCESS] * (self.width - len(kind))) for kind in kinds]
        getters = [
            attrgetter(*(name if step else "opcode" for name, step, *_ in kind)) for kind in padded
        ]
        bases = [getters[kind](one) for kind, one in zip(each, program, strict=True)]
        shapes: dict[Shape, int] = {}
        fields = np.array(
            [
                (
                    *(memory, shapes.setdefault(shape, len(shapes)), bool(shape.loops)),
                    *(writes, reach, row, low, step, bank_bytes or _UNBANKED, shift),
                )
                for kind in padded
                for _, step, low, reach, memory, shape, writes, row, bank_bytes, shift in kind
            ],
            dtype=np.int64,
        )
        fields = fields.reshape(len(kinds), self.width, -1)
        self.kinds, self.shapes = np.ascontiguousarray(fields[:, :, :6]), list(shapes)
        memory, shape, _, writes, reach, _, low, step, bank_bytes, shift = np.moveaxis(
            fields[each], 2, 0
        )
        low = self.lows = np.ascontiguousarray(low + step * np.array(bases, dtype=np.int64))
        high, used, dram = low + reach, memory >= 0, memory == Memory.DRAM
        first, last = low // bank_bytes, high // bank_bytes
        banks = np.ones(len(Memory) + 1, dtype=np.int64)  # the last one is that of no access
        banks[[*SCRATCHPADS]] = [configuration.banks(one) for one in SCRATCHPADS]
        self.outside = bool((used & ((low < 0) | (last >= banks[memory]))).any())
        if self.outside:
            return
        masks = np.where(used, np.uint64(1) << (first + shift).astype(np.uint64), np.uint64(0))
        for place in zip(*np.nonzero(first != last), strict=True):
            offset = int(low[place] - first[place] * bank_bytes[place])
            bits = banks_of_shape(
                self.shapes[shape[place]], offset, int(reach[place]), int(bank_bytes[place])
            )
            masks[place] = bits << int(first[place] + shift[place])
        found = self.footprints = np.empty(len(each), dtype=_FOOTPRINT)
        nothing = np.uint64(0)
        found["unit"] = [one.home for one in program]
        found["reads"] = np.bitwise_or.reduce(np.where(writes, nothing, masks), axis=1)
        found["writes"] = np.bitwise_or.reduce(np.where(writes, masks, nothing), axis=1)
        found["dram_low"] = np.where(dram, low, _UNBANKED).min(axis=1)
        found["dram_high"] = np.where(dram, high, -1).max(axis=1)
        found["first"] = np.arange(len(each)) * self.width
        found["accesses"] = np.array(each) * self.width
