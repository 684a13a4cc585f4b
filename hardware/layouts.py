"""Bit layouts of commands and instruction words, all derived from the instruction families.

A command is the part of an instruction that a unit receives: all but the header (opcode, wait and
signal masks). Field names are those of the contract, with dots replaced by `__`:
`row_loops__0__extent`.
"""

from amaranth.hdl import Shape, Value
from amaranth.lib import data

from ..isa.configuration import Configuration
from ..isa.encoding import word_bytes
from ..isa.fields import Field, width
from ..isa.instructions import Instruction, Unit

HEADER = ("opcode", "wait", "signal")
"""The first fields of every instruction word."""

MASK_BITS = len(Unit) - 1
"""Bits of a wait or signal mask: one per peer, ascending."""


def _shape(field: Field) -> Shape:
    return Shape(field.bits, field.signed)


def _member(field: Field) -> str:
    return field.name.replace(".", "__")


def instruction_layout(
    family: type[Instruction], configuration: Configuration
) -> data.StructLayout:
    """All fields of an instruction in the order of the word, from bit 0, without padding.

    Extents and lengths are stored minus one, as encoded.
    """
    return data.StructLayout(
        {_member(field): _shape(field) for field in family.layout(configuration)}
    )


def command_layout(family: type[Instruction], configuration: Configuration) -> data.StructLayout:
    """The fields that a unit receives: all but the header."""
    return data.StructLayout(
        {
            _member(field): _shape(field)
            for field in family.layout(configuration)
            if field.name not in HEADER
        }
    )


def header_bits(family: type[Instruction], configuration: Configuration) -> int:
    """Number of bits before the command."""
    return width([field for field in family.layout(configuration) if field.name in HEADER])


def instruction_fields(
    word: Value, family: type[Instruction], configuration: Configuration
) -> data.View:
    """View an instruction word as the fields of `family`."""
    layout = instruction_layout(family, configuration)
    return data.View(layout, Value.cast(word)[: layout.size])


def command_fields(
    word: Value, family: type[Instruction], configuration: Configuration
) -> data.View:
    """View an instruction word as the command of `family`."""
    layout, low = command_layout(family, configuration), header_bits(family, configuration)
    return data.View(layout, Value.cast(word)[low : low + layout.size])


def dispatch_layout(configuration: Configuration) -> data.StructLayout:
    """The payload that FETCH sends to the dispatcher.

    `word` is the whole instruction word. One bit of `units` is set, for the unit that receives it:
    its own unit, or the one that a SYNC names.
    """
    return data.StructLayout(
        {
            "units": len(Unit),
            "is_sync": 1,
            "wait": MASK_BITS,
            "signal": MASK_BITS,
            "word": 8 * word_bytes(configuration),
        }
    )
