"""Spaces: values from text, legal machines only, and parameters that follow."""

import pytest

from tilewright.errors import UsageError
from tilewright.flows.sweep import Space
from tilewright.flows.sweep.dimensions import read_dimension
from tilewright.flows.sweep.space import Rejected
from tilewright.flows.sweep.spaces import SPACES, read_description
from tilewright.isa.configuration import PRESETS


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("lanes", "8x8,8x16", ((8, 8), (8, 16))),
        ("act_depth", "512..4096", (512, 1024, 2048, 4096)),
        ("act_depth", "512..5000", (512, 1024, 2048, 4096)),
        ("act_depth", "512, 512,1024", (512, 1024)),
        ("token_bits", "2..4,6", (2, 3, 4, 6)),
        ("depthwise_taps", "0..2", (0, 1, 2)),
        ("latency", "16..100", (16, 32, 64)),
        ("latency", [16, "64..128"], (16, 64, 128)),
        ("latency", 20, (20,)),
        ("bandwidth", "1/4,1/2,1", ((1, 4), (1, 2), (1, 1))),
        ("outstanding", "0x10", (16,)),
        ("counters", "all,none", ("all", "none")),
    ],
)
def test_values_are_lists_ranges_and_pairs(name, text, values):
    assert read_dimension(name, text, "here").values == values


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "act_deph", "512",
            "here: unknown parameter `act_deph`; expected lanes, or a parameter of the "
            "configuration (`tilewright config show`), or a property of main memory (latency, "
            "bandwidth, outstanding, shared_bus); did you mean `act_depth`?",
        ),
        (
            "latency", "64ns",
            "here: expected a number of cycles without a unit, such as `64`, got `64ns`; correct "
            "it",
        ),
        ("act_depth", "1000", "here: `act_depth` must be a power of two from 8 to 65536, not 1000"),
        ("lanes", "8x12", "here: `lanes_out` must be a power of two from 2 to 64, not 12"),
        ("lanes", "8", "here: expected pairs such as `8x16`, got `8`; correct it"),
        ("lanes", "4x4..8", "here: expected pairs such as `8x16`, got `4x4..8`; correct it"),
        ("counters", "some", "here: `counters` must be all, basic or none, not `some`"),
        ("bandwidth", "4/1", "here: `beats` must be from 1 to `cycles`, not 4 in 1 cycles"),
        ("latency", "0", "here: `latency_cycles` must be from 1 to 1048576, not 0"),
        ("latency", "0..9", "here: `latency_cycles` must be from 1 to 1048576, not 0"),
        (
            "queue_depth", "8..2",
            "here: expected a range from a smaller to a larger number, got `8..2`; turn it round",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(name, text, message):
    with pytest.raises(UsageError) as caught:
        read_dimension(name, text, "here")
    assert str(caught.value) == message


def test_parameters_that_are_not_varied_follow():
    space = Space.of({"lanes": "2x2,4x8,16x16"})
    machines = [machine.configuration for machine in space.machines()]
    assert [(m.lanes_in, m.lanes_out, m.vector_lanes) for m in machines] == [
        (2, 2, 2), (4, 8, 4), (16, 16, 16),
    ]  # fmt: skip
    assert [machine.depthwise_taps for machine in machines] == [2, 3, 3]
    assert space.combinations == 3


def test_combinations_that_break_a_rule_are_left_out_and_counted():
    rejected = Rejected()
    space = Space.of({"lanes": "4x4,8x8", "vector_lanes": "4,8"})
    found = [machine.chosen for machine in space.machines(rejected)]
    assert found == [
        {"lanes": "4x4", "vector_lanes": "4"},
        {"lanes": "8x8", "vector_lanes": "4"},
        {"lanes": "8x8", "vector_lanes": "8"},
    ]
    assert rejected.count == 1
    (rule,) = rejected.rules
    assert rule.startswith("`lanes_in` must be a multiple of vector_lanes (8), not 4")


def test_machines_come_one_by_one():
    """A space of 10^13 combinations has a first machine at once."""
    space = Space.of(
        {
            name: "2..64" if name.startswith("lanes") else "8..65536"
            for name in ("lanes_in", "lanes_out", "act_depth", "wgt_depth", "acc_depth")
        }
        | dict.fromkeys(("tile_loops", "map_loops", "dma_loops"), "1..6")
        | {"queue_depth": "1..64", "outstanding_bursts": "1..64", "burst_beats": "1..16"}
    )
    assert space.combinations > 10**9
    assert next(space.machines()).configuration.lanes_in == 2


def test_two_names_for_one_parameter_are_refused():
    with pytest.raises(UsageError, match=r"`lanes` and `lanes_in` both set `lanes_in`"):
        Space.of({"lanes": "8x8", "lanes_in": "4,8"})


def test_memories_are_not_machines():
    space = Space.of({"lanes": "8x8", "latency": "16,64", "bandwidth": "1/2,1"})
    assert len(list(space.machines())) == 1
    assert [s.chosen for s in space.settings] == [
        {"latency": latency, "bandwidth": bandwidth}
        for latency in ("16", "64")
        for bandwidth in ("1/2", "1/1")
    ]
    assert (space.settings[0].memory.latency_cycles, space.settings[0].memory.cycles) == (16, 2)


@pytest.mark.parametrize("name", SPACES)
def test_every_named_space_has_legal_machines_only(name):
    rejected = Rejected()
    space = Space.of(read_description(name).vary)
    assert list(space.machines(rejected))
    assert rejected.count == 0


def test_a_file_describes_a_sweep(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(
        'base = "8x16"\nchip = "ecp5-45"\nclock_mhz = 120\nwhere = ["ms < 2"]\n'
        'minimise = ["ms", "ram"]\nset = { lut_tables = 1 }\nweights = { digits = 2 }\n'
        '[vary]\nlanes = ["4x4", "8x8"]\nact_depth = "512..1024"\nlatency = [16, 64]\n'
    )
    found = read_description(str(path))
    assert found.base == "8x16"
    assert found.where == ("ms < 2",)
    assert found.minimise == ("ms", "ram")
    assert found.changes == {"lut_tables": 1}
    assert found.weights == {"digits": 2}
    space = Space.of(found.vary, PRESETS["8x16"])
    assert space.combinations == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vari = 1", "unknown key `vari`; known are"),
        ("vary = 1", "`vary` must be a table, not `1`"),
        ("where = 'ms < 2'", "`where` must be a list, not `ms < 2`"),
        ("where = [1]", "`where` must be a string, not `1`"),
        ("clock_mhz = 'fast'", "`clock_mhz` must be a number, not `fast`"),
        ("vary = {", "not readable as TOML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_description(str(path))
    assert f"`--space {path}`: {message}" in str(caught.value)
