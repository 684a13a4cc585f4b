"""A memory model refuses values that no memory has."""

from dataclasses import asdict, replace

import pytest

from tilewright.errors import DeviceError
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel, SharedBus
from tilewright.isa.sdram import SDRAMS


def test_the_default_moves_one_beat_a_cycle_after_64():
    model = MemoryModel()
    assert (model.latency_cycles, model.beat_cycles, model.stall_probability) == (64, 1.0, 0.0)
    assert MemoryModel(beats=2, cycles=3).beat_cycles == 1.5


BUS = SharedBus(
    read_gap_cycles=6, write_gap_cycles=7, refresh_cycles=7, refresh_interval_cycles=781
)


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
        (
            {"beats": 2, "cycles": 3, "bus": BUS},
            "memory model: `beats` must be 1 on a shared bus, not 2",
        ),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(DeviceError) as refused:
        MemoryModel(**change)
    assert str(refused.value) == message


def test_an_sdram_is_a_memory_with_a_shared_bus():
    """tRCD and tRP of 21 ns, and tRFC of 66 ns, are 3 and 7 cycles; tREFI is 7,812.5 ns."""
    found = MemoryModel.of_sdram(SDRAMS["sdr-x16"], PRESETS["8x8"], 100_000_000)
    assert found == MemoryModel(latency_cycles=14, cycles=4, bus=BUS)
    assert MemoryModel.of_parameters(asdict(found)) == found


def test_a_refresh_that_never_ends_is_refused():
    with pytest.raises(DeviceError) as refused:
        replace(BUS, refresh_interval_cycles=13)
    assert str(refused.value) == (
        "memory model: `refresh_interval_cycles` must be from 14 to 1048576, not 13"
    )
