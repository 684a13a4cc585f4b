"""Every byte and every cycle of random programs on corner machines, as in `make verify`."""

from dataclasses import replace

import pytest

from tilewright.flows import verify
from tilewright.isa.configuration import PRESETS
from tilewright.isa.random_configurations import verification_configurations
from tilewright.sim.timing import Timer

CONFIGURATIONS = (
    "tiny",
    "4x4",
    "8x8",
    "8x16",
    "16x8",
    "single-beats",
    "bus-256",
    "queue-1",
)
PROGRAMS = 40


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_model_and_rtl_agree_in_every_cycle(name, capsys):
    tally = verify.verify_programs(verification_configurations()[name], range(PROGRAMS), 40)
    with capsys.disabled():
        print(
            f"\n{name}: {tally.programs} programs, {tally.instructions} instructions, "
            f"{tally.cycles} cycles, largest error {tally.largest_error}"
        )
    assert tally.failures == []
    assert tally.largest_error == 0
    assert tally.programs == PROGRAMS
    assert tally.stalled >= PROGRAMS // verify.STALLED_EVERY


@pytest.mark.slow
def test_a_model_that_is_a_cycle_off_is_found(monkeypatch):
    class Late(Timer):
        def run(self, memory=None):
            timing = super().run(memory)
            times = timing.times.copy()
            times[3:, -2] += 1
            return replace(timing, times=times)

    monkeypatch.setattr(verify, "Timer", Late)
    tally = verify.verify_programs(PRESETS["tiny"], range(1, 3), 20)
    assert tally.failed == 2
    assert tally.largest_error == 1
    assert "first at instruction 3" in tally.failures[0]


def test_programs_are_spread_over_the_configurations():
    work = list(verify.chunks(["a", "b", "c"], 50, 7))
    for name, count in (("a", 17), ("b", 17), ("c", 16)):
        seeds = [seed for chosen, part in work for seed in part if chosen == name]
        assert seeds == list(range(7, 7 + count))
