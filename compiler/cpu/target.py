"""Processors for which kernels are compiled: their vector registers, fused and dot products.

Names and features are LLVM's. `host` is this machine, `generic` any processor of a level. The
environment variable `TILEWRIGHT_CPU_LEVEL` caps what `host` finds, so that everything runs as on a
lesser processor; `none` turns CPU kernels off.
"""

import ctypes
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from ...errors import CompileError, ProcessorError, UsageError
from ..cpu_level import LEVEL_VARIABLE, NO_LEVEL, level_cap
from .processor import DotProduct, Processor

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

WORDS = (("int16", "int16"), ("int16", "int8"))
"""Operands of a dot product of words; weights are widened as they are loaded."""


@dataclass(frozen=True, slots=True)
class Level:
    """A feature set for which kernels have schedules.

    Parameters
    ----------
    features
        LLVM's names of all features that a processor must have.
    cpu
        LLVM's name of the least processor that has them.
    lanes
        32-bit elements of a vector register.
    registers
        Number of vector registers.
    instructions
        Dot products, the one for bytes first, and products of matrices.
    saturating
        A faster dot product of bytes, whose sums of two products saturate.
    """

    features: tuple[str, ...]
    cpu: str
    lanes: int
    registers: int
    instructions: tuple[DotProduct, ...]
    saturating: DotProduct | None = None


_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", *_V3)
_BYTES_AND_WORDS = {
    lanes: (
        DotProduct("vpdpbusd", lanes, 4, (("uint8", "int8"),)),
        DotProduct("vpdpwssd", lanes, 2, WORDS),
    )
    for lanes in (8, 16)
}
_MATRICES = (
    DotProduct("tdpbusd", 16, 4, (("uint8", "int8"),), rows=16, groups=16),
    DotProduct("tdpbssd", 16, 4, (("int8", "int8"),), rows=16, groups=16),
)

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux's number of the system call on x86-64, its operation, and the processor state asked for."""

LEVELS: Mapping[str, Level] = {
    "amx": Level(
        ("amx-int8", "amx-tile", *_AVX512),
        "sapphirerapids",
        16,
        32,
        (*_BYTES_AND_WORDS[16], *_MATRICES),
    ),
    "avx512vnni": Level(_AVX512, "cascadelake", 16, 32, _BYTES_AND_WORDS[16]),
    "avxvnni": Level(("avxvnni", *_V3), "alderlake", 8, 16, _BYTES_AND_WORDS[8]),
    "avx2": Level(
        _V3,
        "haswell",
        8,
        16,
        (DotProduct("vpmaddwd", 8, 2, WORDS),),
        DotProduct("vpmaddubsw", 8, 4, (("uint8", "int8"),)),
    ),
    "sse2": Level((), "x86-64", 4, 16, (DotProduct("pmaddwd", 4, 2, WORDS),)),
}
"""Feature sets by name, the most capable first."""


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A processor to compile for.

    Parameters
    ----------
    triple
        Architecture, vendor and operating system.
    cpu
        LLVM's name of the processor.
    features
        LLVM's list of features to add and to leave out, as one text.
    level
        Name of one of `LEVELS`.
    """

    triple: str
    cpu: str
    features: str
    level: str

    @property
    def lanes(self) -> int:
        """32-bit elements of a vector register."""
        return LEVELS[self.level].lanes

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return LEVELS[self.level].registers

    @property
    def table_lanes(self) -> int:
        """Bytes that one instruction looks up in a table of 256; 1 where each is a load."""
        return 64 if "+avx512vbmi," in f"{self.features}," else 1

    @property
    def has_scaling(self) -> bool:
        """Whether one instruction multiplies by a power of 2 (AVX-512)."""
        return "avx512f" in LEVELS[self.level].features

    @property
    def fused(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        return self.level != "sse2"

    @property
    def processor(self) -> Processor:
        """The processor as schedules see it."""
        return Processor(self.level, LEVELS[self.level].instructions)

    @property
    def saturating(self) -> DotProduct | None:
        """A dot product of bytes that is exact only where sums of two products fit int16."""
        return LEVELS[self.level].saturating

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for the target."""
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
        )


