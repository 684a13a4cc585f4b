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
    known = instruction.shared.get("word")
    if known is None or known[0] is not configuration:
        return _encode_first(instruction, configuration)
    size, word, wait_bit, signal_bit, bases = known[1]
    wait, signal = instruction.token_masks
    word |= wait << wait_bit | signal << signal_bit
    for name, position, limit in bases:
        address = getattr(instruction, name)
        if not 0 <= address < limit:
            return _encode_first(instruction, configuration)  # reports the field
        word |= address << position
    return word.to_bytes(size, "little")


def _encode_first(instruction: Instruction, configuration: Configuration) -> bytes:
    """Encode all fields, and share those that are neither addresses nor tokens."""
    layout = instruction.layout(configuration)
    try:
        word = pack(layout, instruction.values(configuration))
    except IsaError as problem:
        raise IsaError(f"{instruction.mnemonic}: {problem}") from None
    operands = [operand.name for operand in instruction.operands]
    places = _places(type(instruction), configuration)
    rest = word
    for name in ("wait", "signal", *operands):
        position, limit = places[name]
        rest &= ~((limit - 1) << position)
    size = word_bytes(configuration)
    bases = tuple((name, *places[name]) for name in operands)
    shared = size, rest, places["wait"][0], places["signal"][0], bases
    instruction.shared["word"] = configuration, shared
    return word.to_bytes(size, "little")


@cache
def _places(family: type[Instruction], configuration: Configuration) -> dict[str, tuple[int, int]]:
    """Return the first bit of each field in a word, and how many codes the field has."""
    places, position = {}, 0
    for field in family.layout(configuration):
        places[field.name] = position, 1 << field.bits
        position += field.bits
    return places


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
