"""Tokens made from conflicts are enough, stay inside their counters, and are not given twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Gemm, Halt, Load, Store, Sync, Unit, Vector
from tilewright.isa.tokens import synthesise_tokens

TINY = PRESETS["tiny"]


def load(row: int) -> Load:
    return Load(destination=Memory.ACT, fill=True, value=row, length=2, local=2 * row)


def test_independent_instructions_get_no_tokens():
    program = (load(0), Gemm(act=16, wgt=0, acc=0), Store(
        source=Memory.ACT, length=2, local=64, memory=0))  # fmt: skip
    assert synthesise_tokens(program, TINY) == (*program, Halt())


def test_a_conflict_gets_one_token():
    woven = synthesise_tokens((load(0), load(1), Gemm(act=1, wgt=0, acc=0)), TINY)
    assert [i.signal for i in woven[:2]] == [frozenset(), {Unit.GEMM}]
    assert woven[2].wait == {Unit.LOAD}


def test_what_is_ordered_already_gets_no_second_token():
    chain = (
        load(0),
        Gemm(act=0, wgt=0, acc=0),
        Vector(a_from_acc=True, dst=16, a=0),
        Gemm(act=0, wgt=0, acc=1),
        load(0),
    )
    woven = synthesise_tokens(chain, TINY)
    assert sum(len(i.signal) for i in woven) == 4
    check(woven, TINY, 64)


def test_tokens_that_the_program_came_with_are_dropped():
    wrong = Gemm(act=0, wgt=0, acc=0, wait=frozenset({Unit.STORE}))
    assert synthesise_tokens((wrong,), TINY) == (Gemm(act=0, wgt=0, acc=0), Halt())


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
def test_a_counter_never_overflows(count):
    """All loads come first; each GEMM needs its own, `token_limit` = 3 tokens fit."""
    program = [load(row) for row in range(count)]
    program += [Gemm(act=row, wgt=0, acc=0) for row in range(count)]
    woven = synthesise_tokens(program, TINY)
    report = check(woven, TINY, 64)
    assert max(report.peak_tokens.values()) <= TINY.token_limit
    assert [i for i in woven if not isinstance(i, Sync | Halt)] != program
    assert any(isinstance(i, Sync) for i in woven) == (count > TINY.token_limit)


@settings(max_examples=60)
@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(("load", "gemm", "vector", "store")), st.integers(0, 20)),
        max_size=30,
    ),
    extra=st.integers(0, 3),
)
def test_woven_programs_pass_the_checker(kinds, extra):
    builders = {
        "load": load,
        "gemm": lambda row: Gemm(act=row, wgt=row % 8, acc=row % 16),
        "vector": lambda row: (
            Vector(a_from_acc=True, dst=row, a=row % 16, to_acc=row % 3 == 0)
            if row % 3
            else Vector(a_from_acc=True, dst=row % 16, a=row % 16, to_acc=True)
        ),
        "store": lambda row: Store(source=Memory.ACT, length=2, local=2 * row, memory=row),
    }
    program = [builders[kind](row) for kind, row in kinds]
    woven = synthesise_tokens(
        program, TINY, lambda count: count - 1 if count > 3 - extra and extra else None
    )
    check(woven, TINY, 64)
