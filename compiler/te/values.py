"""Expressions over axes: tensor elements and operations on them, as a user writes them.

The result is an expression tree of `isa.expressions`. `DeclaredTensor` and `TensorExpression` add
the operators, and the facts that checks need: the axes, the tensors, and the type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...argument_types import checked
from ...errors import CompileError
from ...isa.expressions import Affine, Call, Expression, Literal, Op, Read, Real, Reduction
from ..tensor import STORED_REALS, Axis, Compute, Tensor
from .index import AxisUse, Index, merge_uses
from .reductions import reduction_of

LIMITS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "uint8": (0, (1 << 8) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "bool": (0, 1),
}
"""Smallest and largest value of each integer type."""


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """A declared tensor; indexing it gives a `TensorExpression`.

    Parameters
    ----------
    tensor
        Name, type, shape and pad value.
    stage
        The compute that defines it; None for inputs and constants.
    sources
        The operands that the stage reads.
    """

    tensor: Tensor
    stage: Compute | None = None
    sources: tuple["DeclaredTensor", ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension."""
        return self.tensor.shape

    def __getitem__(self, index: "Index | int | tuple[Index | int, ...]") -> "TensorExpression":
        parts = index if isinstance(index, tuple) else (index,)
        uses: dict[str, AxisUse] = {}
        affines = []
        for part in parts:
            if isinstance(part, Index):
                uses = merge_uses(uses, part.uses)
                affines.append(part.affine)
            elif isinstance(part, int) and not isinstance(part, bool):
                affines.append(Affine((), part))
            else:
                raise CompileError(
                    f"tensor `{self.tensor.name}` is indexed with `{part}`; an index is a sum of "
                    "axes times whole numbers, plus a whole number"
                )
        read = self.tensor[tuple(affines)]
        return TensorExpression(read, uses, (self,), real=self.tensor.dtype in STORED_REALS)


