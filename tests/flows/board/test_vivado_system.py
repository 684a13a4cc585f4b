"""Projects for Vivado of boards without processors, checked without it."""

import json
import re
import tkinter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tilewright.atomic_write import write_files
from tilewright.errors import HardwareError, UsageError
from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import find_board, pin_boards
from tilewright.flows.board.vivado_system import write_system_project
from tilewright.flows.cli.main import main
from tilewright.hardware.soc import system
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder

from ...hardware.echo import Echo
from .vivado_commands import Vivado, WrongScriptError

BOARDS = [
    name
    for name, board in pin_boards().items()
    if Design(board, PRESETS[board.configuration]).technology is Technology.XILINX7
]

FILES = ("digilentinc.com:arty-a7-35:part0:1.1", "digilentinc.com:arty-a7-100:part0:1.1",
         "digilentinc.com:nexys-a7-100t:part0:1.3")  # fmt: skip

KINDS = ("block-ram", "ddr")


def board_of(name: str, kind: str):
    """The board with its DDR memory, or as one that has none."""
    board = pin_boards()[name]
    return board if kind == "ddr" else replace(board, ddr=None, clock_mhz=80)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the files of a project with a small system in place of a core; each made once."""

    @cache
    def write(name: str, kind: str) -> dict[str, str]:
        board, folder = board_of(name, kind), tmp_path_factory.mktemp("project")
        configuration = PRESETS[board.configuration]

        def echo(*arguments, external=None):
            return Echo(None, configuration) if external else Echo(arguments[-1])

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
            patch.setattr(system, "System", echo)
            paths = write_system_project(Design(board, configuration), folder)
        return {path.name: path.read_text() for path in paths}

    return write


@pytest.fixture
def project(written, tmp_path):
    """Write a project; return the paths of its files."""

    def write(name: str, kind: str) -> list[Path]:
        folder = tmp_path / kind / name
        folder.mkdir(parents=True)
        return write_files(folder, written(name, kind))

    return write


@pytest.mark.parametrize("name", BOARDS)
def test_the_script_reads_the_project_and_checks_the_clock(name, project):
    verilog, pins, script = project(name, "block-ram")
    vivado = Vivado(())
    vivado.source(script)
    assert vivado.files == [verilog, pins]
    assert ("create_project", "-force", "-part", pin_boards()[name].part) == vivado.calls[0][:4]
    assert (script.parent / f"{name}.bit").read_text() == "bitstream of top"
    late = Vivado((), slack="-0.25")
    with pytest.raises(tkinter.TclError, match=r"worst setup slack is `-0.25` ns, .* lower `--cl"):
        late.source(script)
    assert "write_bitstream" not in {word for call in late.calls for word in call}


@pytest.mark.parametrize("name", BOARDS)
def test_the_memory_gets_the_controller_of_the_boards_files(name, project):
    *_, script = project(name, "ddr")
    board, vivado = pin_boards()[name], Vivado(FILES)
    vivado.source(script)
    assert board.ddr
    assert vivado.board_interface == board.ddr.interface
    assert vivado.links["core/m_axi"] == "memory/S00_AXI"
    assert vivado.links["memory/M00_AXI"] == "ddr/S_AXI"
    assert vivado.addresses == {"ddr/memmap/memaddr": "0x0"}
    assert vivado.drivers["core/clk"] == "ddr/ui_clk"
    assert vivado.drivers["core/rst"] == "reset/peripheral_reset", "active high"
    assert vivado.drivers["ddr/clk_ref_i"] == "ddr/ui_addn_clk_0", "200 MHz"
    assert set(vivado.ports) == set(board.pins) - {"oscillator"} | {"sys_clk_i"}
    assert (script.parent / f"{name}.bit").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("core/m_axi]", "core/maxi]", "no interface `core/maxi`"),
        ("reset/peripheral_aresetn {ddr/aresetn}", "", "not connected: ['ddr/aresetn']"),
        ("high/dout                {ddr/sys_rst}", "", "not connected: ['ddr/sys_rst']"),
        ("{rx} {tx}", "{rx}", "not connected: ['core/button'"),
        ("ddr/memmap/memaddr", "ddr/memaddr", "no address segment `ddr/memaddr`"),
    ],
)
def test_the_check_finds_mistakes(right, wrong, message, project):
    *_, script = project("Arty-A7-35T", "ddr")
    text = script.read_text()
    assert right in text
    script.write_text(
        text.replace(right, wrong).replace("{button}", "" if "rx" in right else "{button}")
    )
    with pytest.raises(WrongScriptError, match=re.escape(message)):
        Vivado(FILES).source(script)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BOARDS)
def test_yosys_knows_every_cell_and_port_of_the_project(name, kind, project):
    verilog, pins, *_ = project(name, kind)
    flow = (
        "read_verilog top.v; synth_xilinx -family xc7 -top top -run begin:prepare; proc; "
        "check -assert; select top; write_json -selected out.json"
    )
    text = run_in_new_folder(YOSYS, {"top.v": verilog.read_text()}, ["-q", "-p", flow], "out.json")
    top = json.loads(text)["modules"]["top"]
    board = board_of(name, kind)
    outside = {port for port in top["ports"] if port.startswith("m_axi_") or port in ("clk", "rst")}
    own = set(board.pins) - ({"oscillator"} if board.ddr else set())
    assert set(top["ports"]) - outside == own
    assert bool(outside) is (kind == "ddr")
    for port, pin in board.pins.items():
        line = f"PACKAGE_PIN {{{pin.site}}} [get_ports {port}]"
        assert (line in pins.read_text()) is (port in own)


def test_a_missed_clock_gives_no_bitstream(project):
    *_, script = project("Nexys-A7-100T", "ddr")
    with pytest.raises(tkinter.TclError, match=r"worst setup slack is `-0.25` ns, .* smaller `--c"):
        Vivado(FILES, slack="-0.25").source(script)
    assert not list(script.parent.rglob("*.bit"))


def test_the_clock_of_a_controller_is_fixed():
    board = pin_boards()["Arty-A7-35T"]
    with pytest.raises(UsageError) as problem:
        Design(replace(board, clock_mhz=100), PRESETS["tiny"])
    assert str(problem.value) == (
        "`Arty-A7-35T` at 100 MHz: the controller of its memory makes a clock of 81.25 MHz for the "
        "system; leave `--clock` out"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'like = "ULX3S-25F"',
            "expected another one than `ddr` with the chip `LFE5U-25F-6BG381C`;",
        ),
        ('like = "Arty-A7-35T"', "`memory.mib`: expected it for `ddr`, got none; add it"),
    ],
)
def test_a_ddr_memory_needs_vivado_and_its_files(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'{text}\nname = "mine"\n[memory]\nkind = "ddr"\n')
    with pytest.raises(HardwareError) as problem:
        find_board(str(path))
    assert message in str(problem.value)


def test_the_command_refuses_what_has_no_effect(capsys):
    assert main(["build", "--board", "Arty-A7-35T", "--seeds", "3"]) == 2
    said = capsys.readouterr().err
    assert said == "error: `--seeds`: board `Arty-A7-35T` has no use for it; leave it out\n"
