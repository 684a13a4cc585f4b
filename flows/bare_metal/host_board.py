"""Exported C without a board: compiled for this processor, its register accesses led to a core."""

import ctypes
import os
import shlex
import subprocess
from pathlib import Path
from typing import Protocol

import numpy as np

from ...compiler.graph.types import DTYPES
from ...compiler.module import Module
from ...errors import ToolError
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.registers import OFFSETS
from ...sim.harness import Harness
from ...sim.rtl import build_core
from .folder import write_folder
from .network import network_in_c

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
#ifndef TILEWRIGHT_WRITE_REGISTER
#define TILEWRIGHT_WRITE_REGISTER(offset, value) board_write(offset, value)
#endif
#define TILEWRIGHT_POLLS 200000u
"""
DEFINITIONS = """
#include "board.h"
uint8_t *board_memory;
uint32_t (*board_read)(uint32_t);
void (*board_write)(uint32_t, uint32_t);
uint32_t board_offset;
"""
FLAGS = "-O2 -fPIC -ffreestanding"

NAMES = {offset: name for name, offset in OFFSETS.items()}


class CoreWindow(Protocol):
    """A core as the CPU sees it."""

    def attach(self, memory: np.ndarray) -> None:
        """Take the memory at `CORE_BASE`, uint8[bytes]."""

    def read(self, register: str) -> int:
        """Read a register."""
        ...

    def write(self, register: str, value: int) -> None:
        """Write a register."""


class VerilatedCore:
    """The hardware; a register access takes a few cycles, so that polling makes time pass."""

    def __init__(self, configuration: Configuration) -> None:
        self.harness = Harness(build_core(configuration), MemoryModel())
        self.read, self.write = self.harness.read, self.harness.write

    def attach(self, memory: np.ndarray) -> None:
        """Map the memory."""
        self.harness.map(0, CORE_BASE, memory, writable=True)


class HostBoard:
    """A network of C in this process, and memory that it shares with a core.

    Parameters
    ----------
    folder
        Where the C is written and built.
    header, definitions
        The board's header, and what it declares.

    Raises
    ------
    ToolError
        If the C compiler fails.
    """

    def __init__(
        self,
        module: Module,
        folder: Path,
        *,
        header: str = HEADER,
        definitions: str = DEFINITIONS,
        flags: str = FLAGS,
    ) -> None:
        self.graph, network = module.graph, network_in_c(module)
        write_folder(folder / "c", network)
        (folder / "board.h").write_text(header, "utf-8")
        (folder / "board.c").write_text(definitions, "utf-8")
        board = folder / "board.h"
        _call(["make", "-s", "-C", str(folder / "c"), f"BOARD={board}", f"CFLAGS={flags}"])
        whole = [
            "-Wl,--whole-archive",
            str(folder / "c" / "libnetwork.a"),
            "-Wl,--no-whole-archive",
        ]
        compiler = shlex.split(os.environ.get("CC") or "gcc")
        library = str(folder / "network.so")
        _call([*compiler, "-shared", "-fPIC", str(folder / "board.c"), *whole, "-o", library])
        self.library = ctypes.CDLL(library)
        room = np.full(network.sizes.memory + LINE_BYTES, 0xA5, np.uint8)
        self.memory = room[-room.ctypes.data % LINE_BYTES :][: network.sizes.memory]
        ctypes.c_void_p.in_dll(self.library, "board_memory").value = self.memory.ctypes.data
        self.place(CORE_BASE)

    def connect(self, core: CoreWindow) -> None:
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


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as problem:
        raise ToolError(f"`{command[0]}`: cannot be started, got `{problem.strerror}`") from None
    if done.returncode:
        raise ToolError(f"`{shlex.join(command)}`: failed, got `{done.stderr.strip()}`")
