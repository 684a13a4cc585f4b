"""Synthesis and placement of the front: measured figures in place of estimates."""

import json
import re
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import HardwareError, ToolError
from tilewright.flows.area.counts import count_blocks
from tilewright.flows.cli.main import main
from tilewright.flows.sweep import Build, Database, measured
from tilewright.flows.sweep.evaluators import PLACEMENT, SYNTHESIS, resources
from tilewright.flows.sweep.page import page_data, render
from tilewright.flows.sweep.records import LOST
from tilewright.flows.synthesis.devices import find_device
from tilewright.flows.synthesis.flow import Synthesis
from tilewright.flows.synthesis.netlist import Netlist
from tilewright.flows.synthesis.place_and_route import RoutedDesign

from ..browser import Text

CHIP = replace(
    find_device("ecp5-85"), capacity={**find_device("ecp5-85").capacity, "multipliers": 300}
)
"""A chip for all machines of `conftest.VARY`."""

TOOLS = {"yosys": "0.70", "nextpnr-ecp5": "0.11"}
DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "guide" / "sweeps.md"

OPTIONS = ("--vary", "lanes=4x4,8x8,16x16", "--vary", "bus_bits=32,128", "--workers", 0)
"""The space of `conftest.VARY`."""


class Tools:
    """Tools that measure at once: `luts` by the name of a machine, and a clock by name and seed.

    `synthesised` and `placed` list what they were asked for.
    """

    def __init__(self) -> None:
        self.synthesised: list[str] = []
        self.placed: list[tuple[str, int]] = []
        self.rtl = "rtl"

    def luts(self, name: str, estimate: int) -> int:
        return estimate

    def clock_mhz(self, name: str, seed: int) -> float:
        return 100.0


@pytest.fixture
def tools(monkeypatch) -> Tools:
    found = Tools()

    def synthesise(configuration, device, *, place=True, advance=lambda *_: None):
        assert not place
        advance(f"{configuration.name} on {device.name}: synthesis, ABC", 0, 1)
        found.synthesised.append(configuration.name)
        told = resources(configuration, device).figures
        blocks = count_blocks(
            configuration, device.family.technology, device.capacity["multipliers"]
        )
        counts = {
            "lut": found.luts(configuration.name, told["lut"]),
            "ff": told["ff"],
            "ram": told["ram"],
            "multipliers": blocks.multipliers,
        }
        return Synthesis(configuration, device, "", Netlist(()), counts, 1.0, (), TOOLS)

    def place_design(mapped, device, seed, target_mhz, show):
        show("routing")
        found.placed.append((mapped, seed))
        return RoutedDesign(seed, found.clock_mhz(mapped, seed), ())

    monkeypatch.setattr(measured, "synthesise", synthesise)
    monkeypatch.setattr(measured, "place_design", place_design)
    monkeypatch.setattr(measured, "core_rtlil", lambda machine, device: machine.name + found.rtl)
    monkeypatch.setattr(measured, "map_design", lambda rtl, *_: rtl.removesuffix(found.rtl))
    cli = "tilewright.flows.cli"
    for user in (measured.__name__, f"{cli}.commands.sweep", f"{cli}.sweep_options"):
        monkeypatch.setattr(f"{user}.tool_versions", lambda device: TOOLS)
    return found


@pytest.fixture
def database(kept, tmp_path):
    with Database(shutil.copy(kept, tmp_path / "sweep.db")) as found:
        yield found


LUT = {"objectives": ("cycles", "lut")}


def by_name(outcome):
    return {result.point.machine.configuration.name: result for result in outcome.results}


def test_only_the_front_is_synthesised(swept, database, tools):
    before = swept(database=database, device=CHIP, **LUT)
    after = swept(database=database, build=Build(CHIP), **LUT)
    names = [result.point.machine.configuration.name for result in after.front]
    assert sorted(tools.synthesised) == sorted(names)
    assert 1 < len(names) < len(after.results)
    assert [result.point for result in after.front] == [result.point for result in before.front]
    for result in after.front:
        assert result.measured is not None
        assert result.measured.off == {"lut": 0.0, "ff": 0.0, "ram": 0.0, "multipliers": 0.0}
        assert result.measured.clock_mhz is None
    assert not tools.placed


