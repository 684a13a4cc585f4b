"""The levels of x86-64 and their instructions."""

import ctypes
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .instructions import (
    Architecture,
    Intrinsic,
    Level,
    MachineInstruction,
    MatrixUnit,
    RegisterTile,
    TableLookup,
    dot_product,
    matrix_product,
)

X86_64 = Architecture(
    name="x86-64",
    triple="x86_64",
    machine=62,
    relocations={1: 8, 2: 4, 4: 4, 10: 4, 11: 4, 24: 8},
    futex=202,
    pause=Intrinsic("llvm.x86.sse2.pause"),
    sections=(0x70000001,),  # tables for unwinding
)

_BYTES = (("uint8", "int8"),)
_WORDS = (("int16", "int16"), ("int16", "int8"))


def _multiply_add(mnemonic: str, lanes: int, intrinsic: str) -> MachineInstruction:
    """A dot product of words that leaves the addition to another instruction."""
    product = dot_product(mnemonic, lanes, 2, _WORDS, intrinsic)
    return replace(product, element="int16", adds=False)


_VPMADDWD = _multiply_add("vpmaddwd", 8, "llvm.x86.avx2.pmadd.wd")
_PMADDWD = _multiply_add("pmaddwd", 4, "llvm.x86.sse2.pmadd.wd")


def _vnni(lanes: int) -> tuple[MachineInstruction, ...]:
    name = f"llvm.x86.avx512.vpdp{{}}.{32 * lanes}"
    words = dot_product("vpdpwssd", lanes, 2, _WORDS, name.format("wssd"))
    return (
        dot_product("vpdpbusd", lanes, 4, _BYTES, name.format("busd")),
        replace(words, element="int16", fetches_ahead=True),
    )


_PAIRS_OF_BYTES = replace(
    dot_product("vpmaddubsw", 8, 4, _BYTES, "llvm.x86.avx2.pmadd.wd"),
    adds=False,
    pair_sums="llvm.x86.avx2.pmadd.ub.sw",
    saturates=True,
)


def _tile_shapes(rows: Sequence[int]) -> bytes:
    """The operand of `ldtilecfg`: palette 1, then bytes per row and rows of each tile."""
    widths = b"".join(AMX.row_bytes.to_bytes(2, "little") for _ in rows)
    return bytes([1, *[0] * 15]) + widths + bytes(16) + bytes(rows) + bytes(8)


AMX = MatrixUnit(
    tiles=8,
    max_rows=16,
    row_bytes=64,
    configure="llvm.x86.ldtilecfg",
    release="llvm.x86.tilerelease",
    zero="llvm.x86.tilezero",
    load="llvm.x86.tileloadd64",
    store="llvm.x86.tilestored64",
    shapes=_tile_shapes,
)
_MATRICES = tuple(
    matrix_product(name, (16, 16, 16, 4), ((a, "int8"),), f"llvm.x86.{name}", AMX)
    for name, a in (("tdpbusd", "uint8"), ("tdpbssd", "int8"))
)

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux's number of the system call, its operation, and the processor state asked for."""


def _request_tiles() -> bool:
    """Request the tiles of AMX from Linux; return whether this process may use them."""
    if platform.system() != "Linux":
        return False
    system = ctypes.CDLL(None).syscall
    system.restype = ctypes.c_long
    return system(*map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))) == 0


_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", *_V3)
_CURRENT_ROUNDING = 4
_SCALING = Intrinsic("llvm.x86.avx512.mask.scalef.ps.512", ((16, -1), (32, _CURRENT_ROUNDING)))
_LOOKUP = TableLookup("llvm.x86.avx512.vpermi2var.qi.512", "avx512vbmi", 64)
_WIDE_TILE = RegisterTile(rows=14, rows_alone=14, rows_of_bytes=14, vectors=28)
_TILE = RegisterTile(rows=6, rows_alone=10, rows_of_bytes=4, vectors=12)
_LOW_TILE = RegisterTile(rows=4, rows_alone=4, rows_of_bytes=4, vectors=12)


_AVX512_VNNI = Level(
    X86_64, _AVX512, "cascadelake", 16, 32, _WIDE_TILE, _vnni(16),
    scaling=_SCALING, lookup=_LOOKUP, is_tuned=True,
)  # fmt: skip

LEVELS: Mapping[str, Level] = {
    "amx": replace(
        _AVX512_VNNI,
        features=("amx-int8", "amx-tile", *_AVX512),
        cpu="sapphirerapids",
        instructions=(*_AVX512_VNNI.instructions, *_MATRICES),
        is_permitted=_request_tiles,
    ),
    "avx512vnni": _AVX512_VNNI,
    "avxvnni": Level(X86_64, ("avxvnni", *_V3), "alderlake", 8, 16, _TILE, _vnni(8)),
    "avx2": Level(X86_64, _V3, "haswell", 8, 16, _TILE, (_VPMADDWD,), _PAIRS_OF_BYTES),
    "sse2": Level(
        *(X86_64, (), "x86-64", 4, 16, _LOW_TILE, (_PMADDWD,)), fused=False, halves=False
    ),
}
"""Feature sets by name, the most capable first."""
