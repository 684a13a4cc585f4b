"""Epilogues: what becomes of a product's sums before they are stored, as one expression."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ....errors import CompileError
from ... import te
from ...formulas import APPROXIMATED, Formula, names_in, operations_in, real_numbers, substituted
from ...graph.functions import UNARY
from ...te import TensorExpression
from .description import Array
from .formulas import FUSED, value_of


class Extent(Enum):
    """Numbers of an operand."""

    ONE = "one"
    COLUMNS = "one for each column"
    HEADS = "one for each head"
    SUMS = "one for each sum"


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """An operand of an epilogue.

    Parameters
    ----------
    name, dtype
        Its name in the formula, and its element type.
    extent
        How many numbers it has.
    is_constant
        Whether it is the same in all calls; only with one number for each column or head.
    """

    name: str
    dtype: str = "float32"
    extent: Extent = Extent.COLUMNS
    is_constant: bool = True


BIASED: Formula = ("add", "sum", "bias")
SCALED: Formula = ("mul", ("real", BIASED), "scale")
"""The sum with its bias, and that times a factor for each column, as bytes begin."""

BIAS = EpilogueOperand("bias")
INTEGER_BIAS = EpilogueOperand("bias", "int32")
SCALE = EpilogueOperand("scale")
HEAD_SCALE = EpilogueOperand("scale", extent=Extent.HEADS)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The function of each sum that a product stores.

    Parameters
    ----------
    formula
        As in `Elementwise`, of `sum` and the operands; sums and products of float32 may fuse.
    dtype
        Element type of the output.
    operands
        The operands, in the order of a call.
    """

    formula: Formula
    dtype: str
    operands: tuple[EpilogueOperand, ...] = ()

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls."""
        return tuple(one.name for one in self.operands if one.is_constant)

    @property
    def has_polynomials(self) -> bool:
        """Whether it evaluates a polynomial, whose constants occupy registers."""
        return not APPROXIMATED.isdisjoint(operations_in(self.formula))

    def reads(self, name: str) -> bool:
        """Whether the formula has an operand of this name."""
        return name in names_in(self.formula)

    def arrays(self, output: tuple[int, ...]) -> dict[str, Array]:
        """The operands, and an output whose last extent is the columns."""
        shapes = {Extent.ONE: (1,), Extent.COLUMNS: output[-1:], Extent.SUMS: output}
        found = {one.name: Array(one.dtype, shapes[one.extent]) for one in self.operands}
        return {**found, "out": Array(self.dtype, output)}

    def value(
        self,
        total: TensorExpression,
        columns: tuple[int, ...] = (),
        column: tuple[te.Index | int, ...] = (),
        sums: tuple[int, ...] = (),
        place: tuple[te.Index | int, ...] = (),
        **more: TensorExpression,
    ) -> TensorExpression:
        """The result for a sum, which may be float32 where integers in it are exact.

        Parameters
        ----------
        total
            The sum.
        columns, column
            Extents of constants, as the planner packs them, and the place in them; heads for heads.
        sums, place
            Extents of arrays like the output, and the place in them.
        more
            Further values that the formula reads.
        """
        read = {"sum": total, **more}
        for one in self.operands:
            shape, index, dtype = sums, place, one.dtype
            if one.is_constant:
                shape, index, dtype = columns, column, "float32" if total.real else dtype
            elif one.extent is Extent.COLUMNS:
                shape, index = sums[-len(column) :], column
            elif one.extent is Extent.ONE:
                shape, index = (1,), (0,)
            read[one.name] = te.tensor(one.name, dtype, shape)[index]
        return value_of(self.formula, read, FUSED)


WITH_BIAS = Epilogue(BIASED, "float32", (BIAS,))
"""The sum and a bias, in float32."""

ACTIVATIONS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "relu": ("Relu", ()),
    "relu6": ("Clip", (0.0, 6.0)),
    "sigmoid": ("Sigmoid", ()),
    "tanh": ("Tanh", ()),
    "gelu": ("Gelu", ()),
    "silu": ("Swish", (1.0,)),
    "hardswish": ("HardSwish", ()),
}
"""Activations that can follow a float32 product: a function of `UNARY` and its parameters."""


def real_epilogue(activation: str = "", residual: bool = False) -> Epilogue:
    """The bias, an array like the output if `residual`, and an activation if there is one.

    Raises
    ------
    CompileError
        When the activation is unknown.
    """
    plain = WITH_BIAS
    if residual:
        plain = with_residual(plain, ("add", BIASED, "residual"))
    if not activation:
        return plain
    if activation not in ACTIVATIONS:
        raise CompileError(
            f"product: unknown activation `{activation}`; choose {', '.join(ACTIVATIONS)}"
        )
    kind, parameters = ACTIVATIONS[activation]
    formula = UNARY[kind].with_parameters(parameters)
    return replace(plain, formula=real_numbers(substituted(formula, {"x": plain.formula})))


def with_residual(epilogue: Epilogue, formula: Formula, dtype: str = "float32") -> Epilogue:
    """An epilogue with another formula, which also reads an array like the output."""
    other = EpilogueOperand("residual", dtype, Extent.SUMS, is_constant=False)
    return replace(epilogue, formula=formula, operands=(*epilogue.operands, other))


def dequantised(has_row: bool, factor: Extent | None = None, has_addend: bool = False) -> Epilogue:
    """`(sum + bias - row) * factor + addend`, each operation rounded by itself.

    `bias` and `addend` are constants; `row`, a number for each column, and `factor` come with each
    call. Without a factor, the output is int32.

    Parameters
    ----------
    has_row
        Whether there is a row.
    factor
        Extent of the factor, if there is one.
    has_addend
        Whether there is an addend; only with a factor.
    """
    formula, operands, dtype = BIASED, [INTEGER_BIAS], "int32"
    if has_row:
        formula = ("sub", BIASED, "row")
        operands.append(EpilogueOperand("row", "int32", is_constant=False))
    if factor is not None:
        formula, dtype = ("single", ("mul", ("real", formula), "factor")), "float32"
        operands.append(EpilogueOperand("factor", "float32", factor, False))
    if has_addend:
        formula = ("single", ("add", formula, "addend"))
        operands.append(EpilogueOperand("addend"))
    return Epilogue(formula, dtype, tuple(operands))


def per_row_epilogue(residual: bool = False) -> Epilogue:
    """The epilogue of rows with a `step` each: `sum * step * factor + bias`, and a residual."""
    scaled: Formula = ("mul", ("real", "sum"), ("mul", "step", "factor"))
    plain = Epilogue(("add", scaled, "bias"), "float32", (EpilogueOperand("factor"), BIAS))
    return with_residual(plain, ("add", plain.formula, "residual")) if residual else plain


def occurs_only_in(name: str, part: Formula, formula: Formula) -> bool:
    """Whether a name occurs in a formula only inside of occurrences of `part`."""
    if formula == part or not isinstance(formula, tuple):
        return formula != name
    return all(occurs_only_in(name, part, each) for each in formula[1:])
