"""Instructions of GPUs as data: products of matrices by the threads of a warp.

The law of an instruction says which loops it replaces. Two of them are its threads: they must be
bound to threads, so a schedule says which thread keeps which sum, and `blocks.Spread` follows from
it as for every other buffer.

Source: NVIDIA, PTX ISA 8.5, section 9.7.14.5, fragments of `mma.m16n8k8`, `m16n8k16`, `m16n8k32`.
"""

from dataclasses import dataclass

from ...isa.expressions import Call, Expression, Op, Reduction, Slot

HIGH, WIDE = 2, 8
"""Extents of the rows of an instruction, of which the inner ones are threads."""


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """`sums[half, row, pair, column] += sum over tap of a[half, row, tap] * b[pair, column, tap]`.

    Row `8 * half + row` and column `2 * pair + column` of the sums are thread `4 * row + pair`'s.

    Parameters
    ----------
    mnemonic
        Its name in PTX.
    taps
        Products that are summed.
    pairs
        Types of the operands.
    sums
        Type of the sums.
    intrinsic
        LLVM's name.
    """

    mnemonic: str
    taps: int
    pairs: tuple[tuple[str, str], ...]
    sums: str
    intrinsic: str

    @property
    def lanes(self) -> tuple[tuple[str, int], ...]:
        """The loops that it replaces, outermost first, with their extents."""
        return (("half", HIGH), ("row", WIDE), ("pair", 4), ("column", 2), ("tap", self.taps))

    bound = ("row", "pair")
    """The loops that are its threads."""

    @property
    def body(self) -> Expression:
        """The law."""
        a, b = Slot("a", ("half", "row", "tap")), Slot("b", ("pair", "column", "tap"))
        return Reduction(Op.ADD, Call(Op.MULTIPLY, (a, b)))

    def __str__(self) -> str:
        loops = " x ".join(f"{size} {name}s" for name, size in self.lanes)
        types = " or ".join(f"{a} * {b}" for a, b in self.pairs)
        return f"{self.mnemonic} takes {loops} of {types}, {' and '.join(self.bound)} as threads"


WARP_PRODUCTS = (
    WarpProduct(
        "mma.m16n8k32.s8", 32, (("int8", "int8"),), "int32", "llvm.nvvm.mma.m16n8k32.row.col.s8"
    ),
    WarpProduct(
        "mma.m16n8k32.u8.s8",
        32,
        (("uint8", "int8"),),
        "int32",
        "llvm.nvvm.mma.m16n8k32.row.col.u8.s8",
    ),
    WarpProduct(
        "mma.m16n8k16.f16",
        16,
        (("float16", "float16"),),
        "float32",
        "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
    ),
    WarpProduct(
        "mma.m16n8k16.bf16",
        16,
        (("bfloat16", "bfloat16"),),
        "float32",
        "llvm.nvvm.mma.m16n8k16.row.col.bf16",
    ),
)
"""The products of level `sm80`, which later chips have too."""

TF32_PRODUCT = WarpProduct(
    "mma.m16n8k8.tf32",
    8,
    (("float32", "float32"),),
    "float32",
    "llvm.nvvm.mma.m16n8k8.row.col.tf32",
)
"""The product that rounds float32 to 11 significant bits first, so a target has to ask for it."""