def test_measured_figures_decide_about_the_front(swept, database, tools):
    """The fastest machine turns out to be the largest, so others come to the front."""
    before = swept(database=database, device=CHIP, exhaustive=True, **LUT)
    first = before.front[1].point.machine.configuration.name
    tools.luts = lambda name, estimate: 10 * estimate if name == first else estimate
    after = swept(database=database, build=Build(CHIP), exhaustive=True, **LUT)
    found = by_name(after)
    assert found[first].state == "beaten"
    assert found[first].figures["lut"] == 10 * by_name(before)[first].figures["lut"]
    assert found[first].measured.off["lut"] == pytest.approx(-0.9)
    assert all(result.measured is not None for result in after.front)


def test_a_machine_that_was_ruled_out_comes_back(swept, database, tools, monkeypatch):
    """It is compiled and measured when what beat its bound is measured and worse."""
    monkeypatch.setattr("tilewright.flows.sweep.ladder.WINDOW", 2)
    space = {"lanes": "4x4,8x16,16x16", "bus_bits": "32,128"}
    options = {"objectives": ("cycles", "lut", "multipliers")}
    before = swept(space, device=CHIP, **options)
    ruled_out = [name for name, result in by_name(before).items() if result.state == "ruled out"]
    assert ruled_out
    tools.luts = lambda name, estimate: estimate if name in ruled_out else 3 * estimate
    after = swept(space, build=Build(CHIP), **options)
    exhaustive = swept(space, build=Build(CHIP), exhaustive=True, **options)
    assert any(result.state == "front" for name, result in by_name(after).items()
               if name in ruled_out)  # fmt: skip
    told = [[(r.point.chosen, r.figures) for r in each.front] for each in (after, exhaustive)]
    assert told[0] == told[1]


def test_milliseconds_are_those_at_the_measured_clock(swept, database, tools):
    clocks = {1: 50.0, 2: 90.0, 3: 80.0}
    tools.clock_mhz = lambda name, seed: clocks[seed]
    objectives = ("ms", "multipliers")
    outcome = swept(database=database, build=Build(CHIP, (1, 2, 3)), objectives=objectives)
    for result in outcome.front:
        assert result.measured.clock_mhz == 80.0
        assert result.figures["clock_mhz"] == 80.0
        assert result.figures["ms"] == result.cycles[0] / 80 / 1e3
    (other, *_) = (result for result in outcome.results if result.measured is None)
    assert other.figures["clock_mhz"] == 100.0
    assert "clock_mhz" in outcome.shown


def test_a_slow_machine_leaves_the_front(swept, database, tools):
    """Its rival of the same size takes more cycles, but each of them is shorter."""
    options = {"database": database, "objectives": ("ms", "multipliers"), "exhaustive": True}
    fastest = swept(device=CHIP, **options).front[0].point.machine.configuration.name
    tools.clock_mhz = lambda name, seed: 10.0 if name == fastest else 100.0
    outcome = swept(build=Build(CHIP, (1,)), **options)
    assert by_name(outcome)[fastest].state == "beaten"
    placed = [name for name, _ in tools.placed]
    assert len(placed) == len(set(placed)) == len(outcome.front) + 1


def test_conditions_see_measured_figures(swept, database, tools):
    tools.luts = lambda name, estimate: estimate + 100_000
    outcome = swept(database=database, build=Build(CHIP, (1,)), where=["lut < 80000"])
    assert outcome.counts == {"excluded": 6}
    assert not tools.placed, "what synthesis excludes is not placed"
    tools.luts = lambda name, estimate: estimate
    tools.rtl = "other"
    tools.clock_mhz = lambda name, seed: 70.0
    outcome = swept(database=database, build=Build(CHIP, (1,)), where=["clock_mhz >= 80"])
    assert outcome.counts == {"excluded": 6}


