"""Processors for which kernels are compiled: their vector registers, fused and dot products.

Names and features are LLVM's. `host` is this machine, `generic` any processor of a level. The
environment variable `TILEWRIGHT_CPU_LEVEL` caps what `host` finds, so that everything runs as on a
lesser processor; `none` turns CPU kernels off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from ...errors import CompileError, ProcessorError, UsageError
from ..cpu_level import LEVEL_VARIABLE, NO_LEVEL, level_cap
from . import x86
from .instructions import Intrinsic, Level, MachineInstruction, RegisterTile, TableLookup
from .processor import Processor

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

LEVELS: Mapping[str, Level] = {**x86.LEVELS}
"""The levels of all instruction sets by name, the most capable first."""


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
    fuses_attention
        Whether attention is one kernel: on GPUs, where scores in memory cost most.
    """

    triple: str
    cpu: str
    features: str
    level: str
    fuses_attention: bool = False

    @property
    def properties(self) -> Level:
        return LEVELS[self.level]

    @property
    def lanes(self) -> int:
        """32-bit elements of a vector register."""
        return self.properties.lanes

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return self.properties.registers

    @property
    def tile(self) -> RegisterTile:
        """The largest tiles of sums that fit the registers."""
        return self.properties.tile

    @property
    def lookup(self) -> TableLookup | None:
        """The instruction for tables of 256 bytes; None where each byte is a load."""
        found = self.properties.lookup
        return found if found and f"+{found.feature}," in f"{self.features}," else None

    @property
    def scaling(self) -> Intrinsic | None:
        """The instruction for powers of 2 beyond the range of float32; None without one."""
        return self.properties.scaling

    @property
    def fused(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        return self.properties.fused

    @property
    def processor(self) -> Processor:
        """The processor as schedules see it."""
        return Processor(self.level, self.properties.instructions)

    @property
    def saturating(self) -> MachineInstruction | None:
        """A dot product of bytes that is exact only where sums of two products fit int16."""
        return self.properties.saturating

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for the target."""
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
        )


def host_levels() -> tuple[str, ...]:
    """The levels that this machine runs, the most capable first.

    Empty on an architecture without levels. `TILEWRIGHT_CPU_LEVEL` removes the levels above it.

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
    if LEVELS[level].is_tuned:
        features = llvm.get_host_cpu_features().flatten()
        return CpuTarget(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, level)
    return generic(level)


def generic(level: str) -> CpuTarget:
    """Return a generic processor of a level, for code that runs on another machine."""
    triple, architecture = llvm.get_process_triple(), LEVELS[level].architecture.triple
    if not triple.startswith(architecture):
        triple = f"{architecture}-unknown-linux-gnu"
    return CpuTarget(triple, LEVELS[level].cpu, "", level)


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
            f"schedules exist for {architectures()}, not for `{llvm.get_process_triple()}`; run on "
            "such a machine, or choose another device"
        )
    elif not runs:
        reason = f"{LEVEL_VARIABLE}={cap} turns CPU kernels off; unset it"
    elif level in own:
        reason = f"level `{level}` is above {LEVEL_VARIABLE}={cap}; choose {_listed(runs)}"
    else:
        reason = f"{_lack(level)}; choose {_listed(runs)}"
    raise ProcessorError(f"CPU target: {reason}")


def architectures() -> str:
    """Names of the architectures that have levels, for messages."""
    return _listed(tuple(dict.fromkeys(level.architecture.name for level in LEVELS.values())))


def _listed(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


@cache
def _own_levels() -> tuple[str, ...]:
    """The levels that this processor has and the system permits."""
    return tuple(
        level
        for level, properties in LEVELS.items()
        if _has_features(level) and properties.is_permitted()
    )


def _has_features(level: str) -> bool:
    """Whether this processor has the architecture and the features of a level."""
    if not llvm.get_process_triple().startswith(LEVELS[level].architecture.triple):
        return False
    has = llvm.get_host_cpu_features()
    return all(has.get(feature) for feature in LEVELS[level].features)


def _lack(level: str) -> str:
    """Why this machine does not run a level."""
    if _has_features(level) and not LEVELS[level].is_permitted():
        return f"the operating system refuses the tiles that level `{level}` needs"
    return f"this processor lacks level `{level}`"
