"""Instructions of processors as data: the law of each, and how LLVM names it.

A feature set of a processor is a `Level`, with a table of its instructions. The code generator
knows them only by what is declared here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...isa.expressions import Call, Expression, Op, Reduction, Slot


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """Registers that hold matrices, as tiles of rows.

    Parameters
    ----------
    tiles, max_rows, row_bytes
        Number of tiles, and the size of one.
    configure, release, zero, load, store
        Intrinsics that set the shapes of all tiles, give them back, and clear, load or store one.
    shapes
        The operand of `configure` for the rows of each tile.
    """

    tiles: int
    max_rows: int
    row_bytes: int
    configure: str
    release: str
    zero: str
    load: str
    store: str
    shapes: Callable[[Sequence[int]], bytes]

    @property
    def row_sums(self) -> int:
        return self.row_bytes // 4


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """An instruction that sums products: `output += body` over lanes.

    Parameters
    ----------
    mnemonic
        Its name in the assembly language.
    lanes
        The loops that it replaces, outermost first, with their extents. Operands move along the two
        innermost by one element. Lanes of `body` that are not in `output` are reduced.
    output, body
        The law.
    pairs
        Element types of the operands for which it is exact.
    intrinsic
        LLVM's name; empty for products and sums from which LLVM makes several instructions.
    element
        The type to which operands are widened as they are loaded.
    adds
        Whether the intrinsic adds to previous sums, which wrap.
    pair_sums
        An intrinsic that first sums pairs of products to int16; empty if there is none.
    saturates
        Whether these sums of pairs saturate, so that it is exact only where they fit int16.
    fetches_ahead
        Whether it reads `b` faster than the hardware prefetches it from outer caches.
    unit
        The registers of an instruction on matrices.
    """

    mnemonic: str
    lanes: tuple[tuple[str, int], ...]
    output: Slot
    body: Expression
    pairs: tuple[tuple[str, str], ...]
    intrinsic: str = ""
    element: str = "int8"
    adds: bool = True
    pair_sums: str = ""
    saturates: bool = False
    fetches_ahead: bool = False
    unit: MatrixUnit | None = None

    @property
    def taps(self) -> int:
        """Products that are summed in a lane."""
        return self.lanes[-1][1]

    @property
    def max_rows(self) -> int:
        """Most rows of an instruction on matrices, which also takes fewer; 0 for all others."""
        return dict(self.lanes).get("row", 0)

    @property
    def groups(self) -> int:
        """Groups of taps along the reduction."""
        return dict(self.lanes).get("group", 1)

    def __str__(self) -> str:
        counts = [f"{'up to ' * (lane == 'row')}{size} {lane}s" for lane, size in self.lanes]
        types = " or ".join(f"{a} * {b}" for a, b in self.pairs)
        return f"{self.mnemonic} takes {', '.join(counts[:-1])} and {counts[-1]} of {types}"


def _sum_of_products(a: tuple[str, ...], b: tuple[str, ...]) -> Expression:
    return Reduction(Op.ADD, Call(Op.MULTIPLY, (Slot("a", a), Slot("b", b))))


def dot_product(
    mnemonic: str, lanes: int, taps: int, pairs: tuple[tuple[str, str], ...], intrinsic: str = ""
) -> MachineInstruction:
    """`sums[lane] += sum over tap of a[tap] * b[lane, tap]`."""
    return MachineInstruction(
        mnemonic,
        (("lane", lanes), ("tap", taps)),
        Slot("sums", ("lane",)),
        _sum_of_products(("tap",), ("lane", "tap")),
        pairs,
        intrinsic,
    )


def matrix_product(
    mnemonic: str,
    sizes: tuple[int, int, int, int],
    pairs: tuple[tuple[str, str], ...],
    intrinsic: str = "",
    unit: MatrixUnit | None = None,
) -> MachineInstruction:
    """`sums[row, lane] += sum over group and tap of a[row, group, tap] * b[group, lane, tap]`."""
    return MachineInstruction(
        mnemonic,
        tuple(zip(("row", "group", "lane", "tap"), sizes, strict=True)),
        Slot("sums", ("row", "lane")),
        _sum_of_products(("row", "group", "tap"), ("group", "lane", "tap")),
        pairs,
        intrinsic,
        unit=unit,
    )


class Intrinsic(NamedTuple):
    """An instruction's name in LLVM, and its last operands: constants, as (bits, value)."""

    name: str
    operands: tuple[tuple[int, int], ...] = ()


class TableLookup(NamedTuple):
    """An intrinsic that looks up `lanes` bytes in two registers; only with LLVM's `feature`."""

    intrinsic: str
    feature: str
    lanes: int


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The largest tiles of sums that fit the registers.

    Parameters
    ----------
    rows
        Rows by a panel of two vectors.
    rows_alone
        Rows by a panel of one vector, where each row has weights of its own group.
    rows_of_bytes
        Rows by a panel of two vectors, where both operands are activations of bytes.
    vectors
        Vectors of sums, where the shape of the tile is free.
    """

    rows: int
    rows_alone: int
    rows_of_bytes: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """An instruction set, with the facts that all of its levels share.

    Parameters
    ----------
    name
        Its name, for messages.
    triple
        LLVM's name, with which triples begin.
    machine
        Its number in ELF files.
    relocations
        Types of relocations that LLVM emits for kernels, and the bytes that each changes.
    futex
        Linux's number of the system call.
    pause
        The instruction for a thread that spins.
    sections
        Section types of its own that LLVM emits.
    """

    name: str
    triple: str
    machine: int
    relocations: Mapping[int, int]
    futex: int
    pause: Intrinsic
    sections: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A feature set for which kernels have schedules.

    Parameters
    ----------
    architecture
        The instruction set.
    features
        LLVM's names of all features that a processor must have.
    cpu
        LLVM's name of the least processor that has them.
    lanes, registers
        32-bit elements of a vector register, and the number of these.
    tile
        The largest tiles of sums.
    instructions
        Dot products, the one for bytes first, and products of matrices.
    saturating
        A faster dot product of bytes, whose sums of two products saturate.
    fused
        Whether a product and a sum are one instruction, rounded once.
    halves
        Whether instructions convert float16.
    scaling, lookup
        Instructions for the exponential and for tables; None without one. `scaling` takes a value,
        a power of 2, and the result of lanes outside its mask.
    is_tuned
        Whether code for this machine is compiled for its own features instead of the level's.
    is_permitted
        Requests what this process needs from the operating system; returns whether it may use it.
    """

    architecture: Architecture
    features: tuple[str, ...]
    cpu: str
    lanes: int
    registers: int
    tile: RegisterTile
    instructions: tuple[MachineInstruction, ...]
    saturating: MachineInstruction | None = None
    fused: bool = True
    halves: bool = True
    scaling: Intrinsic | None = None
    lookup: TableLookup | None = None
    is_tuned: bool = False
    is_permitted: Callable[[], bool] = lambda: True
