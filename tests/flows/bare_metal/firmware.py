"""An exported network as the program of a soft CPU: compiled for RV32 by Zig's C compiler."""

import struct
import subprocess
import sys
from pathlib import Path

from tilewright.compiler.module import Module
from tilewright.flows.bare_metal.folder import write_folder
from tilewright.flows.bare_metal.host_steps import ELEMENT_BYTES
from tilewright.flows.bare_metal.network import network_in_c

SOURCES = Path(__file__).parents[3] / "examples" / "soft_cpu"
COMPILER = f"{sys.executable} -m ziglang cc -target riscv32-freestanding-none"
COMPILER += " -mcpu=generic_rv32+m+c"

ELF_HEAD, PROGRAM_HEAD = struct.Struct("<28xI10xHH"), struct.Struct("<IIIIIIII")
LOADED = 1
"""Type of a segment that belongs in memory."""


def firmware(module: Module, folder: Path) -> bytes:
    """Build a network's firmware with `examples/soft_cpu`, and return its bytes from address 0."""
    graph = module.graph
    (given,), (output,) = graph.inputs, graph.outputs
    exported, elf = folder / "c", folder / "program.elf"
    write_folder(exported, network_in_c(module))
    tools = [f"CC={COMPILER}", f"AR={sys.executable} -m ziglang ar"]
    board = SOURCES / "board.h"
    subprocess.run(["make", "-s", "-C", exported, f"BOARD={board}", *tools], check=True)
    sizes = [
        f"-D{name}_BYTES={graph.types[value].elements * ELEMENT_BYTES[graph.types[value].dtype]}"
        for name, value in (("INPUT", given.name), ("OUTPUT", output.value))
    ]
    command = [*COMPILER.split(), "-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", *sizes]
    command += ["-include", str(board), f"-I{exported}", f"-Wl,-T,{SOURCES / 'program.ld'}"]
    command += [str(SOURCES / name) for name in ("start.S", "main.c")]
    command += [str(exported / "libnetwork.a"), "-o", str(elf)]
    subprocess.run(command, check=True)
    return memory_of(elf.read_bytes())


def memory_of(elf: bytes) -> bytes:
    """Return what a 32-bit ELF file puts into memory, from address 0."""
    first, size, count = ELF_HEAD.unpack_from(elf)
    image = bytearray()
    for index in range(count):
        kind, offset, _, address, length, *_ = PROGRAM_HEAD.unpack_from(elf, first + index * size)
        if kind == LOADED and length:
            image.extend(bytes(max(0, address + length - len(image))))
            image[address : address + length] = elf[offset : offset + length]
    return bytes(image)
