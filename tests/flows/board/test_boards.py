"""The table of boards: pins, constraints, and a second opinion on both."""

import json
import re
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from amaranth_boards import (
    arty_a7,
    de10_nano,
    ecpix5,
    nexys4ddr,
    orangecrab_r0_2,
    tang_primer_20k,
    ulx3s,
)
from apycula import chipdb

from tilewright.compiler.module import Module
from tilewright.errors import CompileError, HardwareError, UsageError
from tilewright.flows.area.resources import resources
from tilewright.flows.board.constraints import ccf, cst, lpf
from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import UNFIT, find_board, known_boards, pin_boards
from tilewright.flows.cli.arguments import load_module
from tilewright.flows.cli.board_options import usual_design
from tilewright.flows.cli.commands.board import machine_of
from tilewright.flows.cli.commands.boards import expected_speeds
from tilewright.flows.cli.progress import progress_bar
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.hardware.soc.board import Pin
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.configuration_rules import PAGE_BYTES
from tilewright.isa.sdram import SDRAMS

BOARDS = pin_boards()

SITE = re.compile(r"[A-Z]{1,2}\d{1,2}|\d{1,2}|IO[LR]\d{1,2}[AB]|IO_[NESW][ABC]_[AB]\d")

PLATFORMS = {
    "ULX3S-12F": ulx3s.ULX3S_12F_Platform,
    "ULX3S-25F": ulx3s.ULX3S_25F_Platform,
    "ULX3S-45F": ulx3s.ULX3S_45F_Platform,
    "ULX3S-85F": ulx3s.ULX3S_85F_Platform,
    "OrangeCrab-25F": orangecrab_r0_2.OrangeCrabR0_2_25FPlatform,
    "OrangeCrab-85F": orangecrab_r0_2.OrangeCrabR0_2_85FPlatform,
    "ECPIX-5-45F": ecpix5.ECPIX545Platform,
    "ECPIX-5-85F": ecpix5.ECPIX585Platform,
    "Arty-A7-35T": arty_a7.ArtyA7_35Platform,
    "Arty-A7-100T": arty_a7.ArtyA7_100Platform,
    "Nexys-A7-100T": nexys4ddr.Nexys4DDRPlatform,
    "Tang-Primer-20K": tang_primer_20k.TangPrimer20kDockPlatform,
    "DE10-Nano": de10_nano.DE10NanoPlatform,
}
"""Boards that `amaranth-boards` has."""


def usual(name: str) -> Design:
    board = BOARDS[name]
    return Design(board, PRESETS[board.configuration])


def sites(platform, name: str, number: int = 0, part: str = "") -> list[str]:
    """The sites of a resource in `amaranth-boards`, or of one of its signals."""
    (found,) = (each for each in platform.resources if (each.name, each.number) == (name, number))
    pins = next(each for each in found.ios if not part or each.name == part)
    return (pins.ios[0] if part else pins).names


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_pins_are_sites_of_their_own(board):
    used = [pin.site for pin in board.pins.values()]
    assert len(set(used)) == len(used)
    assert all(map(SITE.fullmatch, used))


@pytest.mark.parametrize("name", PLATFORMS)
def test_another_table_has_the_same_pins(name):
    board, platform = BOARDS[name], PLATFORMS[name]
    vendor = name.startswith("Tang") and platform.part
    if name == "DE10-Nano":
        vendor = f"{platform.device}{platform.package}{platform.speed}"
    if board.part.startswith("xc7a"):
        vendor = board.device  # speed grades and temperatures differ between deliveries
    vendor = vendor or f"{platform.device}-{platform.speed}{platform.package}"
    assert board.part.startswith(vendor)
    clock = next(each for each in platform.resources if each.name == platform.default_clk)
    assert clock.clock.frequency == board.oscillator_hz
    assert clock.ios[0].names == [board.oscillator.site]
    if name.startswith("OrangeCrab"):
        (connector,) = platform.connectors
        assert connector.mapping["0"] == board.rx.site
        assert connector.mapping["1"] == board.tx.site
        leds = [sites(platform, "rgb_led", 0, colour)[0] for colour in "rgb"]
    else:
        assert sites(platform, "uart", 0, "rx") == [board.rx.site]
        assert sites(platform, "uart", 0, "tx") == [board.tx.site]
    if name.startswith("ULX3S"):
        leds = [sites(platform, "led", index)[0] for index in range(4)]
        assert board.button
        assert sites(platform, "button") == [board.button.site]
        assert sites(platform, "esp32", 0, "gpio0") == [board.high[0].site]
    elif name.startswith("ECPIX"):
        leds = [sites(platform, "rgb_led", index, "g")[0] for index in range(4)]
        assert board.button
        assert sites(platform, "rst") == [board.button.site]
    elif board.part.startswith("xc7a"):
        leds = [sites(platform, "led", index)[0] for index in range(4)]
        assert board.button
        assert board.button.low
        assert sites(platform, "rst") == [board.button.site]
    elif name == "DE10-Nano":
        leds = [sites(platform, "led", index)[0] for index in range(4)]
        assert board.button
        assert board.button.low
        assert sites(platform, "button") == [board.button.site]
    elif name == "Tang-Primer-20K":
        leds = [sites(platform, "led", index)[0] for index in range(2, 6)]
    assert [led.site for led in board.leds] == leds


