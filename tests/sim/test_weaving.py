"""The compiled weaver gives the tokens of `isa.tokens`: random programs, full counters, faults."""

import pytest

from tilewright.errors import ToolError
from tilewright.flows.verify.programs.random_configurations import random_configuration
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Gemm, Halt, Load, Sync
from tilewright.isa.tokens import synthesise_tokens
from tilewright.sim.timing import ExactMeasure, timing, weaving
from tilewright.sim.timing.weaving import weave

TINY = PRESETS["tiny"]


def load(row: int) -> Load:
    return Load(destination=Memory.ACT, fill=True, value=row, length=2, local=2 * row)


@pytest.mark.parametrize("seed", range(36))
def test_random_programs_get_the_tokens_of_the_definition(seed):
    """Every third program is for a random machine; all have the SYNCs of their scenes."""
    machine = random_configuration(seed) if seed % 3 == 0 else PRESETS["tiny"]
    program, _ = random_program(machine, seed, length=150)
    assert weave(program, machine) == synthesise_tokens(program, machine)


@pytest.mark.parametrize("count", [3, 4, 9, 40])
def test_syncs_are_placed_where_counters_are_full(count):
    program = [load(row) for row in range(count)]
    program += [Gemm(act=row, wgt=0, acc=0) for row in range(count)]
    woven = weave(program, TINY)
    assert woven == synthesise_tokens(program, TINY)
    assert any(isinstance(one, Sync) for one in woven) == (count > TINY.token_limit)


def test_an_empty_program_is_a_halt():
    assert weave((), TINY) == (Halt(),)


def test_accesses_behind_a_memory_are_left_to_the_definition():
    """Their banks have no bits of their own; the checker reports such programs later."""
    program = [load(1 << 20), Gemm(act=1 << 20, wgt=0, acc=0), Gemm(act=1 << 20, wgt=0, acc=0)]
    assert weave(program, TINY) == synthesise_tokens(program, TINY)


def test_an_interruption_while_shapes_are_compared_is_raised(monkeypatch):
    """An exception in a callback from C++ would otherwise be printed, and tokens be wrong."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(weaving, "shapes_meet", interrupted)
    program, _ = random_program(TINY, 4, length=150)
    with pytest.raises(KeyboardInterrupt):
        weave(program, TINY)


def test_without_a_compiler_the_definition_weaves_and_one_line_says_so(monkeypatch, capsys):
    def no_compiler():
        raise ToolError("simulation: no C++ compiler")

    monkeypatch.setattr(timing, "library", no_compiler)
    timing._say_once.cache_clear()
    program, measure = [load(0), load(1), Gemm(act=1, wgt=0, acc=0)], ExactMeasure()
    woven = measure.weave(program, TINY)
    assert woven == synthesise_tokens(program, TINY)
    assert measure(woven, TINY)[0] > 0
    assert capsys.readouterr().err.count("no C++ compiler; timing in Python") == 1
