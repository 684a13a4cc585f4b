"""Expressions match the laws that instructions declare, and nothing else."""

import pytest

from tilewright.isa.configuration import PRESETS
from tilewright.isa.expressions import (
    Affine,
    Call,
    Hole,
    Immediate,
    Literal,
    Match,
    Maybe,
    Op,
    Read,
    Reduction,
    Slot,
    matches,
    reads_of,
)
from tilewright.isa.instructions import Combine, ReduceMode
from tilewright.isa.patterns import GEMM, PATTERNS, VECTOR

C = Affine.of(c=1)
A, B = Read("a", (C,)), Read("b", (C,))


def first_match(pattern, tree) -> Match | None:
    return next(matches(pattern, tree), None)


def fields_of(pattern, tree):
    found = first_match(pattern, tree)
    assert found is not None, f"{tree} does not match"
    return dict(found.fields)


def test_affine_indices_drop_zero_terms_and_sort():
    assert Affine.of(-1, y=2, x=0, ky=1) == Affine((("ky", 1), ("y", 2)), -1)
    assert str(Affine.of(-1, y=2, ky=1)) == "ky + 2*y - 1"


def test_a_matrix_product_is_gemm_and_not_vector():
    product = Reduction(Op.ADD, Call(Op.MULTIPLY, (A, B)))
    assert first_match(GEMM.body, product) is not None
    assert first_match(GEMM.body, Call(Op.MULTIPLY, (A, B))) is None
    assert first_match(GEMM.body, Reduction(Op.MAXIMUM, Call(Op.MULTIPLY, (A, B)))) is None


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        (A, Combine.A),
        (Call(Op.MULTIPLY, (A, B)), Combine.MUL),
        (Call(Op.MAXIMUM, (A, B)), Combine.MAX),
        (Call(Op.MINIMUM, (A, B)), Combine.MIN),
    ],
)
def test_every_combination_has_its_code(tree, code):
    assert fields_of(VECTOR.body, tree)["combine"] == code


def test_a_sum_is_a_bias_or_a_second_operand():
    """Both are offered; where the operands lie decides."""
    offered = [
        {slot.operand for slot, _ in found.reads}
        for found in matches(VECTOR.body, Call(Op.ADD, (A, B)))
    ]
    assert {"a", "param.bias"} in offered
    assert {"a", "b"} in offered


def test_multipliers_become_immediates():
    terms = tuple(Call(Op.MULTIPLY, (x, Literal(n))) for x, n in ((A, 7), (B, -9)))
    found = fields_of(VECTOR.body, Call(Op.ADD, terms))
    assert (found["a_multiplier"], found["b_multiplier"]) == (7, -9)


def test_the_whole_epilogue_is_one_instruction():
    bias, scale, table = Read("bias", (C,)), Read("scale", (C,)), Read("table", ())
    total = Call(Op.ADD, (Reduction(Op.MAXIMUM, A), bias))
    shifted = Call(Op.ADD, (Call(Op.REQUANTISE, (total, scale)), Literal(5)))
    tree = Call(Op.LOOKUP, (table, Call(Op.CLAMP, (shifted, Literal(-9), Literal(90)))))
    found = first_match(VECTOR.body, tree)
    assert found is not None
    values = dict(found.fields)
    assert values["reduce"] == ReduceMode.MAX
    assert (values["bias"], values["scale"], values["lookup"]) == (1, 1, 1)
    assert (values["zero_point"], values["low"], values["high"]) == (5, -9, 90)
    bound = {slot.operand: read for slot, read in found.reads}
    assert bound == {"a": A, "param.bias": bias, "param.scale": scale, "table": table}


def test_missing_steps_of_the_epilogue_clear_their_flags():
    found = fields_of(VECTOR.body, A)
    assert (found["bias"], found["scale"], found["lookup"]) == (0, 0, 0)


def test_steps_in_another_order_do_not_match():
    early = Call(Op.ADD, (Call(Op.CLAMP, (A, Literal(-9), Literal(90))), Literal(5)))
    assert first_match(VECTOR.body, early) is None


def test_maybe_prefers_the_larger_form():
    pattern = Maybe("taken", Call(Op.ADD, (Hole(), Immediate("n"))), Slot("a"))
    assert fields_of(pattern, Call(Op.ADD, (A, Literal(3)))) == {"taken": 1, "n": 3}
    assert fields_of(pattern, A) == {"taken": 0}


def test_reads_are_found_from_left_to_right():
    assert reads_of(Reduction(Op.ADD, Call(Op.MULTIPLY, (A, B)))) == (A, B)


def test_patterns_name_operands_fields_and_parameters_that_exist():
    for pattern in PATTERNS:
        operands = {operand.name for operand in pattern.family.operands}
        immediates = {f.name for f in pattern.family.immediates(PRESETS["16x16"])}
        assert pattern.output.operand in operands
        for parameter in pattern.lanes.values():
            assert getattr(PRESETS["16x16"], parameter) > 0
        for place, choices in pattern.places.items():
            assert place.split(".")[0] in operands | immediates
            for settings in choices.values():
                assert set(settings) <= immediates
