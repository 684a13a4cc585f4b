"""Every rule of a configuration speaks in one sentence; names, hashes and files behave."""

import json

import pytest

from tilewright.errors import ConfigurationError
from tilewright.isa.configuration import (
    DEFAULT,
    OPTIONS,
    PARAMETERS,
    PRESETS,
    Configuration,
    Memory,
)
from tilewright.isa.settings import load_configuration

BROKEN_RULES = [
    ({"lanes_in": 0}, "`lanes_in` must be a positive whole number, not 0"),
    ({"queue_depth": 2.5}, "`queue_depth` must be a positive whole number, not 2.5"),
    ({"act_banks": True}, "`act_banks` must be a positive whole number, not True"),
    (
        {"lanes_out": 24},
        "`lanes_out` must be a power of two from 2 to 64, not 24; "
        "`lanes_out` must be a multiple of vector_lanes (16), not 24; lower `vector_lanes` with it",
    ),
    ({"act_banks": 1}, "`act_banks` must be a power of two from 2 to 16, not 1"),
    ({"act_depth": 131072}, "`act_depth` must be a power of two from 8 to 65536, not 131072"),
    ({"wgt_banks": 3}, "`wgt_banks` must be a power of two from 1 to 16, not 3"),
    ({"acc_banks": 32}, "`acc_banks` must be a power of two from 2 to 16, not 32"),
    ({"acc_depth": 4}, "`acc_depth` must be a power of two from 8 to 65536, not 4"),
    ({"param_depth": 1}, "`param_depth` must be a power of two from 2 to 16384, not 1"),
    ({"lut_tables": 3}, "`lut_tables` must be a power of two from 1 to 16, not 3"),
    ({"bus_bits": 16}, "`bus_bits` must be a power of two from 32 to 256, not 16"),
    ({"burst_beats": 512}, "`burst_beats` must be a power of two from 1 to 256, not 512"),
    (
        {"outstanding_bursts": 65},
        "`outstanding_bursts` must be a power of two from 1 to 64, not 65",
    ),
    ({"queue_depth": 3}, "`queue_depth` must be a power of two from 1 to 64, not 3"),
    ({"token_bits": 1}, "`token_bits` must be from 2 to 8, not 1"),
    ({"extent_bits": 17}, "`extent_bits` must be from 4 to 16, not 17"),
    ({"tile_loops": 7}, "`tile_loops` must be from 1 to 6, not 7"),
    ({"row_loops": 5}, "`row_loops` must be from 1 to 4, not 5"),
    ({"map_loops": 7}, "`map_loops` must be from 1 to 6, not 7"),
    ({"reduce_loops": 5}, "`reduce_loops` must be from 1 to 4, not 5"),
    ({"dma_loops": 7}, "`dma_loops` must be from 1 to 6, not 7"),
    ({"address_bits": 33}, "`address_bits` must be from 20 to 32, not 33"),
    (
        {"lanes_in": 8, "vector_lanes": 16},
        "`lanes_in` must be a multiple of vector_lanes (16), not 8; lower `vector_lanes` with it",
    ),
    (
        {"lanes_in": 32, "wgt_depth": 16},
        "`wgt_depth` must be a multiple of lanes_in (32), so that no weight tile crosses a bank, "
        "not 16",
    ),
    (
        {"bus_bits": 256, "burst_beats": 256},
        "a burst of 8192 bytes (burst_beats x bus_bits / 8) would cross the 4096-byte boundary of "
        "AXI4; lower `burst_beats`",
    ),
    (
        {"lanes_in": 2, "vector_lanes": 2, "bus_bits": 128, "depthwise_taps": 0},
        "`bus_bits` = 128 moves over four activation rows of 2 bytes a beat; lower it or raise "
        "`lanes_in`",
    ),
    (
        {"lanes_in": 4, "vector_lanes": 4, "depthwise_taps": 5},
        "`depthwise_taps` must be at most lanes_in (4), because each tap uses a row of the "
        "weight tile, not 5",
    ),
    (
        {"lanes_in": 2, "bus_bits": 64, "depthwise_lines": "two"},
        "`depthwise_lines` cannot be set on this machine, because each of its 3 lines uses a row "
        "of the weight tile, and lanes_in is 2; raise `lanes_in`",
    ),
    ({"depthwise_taps": -1}, "`depthwise_taps` must be a whole number, 0 or more, not -1"),
]


