"""The prover itself: what it reports of a broken claim, and what it refuses."""

import pytest
from amaranth.hdl import Const, Module, Signal

from .abc_in_yosys import verdict
from .bench import ProofBench, ProofError, single_bit
from .prove import REACHABILITY, bounded, decide, induction, unrolled

METHODS = [REACHABILITY, induction(6), bounded(6), unrolled(6)]


class CountBench(ProofBench):
    """A counter that goes on at arbitrary times and holds at its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def world(self, m: Module) -> None:
        count = Signal(4)
        with m.If((count != self.limit) & self.any(m, "goes_on")):
            m.d.sync += count.eq(count + 1)
        self.claim(m, count <= 3, "the count stays small")
        self.goal(m, count == self.limit, "the limit")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.mode} {method.engine}")
def test_a_broken_claim_is_named_with_its_place_its_cycle_and_a_trace(tmp_path, method):
    outcome = decide(CountBench(4), tmp_path, method)
    assert (outcome.status, outcome.claim, outcome.cycle) == ("FAIL", "the count stays small", 4)
    assert outcome.location.startswith(f"{__file__}:")
    assert outcome.trace is not None
    assert "count" in outcome.trace.read_text()
    assert str(outcome.trace) in str(outcome)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.mode} {method.engine}")
def test_a_claim_that_holds_passes_and_its_goal_is_reached(prover, method):
    prover.proves(CountBench(3), method)
    prover.reaches(CountBench(3), "the limit", method)


class UnclearedBench(ProofBench):
    """Two registers of which one has no reset."""

    def world(self, m: Module) -> None:
        kept, cleared = Signal(reset_less=True), Signal()
        m.d.sync += [kept.eq(kept), cleared.eq(cleared)]
        self.claim(m, ~cleared, "a register with a reset begins with its initial value")
        self.claim(m, ~kept, "a register without reset begins with any value")


def test_registers_without_reset_begin_with_any_value(prover):
    prover.refutes(UnclearedBench(), "without reset")


def test_a_claim_that_is_not_one_bit_is_refused():
    with pytest.raises(ProofError, match="a condition is a single bit"):
        single_bit(~Const(1, 2))


def test_an_undecided_claim_does_not_pass():
    assert verdict("snl_UNK 4 unknown", None) == ["Property undecided."]
    assert verdict("snl_UNK 3 unknown", 6) == ["Property undecided."]
    assert verdict("snl_UNK 5 unknown", 6) == ["No output asserted in 6 frames."]
