"""Laws of elementwise functions: what is read, what is refused, what is computed."""

import re

import numpy as np
import pytest

from tilewright.compiler.cpu.kernels.formulas import OPERATIONS as COMPILED
from tilewright.compiler.formulas import (
    OPERATIONS,
    compute,
    names_in,
    operations_in,
    read_formula,
    substituted,
)
from tilewright.compiler.graph.functions import BINARY, UNARY
from tilewright.errors import CompileError

READ = {
    "x * sigmoid(x)": ("mul", "x", ("sigmoid", "x")),
    "-x + 2 / 4": ("add", ("neg", "x"), 0.5),
    "x**2 % 3": ("mod", ("pow", "x", 2), 3),
    "a if a >= b else -1": ("select", ("less_equal", "b", "a"), "a", -1),
    "a != b and not c": ("and", ("not", ("equal", "a", "b")), ("not", "c")),
    "clip(x, 0, 1) * 1": ("clip", "x", 0, 1),
    "~a & b | c ^ 1 << 3": (
        "or",
        ("and", ("invert", "a"), "b"),
        ("xor", "c", ("shift_left", 1, 3)),
    ),
}

REFUSED = {
    "x +": "law `x +`: expected an expression in Python's syntax, such as `x * sigmoid(x)`; "
    "correct it",
    "x[0]": "law `x[0]`: `x[0]` is not part of a law",
    "open('x')": "law `open('x')`: `open` of 1 arguments: expected abs, sign, round",
    "x.real": "law `x.real`: `x.real` is not part of a law",
    "max(x)": "law `max(x)`: `max` of 1 arguments: expected 2 arguments; correct it",
    "a < b < c": "law `a < b < c`: `a < b < c` is not part of a law",
    "x" + " + x" * 200: "expected at most 1,000 characters and 200 names, numbers and operations",
    f"x / {'9' * 400}": "expected whole numbers up to 2^63; write larger ones as reals",
    "(" * 990 + "x" + ")" * 990: "expected at most 1,000 characters",
}


@pytest.mark.parametrize("law", READ)
def test_a_law_is_read(law: str) -> None:
    assert read_formula(law) == READ[law]


@pytest.mark.parametrize("law", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_law_is_refused(law: str) -> None:
    with pytest.raises(CompileError, match=re.escape(REFUSED[law])):
        read_formula(law)


def test_parameters_fold_with_the_numbers_around_them() -> None:
    formula = substituted(read_formula("x * (alpha / 2 + 1)"), {"alpha": 3.0})
    assert formula == ("mul", "x", 2.5)
    assert substituted(read_formula("alpha * x"), {"alpha": 1.0}) == "x"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_rounded_to_the_type_of_the_operands(dtype: str) -> None:
    x = np.linspace(-3, 3, 101).astype(dtype)
    got = compute(read_formula("(0.1 if x > 0 else 0.2) * x"), {"x": x})
    factor = np.where(x > 0, 0.1, 0.2).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, factor * x)


def test_every_function_reads_its_operands_and_parameters_and_nothing_else() -> None:
    for kind, function in {**UNARY, **BINARY}.items():
        known = {*function.operands, *function.parameters}
        assert {*names_in(function.formula)} == known, kind
        assert OPERATIONS.keys() >= {*operations_in(function.formula)}


def test_machine_code_has_no_operation_under_another_name() -> None:
    internal = {"decay", "real", "rounded", "finite", "truth", "int8", "uint8"}
    assert COMPILED.keys() - OPERATIONS.keys() == internal
