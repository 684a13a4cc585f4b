"""Cores and boards for exported C: a core whose programs run on `sim`, a CPU with a cache."""

import ctypes
from pathlib import Path

import numpy as np

from tilewright.compiler.module import Module
from tilewright.flows.bare_metal.host_board import (
    CORE_BASE,
    DEFINITIONS,
    FLAGS,
    HEADER,
    HostBoard,
)
from tilewright.isa.configuration import CONTRACT_VERSION, Configuration
from tilewright.isa.registers import MAGIC, OFFSETS, Error
from tilewright.runtime import open_device
from tilewright.runtime.board import BUSY, DONE, ERROR, START, STOP

CACHED_HEADER = (
    """
#define TILEWRIGHT_WRITE_REGISTER(offset, value) (cache_prefetch(), board_write(offset, value))
#define TILEWRIGHT_READ_MEMORY(place) cache_read(place)
#define TILEWRIGHT_WRITE_MEMORY(place, byte) cache_write(place, byte)
#define TILEWRIGHT_FLUSH(place, bytes) cache_flush(place, bytes)
"""
    + HEADER
    + """
void cache_prefetch(void);
uint8_t cache_read(uint32_t);
void cache_write(uint32_t, uint8_t);
void cache_flush(uint32_t, uint32_t);
"""
)
CACHE = """
/* A cache that keeps each byte until it is flushed, and reads all others before they are used. */
enum { PLACES = 1 << 16, ABSENT = 0, CLEAN, DIRTY };
static uint8_t kept[PLACES], states[PLACES];
uint32_t board_bytes;

uint8_t cache_read(uint32_t place)
{
    if (states[place] == ABSENT) kept[place] = board_memory[place], states[place] = CLEAN;
    return kept[place];
}

void cache_prefetch(void)
{
    for (uint32_t place = 0; place < board_bytes && place < PLACES; ++place) cache_read(place);
}

void cache_write(uint32_t place, uint8_t byte)
{
    kept[place] = byte, states[place] = DIRTY;
}

void cache_flush(uint32_t place, uint32_t bytes)
{
    for (; bytes--; ++place) {
        if (states[place] == DIRTY) board_memory[place] = kept[place];
        states[place] = ABSENT;
    }
}
"""


class SimCore:
    """The registers of a core whose programs run on `sim`, in two polls."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.registers = dict.fromkeys(OFFSETS, 0)
        self.registers |= {"ID": MAGIC, "VERSION": CONTRACT_VERSION}
        self.registers["CONFIGURATION"] = configuration.hash
        self.fails, self.hangs = Error.NONE, False
        self.programs: list[int] = []

    def attach(self, memory: np.ndarray) -> None:
        self.memory = memory

    def read(self, register: str) -> int:
        value = self.registers[register]
        if register == "STATUS" and value == BUSY and not self.hangs:
            self.registers[register] = ERROR | self.fails << 4 if self.fails else DONE
        return value

    def write(self, register: str, value: int) -> None:
        if register != "CONTROL":
            self.registers[register] = value
        elif value == STOP:
            self.registers["STATUS"] = 0
        elif value == START:
            self._run()

    def _run(self) -> None:
        program, data = self._region("PROGRAM"), self._region("DATA")
        self.programs.append(program.size)
        with open_device("sim", self.configuration) as sim:
            sim.run(program.tobytes(), data)
        self.registers["STATUS"] = BUSY

    def _region(self, name: str) -> np.ndarray:
        start = self.registers[f"{name}_BASE"] - CORE_BASE
        return self.memory[start : start + self.registers[f"{name}_BYTES"]]


class CBoard(HostBoard):
    """A board whose C must compile without a warning.

    Parameters
    ----------
    cached
        Whether the CPU has a cache before the memory.
    """

    def __init__(self, module: Module, folder: Path, *, cached: bool = False) -> None:
        super().__init__(
            module, folder, header=CACHED_HEADER if cached else HEADER,
            definitions=DEFINITIONS + CACHE * cached, flags=f"{FLAGS} -Wconversion -Werror",
        )  # fmt: skip
        if cached:
            ctypes.c_uint32.in_dll(self.library, "board_bytes").value = self.memory.size
