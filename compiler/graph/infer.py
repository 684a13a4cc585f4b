"""Type inference: what an operator makes of its inputs' types, or why it cannot.

The builder and the verifier use it, so that a node's type can never disagree with its attributes.
"""

from ...errors import CompileError
from .families import FAMILIES
from .host_types import HOST_RULES
from .integer_types import INTEGER_RULES
from .ir import TensorType
from .operator import Operator
from .rules import TypeRule, Types, check_size

RULES: dict[type[Operator], TypeRule] = {**INTEGER_RULES, **HOST_RULES}
"""Operators that passes know, and their rules; those of all others stand in `families`."""


def infer(operator: Operator, types: Types) -> tuple[TensorType, ...]:
    """Return the types of an operator's outputs.

    Quantisation is passed on by operators that only move elements, and set by Quantize and Shift;
    the integer operators leave it to their creator.

    Parameters
    ----------
    operator : Operator
        With its attributes.
    types : sequence of TensorType
        Of the inputs.

    Raises
    ------
    CompileError
        If the inputs do not fit the operator, or an output would be absurdly large.
    """
    family = FAMILIES.get(type(operator))
    (low, high), rule = (family.arity, family.rule) if family else RULES[type(operator)]
    if not low <= len(types) <= high:
        expected = str(low) if low == high else f"{low} to {high}"
        raise CompileError(
            f"`{operator.op}`: expected {expected} inputs, got {len(types)}; give the missing "
            "ones or drop those that are too many"
        )
    found = rule(operator, types)
    return tuple(check_size(kind) for kind in (found if isinstance(found, tuple) else (found,)))