def test_what_was_measured_is_not_measured_again(swept, database, tools, monkeypatch):
    build = Build(CHIP, (1, 2))
    first = swept(database=database, build=build)
    asked = len(tools.synthesised), len(tools.placed)
    again = swept(database=database, build=build)
    assert (len(tools.synthesised), len(tools.placed)) == asked
    assert [result.measured for result in again.front] == [r.measured for r in first.front]
    more = swept(database=database, build=replace(build, seeds=(1, 2, 3)))
    assert {seed for _, seed in tools.placed[asked[1] :]} == {3}
    assert [len(result.measured.clocks_mhz) for result in more.front] == [3] * len(more.front)
    tools.placed.clear()
    tools.rtl = "changed"
    swept(database=database, build=build)
    assert {seed for _, seed in tools.placed} == {1, 2}, "the RTL has changed"
    tools.placed.clear()
    monkeypatch.setattr(measured, "flow_hash", lambda device: "refined anew")
    swept(database=database, build=build)
    assert {seed for _, seed in tools.placed} == {1, 2}, "a pass over the placement has changed"
    rows = [row for row in database.rows() if row["evaluator"] == PLACEMENT]
    assert {row["figures"]["seed"] for row in rows} == {1, 2, 3}
    assert {row["figures"]["chip"] for row in rows} == {"ecp5-85"}


def test_a_killed_sweep_loses_only_the_seed_that_was_placed(swept, database, tools):
    def clock_mhz(name, seed):
        if len(tools.placed) == 2:
            raise KeyboardInterrupt
        return 100.0

    tools.clock_mhz = clock_mhz
    build = Build(CHIP, (1, 2, 3))
    outcome = swept(database=database, build=build)
    assert outcome.interrupted
    assert outcome.front
    tools.placed.clear()
    tools.clock_mhz = lambda name, seed: 100.0
    assert not swept(database=database, build=build).interrupted
    assert tools.placed[0][1] == 2


def failing(name_or_seed, problem):
    def clock_mhz(name, seed):
        if name_or_seed in (name, seed):
            raise problem
        return 100.0

    return clock_mhz


def test_a_machine_that_no_seed_places_has_failed(swept, database, tools):
    first = swept(database=database, device=CHIP).front[0].point.machine.configuration.name
    tools.clock_mhz = failing(first, HardwareError("nextpnr: no\n route"))
    outcome = swept(database=database, build=Build(CHIP, (1, 2)))
    result = by_name(outcome)[first]
    assert (result.state, result.error) == ("failed", "nextpnr: no route")
    assert result.measured.failures == {1: "nextpnr: no route", 2: "nextpnr: no route"}
    assert outcome.front
    before = len(tools.placed)
    assert by_name(swept(database=database, build=Build(CHIP, (1, 2))))[first].state == "failed"
    assert len(tools.placed) == before, "failures are kept"


def test_one_seed_that_fails_leaves_the_others(swept, database, tools):
    tools.clock_mhz = failing(2, HardwareError("no route"))
    outcome = swept(database=database, build=Build(CHIP, (1, 2, 3)))
    assert outcome.counts["failed"] == 0
    for result in outcome.front:
        assert result.measured.clocks_mhz == {1: 100.0, 3: 100.0}
        assert result.measured.failures == {2: "no route"}


def test_failures_of_this_computer_are_tried_again(swept, database, tools):
    tools.clock_mhz = failing(1, ToolError("no room"))
    assert swept(database=database, build=Build(CHIP, (1,))).counts["front"] == 0
    errors = {row["error"] for row in database.rows() if row["evaluator"] == PLACEMENT}
    assert errors == {f"{LOST}no room"}
    tools.clock_mhz = lambda name, seed: 100.0
    assert swept(database=database, build=Build(CHIP, (1,))).counts["front"] > 0


