"""Operations of VECTOR in declarations: a law over values, in the form of `isa.patterns`."""

from collections.abc import Mapping

from ...argument_types import checked
from ...isa.expressions import Call, Expression, Immediate, Literal, Slot
from ...isa.vector_operations import Operation
from .values import TensorExpression, combine, value_from


@checked("te.apply")
def apply(
    operation: Operation,
    a: TensorExpression | int,
    b: TensorExpression | int = 0,
    a_multiplier: int = 1,
    b_multiplier: int = 1,
) -> TensorExpression:
    """Apply an operation of VECTOR to operands.

    Parameters
    ----------
    operation
        One of `Configuration.operations`; `Configuration.operation` finds it by name.
    a, b
        The operands; `b` matters only if the law reads it.
    a_multiplier, b_multiplier
        Fields that the law may read.

    Raises
    ------
    CompileError
        When an operand is not an integer, or when the law reads an operand with a reduction twice.
    """
    given: dict[str, TensorExpression | int] = {"a": a, "b": b}
    given |= {"a_multiplier": a_multiplier, "b_multiplier": b_multiplier}
    values = {name: value_from(value, f"`{operation.name}`") for name, value in given.items()}
    return _filled(operation.tree, values)


def _filled(tree: Expression, values: Mapping[str, TensorExpression]) -> TensorExpression:
    if isinstance(tree, Literal):
        return value_from(tree.value, "a law")
    if isinstance(tree, Slot):
        return values[tree.operand]
    if isinstance(tree, Immediate):
        return values[tree.field]
    assert isinstance(tree, Call)
    return combine(tree.op, *(_filled(part, values) for part in tree.arguments))
