"""The stored form of a kernel: a header, an object file, a checksum, and this user's mark.

The mark covers header and object file, so it holds for one description, target and release. Code
without it may be a stranger's. Before such code is loaded, `check_object` proves that the linker
can place it: a damaged object file makes LLVM end the process.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from ....errors import CompileError
from ....signing import is_signed, sign
from ..instructions import Architecture

MAGIC = b"tilewright-cpu-kernel-4\n"
"""First bytes of stored kernels; the number changes with the format of the header."""

KNOWN_EXTERNAL = ("memcpy", "memmove", "memset")
"""Functions of the C library that LLVM calls on its own."""

FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
IDENTITY = b"\x7fELF\x02\x01\x01"
"""A 64-bit little-endian ELF file."""
SYMBOLS, STRINGS, WITH_ADDENDS, EMPTY = 2, 3, 4, 8
"""Types of the sections that the loader interprets: symbols, their names, relocations, zeros."""
PLAIN = (0, 1, 7)
"""Other section types of kernels: none, bytes, and notes; an architecture may have its own."""
EXECUTABLE = 4
"""The section flag of machine code."""
RESERVED = 0xFF00
"""Section indices from here on have other meanings."""
MAX_BYTES = 1 << 26
"""Memory that sections may ask for."""


def seal(header: Mapping[str, Any], code: bytes) -> bytes:
    """Join header and object file, with their checksum and this user's mark."""
    rest = json.dumps(header).encode() + b"\n" + code
    lines = (hashlib.sha256(rest).hexdigest(), sign(rest))
    return MAGIC + "\n".join(lines).encode() + b"\n" + rest


def unseal(data: bytes) -> tuple[dict[str, Any], bytes, bool]:
    """Return header, object file, and whether this user's key signed them.

    Raises
    ------
    CompileError
        When the bytes are not a kernel, or are damaged.
    """
    if not data.startswith(MAGIC):
        raise CompileError("these bytes are not a kernel of the CPU target; compile it again")
    digest, _, rest = data.removeprefix(MAGIC).partition(b"\n")
    mark, _, rest = rest.partition(b"\n")
    if digest != hashlib.sha256(rest).hexdigest().encode():
        raise CompileError("the code of a kernel is damaged or truncated; compile it again")
    text, _, code = rest.partition(b"\n")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise CompileError("the header of a kernel is not a JSON object; compile it again")
    return header, code, is_signed(rest, mark.decode(errors="replace"))


def check_object(code: bytes, entry: str, architecture: Architecture) -> None:
    """Reject an object file that the linker cannot place, or that lacks its function.

    Raises
    ------
    CompileError
        When there is a fault; the message names the first one.
    """
    try:
        fault = next(_faults(code, entry, architecture), None)
    except (struct.error, IndexError):
        fault = "a table that ends too early"
    if fault is not None:
        raise CompileError(f"the object file of a kernel has {fault}; compile it again")


def _faults(code: bytes, entry: str, architecture: Architecture) -> Iterator[str]:
    """Yield every fault of an object file as text."""
    header = FILE_HEADER.unpack_from(code)
    identity, kind, machine, _, _, _, table, _, _, _, _, size, count, names = header
    if not identity.startswith(IDENTITY) or (kind, machine) != (1, architecture.machine):
        yield f"another format than an ELF object file for {architecture.name}"
        return
    if size != SECTION.size or table % 8 or table + count * size > len(code) or names >= count:
        yield "sections outside the file"
        return
    sections = [SECTION.unpack_from(code, table + index * size) for index in range(count)]
    memory = 0
    known = (SYMBOLS, STRINGS, WITH_ADDENDS, EMPTY, *PLAIN, *architecture.sections)
    if any(section[1] not in known for section in sections):
        yield "a section of an unknown type"
        return
    for _, what, _, _, offset, length, _, _, alignment, _ in sections:
        memory += length + alignment
        if alignment & (alignment - 1) or memory > MAX_BYTES:
            yield "a section of an impossible size"
            return
        if what != EMPTY and offset + length > len(code):
            yield "a section outside the file"
            return
    tables = [section for section in sections if section[1] == SYMBOLS]
    if len(tables) != 1 or tables[0][6] >= count or sections[tables[0][6]][1] != STRINGS:
        yield "no table of symbols"
        return
    for section in sections:
        if section[1] in (STRINGS, SYMBOLS) and not section[5]:
            yield "an empty table"
            return
    symbols = [SYMBOL.unpack_from(code, at) for at in _entries(tables[0], SYMBOL.size)]
    strings = _bytes(code, sections[tables[0][6]])
    if strings[-1:] != b"\0" or _bytes(code, sections[names])[-1:] != b"\0":
        yield "names without an end"
        return
    if any(section[0] >= sections[names][5] for section in sections):
        yield "a section without a name"
    found = False
    for index, (name, _, _, place, value, _) in enumerate(symbols):
        if name >= len(strings):
            yield "a symbol without a name"
            return
        text = strings[name : strings.index(b"\0", name)].decode(errors="replace")
        if place == 0 and index and text not in KNOWN_EXTERNAL:
            yield f"the unknown external symbol `{text:.60}`"
        if 0 < place < RESERVED and (place >= count or value > sections[place][5]):
            yield f"the symbol `{text:.60}` outside its section"
            return
        if text == entry and 0 < place < RESERVED:
            found = bool(sections[place][2] & EXECUTABLE) and value < sections[place][5]
    if not found:
        yield f"no function `{entry}`"
    for section in sections:
        yield from _relocation_faults(
            code, section, sections, len(symbols), architecture.relocations
        )


def _relocation_faults(
    code: bytes, section: tuple, sections: list, symbols: int, known: Mapping[int, int]
) -> Iterator[str]:
    """Yield every fault of a section of relocations as text."""
    if section[1] != WITH_ADDENDS:
        return
    if section[7] >= len(sections) or section[9] != RELOCATION.size or section[5] % section[9]:
        yield "relocations of no section"
        return
    size = sections[section[7]][5]
    for at in _entries(section, RELOCATION.size):
        place, what, _ = RELOCATION.unpack_from(code, at)
        if what & 0xFFFFFFFF not in known or what >> 32 >= symbols:
            yield "an unknown relocation"
        elif place + known[what & 0xFFFFFFFF] > size:
            yield "a relocation outside its section"


def _entries(section: tuple, size: int) -> range:
    """Offsets of the entries of a section."""
    return range(section[4], section[4] + section[5] // size * size, size)


def _bytes(code: bytes, section: tuple) -> bytes:
    return code[section[4] : section[4] + section[5]]
