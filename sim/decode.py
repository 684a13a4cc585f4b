"""Programs as tables of integers, decoded in C++, for the compiled simulators.

A row is an instruction, a column is a field. All configurations share the columns, so one library
serves them all. The C++ knows the columns by name from a header that this module generates.
"""

import ctypes
from functools import cache

import numpy as np

from ..isa import numbers
from ..isa.configuration import DEFAULT, OPTIONS, PARAMETERS, Configuration, Memory
from ..isa.encoding import decode_program, word_bytes
from ..isa.instructions import (
    FAMILIES,
    Gemm,
    Halt,
    Instruction,
    ReduceMode,
    ResultKind,
    Statistic,
    Unit,
    Vector,
)
from ..isa.instructions.load import DESTINATIONS
from ..isa.instructions.store import SOURCES
from ..isa.pipeline import PIPELINE
from .native import build_native

LEVELS = 6
"""Loop levels of every nest in a row: the largest number that a configuration may have."""

_WITH_OPTIONS = DEFAULT.replace(**{name: PARAMETERS[name].choices[-1] for name in OPTIONS})
"""A machine whose words have every field."""

OPCODES = 16
"""Codes of the four opcode bits."""

HEADER = "columns.h"
"""File name of the generated header with the columns."""


@cache
def columns(family: type[Instruction]) -> dict[str, int]:
    """Column of each field of a family by its dotted name, with `LEVELS` levels in every nest.

    The columns of jumps hold strides.
    """
    names = ["opcode", "wait", "signal"]
    names += [field.name for field in family.immediates(_WITH_OPTIONS)]
    names += [operand.name for operand in family.operands]
    for nest, moved in family.nests.items():
        for level in range(LEVELS):
            names += [f"{nest}.{level}.{name}" for name in ("extent", *moved)]
    if family.reduced_operand:
        names += [f"{family.reduction_nest}.{level}.reduces" for level in range(LEVELS)]
    return {name: column for column, name in enumerate(names)}


COLUMNS = max(len(columns(family)) for family in FAMILIES)
"""Columns of a table."""


@cache
def column_header() -> str:
    """Columns, opcodes and codes as C++: `row[load::length]`; a nest's name is its first column."""
    lines = ["#pragma once", "#include <cstdint>", "namespace tilewright {"]
    lines.append(f"constexpr int COLUMNS = {COLUMNS}, LEVELS = {LEVELS};")
    lines.append("constexpr int OPCODE = 0, WAIT = 1, SIGNAL = 2;")
    for codes in (Memory, Unit):
        named = ", ".join(f"{code.name} = {int(code)}" for code in codes)
        lines.append(f"namespace {codes.__name__.lower()} {{ enum {{ {named} }}; }}")
    for codes in (ReduceMode, ResultKind, Statistic):
        named = ", ".join(f"{code.name} = {int(code)}" for code in codes)
        lines.append(f"enum class {codes.__name__} : std::int64_t {{ {named} }};")
    for family in FAMILIES:
        places = columns(family)
        named = {name: places[name] for name in places if "." not in name}
        named |= {nest: places[f"{nest}.0.extent"] for nest in family.nests}
        body = ", ".join(f"{name} = {column}" for name, column in named.items())
        lines.append(f"namespace {family.mnemonic} {{")
        lines.append(f"constexpr std::int64_t code = {family.opcode};")
        lines.append(f"enum {{ {body} }};")
        lines.append("}")
    return "\n".join([*lines, "}", ""])


def constants_header() -> str:
    """Constants of `isa.pipeline` and `isa.numbers`, and sizes of lists, as C++."""
    values = {constant.name: constant.value for constant in PIPELINE}
    values |= {"SATURATED": numbers.SATURATED, "EXACT_LIMIT": numbers.EXACT_LIMIT}
    values |= {"UNITS": len(Unit), "DESTINATIONS": len(DESTINATIONS), "SOURCES": len(SOURCES)}
    lines = ["#pragma once", "#include <cstdint>", "namespace tilewright {"]
    lines += [f"constexpr std::int32_t {name} = {value};" for name, value in values.items()]
    return "\n".join([*lines, "}", ""])


