"""Write the reference manual, `docs/isa.md`, from the contract.

`python -m tilewright.isa.manual` rewrites it; a test fails while it is out of date. Text that
explains a thing stands beside that thing, in its docstring; this file only arranges.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from textwrap import dedent

from . import checker, footprints, laws, legality, numbers, vector_operations
from .assembly import format_instruction, loop_keyword, parse_instruction
from .configuration import (
    CONTRACT_VERSION,
    DEFAULT,
    GEMM_REVISIT_STEPS,
    PRESETS,
    Configuration,
    Memory,
)
from .encoding import WORD_MULTIPLE_BYTES, word_bytes
from .fields import Field, width
from .instructions import FAMILIES, Instruction, Reduce, Unit, Vector, peers
from .instructions.store import SOURCES
from .registers import REGISTER_SPACE_BYTES, REGISTERS, Error

MANUAL = Path(__file__).resolve().parent.parent / "docs" / "isa.md"

SCRATCHPADS: tuple[tuple[Memory, str, str, str, str], ...] = (
    (Memory.ACT, "`lanes_in` int8", "LOAD, VECTOR", "GEMM, VECTOR, STORE", "activations"),
    (Memory.WGT, "`lanes_out` int8", "LOAD", "GEMM", "weights; a tile is `lanes_in` rows"),
    (Memory.ACC, "`lanes_out` int32", "GEMM, VECTOR", "GEMM, VECTOR, STORE", "accumulators"),
    (
        Memory.PARAM,
        "`vector_lanes` x (bias int32, scale binary32)",
        "LOAD",
        "VECTOR",
        "per-channel constants",
    ),
    (Memory.LUT, "4 bytes of a table of 256 int8", "LOAD", "VECTOR", "index `uint8(x + 128)`"),
)

CODES: dict[tuple[str, str], Sequence[IntEnum]] = {
    ("load", "destination"): (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT),
    ("vector", "reduce"): tuple(Reduce),
    ("store", "source"): SOURCES,
    ("sync", "target"): tuple(Unit),
}
"""What the codes of a field stand for, from 0 upwards; others are illegal."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "load": (
        (
            "load destination=act length=48 memory=0x1000 local=64 loop[10: memory 160, local 48]",
            "ten lines of an image, 48 bytes from each line of 160, packed from byte 64 of ACT",
        ),
        (
            "load destination=act fill value=0x80 length=16 local=0 loop[9: local 160] wait=gemm",
            "a column of padding, one row of ACT a line, after GEMM has given a token",
        ),
    ),
    "gemm": (
        (
            "gemm act=0 wgt=0 acc=0 tile[3: act 10, wgt 3] tile[3: act 1, wgt 1]"
            " row[8: act 10, acc 8] row[8: act 1, acc 1] wait=load signal=vector",
            "a 3x3 convolution of an 8x8 tile from a 10x10 input window: both tile loops are "
            "reductions (`acc` stands still), so that the first of nine tiles overwrites",
        ),
        (
            "gemm depthwise act=0 wgt=0 acc=0 tile[3: act 10, wgt 1] row[8: act 10, acc 10]"
            " row[10: act 1, acc 1] wait=load signal=vector",
            "a depthwise 3x3 convolution of the same tile, a line of the window at a time: the "
            "first two of ten accumulators of a line are incomplete, and left unread",
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
"""Assembly lines and what they do, per mnemonic; the manual prints them as parsed."""


def manual(configuration: Configuration = DEFAULT) -> str:
    """The manual, with field widths of one configuration, as Markdown."""
    parts = (
        _introduction(configuration),
        _machine(configuration),
        _parameters(),
        _order(configuration),
        _words(configuration),
        _instructions(configuration),
        _numbers(),
        _rules(),
        _registers(),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


# Text -------------------------------------------------------------------------------------------


def _sections(thing: object) -> dict[str, str]:
    """NumPy-style docstring by section title; the text before the first one under `""`."""
    text = inspect.getdoc(thing) or ""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    return {
        "": parts[0].strip(),
        **dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True)),
    }


def _entries(section: str) -> list[tuple[str, str]]:
    """`(names, text)` of a Parameters section."""
    pairs = re.findall(r"^(\S.*)\n((?:[ ]+.*\n?)+)", section + "\n", flags=re.MULTILINE)
    return [(names.strip(), " ".join(text.split())) for names, text in pairs]


def _ticks(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + " --- |" * len(header)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
    yield ""


def _paragraphs(text: str) -> Iterator[str]:
    for block in dedent(text).strip().split("\n\n"):
        plain = not re.match(r"[|*#]|\s", block)
        yield from (
            textwrap.wrap(block, 100, break_on_hyphens=False) if plain else block.splitlines()
        )
        yield ""


# Chapters ---------------------------------------------------------------------------------------


def _introduction(configuration: Configuration) -> Iterator[str]:
    yield from _paragraphs(
        f"""
        # Instruction set manual

        Generated by `python -m tilewright.isa.manual` from `isa/`; do not edit. Contract version
        {CONTRACT_VERSION}. Widths and sizes in numbers are those of configuration
        `{configuration.name}`; for any other they follow from the same formulas.

        [Machine](#machine) | [Parameters](#parameters) | [Order and tokens](#order-and-tokens) |
        [Words](#words) | [Instructions](#instructions) | [Numbers](#numbers) |
        [What a program must keep](#what-a-program-must-keep) | [Registers](#registers)
        """
    )


def _machine(configuration: Configuration) -> Iterator[str]:
    yield from _paragraphs(
        """
        ## Machine

        FETCH reads instructions from memory and hands them, in program order, to the queues of
        four units that run concurrently:

        | unit | code | does |
        | --- | --- | --- |
        | LOAD | 0 | memory to ACT, WGT, PARAM, LUT, or a constant byte there |
        | GEMM | 1 | ACC (+)= ACT x WGT, one row of ACT against one weight tile per cycle |
        | VECTOR | 2 | everything else: bias, requantisation, residuals, pooling, look-ups |
        | STORE | 3 | ACT or ACC to memory |

        Five scratchpads lie between them. The banks of one are the top bits of one linear address;
        each has one read port and one write port, and at any time at most one unit uses each port.
        That is the program's duty: nothing arbitrates inside the core.
        """
    )
    yield from _table(
        ("scratchpad", "row", "banks x rows", "bytes", "written by", "read by", "holds"),
        (
            (
                memory.name,
                f"{row} ({configuration.row_bytes(memory)} bytes)",
                f"{configuration.banks(memory)} x {configuration.depth(memory)}",
                configuration.size_bytes(memory),
                writers,
                readers,
                holds,
            )
            for memory, row, writers, readers, holds in SCRATCHPADS
        ),
    )
    yield from _paragraphs(
        """
        Values of several bytes are little endian. VECTOR sees ACT and ACC as *slices* of
        `vector_lanes` values, several to a row where rows are wider. Main memory is addressed by a
        byte offset into the data window, which `DATA_BASE` and `DATA_BYTES` place; an access beyond
        it stops the machine with `OUT_OF_WINDOW`. Scratchpads are zero after reset and keep their
        contents between programs.
        """
    )


def _parameters() -> Iterator[str]:
    yield from ("## Parameters", "")
    yield from _paragraphs(
        """
        Any combination of these is either built, and correct, or refused with a sentence that
        names the broken rule. Everything else in this manual follows from them.
        """
    )
    entries = _entries(_sections(Configuration)["Parameters"])
    yield from _table(("parameter", "meaning"), ((_ticks(n), text) for n, text in entries))
    yield "The presets, the bytes of an instruction word, and the hash that `CONFIGURATION` reads:"
    yield ""
    rows: list[tuple[object, ...]] = [
        (f"`{n}`", *(p.parameters()[n] for p in PRESETS.values())) for n in DEFAULT.parameters()
    ]
    rows.append(("word bytes", *(word_bytes(p) for p in PRESETS.values())))
    rows.append(("hash", *(f"`{p.hash:08x}`" for p in PRESETS.values())))
    yield from _table(("", *PRESETS), rows)


def _order(configuration: Configuration) -> Iterator[str]:
    yield from _paragraphs(
        f"""
        ## Order and tokens

        The meaning of a program is what its instructions do one after the other. Units run ahead of
        each other only as far as tokens let them, and tokens must make every such execution equal
        to program order; the checker proves that they do.

        There is a token counter for each ordered pair of units, {configuration.token_bits} bits
        wide (`token_bits`): it holds up to {configuration.token_limit} tokens. An instruction
        starts when every unit of its `wait` mask has a token for its own unit, and takes one of
        each. When it is complete it gives one to each unit of its `signal` mask; while one of those
        counters is full it is not complete. A LOAD is complete when all its bytes are in the
        scratchpad, a STORE when memory has acknowledged all its writes. A unit starts and completes
        its instructions in order, so that the n-th signal from one unit to another meets the n-th
        wait, whatever the timing.

        Bits of a mask are the three other units in ascending order:
        """
    )
    rows = ((unit.name, *(other.name for other in peers(unit))) for unit in Unit)
    yield from _table(("unit", "bit 0", "bit 1", "bit 2"), rows)


def _words(configuration: Configuration) -> Iterator[str]:
    layout = FAMILIES[0].layout(configuration)
    header = ", ".join(f"`{f.name}` ({f.bits} bits)" for f in layout[:3])
    yield from _paragraphs(
        f"""
        ## Words

        Every instruction is a word of {word_bytes(configuration)} bytes, little endian: the widest
        family's fields, padded to a multiple of {WORD_MULTIPLE_BYTES} bytes. Fields follow each
        other from bit 0 without gaps, each family's in its own layout, and all begin with
        {header}. Extents and lengths are stored minus one; strides are two's complement, one bit
        wider than the address that they move. Padding is written as zero and ignored. The encoder
        refuses a value that does not fit, naming field and range. An unknown opcode or code stops
        the machine with `ILLEGAL_INSTRUCTION`.

        **Loop nests.** An instruction is a perfect nest of counted loops, outermost first. The
        address of an operand is its base plus, for each loop, index times stride; operands count in
        their own units, and a loop moves only the operands that its nest names. Loops that are not
        used stand outermost with extent 1.
        """
    )
    rows = []
    for family in FAMILIES:
        unit = family.unit.name if family.unit is not None else "-"
        bits = width(family.layout(configuration))
        rows.append((family.opcode, f"[{family.mnemonic}](#{family.mnemonic})", unit, bits))
    yield from _table(("opcode", "instruction", "unit", "bits used"), rows)


def _instructions(configuration: Configuration) -> Iterator[str]:
    yield from ("## Instructions", "")
    for family in FAMILIES:
        yield from _family(family, configuration)


def _family(family: type[Instruction], configuration: Configuration) -> Iterator[str]:
    sections = _sections(family)
    yield from (f"### {family.mnemonic}", "")
    yield from _paragraphs(sections[""])
    yield from (*textwrap.indent(family.law, "    ").splitlines(), "")
    yield from (f"Time: {family.time}.", "")
    if "Parameters" in sections:
        entries = _entries(sections["Parameters"])
        yield from _table(("field", "meaning"), ((_ticks(n), text) for n, text in entries))
    yield from _layout(family, configuration)
    if family is Vector:
        yield from _operations(configuration)
    for line, text in EXAMPLES[family.mnemonic]:
        yield from ("```", format_instruction(parse_instruction(line)), "```", "")
        yield from (text[0].upper() + text[1:] + ".", "")


def _operations(configuration: Configuration) -> Iterator[str]:
    yield from _paragraphs(
        f"""
        What `x` is of a step's operands, by the code of `combine`. A configuration declares more
        operations in `extra_operations`, each as `name = law`. A law is an expression of `a`, `b`,
        `a_multiplier` and `b_multiplier`, written with {laws.FORMS}. The machine takes it as a sum
        of two products, one of {vector_operations.FIRST_BITS} by {vector_operations.FACTOR_BITS}
        bits and one of {vector_operations.SECOND_BITS} by {vector_operations.FACTOR_BITS}, and
        refuses one that is not; every operation takes one cycle a step. The hash covers the laws.
        """
    )
    rows = (
        (code, f"`{operation.name}`", f"`{operation.law}`")
        for code, operation in enumerate(configuration.operations)
    )
    yield from _table(("code", "operation", "x"), rows)


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
    yield from _table(("bits", "width", "field", "values"), rows)
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
        yield from _table(("bits of the level", "width", "field", "values"), rows)
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


def _numbers() -> Iterator[str]:
    yield from ("## Numbers", "")
    yield from _paragraphs((numbers.__doc__ or "").partition("\n\n")[2])
    yield from _paragraphs(
        f"`SATURATED` is {numbers.SATURATED}; look-ups index by the result + 128."
    )
    for function in (numbers.requantise, numbers.requantise_integer, numbers.quantise_output):
        sections = _sections(function)
        yield from (f"### {function.__name__}", "")
        yield from _paragraphs(sections[""])
        for title in ("Returns", "Notes"):
            if title in sections:
                yield from _paragraphs(f"*{title}.* " + " ".join(sections[title].split()))


def _rules() -> Iterator[str]:
    yield from ("## What a program must keep", "")
    yield from _paragraphs(checker.__doc__ or "")
    yield from ("### Conflicts", "")
    yield from _paragraphs(_sections(footprints.conflicts)[""])
    yield from (f"### GEMM: accumulator rows rest {GEMM_REVISIT_STEPS} steps", "")
    yield from _paragraphs(_sections(legality.gemm_faults)[""])
    yield from ("### VECTOR: banks and late reads", "")
    yield from _paragraphs(_sections(legality.vector_faults)[""])


def _registers() -> Iterator[str]:
    yield from ("## Registers", "")
    yield from _paragraphs(
        f"""
        32-bit registers over AXI4-Lite, {REGISTER_SPACE_BYTES} bytes. Writing 1 to `CONTROL` starts
        the program at `PROGRAM_BASE`; a second start is ignored while busy. Performance counters
        begin at zero with each start. A program carries the hash of the configuration that it was
        built for; a driver refuses one that `CONFIGURATION` does not equal.
        """
    )
    yield from _table(
        ("offset", "register", "host", "meaning"),
        (
            (f"`0x{r.offset:02X}`", f"`{r.name}`", "read, write" if r.writable else "read", r.text)
            for r in REGISTERS
        ),
    )
    yield from ("Error codes in `STATUS`:", "")
    yield from _table(("code", "error"), ((int(e), f"`{e.name}`") for e in Error))


def main() -> None:
    """Rewrite the manual."""
    MANUAL.parent.mkdir(exist_ok=True)
    MANUAL.write_text(manual())
    print(f"wrote {MANUAL.name}: {len(MANUAL.read_text().splitlines())} lines")


if __name__ == "__main__":
    main()