def test_boards_claim_no_check_that_is_not_made_here():
    def claim(text: str) -> set[str]:
        return {
            name for name, board in known_boards().items() for each in board.checked if text in each
        }

    bitstreams = {name for name in BOARDS if usual(name).result == "bitstream"}
    ddr = {name for name, board in BOARDS.items() if board.ddr}
    assert claim("the system drives a model of the controller") == ddr, "test_external_memory.py"
    quartus = {name for name in BOARDS if usual(name).result == "Quartus project"}
    assert claim("a stand-in for Quartus") == quartus, "test_quartus.py"
    assert claim("Yosys elaborates the project for Quartus with a small system") == quartus
    assert BOARDS.keys() == bitstreams | ddr | quartus
    assert claim("pins are those of amaranth-boards") == set(PLATFORMS)
    assert claim("the tools take chip, package and pins") == bitstreams, "test_bitstreams.py"
    zynq = known_boards().keys() - BOARDS.keys()
    assert claim("a stand-in for Vivado") == zynq | ddr, "test_zynq.py, test_vivado_system.py"
    page = (Path(__file__).parents[3] / "docs" / "guide" / "boards.md").read_text()
    measured = page.partition("| asked | reached |")[2].partition("\n\n")[0]
    assert claim("placed and routed at its clock") == {
        name for name in known_boards() if f"| {name} |" in measured
    }


def test_another_table_has_the_same_sdram():
    names = {"cke": "clk_en", "cs_n": "cs", "ras_n": "ras", "cas_n": "cas", "we_n": "we"}
    for name in ("ULX3S-12F", "ULX3S-85F"):
        sdram = BOARDS[name].sdram
        assert sdram
        for signal, found in sdram.sites.items():
            assert list(found) == sites(PLATFORMS[name], "sdram", 0, names.get(signal, signal))


def test_the_placer_has_the_same_sdram_in_a_gowin():
    chip = chipdb.load_chipdb(str(Path(chipdb.__file__).with_name("GW2A-18C.msgpack.xz")))
    found: dict[str, list[str]] = {}
    for port, row, column, side, _ in chip.sip_cst["GW2AR-18C"]["QFN88"]:
        name = re.sub(r"I?O_sdram_|\[\d+\]", "", port)
        edge = {0: "L", chip.cols - 1: "R"}[column]
        found.setdefault(name, []).append(f"IO{edge}{row + 1}{side}")
    names = {"a": "addr", "we_n": "wen_n"}
    sdram = BOARDS["Tang-Nano-20K"].sdram
    assert sdram
    assert {names.get(name, name): list(sites) for name, sites in sdram.sites.items()} == found


def test_sdrams_have_the_pins_of_their_kind():
    found = [board.sdram for board in BOARDS.values() if board.sdram]
    assert {sdram.kind for sdram in found} == set(SDRAMS)
    for sdram in found:
        chip = sdram.chip
        pins = [len(sdram.sites[signal]) for signal in ("dq", "a", "ba")]
        assert pins == [chip.data_bits, chip.row_bits, chip.bank_bits]


def test_constraints_of_an_ecp5_name_every_port():
    board = BOARDS["Colorlight-i5"]
    lines = lpf(board).splitlines()
    expected = []
    for name, pin in board.pins.items():
        pull = " PULLMODE=UP" if pin.pull else ""
        drive = " SLEWRATE=FAST DRIVE=4" if name.startswith("sdram_") else ""
        expected.append(f'LOCATE COMP "{name}" SITE "{pin.site}";')
        expected.append(f'IOBUF PORT "{name}" IO_TYPE=LVCMOS33{pull}{drive};')
    assert lines[:-1] == expected
    assert "PULLMODE=UP" in lines[-2], "of the button"
    assert lines[-1] == 'FREQUENCY PORT "oscillator" 25 MHZ;'


