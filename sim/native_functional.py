"""The fast functional simulation: compiled code with exactly the results of `isa.semantics`.

The C++ is compiled once per number of lanes, number of taps and set of VECTOR operations, for this
processor. Without a compiler, `functional.FunctionalMachine` gives the same results in NumPy, about
a hundred times slower.
"""

import ctypes
from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from ..errors import ProgramError, ToolError
from ..isa import row_statistics
from ..isa.configuration import Configuration, Memory
from ..isa.encoding import decode, encode_program, word_bytes
from ..isa.instructions import Instruction
from ..isa.semantics import Machine, check_bounds
from .decode import decode_words, headers, native_decoder
from .functional import FunctionalMachine
from .native import NATIVE_FLAGS, build_native
from .operations_header import HEADER, operations_header
from .toolchain import progress

SOURCES = (
    "native_functional.cpp",
    "machine.h",
    "multiply_tile.h",
    "vector_kind.h",
    "vector_rows.h",
    "vector_step.h",
)


class NativeMachine(Machine):
    """`isa.semantics.Machine`, compiled.

    A program that exceeds a memory is rejected before anything is executed.

    Raises
    ------
    ToolError
        Without a compiler.
    """

    flags: tuple[str, ...] = NATIVE_FLAGS

    def __init__(self, configuration: Configuration, dram: np.ndarray) -> None:
        super().__init__(configuration, dram)
        self._library = _library(configuration, self.flags)

    def run(self, program: Iterable[Instruction]) -> None:
        """Execute in program order up to HALT.

        Raises
        ------
        ProgramError
            When an access exceeds a memory; the message names index and operand.
        IsaError
            When an instruction cannot be encoded.
        """
        self.run_words(encode_program(program, self.configuration))

    def execute(self, instruction: Instruction, index: int = 0) -> None:
        self.run([instruction])

    def run_words(self, code: bytes) -> None:
        """Execute instruction words; the last few decoded programs are cached.

        Raises
        ------
        ProgramError
            When an access exceeds a memory; the message names index and operand.
        IsaError
            For illegal words.
        """
        rows = _decoded(code, self.configuration)
        state = _State()
        for memory, contents in self.memories.items():
            state.memories[memory] = contents.ctypes.data
            state.bytes[memory] = contents.size
        refused = self._library.tilewright_run(
            ctypes.byref(state), ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(len(rows))
        )
        if refused >= 0:
            self._refuse(code, refused)

    def _refuse(self, code: bytes, index: int) -> None:
        size = word_bytes(self.configuration)
        instruction = decode(code[index * size : (index + 1) * size], self.configuration)
        check_bounds(instruction, self.configuration, self.memories[Memory.DRAM].size, index)
        raise ProgramError(f"instruction {index} ({instruction.mnemonic}): cannot be executed")


class _State(ctypes.Structure):
    """The C++ struct `Machine`: address and size of each memory."""

    _fields_ = (
        ("memories", ctypes.c_void_p * len(Memory)),
        ("bytes", ctypes.c_int64 * len(Memory)),
    )


@lru_cache(maxsize=16)
def _decoded(code: bytes, configuration: Configuration) -> np.ndarray:
    return decode_words(code, configuration)


@cache
def _library(configuration: Configuration, flags: tuple[str, ...]) -> ctypes.CDLL:
    sizes = "lanes_in", "lanes_out", "vector_lanes", "packed_row_bytes"
    sizes += "depthwise_taps", "window_lines"
    numbers = ", ".join(f"{name.upper()} = {getattr(configuration, name)}" for name in sizes)
    header = f"#pragma once\nnamespace tilewright {{ constexpr int {numbers}; }}\n"
    generated = {
        "lanes.h": header,
        **headers(),
        HEADER: operations_header(configuration.operations),
        "reciprocals.h": _reciprocals_header(),
    }
    library = ctypes.CDLL(str(build_native("functional", SOURCES, flags, generated)))
    library.tilewright_run.restype = ctypes.c_int64
    return library


def _reciprocals_header() -> str:
    """Constants and tables of `isa.row_statistics` as C++."""
    names = (
        "FRACTION_BITS", "WIDE_LIMIT", "SIGNIFICANT_BITS", "CELL_BITS", "INTERPOLATION_BITS",
        "SUM_BITS", "SPREAD_BITS",
    )  # fmt: skip
    lines = ["#pragma once", "#include <cstdint>", "namespace tilewright {"]
    lines += [f"constexpr int {name} = {getattr(row_statistics, name)};" for name in names]
    for octaves, name in enumerate(("RECIPROCALS", "INVERSE_ROOTS"), 1):
        table = ", ".join(map(str, row_statistics.entries(octaves)))
        lines.append(f"constexpr std::int32_t {name}[] = {{{table}}};")
    return "\n".join([*lines, "}", ""])


def functional_machine(configuration: Configuration) -> type[Machine]:
    """The fastest available functional simulator: compiled, or NumPy's without a compiler.

    One warning on stderr gives the reason for the slow one.
    """
    try:
        native_decoder()
        _library(configuration, NativeMachine.flags)
    except ToolError as problem:
        _say_once(str(problem).partition("\n")[0])
        return FunctionalMachine
    return NativeMachine


@cache
def _say_once(reason: str) -> None:
    progress(f"{reason}; using the slower simulation in NumPy instead", "sim")
