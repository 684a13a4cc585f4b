"""The area model: its rows, its fit, and what it says of machines that it never saw."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import UsageError
from tilewright.flows.area import __main__ as command
from tilewright.flows.area import fit
from tilewright.flows.area.clock import clock_of, estimated_clock, measured_rows
from tilewright.flows.area.features import UNITS
from tilewright.flows.area.fit import errors_table, fit_or_scale, scale
from tilewright.flows.area.model import estimate, estimated, read_model
from tilewright.flows.area.resources import resources, smallest_device
from tilewright.flows.area.rows import AreaRow, measure, read_rows, write_rows
from tilewright.flows.area.samples import first_samples
from tilewright.flows.synthesis.devices import find_device
from tilewright.flows.synthesis.ledger import read_rows as read_ledger
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS

MEDIAN, WORST = 0.05, 0.15
"""Greatest errors on machines that the fit did not see, as shares."""

ROWS = read_rows()
TECHNOLOGIES = tuple(read_model())


def rows_of(technology: str) -> list[AreaRow]:
    return [row for row in ROWS if row.technology.value == technology]


_FITS: list[tuple[list[AreaRow], dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def fitted_once(monkeypatch) -> None:
    """Fit the same rows once."""
    real = fit.fit

    def fit_once(rows):
        for others, found in _FITS:
            if others == rows:
                return found
        _FITS.append((rows, real(rows)))
        return _FITS[-1][1]

    monkeypatch.setattr(fit, "fit", fit_once)


def fit_of(technology: str) -> dict[str, Any]:
    return fit_or_scale(Technology(technology), rows_of(technology), read_model())


def test_the_units_of_a_row_make_the_whole_core():
    for row in ROWS:
        for name, used in row.resources.items():
            assert sum(unit.get(name, 0) for unit in row.units.values()) == used
        assert row.units.keys() <= UNITS.keys()


@pytest.mark.parametrize("technology", TECHNOLOGIES)
def test_the_fit_is_good_on_machines_that_it_never_saw(technology):
    rows, kept = rows_of(technology), read_model()[technology]
    found = fit_of(technology)
    for resource in estimated(Technology(technology)):
        assert found["errors"][resource]["median"] <= MEDIAN
        assert found["errors"][resource]["worst"] <= WORST
        median = kept["errors"][resource]["median"]
        assert median == pytest.approx(found["errors"][resource]["median"], abs=0.002)
    assert kept["rows"] == len(rows)
    assert kept["rtl"] == sorted({row.rtl for row in rows})


def test_the_page_tells_the_errors():
    page = (Path(__file__).parents[3] / "docs" / "guide" / "synthesis.md").read_text()
    assert errors_table(read_model()) in page


@pytest.mark.parametrize("technology", TECHNOLOGIES)
def test_the_kept_factors_are_those_of_the_rows(technology, monkeypatch):
    """Factors themselves may differ where two quantities are equal in all rows."""
    rows = rows_of(technology)
    kept = [estimate(row.machine, row.technology, row.multipliers) for row in rows]
    fitted = {technology: fit_of(technology)}
    monkeypatch.setattr("tilewright.flows.area.model.read_model", lambda: fitted)
    for row, before in zip(rows, kept, strict=True):
        now = estimate(row.machine, row.technology, row.multipliers)
        for resource in estimated(row.technology):
            value = before.total[resource]
            assert value == pytest.approx(now.total[resource], rel=0.01)
            assert value == pytest.approx(row.resources[resource], rel=WORST)


def test_a_scaled_fit_has_the_median_ratio_of_its_rows():
    """Three rows that take 20, 30 and 40 % more than their estimate: 30 % more is the factor."""
    units = read_model()["xilinx7"]["units"]
    rows = []
    for share, row in zip((1.2, 1.3, 1.4), rows_of("ultrascale"), strict=False):
        told = estimate(row.machine, Technology.XILINX7)
        used = {name: round(share * count) for name, count in told.total.items()}
        rows.append(replace(row, resources={**row.resources, **used}))
    found = scale(rows, units)
    for name in ("lut", "ff"):
        for unit, factors in units.items():
            expected = {key: 1.3 * value for key, value in factors[name].items()}
            assert found["units"][unit][name] == pytest.approx(expected, rel=0.001)
        # Without the largest, the others' median is 1.25; without the smallest, 1.35.
        assert found["errors"][name]["median"] == pytest.approx(1 - 1.25 / 1.4, abs=0.001)
        assert found["errors"][name]["worst"] == pytest.approx(1.35 / 1.2 - 1, abs=0.001)


@pytest.mark.parametrize(
    ("changes", "resource"),
    [
        ({"vector_lanes": 4}, "lut"),
        ({"lanes_out": 4}, "lut"),
        ({"queue_depth": 2}, "lut"),
        ({"counters": "none"}, "ff"),
        ({"dma_loops": 2}, "ff"),
        ({"extent_bits": 8}, "ff"),
        ({"bus_bits": 32}, "ff"),
    ],
)
def test_less_hardware_takes_less_logic(changes, resource):
    before, after = PRESETS["8x8"], PRESETS["8x8"].replace(**changes)
    assert getattr(estimate(after), resource) < getattr(estimate(before), resource)


def test_lanes_with_more_multipliers_take_less_logic():
    luts = [estimate(PRESETS["8x8"], multipliers=on_chip).lut for on_chip in (None, 56, 64)]
    assert luts == sorted(luts, reverse=True)
    assert len(set(luts)) == 3


def test_the_smallest_chip_that_has_enough_is_chosen():
    assert smallest_device(PRESETS["tiny"]).device.name == "ecp5-25"
    assert smallest_device(PRESETS["8x8"]).device.name == "ecp5-45"
    largest = smallest_device(PRESETS["32x32"])
    assert largest.device.name == "ecp5-85"
    assert "multipliers" in largest.short


def test_other_families_have_exact_counts_only():
    assert resources(PRESETS["gatemate"], find_device("ccgm1a1")).used == {
        "ram": 22,
        "multipliers": 0,
    }
    with pytest.raises(
        UsageError, match=r"^device `up5k`: expected one of ecp5-25, .*; choose one"
    ):
        resources(PRESETS["4x4"], find_device("up5k"))


def test_an_asic_takes_gates_and_has_memories():
    small, large = (resources(PRESETS[name], find_device("asic")) for name in ("tiny", "32x32"))
    assert set(small.used) == {"gates", "ff", "memory_bits"}
    assert small.used["gates"] > 5 * small.used["ff"]
    assert small.error("gates") is not None
    assert small.error("memory_bits") is None
    assert large.short == []


def test_a_clock_is_measured_or_estimated():
    kept = next(row for row in read_ledger() if row.clocks_mhz)
    device = find_device(kept.device)
    measured = clock_of(kept.machine, device)
    assert measured is not None
    assert measured.measured
    assert (measured.median_mhz, measured.seeds) == (kept.median_mhz, len(kept.clocks_mhz))
    other = clock_of(kept.machine.replace(token_bits=7), device)
    assert other is not None
    assert not other.measured
    assert "an estimate" in str(other)
    assert clock_of(kept.machine, find_device("xc7z020")) is None


def test_an_estimated_clock_falls_with_the_array_and_its_range_has_all_seeds():
    rows = measured_rows(find_device("ecp5-85"))
    rows.sort(key=lambda row: row.machine.tile_bytes)
    found = [estimated_clock(row.machine, rows) for row in rows]
    assert all(clock is not None for clock in found)
    clocks = [clock for clock in found if clock is not None]
    assert [clock.median_mhz for clock in clocks] == sorted(
        (clock.median_mhz for clock in clocks), reverse=True
    )
    for row, clock in zip(rows, clocks, strict=True):
        assert clock.least_mhz <= min(row.clocks_mhz) <= max(row.clocks_mhz) <= clock.greatest_mhz


def test_an_estimated_clock_is_near_that_of_a_machine_that_it_has_not_seen():
    rows = measured_rows(find_device("ecp5-85"))
    sizes = [row.machine.tile_bytes for row in rows]
    inner = [row for row in rows if min(sizes) < row.machine.tile_bytes < max(sizes)]
    assert inner
    for row in inner:
        clock = estimated_clock(row.machine, [other for other in rows if other is not row])
        assert clock is not None
        assert clock.median_mhz == pytest.approx(row.median_mhz, rel=0.1)


def test_machines_of_one_size_give_their_mean():
    (row,) = measured_rows(find_device("gw2ar-18"))
    clock = estimated_clock(row.machine.replace(token_bits=7), [row])
    assert clock is not None
    assert clock.median_mhz == pytest.approx(row.median_mhz)


def test_no_clock_is_said_of_a_size_that_was_never_placed():
    kept = next(row for row in read_ledger() if row.clocks_mhz)
    device = find_device(kept.device)
    sizes = [row.machine.tile_bytes for row in measured_rows(device)]
    assert kept.machine.tile_bytes in sizes
    larger = kept.machine.replace(lanes_in=64, lanes_out=64, wgt_depth=64)
    assert larger.tile_bytes > max(sizes)
    assert clock_of(larger, device) is None


def test_samples_are_the_same_in_each_call():
    many = first_samples(30)
    assert many == first_samples(30)
    assert len({configuration.name for configuration, _ in many}) == 30
    assert {chip for _, chip in many} == {"ecp5-25", "ecp5-45", "ecp5-85"}
    assert first_samples(1, "xc7z020") == [(many[0][0], "xc7z020")]


def test_samples_fit_their_device():
    """8x8 takes more block RAMs than a GW2AR-18 has; those of deep queues are not known there."""
    assert {"8x8", "deep-queues"} < {machine.name for machine, _ in first_samples(12)}
    found = first_samples(6, "gw2ar-18")
    assert {chip for _, chip in found} == {"gw2ar-18"}
    for machine, _ in found:
        fitting = resources(machine, find_device("gw2ar-18"))
        assert fitting.short == []
        assert "ram" in fitting.used
    assert "deep-queues" in [machine.name for machine, _ in first_samples(12, "asic")]


@pytest.mark.parametrize("device", [None, "xczu3eg"])
def test_rows_of_one_device_are_measured(device, monkeypatch):
    measured: list[str] = []

    def measure(samples, rows, keep, say):
        measured.extend(chip for _, chip in samples)

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "write_output", lambda path, text, about: None)
    monkeypatch.setattr("sys.argv", ["area", *(["--chip", device] if device else [])])
    command.main()
    assert set(measured) == ({device} if device else {row.device for row in ROWS})


def test_only_rows_that_changed_are_measured_again(monkeypatch, tmp_path):
    kept = ROWS[:2]
    samples = [(row.machine, row.device) for row in kept]
    module = "tilewright.flows.area.rows"
    monkeypatch.setattr(f"{module}.core_rtlil", lambda configuration, device: configuration.name)
    monkeypatch.setattr(f"{module}.hash_of", {kept[0].configuration: kept[0].rtl}.get)
    monkeypatch.setattr(f"{module}.tool_versions", lambda device: dict(kept[0].tools))
    monkeypatch.setattr(f"{module}.synthesise", lambda configuration, device, place: configuration)
    monkeypatch.setattr(f"{module}.row_of", lambda found: measured(found, kept[1]))
    said, written = [], []
    rows = measure(samples, kept, written.append, said.append)
    assert said[0].endswith(": kept")
    assert said[1].endswith(": 17 LUT")
    assert [row.rtl for row in rows] == [kept[0].rtl, "new"]
    assert written == [rows]
    path = tmp_path / "rows.jsonl"
    write_rows(rows, path)
    assert read_rows(path) == rows


def measured(configuration, old: AreaRow) -> AreaRow:
    return AreaRow(
        configuration=configuration.name,
        device=old.device,
        parameters=old.parameters,
        resources={"lut": 17},
        units={},
        logic_ram_bits=0,
        rtl="new",
        tools=old.tools,
    )