def test_constraints_of_a_gowin_name_every_port():
    lines = cst(BOARDS["Tang-Nano-20K"]).splitlines()
    assert lines[:4] == [
        'IO_LOC "oscillator" 4;',
        'IO_PORT "oscillator" IO_TYPE=LVCMOS33;',
        'IO_LOC "rx" 70;',
        'IO_PORT "rx" IO_TYPE=LVCMOS33 PULL_MODE=UP;',
    ]
    assert 'IO_LOC "sdram_dq_31" IOR44B;' in lines


def test_constraints_of_a_gatemate_name_every_port():
    assert ccf(BOARDS["GateMateA1-EVB"]).splitlines() == [
        'NET "oscillator" Loc = "IO_SB_A8";',
        'NET "rx" Loc = "IO_SA_A6" | PULLUP=true;',
        'NET "tx" Loc = "IO_SA_B6";',
        'NET "led_0" Loc = "IO_SB_B6";',
        'NET "button" Loc = "IO_SB_B7" | PULLUP=true;',
    ]


@pytest.mark.parametrize("name", BOARDS)
def test_main_memory_is_pages_and_fits_beside_the_core(name):
    design = usual(name)
    assert design.memory_bytes % PAGE_BYTES == 0
    assert 40 * 1024 <= design.memory_bytes <= 1 << design.configuration.address_bits
    bits = 8 * design.memory_bytes
    if design.board.ddr:
        assert design.memory_bytes <= design.board.ddr.mib << 20
    elif design.sdram is None:
        assert bits <= DEVICES[design.board.device].capacity["ram"] * 20 * 1024


def test_a_core_that_leaves_no_room_for_main_memory():
    with pytest.raises(HardwareError) as problem:
        Design(BOARDS["ECPIX-5-45F"], PRESETS["16x16"])
    assert str(problem.value) == (
        "configuration `16x16` on `ECPIX-5-45F`: the core takes 208 of 108 RAM, which leaves too "
        "few for main memory; lower `act_depth`, `wgt_depth` or `acc_depth`, or the number of "
        "their banks"
    )


def test_the_serial_port_keeps_its_rate():
    for name in BOARDS:
        design = usual(name)
        assert design.clock_hz / design.divisor == pytest.approx(design.board.baud, rel=0.02)


def test_names_are_found_in_any_case():
    assert find_board("ulx3s_25f") is BOARDS["ULX3S-25F"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("PYNQ-Z3", r": unknown \(did you mean `PYNQ-Z1` or `PYNQ-Z2`\?\); "),
        ("Tang Nano 1K", r" \(did you mean `Tang-Nano-20K` or `Tang-Nano-9K`\?\); "),
        (
            "amaranth_boards.icepi_zero",
            r" \(a platform of amaranth-boards is `amaranth:MODULE`\); ",
        ),
    ],
)
def test_a_board_of_another_version_has_its_nearest(name, says):
    with pytest.raises(UsageError, match=says):
        find_board(name)


def test_an_unknown_board():
    with pytest.raises(
        UsageError,
        match=r"^board `ULX4S-25F`: unknown \(did.*; describe another one in a file: .*known: Arty",
    ):
        find_board("ULX4S-25F")
    with pytest.raises(UsageError, match="did you mean `Colorlight-i5`"):
        find_board("colourlight-i5")
    sizes = " or ".join(f"`ULX3S-{size}F`" for size in (12, 25, 45, 85))
    with pytest.raises(UsageError, match=rf"unknown \(did you mean {sizes}\?\); "):
        find_board("ulx3s")


def test_boards_that_do_not_fit_say_why():
    for name, reason in UNFIT.items():
        with pytest.raises(UsageError) as problem:
            find_board(name)
        assert str(problem.value) == f"board `{name}`: {reason}"


def test_the_smallest_core_does_not_fit_a_tang_nano_9k():
    smallest = PRESETS["tiny"].replace(
        depthwise_taps=0, tile_loops=1, row_loops=1, map_loops=2, reduce_loops=1, dma_loops=2,
        counters="none", queue_depth=2,
    )  # fmt: skip
    assert resources(smallest, DEVICES["gw2ar-18"]).used["ff"] > 6480