def test_a_machine_that_is_too_large_is_not_placed(swept, database, tools):
    tools.luts = lambda name, estimate: estimate + 80_000
    outcome = swept(database=database, build=Build(CHIP, (1,)))
    assert outcome.counts["front"] == 0
    assert not tools.placed
    error = next(result.error for result in outcome.results if result.error)
    assert "on `ecp5-85`: needs " in error
    assert "LUT, the device has 83,640; lower `vector_lanes`" in error


def test_a_tool_that_hangs_has_failed(swept, database, tools):
    tools.luts = lambda name, estimate: time.sleep(5) or estimate
    outcome = swept({"lanes": "4x4"}, database=database, build=Build(CHIP, (), 0.05))
    (result,) = outcome.results
    assert result.state == "failed"
    assert result.error == (
        "`synthesis`: not done after 0.05 s; raise `--time-limit`, and add `--retry`"
    )
    rows = [row for row in database.rows() if row["evaluator"] == SYNTHESIS]
    assert [row["error"] for row in rows] == [result.error]


def test_progress_tells_machines_and_steps(swept, database, tools):
    told = []
    swept(database=database, build=Build(CHIP, (1, 2)), progress=told.append)
    synthesis, placement = (
        [(p.done, p.total, p.step) for p in told if p.rung == rung]
        for rung in (SYNTHESIS, PLACEMENT)
    )
    count = synthesis[0][1]
    assert synthesis[:4] == [
        (0, count, ""), (0, count, "elaboration"), (0, count, "synthesis, ABC"), (1, count, ""),
    ]  # fmt: skip
    assert placement[:5] == [
        (0, count, ""), (0, count, "seed 1"), (0, count, "seed 1, routing"),
        (0, count, "seed 2"), (0, count, "seed 2, routing"),
    ]  # fmt: skip


def test_a_run_without_a_terminal_prints_lines(model, database, tools, monkeypatch, capsys):
    monkeypatch.setattr("tilewright.flows.cli.progress.LINE_SECONDS", 0.0)
    options = ("--chip", "ecp5-85", "--seeds", 1, "--database", database.path)
    assert main([str(argument) for argument in ("sweep", model, *OPTIONS, *options)]) == 0
    lines = [line.partition(" s: ")[2] for line in capsys.readouterr().err.splitlines()]
    front = lines[-1].split()[2]
    assert lines[-1] == (
        f"placing machines, {front} on the front: seed 1, routing, {int(front) - 1} of {front}"
    )


def test_the_command_tells_what_was_measured(tilewright, model, database, tools, tmp_path):
    tools.luts = lambda name, estimate: estimate * 4 // 5
    clocks = {1: 50.0, 2: 80.5}
    tools.clock_mhz = lambda name, seed: clocks[seed]
    table, page = tmp_path / "all.csv", tmp_path / "sweep.html"
    options = (*OPTIONS, "--database", database.path, "--chip", "ecp5-85", "--seeds", 2)
    said = tilewright("sweep", model, *options, "--export", table, "-o", page)
    heading, rows = said.partition("\nmeasured on ")[2].split("\n", 1)
    assert heading == (
        "ecp5-85 by yosys 0.70 and nextpnr-ecp5 0.11, with the errors of the estimates:"
    )
    names, first, *_ = rows.splitlines()
    assert names.split() == [
        "lanes", "bus_bits", "lut", "ff", "ram", "multipliers", "clock", "range", "seeds",
    ]  # fmt: skip
    assert "(+25.0%)" in first
    assert first.count("(exact)") == 3
    assert first.split()[-8:] == ["65.2", "MHz", "50.0", "to", "80.5", "2", "of", "2"]
    values = json.loads(tilewright("sweep", model, *options, "--json"))
    assert values["build"] == {"chip": "ecp5-85", "tools": TOOLS, "seeds": [1, 2]}
    for point in values["points"]:
        assert (point["measured"] is not None) == (point["state"] == "front")
        if point["measured"]:
            assert point["measured"]["clocks_mhz"] == {"1": 50.0, "2": 80.5}
            assert point["figures"]["lut"] == point["measured"]["counts"]["lut"]
            cycles = point["figures"]["cycles"]
            assert point["figures"]["ms"] == pytest.approx(cycles / 65.25 / 1e3)
    assert ",placement," in table.read_text()
    assert '"clocks_mhz":' in page.read_text()


