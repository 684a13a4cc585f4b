"""Layout of the memory that CPU and core share: data windows, each on a new page, then programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from ...aligned import align, round_up
from ...compiler.module import Module
from ...isa.clearing import clearing_program
from ...isa.configuration_rules import PAGE_BYTES
from ...isa.encoding import encode_program


@dataclass(frozen=True, slots=True)
class ProgramImage:
    """An encoded program, and the byte addresses of the program and its data window."""

    code: bytes
    place: int
    data_place: int = 0
    data_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The contents of memory.

    Parameters
    ----------
    clearing : ProgramImage
        The program that clears the scratchpads, which runs before every other one.
    programs : tuple of ProgramImage
        One for each segment.
    constants : mapping
        Place -> the constants of a segment that has some.
    memory_bytes : int
        Size of all.
    """

    clearing: ProgramImage
    programs: tuple[ProgramImage, ...]
    constants: Mapping[int, bytes]
    memory_bytes: int


def lay_out(module: Module) -> MemoryLayout:
    """Place the programs and data windows of a module."""
    machine, segments = module.configuration, module.segments
    windows = [round_up(segment.data_bytes, PAGE_BYTES) for segment in segments[:-1]]
    bases = list(accumulate(windows, initial=0))
    first = align(bases[-1] + segments[-1].data_bytes)
    codes = [clearing_program(machine), *(segment.program for segment in segments)]
    encoded = [encode_program(code, machine) for code in codes]
    *places, end = accumulate((align(len(code)) for code in encoded), initial=first)
    return MemoryLayout(
        ProgramImage(encoded[0], places[0]),
        tuple(
            ProgramImage(code, place, base, segment.data_bytes)
            for code, place, base, segment in zip(
                encoded[1:], places[1:], bases, segments, strict=True
            )
        ),
        {
            base + segment.constants_offset: segment.constants
            for base, segment in zip(bases, segments, strict=True)
            if segment.constants
        },
        end,
    )