@pytest.mark.parametrize(("changes", "sentence"), BROKEN_RULES)
def test_a_broken_rule_is_said_in_one_sentence(changes, sentence):
    with pytest.raises(ConfigurationError) as refusal:
        DEFAULT.replace(**changes)
    assert str(refusal.value) == f"configuration `16x16`: {sentence}"


def test_coupled_parameters_follow_unless_they_are_set():
    small = DEFAULT.replace(lanes_in=2, lanes_out=4)
    assert (small.vector_lanes, small.depthwise_taps) == (2, 2)
    assert small == Configuration(name="16x16", lanes_in=2, lanes_out=4)
    assert PRESETS["tiny"].replace(lanes_in=32).wgt_depth == 32
    assert PRESETS["32x32"].replace(bus_bits=256, burst_beats=128).burst_beats == 128
    assert PRESETS["32x32"].replace(burst_beats=256).replace(bus_bits=256).burst_beats == 128
    assert PRESETS["32x32"].replace(lanes_in=4).bus_bits == 128
    assert PRESETS["32x32"].replace(lanes_in=2).bus_bits == 64
    assert DEFAULT.replace(lanes_in=32, lanes_out=32).vector_lanes == 16
    assert json.loads(small.to_json())["vector_lanes"] == 2


def test_parameters_say_what_they_mean_and_what_is_legal():
    assert list(PARAMETERS) == [*DEFAULT.parameters(), *OPTIONS]
    assert PARAMETERS["vector_lanes"].legal == (
        "power of two, 2 to 64, at most lanes_in and lanes_out"
    )
    assert PARAMETERS["token_bits"].legal == "2 to 8"
    for name, about in PARAMETERS.items():
        assert 0 < len(about.meaning) < 80
        assert getattr(DEFAULT, name) == about.default


def test_all_broken_rules_are_listed():
    with pytest.raises(ConfigurationError) as refusal:
        DEFAULT.replace(token_bits=1, extent_bits=3)
    assert str(refusal.value) == (
        "configuration `16x16`: `token_bits` must be from 2 to 8, not 1; "
        "`extent_bits` must be from 4 to 16, not 3"
    )


WORDS = [name for name, about in PARAMETERS.items() if about.choices]
NUMBERS = [name for name in PARAMETERS if name not in WORDS]


def test_a_choice_lists_its_words():
    assert PARAMETERS["counters"].legal == "all, basic or none"
    with pytest.raises(ConfigurationError) as refusal:
        DEFAULT.replace(counters="some")
    assert str(refusal.value) == (
        "configuration `16x16`: `counters` must be all, basic or none, not 'some'"
    )


@pytest.mark.parametrize("name", WORDS)
def test_the_hash_changes_with_every_word(name):
    hashes = {DEFAULT.replace(**{name: word}).hash for word in PARAMETERS[name].choices}
    assert len(hashes) == len(PARAMETERS[name].choices)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_machine_without_an_option_is_what_it_was_before(option):
    assert option not in DEFAULT.parameters()
    used = DEFAULT.replace(**{option: PARAMETERS[option].choices[-1]})
    assert used.parameters() == {**DEFAULT.parameters(), option: getattr(used, option)}
    assert Configuration.from_dict(json.loads(used.to_json())) == used


@pytest.mark.parametrize("name", NUMBERS)
def test_every_parameter_has_a_rule(name):
    with pytest.raises(ConfigurationError, match=f"`{name}` must be a .*whole number"):
        DEFAULT.replace(**{name: -1})