def test_the_command_of_the_page_runs(tilewright, database, tools, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    (command,) = re.findall(r"```sh\ntilewright ([^`]*--seeds[^`]*)```", PAGE.read_text())
    arguments = shlex.split(command.replace("\\\n", " "))
    said = tilewright(*arguments, "--database", database.path, "--workers", 0)
    assert "smallest ms, lut:\nlanes  cycles" in said
    assert "\nmeasured on ecp5-45 by yosys 0.70 and nextpnr-ecp5 0.11, with the errors" in said
    assert said.count("3 of 3") == said.count("100.0 MHz") > 0


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_marks_what_was_measured(browse, swept, database, tools, tmp_path):
    tools.luts = lambda name, estimate: estimate * 4 // 5
    tools.clock_mhz = lambda name, seed: 62.5
    outcome = swept(database=database, build=Build(CHIP, (1,)))
    page = tmp_path / "sweep.html"
    page.write_text(render(page_data(outcome)))
    document, _ = browse(page)
    assert 'data-ready="true"' in document, "no script failed"
    text = Text(document).text
    assert text["measured"].strip() == (
        "Figures with * were measured on ecp5-85 by yosys 0.70 and nextpnr-ecp5 0.11, the clock as "
        "the median over seeds 1."
    )
    for result in outcome.results:
        lut = f"{result.figures['lut']:,.0f}"
        assert (f"{lut} *" in text["table"]) == (result.state == "front")
    assert text["table"].count("62.5 MHz *") == len(outcome.front)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--synthesise",),
            "`--synthesise`: expected also `--chip NAME`, the chip to build for; add it",
        ),
        (("--seeds", 0, "--chip", "ecp5-45"), "`--seeds 0`: expected 1 or more; correct it"),
        (
            ("--seeds", 3, "--chip", "xc7z020"),
            "`--seeds 3`: expected a chip with an open placer, such as ecp5-45, got `xc7z020`; "
            "choose another one, or `--synthesise`",
        ),
    ],
)
def test_wrong_options_are_explained(model, tmp_path, capsys, options, message):
    arguments = ("sweep", model, "--database", tmp_path / "s.db", *options)
    assert main([str(argument) for argument in arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_missing_tool_is_told_before_anything_runs(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("YOSYS", "no-such-yosys")
    options = ("--chip", "ecp5-45", "--synthesise", "--database", tmp_path / "s.db")
    assert main([str(argument) for argument in ("sweep", model, *options)]) == 3
    assert "`YOSYS` is `no-such-yosys`" in capsys.readouterr().err
    assert not (tmp_path / "s.db").exists()


@pytest.mark.slow
def test_yosys_measures_a_small_machine(tilewright, model, tmp_path):
    options = ("--config", "tiny", "--vary", "queue_depth=2", "--chip", "ecp5-25")
    command = ("sweep", model, *options, "--database", tmp_path / "s.db", "--workers", 0)
    (point,) = json.loads(tilewright(*command, "--synthesise", "--json"))["points"]
    synthesis = ("synth", "--config", "tiny", "--chip", "ecp5-25", "--no-place", "--json")
    expected = json.loads(tilewright(*synthesis))
    assert point["measured"]["counts"] == {"ram": 0, **expected["resources"]}
    assert point["measured"]["rtl"] == expected["rtl"]
    assert point["figures"]["lut"] == expected["resources"]["lut"]
    for name in ("ram", "multipliers"):
        assert point["measured"]["counts"][name] == point["measured"]["expected"][name]
