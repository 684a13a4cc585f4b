"""The measure itself works: the good design passes, faults are found, equal ones are proved."""

import pytest

from tilewright.flows.verify.mutation.equivalence import prove_equal
from tilewright.flows.verify.mutation.hardware import score_hardware
from tilewright.flows.verify.mutation.netlist import build_faulty_core
from tilewright.flows.verify.mutation.outcome import MutantStatus
from tilewright.flows.verify.mutation.score import Crash, try_all
from tilewright.isa.configuration import PRESETS

CONFIGURATION = PRESETS["tiny"]
FAULTS, SEED = 40, 1


@pytest.fixture(scope="module")
def score():
    """The score of some faults; making it, the design without faults has passed everything."""
    return score_hardware(CONFIGURATION, FAULTS, SEED, programs=20)


@pytest.mark.slow
def test_the_tests_kill_nearly_all_faults_of_the_hardware(score, capsys):
    killed, equal = MutantStatus.KILLED, (MutantStatus.EQUAL, MutantStatus.ARGUED)
    with capsys.disabled():
        print(
            f"\nmutation score of `tiny`: {score.share:.1%}; killed {score.count(killed)}, "
            f"equal {score.count(*equal)} of {FAULTS}"
        )
    assert score.count(MutantStatus.UNTRIED) == 0
    assert score.count(MutantStatus.KILLED) >= 30
    assert score.share >= 0.9


@pytest.mark.slow
def test_every_fault_has_a_place_and_every_kill_a_test(score):
    assert len({outcome.place for outcome in score.outcomes}) == FAULTS
    for outcome in score.outcomes:
        assert outcome.by or outcome.verdict is MutantStatus.EQUAL


@pytest.mark.slow
def test_no_killed_fault_is_proved_equal(score):
    killed = [o.number for o in score.outcomes if o.verdict is MutantStatus.KILLED]
    core = build_faulty_core(CONFIGURATION, FAULTS, SEED)
    assert prove_equal(core.netlist, killed) == set()


def test_a_process_that_dies_or_does_not_end_counts_and_the_others_go_on():
    def attempt(number: int) -> str:
        if number == 1:
            raise SystemExit
        while number == 2:
            pass
        return f"result {number}"

    found = dict(try_all(attempt, range(4), jobs=2, budget_s=1e9, limit_s=1))
    assert found == {0: "result 0", 1: Crash(), 2: Crash(), 3: "result 3"}


def test_no_fault_is_begun_beyond_the_budget():
    assert list(try_all(str, range(4), jobs=2, budget_s=-1)) == []