@cache
def _tables(configuration: Configuration) -> tuple[np.ndarray, ...]:
    """Tables for `decode.h`: fields, moves, families by opcode, idle rows by opcode."""
    fields: list[tuple[int, int, int, int, int]] = []
    moves: list[tuple[int, int, int, int]] = []
    families = np.zeros((OPCODES, 4), dtype=np.int64)
    idle = np.zeros((OPCODES, COLUMNS), dtype=np.int64)
    for family in FAMILIES:
        places, bit, first, first_move = columns(family), 0, len(fields), len(moves)
        for field in family.layout(configuration):
            if field.bits:
                column = places[field.name]
                fields.append((column, bit, field.bits, int(field.signed), field.offset))
            bit += field.bits
        for operand in family.operands:
            levels = [
                (places[level.extent.name], places[jump.field.name], jump.field.bits)
                for nest in family.loop_fields(configuration).nests.values()
                for level in nest
                for jump in level.jumps
                if jump.operand == operand.name
            ]
            moves += [(*level, int(level is levels[-1])) for level in reversed(levels)]
        families[family.opcode] = first, len(fields), first_move, len(moves)
        extents = [places[name] for name in places if name.endswith(".extent")]
        idle[family.opcode, extents] = 1
    return np.array(fields, dtype=np.int64), np.array(moves, dtype=np.int64), families, idle


@cache
def native_decoder() -> ctypes.CDLL:
    """The library of `decode_words`.

    Raises
    ------
    ToolError
        Without a compiler.
    """
    return _load(str(build_native("decode", ["decode.cpp", "decode.h"], generated=headers())))


def headers() -> dict[str, str]:
    """The headers that follow from the contract, for `build_native`."""
    return {HEADER: column_header(), "constants.h": constants_header()}


@cache
def _load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.tilewright_decode.restype = ctypes.c_int64
    return library


def decode_words(code: bytes, configuration: Configuration) -> np.ndarray:
    """Decode a program, several million instructions a second.

    Parameters
    ----------
    code
        Instruction words.

    Returns
    -------
    int64[instructions, COLUMNS]
        Values by `columns` of the instruction's family; other columns are 0. Values are as encoded,
        even if they have no effect (a fill's address in main memory).

    Raises
    ------
    IsaError
        As `isa.encoding.decode_program`.
    ToolError
        Without a compiler.
    """
    size = word_bytes(configuration)
    if len(code) % size:
        decode_program(code, configuration)
    count = len(code) // size
    rows = np.empty((count, COLUMNS), dtype=np.int64)
    done = native_decoder().tilewright_decode(
        code,
        ctypes.c_int64(count),
        ctypes.c_int64(size),
        *(ctypes.c_void_p(table.ctypes.data) for table in _tables(configuration)),
        ctypes.c_void_p(rows.ctypes.data),
    )
    if done != count or _meaningless(rows, configuration).any():
        decode_program(code, configuration)
    return rows


def _meaningless(rows: np.ndarray, configuration: Configuration) -> np.ndarray:
    """Instructions that `decode` rejects, bool[instructions]."""
    opcode = rows[:, 0]
    vector, halt, gemm = columns(Vector), columns(Halt), columns(Gemm)
    tokens = (rows[:, halt["wait"]] | rows[:, halt["signal"]]) != 0
    bad_combine = rows[:, vector["combine"]] >= len(configuration.operations)
    bad_statistic = rows[:, vector["statistic"]] >= len(Statistic)
    bad_flag = np.zeros(len(rows), dtype=bool)
    for level in range(LEVELS):
        extent, stride, reduces = (
            rows[:, gemm[f"tile_loops.{level}.{name}"]] for name in ("extent", "acc", "reduces")
        )
        bad_flag |= (extent != 1) & (reduces != (stride == 0))
    return (
        (opcode == Vector.opcode) & (bad_combine | bad_statistic)
        | (opcode == Halt.opcode) & tokens
        | (opcode == Gemm.opcode) & bad_flag
    )
