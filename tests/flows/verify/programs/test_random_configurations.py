"""Configurations for verification reach every parameter's ends, and programs of all are legal."""

import json
from dataclasses import fields

import pytest

from tilewright.flows.verify.__main__ import chosen_configurations
from tilewright.flows.verify.programs.random_configurations import (
    random_configuration,
    random_memory_parameters,
    verification_configurations,
)
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.memory_model import MemoryModel

NAMED = verification_configurations()
ENDS = {
    "lanes_in": (2, 16),
    "lanes_out": (2, 16),
    "vector_lanes": (2, 8),
    "act_banks": (2, 16),
    "wgt_banks": (1, 8),
    "acc_banks": (2, 16),
    "param_depth": (2, 128),
    "lut_tables": (1, 16),
    "bus_bits": (32, 256),
    "burst_beats": (1, 256),
    "outstanding_bursts": (1, 64),
    "queue_depth": (1, 32),
    "token_bits": (2, 8),
    "extent_bits": (4, 16),
    "tile_loops": (1, 6),
    "row_loops": (1, 4),
    "map_loops": (1, 6),
    "reduce_loops": (1, 4),
    "dma_loops": (1, 6),
    "address_bits": (20, 32),
    "counters": ("all", "none"),
    "packed_weights": ("int4", "none"),
    "transposed_weights": ("int8", "none"),
    "row_statistics": ("all", "none"),
}


def test_names_are_those_of_the_configurations_and_presets_are_among_them():
    assert len(NAMED) >= 20
    assert all(name == configuration.name for name, configuration in NAMED.items())
    assert len({configuration.hash for configuration in NAMED.values()}) == len(NAMED)
    for name in ("tiny", "4x4", "8x8", "8x16", "16x8"):
        assert NAMED[name] is PRESETS[name]


@pytest.mark.parametrize("parameter", ENDS)
def test_named_configurations_reach_both_ends_of_a_parameter(parameter):
    values = [getattr(configuration, parameter) for configuration in NAMED.values()]
    assert (min(values), max(values)) == ENDS[parameter]


def test_no_parameter_stands_still_over_random_configurations():
    drawn = [random_configuration(seed) for seed in range(200)]
    assert drawn == [random_configuration(seed) for seed in range(200)]
    for field in fields(Configuration):
        assert len({getattr(configuration, field.name) for configuration in drawn}) > 1, field.name
    assert any(c.lanes_in > c.lanes_out for c in drawn)
    assert any(c.lanes_in < c.lanes_out for c in drawn)
    assert max(c.size_bytes(memory) for c in drawn for memory in Memory if memory < 5) <= 1 << 16


@pytest.mark.parametrize("name", NAMED)
def test_programs_of_every_named_configuration_are_legal(name):
    for seed in range(6):
        program, image = random_program(NAMED[name], seed)
        check(program, NAMED[name], image.size)


def test_programs_of_random_configurations_are_legal():
    for seed in range(40):
        configuration = random_configuration(seed)
        program, image = random_program(configuration, seed)
        check(program, configuration, image.size)


def test_random_memories_are_memories_and_some_of_them_stall():
    def memory(seed: int) -> MemoryModel:
        return MemoryModel.of_parameters(random_memory_parameters(seed))

    memories = [memory(seed) for seed in range(100)]
    assert memories == [memory(seed) for seed in range(100)]
    assert {each.bus is None for each in memories} == {False, True}
    assert {0.0, 0.95} <= {memory.stall_probability for memory in memories}
    assert any(memory.outstanding_bursts == 1 for memory in memories)
    assert any(memory.beats < memory.cycles for memory in memories)


def test_a_machine_of_a_file_is_verified_under_its_own_name(tmp_path):
    machine = PRESETS["tiny"].replace(name="mine", extra_operations=("distance = abs(a - b)",))
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(machine.to_dict()), "utf-8")
    assert chosen_configurations(f"4x4,{path}") == {"4x4": PRESETS["4x4"], "mine": machine}
