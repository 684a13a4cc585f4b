"""Every byte and every cycle of random programs on corner machines, as in `make verify`."""

from dataclasses import replace

import pytest

from tilewright.flows.verify import comparison
from tilewright.flows.verify.__main__ import chunks
from tilewright.flows.verify.programs.cases import parse_case
from tilewright.flows.verify.programs.random_configurations import verification_configurations
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Gemm, Halt
from tilewright.sim.timing import COLUMNS, Timer

CONFIGURATIONS = (
    "tiny",
    "4x4",
    "8x8",
    "8x16",
    "16x8",
    "single-beats",
    "bus-256",
    "queue-1",
    "narrow-rows",
    "lines",
)
PROGRAMS = 40


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_model_and_rtl_agree_in_every_cycle(name, capsys):
    tally = comparison.verify_programs(verification_configurations()[name], range(PROGRAMS), 40)
    with capsys.disabled():
        print(
            f"\n{name}: {tally.programs} programs, {tally.instructions} instructions, "
            f"{tally.cycles} cycles, largest error {tally.largest_error}"
        )
    assert tally.failures == []
    assert tally.largest_error == 0
    assert tally.programs == PROGRAMS
    assert tally.stalled >= PROGRAMS // comparison.STALLED_EVERY


@pytest.mark.slow
def test_a_model_that_is_a_cycle_off_is_found_and_kept_small(monkeypatch, tmp_path):
    class Late(Timer):
        def run(self, memory=None):
            timing = super().run(memory)
            times = timing.times.copy()
            gemms = [isinstance(instruction, Gemm) for instruction in timing.program]
            times[gemms, COLUMNS.index("retired")] += 1
            return replace(timing, times=times)

    monkeypatch.setattr(comparison, "Timer", Late)
    tally = comparison.verify_programs(PRESETS["tiny"], [4], 30, tmp_path)
    assert tally.failed == 1
    assert tally.largest_error == 1
    assert "model and RTL differ by up to 1 cycles" in tally.failures[0]
    (path,) = tmp_path.iterdir()
    assert f"kept as `{path}`" in tally.failures[0]
    small = parse_case(path.read_text(), path.name).program
    assert [type(instruction) for instruction in small] == [Gemm, Halt]


def test_programs_are_spread_over_the_configurations():
    work = list(chunks(["a", "b", "c"], 50, 7))
    for name, count in (("a", 17), ("b", 17), ("c", 16)):
        seeds = [seed for chosen, part in work for seed in part if chosen == name]
        assert seeds == list(range(7, 7 + count))