def host_levels() -> tuple[str, ...]:
    """The levels that this machine runs, the most capable first.

    Empty on another architecture than x86-64. `TILEWRIGHT_CPU_LEVEL` removes the levels above it.

    Raises
    ------
    UsageError
        When the variable names no level, or one that this processor lacks.
    """
    cap, own = level_cap(), _own_levels()
    if cap == NO_LEVEL:
        return ()
    if cap and cap not in LEVELS:
        raise UsageError(
            f"{LEVEL_VARIABLE}: unknown level `{cap}`; choose {_listed((*LEVELS, NO_LEVEL))}"
        )
    if cap and cap not in own:
        raise UsageError(f"{LEVEL_VARIABLE}: {_lack(cap)}; choose {_listed((*own, NO_LEVEL))}")
    return own[own.index(cap) :] if cap else own


def host(level: str | None = None) -> CpuTarget:
    """This machine, with all of its features, or only with those of a lower level.

    Parameters
    ----------
    level
        One of `LEVELS`; the highest of `host_levels` by default.

    Raises
    ------
    CompileError
        When the level is unknown.
    ProcessorError
        When this machine does not run it.
    UsageError
        See `host_levels`.
    """
    if level is not None and level not in LEVELS:
        raise CompileError(f"CPU target: unknown level `{level}`; choose {_listed(tuple(LEVELS))}")
    level = level or next(iter(host_levels()), "")
    check_runs(level)
    if "avx512f" in LEVELS[level].features:
        features = llvm.get_host_cpu_features().flatten()
        return CpuTarget(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, level)
    return generic(level)


def generic(level: str) -> CpuTarget:
    """Return a generic processor of a level, for code that runs on another machine."""
    triple = llvm.get_process_triple()
    return CpuTarget(
        triple if _is_x86_64(triple) else "x86_64-unknown-linux-gnu", LEVELS[level].cpu, "", level
    )


def check_runs(level: str) -> None:
    """Refuse a level whose code this machine does not run.

    Raises
    ------
    ProcessorError
        When it does not; the message has the reason, and the levels that this machine runs.
    UsageError
        See `host_levels`.
    """
    runs, own, cap = host_levels(), _own_levels(), level_cap()
    if level in runs:
        return
    if not own:
        reason = (
            f"schedules exist for x86-64, not for `{llvm.get_process_triple()}`; run on such a "
            "machine, or choose another device"
        )
    elif not runs:
        reason = f"{LEVEL_VARIABLE}={cap} turns CPU kernels off; unset it"
    elif level in own:
        reason = f"level `{level}` is above {LEVEL_VARIABLE}={cap}; choose {_listed(runs)}"
    else:
        reason = f"{_lack(level)}; choose {_listed(runs)}"
    raise ProcessorError(f"CPU target: {reason}")


def _listed(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _is_x86_64(triple: str) -> bool:
    return triple.startswith("x86_64")


@cache
def _own_levels() -> tuple[str, ...]:
    """The levels that this processor has and the system permits."""
    if not _is_x86_64(llvm.get_process_triple()):
        return ()
    found = filter(_has_features, LEVELS)
    return tuple(level for level in found if level != "amx" or _request_tiles())


def _has_features(level: str) -> bool:
    """Whether this processor has the features of a level."""
    has = llvm.get_host_cpu_features()
    return all(has.get(feature) for feature in LEVELS[level].features)


def _lack(level: str) -> str:
    """Why this machine does not run a level."""
    if level == "amx" and _has_features(level):
        return "the operating system refuses the tiles that level `amx` needs"
    return f"this processor lacks level `{level}`"


def _request_tiles() -> bool:
    """Request the tiles of AMX from Linux; return whether this process may use them."""
    if platform.system() != "Linux":
        return False
    system = ctypes.CDLL(None).syscall
    system.restype = ctypes.c_long
    return system(*map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))) == 0
