"""Parts of a PTX kernel: operands, instructions, variables."""

from dataclasses import dataclass, field

WIDTHS = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"b128": 128, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64},
    **{"tf32": 32, "pred": 0},
}
"""Bits of each type of a register or variable; a predicate is one truth value."""


@dataclass(frozen=True, slots=True)
class VirtualRegister:
    """A virtual register of `bits` bits (0: a predicate), or `_`, which takes any result."""

    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class BitPattern:
    """A constant as a bit pattern; a negative integer keeps its sign until its width is known."""

    bits: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or parameter, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """`[base + offset]`; `extra` holds what stands behind a comma, as tensor coordinates do."""

    base: "VirtualRegister | Symbol | BitPattern"
    offset: int = 0
    extra: tuple["Operand", ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterVector:
    """`{a, b, ...}`."""

    elements: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a predicate operand, negated."""

    register: VirtualRegister


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: a result with a predicate beside it."""

    first: VirtualRegister
    second: VirtualRegister


Operand = (
    VirtualRegister | Special | BitPattern | Symbol | MemoryOperand | RegisterVector | Not | Pair
)


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction; `parts` is its opcode without the qualifiers' dots."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: VirtualRegister | None
    guard_negated: bool
    line: int

    @property
    def name(self) -> str:
        return self.parts[0]

    @property
    def opcode(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter; an `extern` array has no size, it is the dynamic shared memory."""

    name: str
    space: str
    size_bytes: int
    align_bytes: int
    data: bytes = b""
    type: str = "b8"


@dataclass(slots=True)
class PtxKernel:
    """An entry of a PTX module, ready to be launched by `run`."""

    name: str
    parameters: list[Variable]
    variables: list[Variable]
    target: str
    max_threads: int | None = None
    required_threads: int | None = None
    cluster_blocks: int | None = None
    registers: list[VirtualRegister] = field(default_factory=list)
    instructions: list[PtxInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