@dataclass(frozen=True, slots=True, eq=False)
class TensorExpression:
    """An expression and its dependencies; `+`, `-` and `*` of integers are 32-bit and wrap.

    Parameters
    ----------
    tree
        The expression.
    uses
        The free axes, which the expression does not reduce over.
    operands
        The tensors that it reads.
    over
        Axes of the reduction inside it; None without one.
    real
        Whether it is a binary32 number.
    """

    tree: Expression
    uses: Mapping[str, AxisUse]
    operands: tuple[DeclaredTensor, ...]
    over: tuple[Axis, ...] | None = None
    real: bool = False

    def __add__(self, other: "TensorExpression | float") -> "TensorExpression":
        return combine(Op.ADD, self, other)

    __radd__ = __add__

    def __mul__(self, other: "TensorExpression | float") -> "TensorExpression":
        return combine(Op.MULTIPLY, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> "TensorExpression":
        return self * -1

    def __sub__(self, other: "TensorExpression | float") -> "TensorExpression":
        return self + -other

    def __rsub__(self, other: float) -> "TensorExpression":
        return -self + other

    def __truediv__(self, other: "TensorExpression | float") -> "TensorExpression":
        return combine(Op.DIVIDE, self, other)

    def __rtruediv__(self, other: float) -> "TensorExpression":
        return combine(Op.DIVIDE, other, self)

    def __str__(self) -> str:
        return str(self.tree)


def combine(op: Op, *arguments: TensorExpression | float) -> TensorExpression:
    """An operation on integers or on float32 numbers; numbers become constants of that type.

    Raises
    ------
    CompileError
        When an operation mixes integers and float32 numbers or does not accept its arguments, or
        when two arguments contain different reductions.
    """
    values = [value_from(argument, f"`{op.value}`") for argument in arguments]
    real = any(value.real for value in values)
    if real and op not in _EITHER:
        shown = next(value for value in values if value.real)
        raise CompileError(f"`{op.value}` takes integers, but `{shown}` is float32")
    if real or op is Op.DIVIDE:
        values = [_as_real(value, op) for value in values]
    return call(op, values, real=real and op not in (Op.LESS, Op.EQUAL))


_EITHER = (Op.ADD, Op.MULTIPLY, Op.MAXIMUM, Op.MINIMUM, Op.LESS, Op.EQUAL, Op.DIVIDE)
"""Operations on float32 numbers; all except the last also take integers."""


def _as_real(value: TensorExpression, op: Op) -> TensorExpression:
    """An operand beside a float32 number."""
    if value.real:
        return value
    if isinstance(value.tree, Literal):
        return replace(value, tree=Real(float(value.tree.value)), real=True)
    raise CompileError(
        f"`{op.value}` of float32 numbers and the integer `{value}`; convert that with `real`"
    )


def maximum(a: TensorExpression | float, b: TensorExpression | float) -> TensorExpression:
    """The larger of two values."""
    return combine(Op.MAXIMUM, a, b)


def minimum(a: TensorExpression | float, b: TensorExpression | float) -> TensorExpression:
    """The smaller of two values."""
    return combine(Op.MINIMUM, a, b)


@checked("te.clamp")
def clamp(value: TensorExpression, low: int, high: int) -> TensorExpression:
    """Saturate to int8 and limit to `low`..`high`, which lie in -128..127."""
    smallest, largest = LIMITS["int8"]
    if not smallest <= low <= high <= largest:
        raise CompileError(
            f"clamp of `{value}`: bounds {low}..{high} must be ordered and lie in "
            f"{smallest}..{largest}"
        )
    return combine(Op.CLAMP, value, low, high)


def requantise(value: TensorExpression, scale: TensorExpression) -> TensorExpression:
    """`round_half_even(float32(value) * scale)`, saturated as `isa.numbers.requantise` does."""
    if value.real:
        raise CompileError(f"requantise takes an integer value, but `{value}` is float32")
    if not isinstance(scale, TensorExpression) or not (scale.real and isinstance(scale.tree, Read)):
        raise CompileError(f"requantise takes its scale from a float32 tensor, not `{scale}`")
    return call(Op.REQUANTISE, [value, scale])


def lookup(table: DeclaredTensor, value: TensorExpression) -> TensorExpression:
    """`table[value + 128]`, for a table int8[256] and a value in -128..127."""
    if table.tensor.shape != (256,) or table.tensor.dtype != "int8":
        raise CompileError(
            f"lookup takes a table of int8[256]; `{table.tensor.name}` is "
            f"{table.tensor.dtype}{list(table.tensor.shape)}"
        )
    return call(Op.LOOKUP, [TensorExpression(Read(table.tensor.name, ()), {}, (table,)), value])


def row_operation(
    op: Op,
    value: TensorExpression,
    entries: DeclaredTensor,
    constants: tuple[DeclaredTensor, DeclaredTensor],
    *numbers: int,
    mask: TensorExpression | None = None,
) -> TensorExpression:
    """An operation of `ROW_OPS` on the row of an element, along its tensor's last dimension.

    Parameters
    ----------
    entries, constants
        A table int8[512], and E and F: int32 and float32 tensors whose first elements count.
    numbers
        The valid elements of a row; for NORMALISE, the centre too.
    mask
        For SOFTMAX, the element of a tensor that broadcasts to the row's; see `row_values`.
    """
    if not isinstance(value.tree, Read):
        raise CompileError(f"`{op.value}` takes a tensor's element, not `{value}`")
    operands = (
        TensorExpression(Read(each.tensor.name, ()), {}, (each,)) for each in (entries, *constants)
    )
    given = [value_from(number, f"`{op.value}`") for number in numbers]
    return call(op, [value, *operands, *given, *([] if mask is None else [mask])])


def element(first: TensorExpression, distance: TensorExpression) -> TensorExpression:
    """The element of an operand that lies so far behind `first`, row by row; it must exist."""
    if not isinstance(first.tree, Read) or distance.real:
        raise CompileError(f"`element` takes a tensor's element and an integer, not `{first}`")
    return call(Op.ELEMENT, [first, distance], real=first.real)


def sum_over(value: TensorExpression, over: Index | Sequence[Index]) -> TensorExpression:
    """The sum of a value over reduction axes; it wraps at 32 bits."""
    return _reduce(Op.ADD, value, over)


def maximum_over(value: TensorExpression, over: Index | Sequence[Index]) -> TensorExpression:
    """The largest value over reduction axes."""
    return _reduce(Op.MAXIMUM, value, over)


def value_from(argument: object, what: str) -> TensorExpression:
    """Convert to an expression: whole numbers become integers, other numbers float32."""
    if isinstance(argument, TensorExpression):
        return argument
    if isinstance(argument, float):
        return TensorExpression(Real(argument), {}, (), real=True)
    if isinstance(argument, int) and not isinstance(argument, bool):
        low, high = LIMITS["int32"]
        if not low <= argument <= high:
            raise CompileError(f"constant {argument} does not fit int32")
        return TensorExpression(Literal(argument), {}, ())
    if isinstance(argument, Index):
        raise CompileError(f"{what} takes tensor elements; `{argument}` is an index")
    raise CompileError(f"{what} takes tensor elements and whole numbers, not `{argument}`")


def call(op: Op, values: list[TensorExpression], real: bool = False) -> TensorExpression:
    """A call with checked arguments; `real` says whether the result is float32.

    Raises
    ------
    CompileError
        When two arguments hold different reductions.
    """
    over = [value.over for value in values if value.over is not None]
    if len({reduction_of(value.tree) for value in values if value.over is not None}) > 1:
        raise CompileError(
            f"`{op.value}` of two reductions, `{values[0]}` and `{values[1]}`; make a stage of one"
        )
    return TensorExpression(
        Call(op, tuple(value.tree for value in values)),
        merge_uses(*(value.uses for value in values)),
        tuple(operand for value in values for operand in value.operands),
        over[0] if over else None,
        real,
    )


def _reduce(op: Op, value: TensorExpression, over: Index | Sequence[Index]) -> TensorExpression:
    what = "sum" if op is Op.ADD else "max"
    if not isinstance(value, TensorExpression):
        raise CompileError(f"`{what}` takes a value, not `{value}`")
    if value.over is not None:
        raise CompileError(
            f"`{what}` of `{value}`, which already contains a reduction; make it a stage"
        )
    reductions = []
    for index in over if isinstance(over, Sequence) else (over,):
        name, use = bare_axis(index, f"`{what}`")
        if not use.reduced:
            raise CompileError(
                f"`{what}` over `{name}`, which is a data axis; make it with `reduce_axes`"
            )
        reductions.append(Axis(name, use.extent))
    if not reductions or len(set(reductions)) < len(reductions):
        raise CompileError(f"`{what}` of `{value}` needs reduction axes, each once")
    known = {axis.name: AxisUse(axis.extent, reduced=True) for axis in reductions}
    merge_uses(known, value.uses)
    kept = {name: use for name, use in value.uses.items() if name not in known}
    return TensorExpression(
        Reduction(op, value.tree), kept, value.operands, tuple(reductions), value.real
    )


def bare_axis(index: object, what: str) -> tuple[str, AxisUse]:
    """Name and use of an index that is a single axis."""
    if isinstance(index, Index) and len(index.uses) == 1:
        ((name, use),) = index.uses.items()
        if index.affine == Affine(((name, 1),)):
            return name, use
    raise CompileError(f"{what} takes axes themselves, not `{index}`")
