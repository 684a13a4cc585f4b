"""GPUs for which kernels are compiled: their memories, their loops, and how LLVM names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm
from typing_extensions import override

from ...errors import CompileError
from ...isa.expressions import Match
from ..te.bounds import Bounds, is_whole
from ..te.matching import find_law
from ..te.program import Program
from ..te.reductions import has_reduction, reduction_of
from ..te.stages import Division, Stage, State
from ..te.target import (
    BOUND,
    DRAM,
    LOOPS,
    REGISTER,
    SHARED,
    Kind,
    ScheduleError,
    Scope,
    Target,
)
from .barriers import with_barriers
from .blocks import check_blocks
from .instructions import TF32, WARP_PRODUCTS, WARPGROUP_PRODUCTS, WarpProduct

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TRIPLE = "nvptx64-nvidia-cuda"

MAX_SUMS = 1 << 16
"""Most sums that the threads of a block hold in registers: 32 bits each of 255 registers."""


@dataclass(frozen=True, slots=True)
class GpuLevel:
    """A generation of GPUs.

    Parameters
    ----------
    shared_bytes
        Memory that the threads of a block share, at most.
    max_threads
        Most threads of a block.
    language
        "PTX" or "OpenCL C".
    multiprocessors
        Of a usual chip, for schedules that are made without a device.
    instructions
        Products of matrices.
    cpu, features
        LLVM's names of the chip and of the version of PTX.
    copies_boxes
        Whether one instruction copies a box of a tensor into shared memory.
    """

    shared_bytes: int
    max_threads: int
    language: str
    multiprocessors: int
    instructions: tuple[WarpProduct, ...] = ()
    cpu: str = ""
    features: str = ""
    copies_boxes: bool = False


LEVELS: Mapping[str, GpuLevel] = {
    "sm90a": GpuLevel(
        *(226 << 10, 1024, "PTX", 132, (*WARPGROUP_PRODUCTS, *WARP_PRODUCTS), "sm_90a", "+ptx80"),
        copies_boxes=True,
    ),
    "sm90": GpuLevel(227 << 10, 1024, "PTX", 132, WARP_PRODUCTS, "sm_90", "+ptx78"),
    "sm80": GpuLevel(163 << 10, 1024, "PTX", 108, WARP_PRODUCTS, "sm_80", "+ptx71"),
    "opencl": GpuLevel(32 << 10, 256, "OpenCL C", 32),
}
"""The levels by name, the most capable first. Code for a level also runs on later chips, unless
its name ends in `a`: then it runs on that chip alone. A KiB of its shared memory is for mbarriers.

`opencl` keeps to what every GPU with OpenCL 1.2 has. Source: The OpenCL Specification 1.2, table
4.3, for the memory; makers' guides for the 256 threads.
"""


@dataclass(frozen=True, slots=True)
class GpuTarget(Target):
    """A generation of GPUs as schedules and code generation see it.

    Parameters
    ----------
    level
        One of `LEVELS`.
    tf32
        Whether products of float32 may shorten their operands to TF32, as tensor cores demand.
    units
        Multiprocessors of the device; 0 stands for those of a usual one of the level.
    """

    level: str = "sm80"
    tf32: bool = False
    units: int = 0

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            known = ", ".join(LEVELS)
            raise CompileError(f"GPU target: unknown level `{self.level}`; choose one of {known}")

    @property
    def properties(self) -> GpuLevel:
        return LEVELS[self.level]

    @property
    def multiprocessors(self) -> int:
        return self.units or self.properties.multiprocessors

    @property
    def instructions(self) -> tuple[WarpProduct, ...]:
        """The products of matrices that schedules may use."""
        return tuple(
            law for law in self.properties.instructions if self.tf32 or TF32 not in law.pairs
        )

    # The machine that schedules see -----------------------------------------------------------

    @property
    @override
    def name(self) -> str:
        return f"a GPU of level `{self.level}`"

    @property
    @override
    def scopes(self) -> Mapping[str, Scope]:
        return {DRAM: Scope(), SHARED: Scope(self.properties.shared_bytes), REGISTER: Scope()}

    kinds = LOOPS - {Kind.PARALLEL} | frozenset(BOUND)
    max_register_sums = MAX_SUMS
    lane_kinds = frozenset({Kind.THREAD, Kind.UNROLLED})

    @override
    def instruction(self, stage: Stage, state: State, bounds: Bounds) -> WarpProduct:
        loops = stage.loops[stage.loops.index(stage.instruction) :]
        extents = tuple(bounds.plans[stage.name].extents[loop] for loop in loops)

        def fits(law: WarpProduct, found: Match) -> bool:
            types = tuple(state.tensors[read.tensor].dtype for _, read in found.reads)
            return types in law.pairs and bool(law.of(extents)) and _are_lanes(law, stage, loops)

        taps = [loop for loop in loops if stage.reduces(loop)]
        if has_reduction(stage.body) and all(is_whole(stage, bounds, loop) for loop in taps):
            found = find_law(self.instructions, reduction_of(stage.body), fits)
            if found is not None and (law := found[0].of(extents)):
                return law
        known = "; ".join(map(str, self.instructions))
        raise ScheduleError(
            f"the loops {', '.join(loops)} of {' x '.join(map(str, extents))} match no "
            f"instruction of {self.name} ({known}); split the rows by 16 and 8 (or those of two "
            "axes by 2 and 8), the columns by 8 and 2, and the reduction by the taps without a "
            "remainder, and bind the loops of 8 rows and of 4 pairs to threads; for a warpgroup, "
            "split 64 rows by 16 first, and bind the 4 warps, too"
        )

    @override
    def complete(self, program: Program) -> Program:
        check_blocks(program, self.properties.max_threads, self.properties.shared_bytes)
        return with_barriers(program)

    # The processor that the code generator sees ------------------------------------------------

    lanes = 1
    """Elements of a register: a thread computes with scalars."""

    fused = True
    """A product and a sum are one instruction, rounded once."""

    scaling = None
    """Powers of 2 beyond the range of float32 take two products."""

    lookup = None
    """Tables are loads."""

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for the target."""
        target = llvm.Target.from_triple(TRIPLE)
        return target.create_target_machine(
            cpu=self.properties.cpu, features=self.properties.features, opt=3
        )


def _are_lanes(law: WarpProduct, stage: Stage, loops: tuple[str, ...]) -> bool:
    """Whether the loops are parts of rows, one column and one tap, and bound as declared.

    The rows may be those of two axes; the emitter checks that they lie in order.
    """
    divisions = [relation for relation in stage.relations if isinstance(relation, Division)]
    named = {name: loop for (name, _), loop in zip(law.lanes, loops, strict=True)}
    *rows, row = (named[name] for name, _ in law.row_parts)
    apart = stage.origins(rows[-1]).isdisjoint(stage.origins(row))
    return (
        _are_cut(divisions, rows if apart else [*rows, row])
        and _are_cut(divisions, [named[name] for name, _ in law.column_parts])
        and stage.reduces(named["tap"])
        and not any(map(stage.reduces, loops[:-1]))
        and [name for name in named if stage.kind(named[name]) is Kind.THREAD] == list(law.bound)
    )


def _are_cut(divisions: Sequence[Division], loops: Sequence[str]) -> bool:
    """Whether loops, outermost first, are the digits of one."""
    *outer, whole = loops
    for loop in reversed(outer):
        cut = [
            division.parent
            for division in divisions
            if division.parts == (loop, whole) and not division.lead
        ]
        if not cut:
            return False
        whole = cut[0]
    return True
