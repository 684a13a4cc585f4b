"""A memory model refuses values that no memory has."""

import pytest

from tilewright.errors import DeviceError
from tilewright.sim.memory_model import MemoryModel


def test_the_default_moves_one_beat_a_cycle_after_64():
    model = MemoryModel()
    assert (model.latency_cycles, model.beat_cycles, model.stall_probability) == (64, 1.0, 0.0)
    assert MemoryModel(beats=2, cycles=3).beat_cycles == 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"latency_cycles": 0},
            "memory model: `latency_cycles` must be from 1 to 1048576, not 0",
        ),
        (
            {"beats": 3, "cycles": 2},
            "memory model: `beats` must be from 1 to `cycles`, not 3 in 2 cycles",
        ),
        (
            {"outstanding_bursts": 0},
            "memory model: `outstanding_bursts` must be from 1 to 4096, not 0",
        ),
        (
            {"stall_probability": 1.0},
            "memory model: `stall_probability` must be from 0 to 0.95, not 1.0",
        ),
        (
            {"seed": -1},
            "memory model: `seed` must be a 64-bit number that is not negative, not -1",
        ),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(DeviceError) as refused:
        MemoryModel(**change)
    assert str(refused.value) == message
