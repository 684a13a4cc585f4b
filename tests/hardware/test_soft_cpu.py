"""The soft CPU reaches registers, memory of any width and the link, in Verilator."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import HardwareError
from tilewright.hardware.soc.soft_cpu import LINK, MEMORY, PROGRAM_BYTES, REGISTERS, SPACE_BITS
from tilewright.isa.configuration import PRESETS
from tilewright.isa.registers import MAGIC
from tilewright.isa.sdram import SDRAMS
from tilewright.sim.board import VirtualBoard

from ..exchange import exchange

WIDE = replace(PRESETS["tiny"], name="wide", bus_bits=64)
MEMORY_BYTES = 1 << 12
BLOCK = 16
"""Bytes that the test's program takes at a time."""

LUI, LOAD, STORE, JUMP = 0x37, 0x03, 0x23, 0x6F
BYTE, HALF, WORD, UNSIGNED = 0, 1, 2, 4
ZERO, TEMPORARY, TO_LINK, TO_MEMORY, TO_REGISTERS = 0, 5, 10, 11, 12
SPARE = 1024
"""A free place of the program memory."""


def point(register, space):
    """`lui`: let a register hold the address of a space."""
    return space << SPACE_BITS | register << 7 | LUI


def load(size, base, offset):
    return offset << 20 | base << 15 | size << 12 | TEMPORARY << 7 | LOAD


def store(size, base, offset):
    high, low = divmod(offset, 32)
    return high << 25 | TEMPORARY << 20 | base << 15 | size << 12 | low << 7 | STORE


def jump(offset):
    """`jal` to an earlier instruction, at most 2048 bytes back."""
    bits = offset & 0x1FFFFF
    fields = bits >> 20 << 31 | (bits >> 1 & 0x3FF) << 21 | (bits >> 11 & 1) << 20
    return fields | (bits >> 12 & 0xFF) << 12 | JUMP


def assembled():
    """Send the core's `ID`; then take blocks, and send each with its words in reverse order."""
    byte = BYTE | UNSIGNED
    code = [point(TO_LINK, LINK), point(TO_MEMORY, MEMORY), point(TO_REGISTERS, REGISTERS)]
    code += [load(WORD, TO_REGISTERS, 0), store(WORD, ZERO, SPARE)]
    for at in range(4):
        code += [load(byte, ZERO, SPARE + at), store(BYTE, TO_LINK, 0)]
    first = len(code)
    for at in range(BLOCK):
        code += [load(byte, TO_LINK, 0), store(BYTE, TO_MEMORY, at)]
    for at in range(0, BLOCK, 4):
        code += [load(WORD, TO_MEMORY, at), store(WORD, TO_MEMORY, 2 * BLOCK - 4 - at)]
    for at in range(BLOCK, 2 * BLOCK, 2):
        code += [load(HALF, TO_MEMORY, at), store(HALF, TO_MEMORY, at + BLOCK)]
    for at in range(2 * BLOCK, 3 * BLOCK):
        code += [load(byte, TO_MEMORY, at), store(BYTE, TO_LINK, 0)]
    code.append(jump(4 * (first - len(code))))
    return np.array(code, "<u4").tobytes()


def board_of(program, sdram=None):
    return VirtualBoard(WIDE, MEMORY_BYTES, 100_000_000, None, sdram, program=program)


@pytest.mark.slow
@pytest.mark.parametrize("chip", [None, "sdr-x16"])
def test_a_program_reads_registers_and_writes_every_byte_of_a_wide_memory(chip):
    board = board_of(assembled(), SDRAMS.get(chip))
    assert exchange(board, b"", 4) == MAGIC.to_bytes(4, "little")
    for seed in range(3):
        block = np.random.default_rng(seed).bytes(BLOCK)
        words = np.frombuffer(block, "<u4")[::-1]
        assert exchange(board, block, BLOCK) == words.tobytes()
    board.close()


@pytest.mark.slow
def test_a_cpu_that_meets_an_illegal_instruction_is_no_longer_busy():
    board = board_of(bytes(4))
    assert board.run(b"", 1000) == (0, b"")
    assert not board.busy
    assert board.cycles < 100
    board.close()


@pytest.mark.slow
def test_a_program_larger_than_its_memory_is_refused():
    message = f"program of {PROGRAM_BYTES + 4} bytes: expected at most the {PROGRAM_BYTES} bytes of"
    with pytest.raises(HardwareError, match=message):
        board_of(bytes(PROGRAM_BYTES + 4))
