"""A field that a family declares is drawn, met as corners and mutated; nothing else is edited."""

from dataclasses import dataclass
from enum import IntEnum

import pytest

from tilewright.flows.verify.programs import (
    corners,
    mutants,
    possible_corners,
    random_instructions,
)
from tilewright.flows.verify.programs.random_instructions import ProgramDrawing
from tilewright.isa.configuration import PRESETS
from tilewright.isa.fields import Field
from tilewright.isa.instructions import Gemm

TINY = PRESETS["tiny"]


class Rounding(IntEnum):
    DOWN = 0
    UP = 1
    EVEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGemm(Gemm):
    """GEMM with a flag, a code and a number that only counts with the flag."""

    shifts: bool = False
    rounding: Rounding = Rounding.DOWN
    shift: int = 0

    @classmethod
    def immediates(cls, configuration):
        return (
            *super(NewGemm, cls).immediates(configuration),
            Field("shifts", 1),
            Field("rounding", 2),
            Field("shift", 5, signed=True),
        )

    def takes_effect(self, name):
        return self.shifts if name == "shift" else super(NewGemm, self).takes_effect(name)


@pytest.fixture
def drawing(monkeypatch) -> ProgramDrawing:
    monkeypatch.setattr(random_instructions, "Gemm", NewGemm)
    return ProgramDrawing(TINY, seed=1, data_bytes=1 << 14)


def test_a_new_field_is_drawn_with_all_its_values(drawing):
    drawn = [drawing.gemm() for _ in range(300)]
    assert all(isinstance(one, NewGemm) for one in drawn)
    assert {one.shifts for one in drawn} == {False, True}
    assert {one.rounding for one in drawn} == set(Rounding)
    assert {-16, -1, 0, 1, 15} <= {one.shift for one in drawn}
    met = {corner for one in drawn for corner in corners.program_corners([one], TINY, 1 << 14)}
    asked = set(possible_corners.possible_fields(NewGemm, TINY))
    assert {"gemm.shifts=True", "gemm.rounding=EVEN", "gemm.shift=-16", "gemm.shift=15"} <= asked
    assert asked <= met


def test_a_field_without_effect_meets_no_corner():
    still = NewGemm(act=0, wgt=0, acc=0, shift=15)
    met = corners.program_corners([still], TINY, 1 << 14)
    assert "gemm.shift=15" not in met
    assert "gemm.rounding=DOWN" in met


def test_a_new_field_is_mutated(drawing):
    program = (drawing.gemm(),)
    changed = mutants.mutants(program, seed=1)
    texts = [next(changed).text for _ in range(400)]
    for name in ("shifts", "rounding", "shift"):
        assert any(f"change `{name}` of 0" in text for text in texts)
