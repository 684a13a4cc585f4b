"""Assembly text: one instruction per line, derived from the families' declarations.

    load destination=act length=48 memory=0x200 local=0 loop[10: memory 48, local 48] signal=gemm
    gemm act=0 wgt=0 acc=0 tile[3: act 1, wgt 1, acc 0] row[7: act 2, acc 1] wait=load
    halt

Fields at their default are omitted. A flag is its bare name. Loops are written outermost first;
omitted strides are zero. `#` starts a comment. `parse_program(format_program(p)) == p` for every
program.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import IntEnum
from typing import Any

from ..errors import IsaError, did_you_mean
from .configuration import Configuration
from .instructions import FAMILIES, Instruction, Loop, Unit
from .vector_operations import OPERATIONS, Operation

BY_MNEMONIC: dict[str, type[Instruction]] = {family.mnemonic: family for family in FAMILIES}

_MASKS = ("wait", "signal")
_TOKEN = re.compile(r"(?P<loop>\w+)\[(?P<body>[^\]]*)\]|(?P<name>\w+)(?:=(?P<value>\S*))?(?=\s|$)")


def loop_keyword(nest: str) -> str:
    """Keyword of a nest's loops: `tile` for `tile_loops`, `loop` for `loops`."""
    return nest.removesuffix("_loops") if nest.endswith("_loops") else nest.removesuffix("s")


def plain_fields(family: type[Instruction]) -> tuple[Field, ...]:
    """Fields of a family that are neither loops nor token masks, in order."""
    return tuple(f for f in fields(family) if f.name not in family.nests and f.name not in _MASKS)


