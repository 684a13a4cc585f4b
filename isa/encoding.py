"""Instruction words: fixed size per configuration, little endian, opcode in the low four bits."""

from collections.abc import Iterable
from functools import cache

from ..errors import IsaError
from .configuration import Configuration
from .fields import pack, unpack, width
from .instructions import FAMILIES, Instruction

WORD_MULTIPLE_BYTES = 32
"""Words are padded to whole beats of the widest bus."""

BY_OPCODE: dict[int, type[Instruction]] = {family.opcode: family for family in FAMILIES}


@cache
def word_bytes(configuration: Configuration) -> int:
    """Size of every instruction word in bytes."""
    bits = max(width(family.layout(configuration)) for family in FAMILIES)
    return -(-bits // (8 * WORD_MULTIPLE_BYTES)) * WORD_MULTIPLE_BYTES


def encode(instruction: Instruction, configuration: Configuration) -> bytes:
    """Return one instruction as a word.

    Raises
    ------
    IsaError
        When a field does not fit; the message names field and range.
    """
    try:
        word = pack(instruction.layout(configuration), instruction.values(configuration))
    except IsaError as problem:
        raise IsaError(f"{instruction.mnemonic}: {problem}") from None
    return word.to_bytes(word_bytes(configuration), "little")


def decode(word: bytes, configuration: Configuration) -> Instruction:
    """Inverse of `encode`; padding is ignored, as the hardware ignores it.

    Raises
    ------
    IsaError
        For a wrong length, an unknown opcode or an illegal code.
    """
    expected = word_bytes(configuration)
    if len(word) != expected:
        raise IsaError(f"instruction word: expected {expected} bytes, got {len(word)}")
    bits = int.from_bytes(word, "little")
    family = BY_OPCODE.get(bits & 15)
    if family is None:
        raise IsaError(f"instruction word: opcode {bits & 15} is not one of {sorted(BY_OPCODE)}")
    return family.from_values(unpack(family.layout(configuration), bits), configuration)


def encode_program(program: Iterable[Instruction], configuration: Configuration) -> bytes:
    """Return the words of a program in order.

    Raises
    ------
    IsaError
        When an instruction cannot be encoded; the message has its index.
    """
    words = []
    for index, instruction in enumerate(program):
        try:
            words.append(encode(instruction, configuration))
        except IsaError as problem:
            raise IsaError(f"instruction {index}: {problem}") from None
    return b"".join(words)


def decode_program(code: bytes, configuration: Configuration) -> tuple[Instruction, ...]:
    """Inverse of `encode_program`.

    Raises
    ------
    IsaError
        When a word cannot be decoded; the message has the instruction's index.
    """
    size, program = word_bytes(configuration), []
    if len(code) % size:
        raise IsaError(
            f"program of {len(code)} bytes is not a whole number of {size}-byte words; "
            "it is truncated or was built for another configuration"
        )
    for start in range(0, len(code), size):
        try:
            program.append(decode(code[start : start + size], configuration))
        except IsaError as problem:
            raise IsaError(f"instruction {start // size}: {problem}") from None
    return tuple(program)
