"""Instructions of GPUs as data: products of matrices by the threads of a warp or a warpgroup.

The law of an instruction says which loops it replaces. Some of them are its threads: they must be
bound to threads, so a schedule says which thread keeps which sum, and `blocks.Spread` follows from
it as for every other buffer.

Source: NVIDIA, PTX ISA 8.5, section 9.7.14.5, fragments of `mma.m16n8k8`, `m16n8k16`, `m16n8k32`,
and section 9.7.15.5, register fragments of `wgmma.mma_async`.
"""

from dataclasses import dataclass, replace

from ...isa.expressions import Call, Expression, Op, Reduction, Slot

HIGH, WIDE = 2, 8
"""Extents of the rows of a warp's fragment, of which the inner ones are threads."""

WARP_ROWS, WARP_THREADS = HIGH * WIDE, 32
"""Rows of a warp's fragment, and the threads that keep it."""

GROUP_WARPS, MAX_COLUMNS = 4, 256
"""Warps of a warpgroup, and the maximum number of columns of its products."""


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """`sums[row, column] += sum over tap of a[row, tap] * b[column, tap]`, by whole warps.

    Rows are `16 * warp + 8 * half + row`, and columns `8 * across + 2 * pair + column`. The sums
    are those of thread `32 * warp + 4 * row + pair`.

    Parameters
    ----------
    mnemonic
        Its name in PTX; that of a warpgroup lacks its shape.
    taps
        Products that are summed.
    pairs
        Types of the operands.
    sums
        Type of the sums.
    intrinsic
        LLVM's name; empty for a warpgroup, whose instructions LLVM does not know.
    warps, columns
        Of a warpgroup: 4 warps, and the most columns; any multiple of 8 will do.
    """

    mnemonic: str
    taps: int
    pairs: tuple[tuple[str, str], ...]
    sums: str
    intrinsic: str = ""
    warps: int = 1
    columns: int = WIDE

    @property
    def reads_shared(self) -> bool:
        """Whether it takes its operands from shared memory instead of registers."""
        return self.warps > 1

    @property
    def rows(self) -> int:
        """Rows of its sums."""
        return WARP_ROWS * self.warps

    @property
    def row_parts(self) -> tuple[tuple[str, int], ...]:
        """The loops over rows that it replaces, outermost first, with their extents."""
        return (*((("warp", self.warps),) if self.warps > 1 else ()), ("half", HIGH), ("row", WIDE))

    @property
    def column_parts(self) -> tuple[tuple[str, int], ...]:
        """The loops over columns that it replaces, outermost first, with their extents."""
        across = (("across", self.columns // WIDE),) if self.reads_shared else ()
        return (*across, ("pair", 4), ("column", 2))

    @property
    def lanes(self) -> tuple[tuple[str, int], ...]:
        """All loops that it replaces, outermost first, with their extents."""
        return (*self.row_parts, *self.column_parts, ("tap", self.taps))

    @property
    def bound(self) -> tuple[str, ...]:
        """The loops that are bound to its threads."""
        return ("warp", "row", "pair") if self.warps > 1 else ("row", "pair")

    @property
    def body(self) -> Expression:
        """The law."""
        rows, columns = (tuple(n for n, _ in part) for part in (self.row_parts, self.column_parts))
        a, b = Slot("a", (*rows, "tap")), Slot("b", (*columns, "tap"))
        return Reduction(Op.ADD, Call(Op.MULTIPLY, (a, b)))

    def of(self, extents: tuple[int, ...]) -> "WarpProduct | None":
        """The instruction for loops of these extents, if there is one."""
        names = [name for name, _ in self.lanes]
        found = self
        if "across" in names and len(extents) == len(names):
            columns = min(extents[names.index("across")] * WIDE, self.columns)
            found = replace(self, columns=columns)
        return found if extents == tuple(size for _, size in found.lanes) else None

    def __str__(self) -> str:
        loops = " x ".join(f"{size} {name}s" for name, size in self.lanes)
        types = " or ".join(f"{a} * {b}" for a, b in self.pairs)
        return f"{self.mnemonic} takes {loops} of {types}, {', '.join(self.bound)} as threads"


TF32 = "float32", "float32"
"""Operands that are rounded or cut to 11 significant bits, so a target has to ask for it."""


def _of_warp(kinds: str, taps: int, a: str, b: str, results: str = "") -> WarpProduct:
    sums = "int32" if a.endswith("int8") else "float32"
    shape = f"mma.m16n8k{taps}"
    name = f"llvm.nvvm.{shape}.row.col.{results or kinds}"
    return WarpProduct(f"{shape}.{kinds}", taps, ((a, b),), sums, name)


WARP_PRODUCTS = (
    _of_warp("s8", 32, "int8", "int8"),
    _of_warp("u8.s8", 32, "uint8", "int8"),
    _of_warp("f16", 16, "float16", "float16", "f32.f32"),
    _of_warp("bf16", 16, "bfloat16", "bfloat16"),
    _of_warp("tf32", 8, *TF32),
)
"""The products of level `sm80`, which later chips have too."""


def _of_warpgroup(kinds: str, taps: int, a: str, b: str) -> WarpProduct:
    sums = "int32" if kinds.startswith("s32") else "float32"
    return WarpProduct(f"wgmma.{kinds}", taps, ((a, b),), sums, "", GROUP_WARPS, MAX_COLUMNS)


WARPGROUP_PRODUCTS = (
    _of_warpgroup("s32.s8.s8", 32, "int8", "int8"),
    _of_warpgroup("s32.u8.s8", 32, "uint8", "int8"),
    _of_warpgroup("f32.f16.f16", 16, "float16", "float16"),
    _of_warpgroup("f32.bf16.bf16", 16, "bfloat16", "bfloat16"),
    _of_warpgroup("f32.tf32.tf32", 8, *TF32),
)
"""Products of warpgroups; only chips of compute capability 9.0 have them."""
