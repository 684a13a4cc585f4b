"""The manual's chapter on instructions: each family's law, fields, bits and examples."""

import textwrap
from collections.abc import Iterator, Sequence
from enum import IntEnum

from . import vector_operations
from .assembly import format_instruction, loop_keyword, parse_instruction
from .configuration import Configuration
from .fields import Field, width
from .instructions import FAMILIES, Instruction, ReduceMode, ResultKind, Statistic, Unit, Vector
from .instructions.load import DESTINATIONS
from .instructions.store import SOURCES
from .markdown import docstring_sections, paragraphs, section_entries, table, ticks
from .read_law import FORMS

CODES: dict[tuple[str, str], Sequence[IntEnum]] = {
    ("load", "destination"): DESTINATIONS,
    ("vector", "reduce"): tuple(ReduceMode),
    ("vector", "result"): tuple(ResultKind),
    ("vector", "statistic"): tuple(Statistic),
    ("store", "source"): SOURCES,
    ("sync", "target"): tuple(Unit),
}
"""Meanings of the codes of a field, from 0 upwards; other codes are illegal."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "load": (
        (
            "load destination=act length=48 memory=0x1000 local=64 loop[10: memory 160, local 48]",
            "ten lines of an image, 48 bytes from each line of 160, packed from byte 64 of ACT",
        ),
        (
            "load destination=act fill value=0x80 length=16 local=0 loop[9: local 160] wait=gemm",
            "a column of padding, one row of ACT per line, after a token from GEMM",
        ),
    ),
    "gemm": (
        (
            "gemm act=0 wgt=0 acc=0 tile[3: act 10, wgt 3] tile[3: act 1, wgt 1]"
            " row[8: act 10, acc 8] row[8: act 1, acc 1] wait=load signal=vector",
            "a 3x3 convolution of an 8x8 tile from a 10x10 input window: both tile loops are "
            "reductions (the stride of `acc` is 0), so the first of nine tiles overwrites",
        ),
        (
            "gemm depthwise act=0 wgt=0 acc=0 tile[3: act 10, wgt 1] row[8: act 10, acc 10]"
            " row[10: act 1, acc 1] wait=load signal=vector",
            "a depthwise 3x3 convolution of the same tile, a line of the window at a time: the "
            "first two of ten accumulators of a line are incomplete and never read",
        ),
    ),
    "vector": (
        (
            "vector a_from_acc bias scale zero_point=3 low=3 dst=4096 a=0 param=2"
            " map[64: dst 1, a 1] wait=gemm signal=store",
            "bias, requantisation and ReLU (the clamp begins at the zero point) of 64 slices",
        ),
        (
            "vector reduce=max dst=2048 a=0 map[4: dst 4, a 16] map[4: dst 1, a 2]"
            " reduce[2: a 8] reduce[2: a 1]",
            "max pooling 2x2 of an 8x8 image into 4x4",
        ),
        (
            "vector combine=add a_multiplier=181 b_multiplier=75 bias scale dst=0 a=0 b=2048"
            " map[64: dst 1, a 1, b 1]",
            "residual addition in place; the operands lie in different banks",
        ),
    ),
    "store": (
        (
            "store source=act length=16 local=65536 memory=0x4000 loop[56: local 16, memory 64]"
            " wait=vector",
            "56 rows of 16 channels into an image of 64 channels",
        ),
    ),
    "sync": (
        ("sync target=gemm wait=load,store signal=vector", "pass tokens on through GEMM's queue"),
    ),
    "halt": (("halt", "the last instruction of every program"),),
}
"""Example lines and their explanations, by mnemonic; the manual prints them as parsed."""


def instructions(configuration: Configuration) -> Iterator[str]:
    """The chapter on instructions, with field widths of one configuration."""
    yield from ("## Instructions", "")
    for family in FAMILIES:
        yield from _family(family, configuration)


def _family(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    sections = docstring_sections(family)
    yield from (f"### {family.mnemonic}", "")
    yield from paragraphs(sections[""])
    yield from (*textwrap.indent(family.law, "    ").splitlines(), "")
    yield from (f"Time: {family.time}.", "")
    if "Parameters" in sections:
        entries = section_entries(sections["Parameters"])
        yield from table(("field", "meaning"), ((ticks(n), text) for n, text in entries))
    yield from _layout(family, configuration)
    if family is Vector:
        yield from _operations(configuration)
    for line, text in EXAMPLES[family.mnemonic]:
        yield from ("```", format_instruction(parse_instruction(line)), "```", "")
        yield from (text[0].upper() + text[1:] + ".", "")


def _operations(configuration: Configuration) -> Iterator[str]:
    yield from paragraphs(
        f"""
        The code of `combine` selects the law of `x`. A configuration declares more operations
        in `extra_operations`, each as `name = law`. A law is an expression of `a`, `b`,
        `a_multiplier` and `b_multiplier`, written with {FORMS}. It must be a sum of two products,
        one of {vector_operations.FIRST_BITS} by {vector_operations.FACTOR_BITS} bits and one of
        {vector_operations.SECOND_BITS} by {vector_operations.FACTOR_BITS}; any other law is
        rejected. Every operation takes one cycle a step. The hash covers the laws.
        """
    )
    rows = (
        (code, f"`{operation.name}`", f"`{operation.law}`")
        for code, operation in enumerate(configuration.operations)
    )
    yield from table(("code", "operation", "x"), rows)


def _layout(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    layout = family.layout(configuration)
    position, rows = 0, []
    for field in layout:
        if "." in field.name:
            break
        meaning = _meaning(family, field, configuration)
        if field.bits:
            rows.append((_bits(position, field.bits), field.bits, f"`{field.name}`", meaning))
        position += field.bits
    yield from table(("bits", "width", "field", "values"), rows)
    for nest, moved in family.nests.items():
        levels = family.levels(nest, configuration)
        level = [f for f in layout if f.name.startswith(f"{nest}.0.")]
        size = width(level)
        yield (
            f"`{nest}`, written `{loop_keyword(nest)}[...]`: {levels} levels of {size} bits, the "
            f"outermost at bit {position}; they move {', '.join(f'`{name}`' for name in moved)}."
        )
        yield ""
        offset, rows = 0, []
        for field in level:
            name = field.name.rpartition(".")[2]
            rows.append((_bits(offset, field.bits), field.bits, f"`{name}`", _range(field)))
            offset += field.bits
        yield from table(("bits of the level", "width", "field", "values"), rows)
        position += levels * size


def _meaning(family: type[Instruction], field: Field, configuration: Configuration) -> str:
    if field.name == "opcode":
        return str(family.opcode)
    if field.name in ("wait", "signal"):
        return "mask of units" if family.mnemonic != "halt" else "0"
    if field.name == "combine":
        return ", ".join(f"{code} {o.name}" for code, o in enumerate(configuration.operations))
    codes = CODES.get((family.mnemonic, field.name))
    if codes is not None:
        return ", ".join(f"{code} {value.name}" for code, value in enumerate(codes))
    return _range(field)


def _bits(position: int, bits: int) -> str:
    return f"{position + bits - 1}..{position}" if bits > 1 else str(position)


def _range(field: Field) -> str:
    return f"{field.low} to {field.high}" + (", stored minus one" if field.offset else "")