def test_active_levels_are_those_of_the_pins():
    assert BOARDS["Colorlight-i5"].button == Pin("K18", low=True, pull="UP")
    assert all(led.low for led in BOARDS["OrangeCrab-25F"].leds)


def test_a_virtual_board_has_the_machine_of_the_board():
    given = Namespace(virtual="orangecrab-25f", config=None, changes=[], baud=None)
    given.clock = given.memory_kib = given.sdram = None
    assert machine_of(given) == (PRESETS["ecp5-25"], 48, 100_000_000, None)
    given.config, given.clock, given.memory_kib = "tiny", 50.0, 64
    assert machine_of(given) == (PRESETS["tiny"], 64, 50_000_000, None)
    given.virtual, given.clock, given.memory_kib = "ulx3s-25f", None, None
    sdram = SDRAMS["sdr-x16"]
    assert machine_of(given) == (PRESETS["tiny"], 1024, 100_000_000, sdram), "as it can address"
    given.config = None
    assert machine_of(given) == (PRESETS["ecp5-25"], 32768, 100_000_000, sdram)


def test_the_command_lists_all_boards(tilewright):
    said = tilewright("boards")
    assert [line.split()[0] for line in said.splitlines()[1 : len(known_boards()) + 1]] == list(
        known_boards()
    )
    assert "iCEBreaker: no configuration fits its iCE40UP5K" in said
    assert "Colorlight-i9, ECPIX-5-45F, ULX3S-45F: `ecp5-45` fits the chip as well" in said


def test_the_command_tells_the_speed_of_a_model(tilewright, model):
    rows = json.loads(tilewright("boards", model, "--json"))
    assert [row["board"] for row in rows] == [*known_boards(), *UNFIT]
    assert [row["reason"] for row in rows[-len(UNFIT) :]] == list(UNFIT.values())
    assert not any(row["fits"] or row["per_s"] for row in rows[-len(UNFIT) :])
    rows = [row for row in rows if row["board"] in BOARDS]
    assert len(rows) == len(BOARDS)
    for row in rows:
        assert row["fits"], "the digits run on all boards"
        assert row["needed_bytes"] <= row["memory_bytes"]
        assert row["per_s"] == pytest.approx(row["clock_mhz"] * 1e6 / row["cycles"])


def test_a_board_without_a_timing_model_says_so(tilewright, model):
    said = tilewright("boards", model, "--board", "KV260").splitlines()
    assert said[0].endswith("  samples/s")
    assert "KV260: the processors' memory has no timing model" in said


def test_the_marks_of_the_table_are_explained(tilewright):
    said = tilewright("boards")
    assert ("~: estimated from other machines" in said) == (" ~" in said)
    assert ("*: measured before" in said) == (" MHz* " in said)


def test_a_machine_that_is_too_small_for_a_model_does_not_hide_the_others(
    tilewright, model, monkeypatch
):
    def load(source: Path, configuration: Configuration, **asked: Any) -> Module:
        if configuration.name == "gatemate":
            raise CompileError("no tile fits")
        return load_module(source, configuration, **asked)

    monkeypatch.setattr("tilewright.flows.cli.commands.boards.load_module", load)
    rows = json.loads(tilewright("boards", model, "--json"))
    small = [row for row in rows if row["configuration"] == "gatemate"]
    assert small
    assert all(row["reason"] == "no tile fits" and not row["fits"] for row in small)
    timed = [row for row in rows if row["memory"] not in ("processors", None)]
    assert all(row["fits"] for row in timed if row not in small)
    said = tilewright("boards", model)
    assert "too small: `gatemate`: no tile fits" in said
    assert said.count(" too small\n") == len(small)


def test_progress_names_the_board(model, monkeypatch):
    told = []

    def load(source, machine, **given):
        with progress_bar() as advance:
            advance("compiling", 0, None)
        raise CompileError("too small")

    @contextmanager
    def lines():
        yield lambda *step: told.append(step)

    monkeypatch.setattr("tilewright.flows.cli.progress.steady_lines", lines)
    monkeypatch.setattr("tilewright.flows.cli.commands.boards.load_module", load)
    boards = {name: usual_design(find_board(name)) for name in ("ULX3S-85F", "Tang-Nano-20K")}
    expected_speeds(model, boards)
    assert told == [(f"{name}: compiling", 0, None) for name in boards]