def format_instruction(instruction: Instruction) -> str:
    """Format one instruction as one line."""
    family = type(instruction)
    words = [instruction.mnemonic]
    for field in plain_fields(family):
        value = getattr(instruction, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        if field.type is bool:
            words.append(field.name)
        elif isinstance(value, IntEnum):
            words.append(f"{field.name}={value.name.lower()}")
        elif isinstance(value, Operation):
            words.append(f"{field.name}={value.name}")
        else:
            words.append(f"{field.name}={value}")
    for nest, moved in family.nests.items():
        for loop in getattr(instruction, nest):
            strides = ", ".join(f"{n} {s}" for n, s in zip(moved, loop.strides, strict=True))
            words.append(f"{loop_keyword(nest)}[{loop.extent}: {strides}]")
    for mask in _MASKS:
        units = sorted(getattr(instruction, mask))
        if units:
            words.append(f"{mask}={','.join(unit.name.lower() for unit in units)}")
    return " ".join(words)


def format_program(
    program: Sequence[Instruction], comments: Mapping[int, str] | None = None
) -> str:
    """One line per instruction.

    Parameters
    ----------
    comments
        Text to print above the instruction with that index, for example the layer's name.
    """
    lines = []
    for index, instruction in enumerate(program):
        for comment in (comments or {}).get(index, "").splitlines():
            lines.append(f"# {comment}")
        lines.append(format_instruction(instruction))
    return "\n".join(lines) + "\n"


def parse_program(
    text: str, source: str = "assembly", configuration: Configuration | None = None
) -> tuple[Instruction, ...]:
    """Inverse of `format_program`.

    Parameters
    ----------
    source
        File name for messages.
    configuration
        The machine whose operations the text may name; by default only the standard operations.

    Raises
    ------
    IsaError
        When a line is wrong; the message has source, line and expected syntax.
    """
    program = []
    for number, line in instruction_lines(text):
        try:
            program.append(parse_instruction(line, configuration))
        except IsaError as problem:
            raise IsaError(f"{source}, line {number}: {problem}") from None
    return tuple(program)


def instruction_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold an instruction, without comments, and their numbers from 1."""
    for number, line in enumerate(text.splitlines(), 1):
        if code := line.partition("#")[0].strip():
            yield number, code


def parse_instruction(line: str, configuration: Configuration | None = None) -> Instruction:
    """Inverse of `format_instruction`; `configuration` is as in `parse_program`.

    Raises
    ------
    IsaError
        When the line is not an instruction.
    """
    mnemonic, _, rest = line.strip().partition(" ")
    family = BY_MNEMONIC.get(mnemonic.lower())
    if family is None:
        raise IsaError(f"unknown mnemonic {_one_of(mnemonic, BY_MNEMONIC)}")
    plain = {field.name: field for field in plain_fields(family)}
    keywords = {loop_keyword(nest): nest for nest in family.nests}
    loops: dict[str, list[Loop]] = {nest: [] for nest in family.nests}
    arguments: dict[str, Any] = {}
    rest, position = rest.strip(), 0
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise IsaError(
                f"{mnemonic}: cannot read `{rest[position:].split()[0]}`; expected `name`, "
                "`name=value` or `name[extent: operand stride, ...]`"
            )
        position = match.end() + len(rest[match.end() :]) - len(rest[match.end() :].lstrip())
        if match["loop"] is not None:
            nest = keywords.get(match["loop"])
            if nest is None:
                raise IsaError(f"{mnemonic}: unknown loop {_one_of(match['loop'], keywords)}")
            loops[nest].append(_parse_loop(match["loop"], match["body"], family.nests[nest]))
            continue
        name, value = match["name"], match["value"]
        if name in arguments:
            raise IsaError(f"{mnemonic}: `{name}` is given twice")
        if name in _MASKS:
            arguments[name] = frozenset(_code(name, v, Unit) for v in (value or "").split(","))
        elif name in plain:
            arguments[name] = _parse_value(plain[name], value, configuration)
        else:
            takers = [f for f in plain.values() if name.lower() in _words(f, configuration)]
            if takers and value is None:
                written = " or ".join(f"`{field.name}={name}`" for field in takers)
                raise IsaError(f"{mnemonic}: `{name}` is no field; write {written}")
            raise IsaError(f"{mnemonic}: unknown field {_one_of(name, [*plain, *_MASKS])}")
    missing = [n for n, f in plain.items() if f.default is MISSING and n not in arguments]
    if missing:
        raise IsaError(f"{mnemonic}: field `{missing[0]}` is missing; add `{missing[0]}=...`")
    arguments |= {nest: tuple(given) for nest, given in loops.items()}
    return family(**arguments)


def _parse_value(field: Field, text: str | None, configuration: Configuration | None) -> object:
    if field.type is bool:
        if text is not None:
            raise IsaError(f"flag `{field.name}` takes no value; write the name alone or omit it")
        return True
    if field.type is Operation:
        return _operation(field.name, text or "", configuration)
    if isinstance(field.type, type) and issubclass(field.type, IntEnum):
        return _code(field.name, text or "", field.type)
    return _number(field.name, text or "")


def _code(name: str, text: str, codes: type[IntEnum]) -> IntEnum:
    try:
        return codes[text.upper()]
    except KeyError:
        known = [code.name.lower() for code in codes]
        raise IsaError(f"field `{name}`: unknown value {_one_of(text, known)}") from None


def _words(field: Field, configuration: Configuration | None) -> list[str]:
    """Return the values of a field that are words."""
    if field.type is Operation:
        return [each.name for each in _operations(configuration)]
    if isinstance(field.type, type) and issubclass(field.type, IntEnum):
        return [name.lower() for name in field.type.__members__]
    return []


def _operations(configuration: Configuration | None) -> Sequence[Operation]:
    return OPERATIONS if configuration is None else configuration.operations


def _operation(name: str, text: str, configuration: Configuration | None) -> Operation:
    operations = _operations(configuration)
    for operation in operations:
        if operation.name == text.lower():
            return operation
    known = [operation.name for operation in operations]
    raise IsaError(f"field `{name}`: unknown value {_one_of(text, known)}")


def _one_of(word: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown word: it, the known ones and a similar one."""
    return f"`{word}`; expected one of {', '.join(known) or 'none'}{did_you_mean(word, known)}"


def _number(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise IsaError(f"field `{name}`: expected a whole number, got `{text}`") from None


def _parse_loop(keyword: str, body: str, moved: tuple[str, ...]) -> Loop:
    extent, _, rest = body.partition(":")
    strides = dict.fromkeys(moved, 0)
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        name, _, stride = part.partition(" ")
        if name not in strides:
            raise IsaError(
                f"loop `{keyword}`: unknown operand `{name}`; expected one of {', '.join(moved)}"
            )
        strides[name] = _number(f"{keyword}.{name}", stride.strip())
    return Loop(_number(f"{keyword}.extent", extent.strip()), tuple(strides.values()))
