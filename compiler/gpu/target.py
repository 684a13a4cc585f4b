"""GPUs for which kernels are compiled: their memories, their loops, and how LLVM names them."""

from collections.abc import Mapping
from dataclasses import dataclass

import llvmlite.binding as llvm
from typing_extensions import override

from ...errors import CompileError
from ..te.program import Program
from ..te.target import BOUND, DRAM, LOOPS, REGISTER, SHARED, Kind, Scope, Target
from .blocks import check_blocks

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TRIPLE = "nvptx64-nvidia-cuda"

MAX_THREADS = 1024
"""Most threads of a block."""

MAX_SUMS = 1 << 16
"""Most sums that the threads of a block hold in registers: 32 bits each of 255 registers."""


@dataclass(frozen=True, slots=True)
class Level:
    """A generation of GPUs.

    Parameters
    ----------
    cpu, features
        LLVM's names of the chip and of the version of PTX.
    shared_bytes
        Memory that the threads of a block share, at most.
    """

    cpu: str
    features: str
    shared_bytes: int


LEVELS: Mapping[str, Level] = {
    "sm90": Level("sm_90", "+ptx78", 227 << 10),
    "sm80": Level("sm_80", "+ptx71", 163 << 10),
}
"""The levels by name, the most capable first. Code for a level also runs on later chips."""


@dataclass(frozen=True, slots=True)
class GpuTarget(Target):
    """A generation of GPUs as schedules and code generation see it.

    Parameters
    ----------
    level
        One of `LEVELS`.
    """

    level: str = "sm80"

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            known = ", ".join(LEVELS)
            raise CompileError(f"GPU target: unknown level `{self.level}`; choose one of {known}")

    @property
    def properties(self) -> Level:
        return LEVELS[self.level]

    # The machine that schedules see -----------------------------------------------------------

    @property
    @override
    def name(self) -> str:
        return f"a GPU of level `{self.level}`"

    @property
    @override
    def scopes(self) -> Mapping[str, Scope]:
        return {DRAM: Scope(), SHARED: Scope(self.properties.shared_bytes), REGISTER: Scope()}

    @property
    @override
    def kinds(self) -> frozenset[Kind]:
        return LOOPS - {Kind.VECTORISED, Kind.PARALLEL} | frozenset(BOUND)

    @property
    @override
    def max_register_sums(self) -> int:
        return MAX_SUMS

    @override
    def check_program(self, program: Program) -> None:
        check_blocks(program, MAX_THREADS, self.properties.shared_bytes)

    # The processor that the code generator sees ------------------------------------------------

    lanes = 1
    """Elements of a register: a thread computes with scalars."""

    fused = True
    """A product and a sum are one instruction, rounded once."""

    lookup = None
    """Tables are loads."""

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for the target."""
        target = llvm.Target.from_triple(TRIPLE)
        return target.create_target_machine(
            cpu=self.properties.cpu, features=self.properties.features, opt=3
        )
