"""One grammar for machines and memories: what is printed is accepted everywhere."""

import pytest

from tilewright.errors import ConfigurationError, UsageError
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.memory_model import MemoryModel, SharedBus
from tilewright.isa.settings import (
    DEFAULT_MEMORY,
    changed,
    load_configuration,
    memory_text,
    read_machine_and_memory,
    read_memory,
    read_settings,
)

BUS = SharedBus.of_cycles(6, 7, 7, 781)


@pytest.mark.parametrize(
    "text", ["16x16", "8X8", "16x16,lanes_in=4", "8x8,lanes=4x8,act_depth=512"]
)
def test_the_name_of_a_machine_is_the_machine(text):
    machine = load_configuration(text)
    assert load_configuration(machine.name) == machine


def test_settings_are_those_of_set():
    settings = ["lanes=8x16", "act_depth=0x200", "counters=basic"]
    machine = load_configuration(",".join(["16x16", *settings]))
    assert machine == changed(PRESETS["16x16"], settings)
    assert (machine.lanes_in, machine.lanes_out, machine.act_depth) == (8, 16, 512)


def test_settings_apply_together():
    """`vector_lanes` = 8 alone would not fit 4 lanes."""
    assert changed(DEFAULT, ["vector_lanes=2", "lanes=2x2"]).vector_lanes == 2
    assert changed(DEFAULT, ["act_depth=512", "act_depth=1024"]).act_depth == 1024


def test_a_file_is_a_machine_even_with_a_comma_in_its_name(tmp_path):
    path = tmp_path / "mine,new.json"
    path.write_text('{"lanes_in": 8, "lanes_out": 8}')
    assert load_configuration(str(path)).lanes_in == 8
    other = tmp_path / "mine.json"
    other.write_text('{"lanes_in": 8, "lanes_out": 8}')
    assert load_configuration(f"{other},bus_bits=32").bus_bits == 32


def test_the_point_of_a_sweep_is_a_machine():
    point = "lanes=2x4,act_depth=256"
    assert load_configuration(point) == DEFAULT.replace(
        name=f"16x16,{point}", lanes_in=2, lanes_out=4, act_depth=256
    )
    assert changed(DEFAULT, [point]) == changed(DEFAULT, point.split(","))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("16x16,latency=200", UsageError, "`latency` is a property of main memory, not of the "
         "machine; use `--latency` (in `sweep`, `--vary latency=VALUES`)"),
        ("16x16,lanes", UsageError, "expected NAME=VALUE such as `act_depth=4096`, got `lanes`"),
        ("16x16,lanes=8x8,4x4", UsageError, "expected NAME=VALUE"),
        ("16x16,act_depth=512..1024", UsageError, "expected one value of `act_depth`, got"),
        ("16x16,extra_operations=half", UsageError, "`extra_operations` stands in a file of "
         "parameters alone; begin one with `tilewright config show --json mine.json`, and give "
         "`--config mine.json`"),
        ("16x16,tile_loops=1..4611686018427387904", UsageError, "`tile_loops`"),
        (f"16x16,act_depth=1..0x{'f' * 20_000}", UsageError, "`act_depth`"),
        ("17x17,act_depth=512", ConfigurationError, "neither a preset"),
        ("8x8,vector_lanes=16", ConfigurationError, "`lanes_in` must be a multiple of"),
    ],
)  # fmt: skip
def test_a_machine_that_is_none_is_explained(text, error, message):
    with pytest.raises(error) as caught:
        load_configuration(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "memory",
    [
        DEFAULT_MEMORY,
        MemoryModel(latency_cycles=7, beats=3, cycles=4, outstanding_bursts=2),
        MemoryModel(cycles=4, bus=BUS),
    ],
)
def test_the_text_of_a_memory_is_the_memory(memory):
    assert read_memory(memory_text(memory), "here") == memory
    assert memory_text(memory.with_stalls(0.3, 5)) == memory_text(memory)


def test_what_a_memory_does_not_name_has_its_default():
    assert read_memory("default", "here") == DEFAULT_MEMORY
    assert read_memory("latency=200", "here") == MemoryModel(latency_cycles=200)
    shared = read_settings(["shared_bus=6/7/7/781"], "here")
    assert shared == {"shared_bus": (6, 7, 7, 781)}
    assert read_settings(["shared_bus=none"], "here") == {"shared_bus": None}


def test_a_side_names_machine_and_memory_and_keeps_the_rest():
    memory = MemoryModel(latency_cycles=80, bus=None)
    machine, timed = read_machine_and_memory("bandwidth=1/2", "here", None, memory)
    assert machine is None
    assert timed == MemoryModel(latency_cycles=80, cycles=2)
    machine, timed = read_machine_and_memory(
        "8x8,latency=9,act_depth=512", "here", PRESETS["4x4"], memory, ["bus_bits=32"]
    )
    assert machine is not None
    assert (machine.name, timed.latency_cycles) == ("8x8,bus_bits=32,act_depth=512", 9)