@pytest.mark.parametrize("name", NUMBERS)
def test_the_hash_changes_with_every_parameter(name):
    value = DEFAULT.parameters()[name]
    for other in (value * 2, value // 2, value + 1, value - 1):
        try:
            changed = DEFAULT.replace(**{name: other})
        except ConfigurationError:
            continue
        assert changed.hash != DEFAULT.hash
        assert DEFAULT.differences(changed) == f"`{name}` {value} against {other}"
        return
    pytest.fail(f"`{name}` has no legal neighbour")


def test_the_name_is_not_part_of_the_hash():
    assert DEFAULT.replace(name="other").hash == DEFAULT.hash
    assert DEFAULT.differences(DEFAULT.replace(name="other")) == ""


def test_presets_differ_in_their_hashes():
    assert len({preset.hash for preset in PRESETS.values()}) == len(PRESETS)
    assert all(name == preset.name for name, preset in PRESETS.items())


def test_the_hash_is_pinned_so_that_built_hardware_stays_recognisable():
    assert DEFAULT.hash == 0xBAF9195E


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_scratchpads_are_banks_of_whole_rows(preset):
    for memory in Memory:
        if memory is not Memory.DRAM:
            rows = preset.banks(memory) * preset.depth(memory)
            assert preset.rows(memory) == rows
            assert preset.size_bytes(memory) == rows * preset.row_bytes(memory)
            assert preset.bank_bytes(memory) * preset.banks(memory) == preset.size_bytes(memory)
    assert preset.size_bytes(Memory.LUT) == 256 * preset.lut_tables
    assert preset.token_limit == 2**preset.token_bits - 1


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError) as refusal:
        DEFAULT.replace(lanes=4)
    known = ", ".join(sorted(["name", "extra_operations", *PARAMETERS]))
    assert str(refusal.value) == (
        f"configuration `16x16`: unknown parameter `lanes`; known are {known}; did you mean "
        "`lanes_in`?"
    )


def test_a_preset_is_found_by_name():
    assert load_configuration("8x16") is PRESETS["8x16"]


def test_a_file_of_parameters_is_read_back_as_written(tmp_path):
    path = tmp_path / "mine.json"
    mine = DEFAULT.replace(name="mine", lanes_in=32, bus_bits=128)
    path.write_text(mine.to_json())
    assert load_configuration(str(path)) == mine


def test_a_file_without_a_name_is_called_like_itself(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"lanes_in": 32}))
    assert load_configuration(str(path)) == DEFAULT.replace(name="small", lanes_in=32)


def test_a_missing_configuration_is_refused_with_the_presets():
    with pytest.raises(ConfigurationError) as refusal:
        load_configuration("nowhere")
    assert str(refusal.value) == (
        f"configuration `nowhere`: neither a preset ({', '.join(PRESETS)}) nor a file; "
        "`tilewright config list` shows the presets"
    )


def test_a_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(ConfigurationError) as refusal:
        load_configuration(str(path))
    assert str(refusal.value) == (
        f"configuration `{path}`: not readable as JSON: Expecting property name enclosed in "
        "double quotes: line 1 column 2 (char 1)"
    )


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not readable as JSON"):
        load_configuration(str(path))


def test_json_that_is_not_an_object_is_refused(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1, 2]")
    with pytest.raises(ConfigurationError) as refusal:
        load_configuration(str(path))
    assert str(refusal.value) == f"configuration `{path}`: expected a JSON object of parameters"


def test_json_with_an_unknown_parameter_is_refused():
    known = ", ".join(sorted(["name", "extra_operations", *PARAMETERS]))
    with pytest.raises(ConfigurationError) as refusal:
        Configuration.from_dict({"lanes_inn": 4}, "configuration `x`")
    assert str(refusal.value) == (
        f"configuration `x`: unknown parameter `lanes_inn`; known are {known}; "
        "did you mean `lanes_in`?"
    )
