"""An exported network in this process: its C compiled, its register accesses bridged to a core."""

import ctypes
import subprocess
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.module import Module
from tilewright.flows.bare_metal.folder import write_folder
from tilewright.flows.bare_metal.network import network_in_c
from tilewright.isa.configuration import CONTRACT_VERSION, Configuration
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import MAGIC, OFFSETS, Error
from tilewright.runtime import open_device
from tilewright.runtime.board import BUSY, DONE, ERROR, START, STOP
from tilewright.sim.harness import Harness
from tilewright.sim.rtl import build_core

LINE_BYTES = 64
CORE_BASE = 0x10000
"""The core's address of the memory; the CPU's is another."""

HEADER = """
#include <stdint.h>
extern uint8_t *board_memory;
extern uint32_t (*board_read)(uint32_t);
extern void (*board_write)(uint32_t, uint32_t);
extern uint32_t board_offset;
#define TILEWRIGHT_MEMORY board_memory
#define TILEWRIGHT_OFFSET (board_offset - (uintptr_t)board_memory)
#define TILEWRIGHT_READ_REGISTER(offset) board_read(offset)
#define TILEWRIGHT_POLLS 200000u
#ifndef CACHED
#define TILEWRIGHT_WRITE_REGISTER(offset, value) board_write(offset, value)
#else
#define TILEWRIGHT_WRITE_REGISTER(offset, value) (cache_prefetch(), board_write(offset, value))
void cache_prefetch(void);
uint8_t cache_read(uint32_t);
void cache_write(uint32_t, uint8_t);
void cache_flush(uint32_t, uint32_t);
#define TILEWRIGHT_READ_MEMORY(place) cache_read(place)
#define TILEWRIGHT_WRITE_MEMORY(place, byte) cache_write(place, byte)
#define TILEWRIGHT_FLUSH(place, bytes) cache_flush(place, bytes)
#endif
"""
DEFINITIONS = """
#include "board.h"
uint8_t *board_memory;
uint32_t (*board_read)(uint32_t);
void (*board_write)(uint32_t, uint32_t);
uint32_t board_offset;

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
FLAGS = "-O2 -fPIC -ffreestanding -Wconversion -Werror"

NAMES = {offset: name for name, offset in OFFSETS.items()}


class Core(Protocol):
    """A core as the CPU sees it."""

    def attach(self, memory: np.ndarray) -> None:
        """Take the memory at `CORE_BASE`, uint8[bytes]."""

    def read(self, name: str) -> int:
        """Read a register."""
        ...

    def write(self, name: str, value: int) -> None:
        """Write a register."""


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

    def read(self, name: str) -> int:
        value = self.registers[name]
        if name == "STATUS" and value == BUSY and not self.hangs:
            self.registers[name] = ERROR | self.fails << 4 if self.fails else DONE
        return value

    def write(self, name: str, value: int) -> None:
        if name != "CONTROL":
            self.registers[name] = value
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


class VerilatedCore:
    """The hardware; a register access takes a few cycles, so that polling makes time pass."""

    def __init__(self, configuration: Configuration) -> None:
        self.harness = Harness(build_core(configuration), MemoryModel())
        self.read, self.write = self.harness.read, self.harness.write

    def attach(self, memory: np.ndarray) -> None:
        self.harness.map(0, CORE_BASE, memory, writable=True)


class CBoard:
    """A network of C, and memory that it shares with a core.

    Parameters
    ----------
    folder
        Where the C is written and built.
    cached
        Whether the CPU has a cache before the memory.
    """

    def __init__(self, module: Module, folder: Path, *, cached: bool = False) -> None:
        self.graph, network = module.graph, network_in_c(module)
        write_folder(folder / "c", network)
        (folder / "board.h").write_text(HEADER)
        (folder / "board.c").write_text(DEFINITIONS)
        flags = f"CFLAGS={FLAGS}{' -DCACHED' * cached}"
        make = ["make", "-s", "-C", folder / "c", f"BOARD={folder / 'board.h'}", flags]
        subprocess.run(make, check=True)
        files = ["-Wl,--whole-archive", folder / "c" / "libnetwork.a", "-Wl,--no-whole-archive"]
        link = ["gcc", "-shared", "-fPIC", folder / "board.c", *files, "-o", folder / "network.so"]
        subprocess.run(link, check=True)
        self.library = ctypes.CDLL(str(folder / "network.so"))
        room = np.full(network.sizes.memory + LINE_BYTES, 0xA5, np.uint8)
        self.memory = room[-room.ctypes.data % LINE_BYTES :][: network.sizes.memory]
        ctypes.c_void_p.in_dll(self.library, "board_memory").value = self.memory.ctypes.data
        ctypes.c_uint32.in_dll(self.library, "board_bytes").value = self.memory.size
        self.place(CORE_BASE)

    def connect(self, core: Core) -> None:
        """Take the place of the core before."""
        core.attach(self.memory)
        read = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
        write = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)
        self._calls = {
            "board_read": read(lambda offset: core.read(NAMES[offset])),
            "board_write": write(lambda offset, value: core.write(NAMES[offset], value)),
        }
        for name, call in self._calls.items():
            address = ctypes.cast(call, ctypes.c_void_p).value
            ctypes.c_void_p.in_dll(self.library, name).value = address

    def place(self, base: int) -> None:
        """Move the memory, for the core."""
        ctypes.c_uint32.in_dll(self.library, "board_offset").value = base

    def load(self) -> int:
        """Call `network_load`."""
        return self.library.network_load()

    def run(self, *inputs: np.ndarray) -> tuple[int, list[np.ndarray]]:
        """Call `network_run`; return its result and the outputs."""
        types = [self.graph.types[output.value] for output in self.graph.outputs]
        outputs = [np.zeros(kind.shape, DTYPES[kind.dtype]) for kind in types]
        given = [np.ascontiguousarray(array) for array in inputs]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*given, *outputs)]
        return self.library.network_run(*pointers), outputs
