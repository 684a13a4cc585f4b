"""Projects for Vivado of boards without processors, checked without it."""

import json
import tkinter

import pytest

from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.board.vivado_system import write_system_project
from tilewright.flows.cli.main import main
from tilewright.hardware.soc import system
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder

from ...hardware.echo import Echo

BOARDS = [
    name
    for name, board in pin_boards().items()
    if Design(board, PRESETS[board.configuration]).technology is Technology.XILINX7
]


@pytest.fixture
def project(monkeypatch, tmp_path):
    """Write a project with a small system in place of a core; return the path of the script."""
    monkeypatch.setattr(system, "System", lambda *arguments: Echo(arguments[-1]))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def write(name: str):
        board = pin_boards()[name]
        return write_system_project(Design(board, PRESETS[board.configuration]), tmp_path / name)

    return write


class Vivado:
    """An interpreter of Tcl that notes Vivado's commands; there are no others."""

    COMMANDS = (
        *("read_verilog", "read_xdc", "synth_design", "opt_design", "place_design"),
        *("phys_opt_design", "route_design", "report_utilization", "report_timing_summary"),
        *("get_timing_paths", "get_property", "write_bitstream"),
    )

    def __init__(self, slack: str):
        self.calls: list[tuple[str, ...]] = []
        self.tcl = tkinter.Tcl()
        for name in self.COMMANDS:
            self.tcl.createcommand(name, lambda *words, name=name: self._note(name, words, slack))

    def _note(self, name: str, words: tuple[str, ...], slack: str) -> str:
        self.calls.append((name, *words))
        return slack if name == "get_property" else "path"


@pytest.mark.parametrize("name", BOARDS)
def test_the_script_reads_the_project_and_checks_the_clock(name, project):
    verilog, pins, script = project(name)
    vivado = Vivado("0.1")
    vivado.tcl.eval(f"source {{{script}}}")
    assert vivado.calls[0] == ("read_verilog", str(verilog))
    assert vivado.calls[1] == ("read_xdc", str(pins))
    part = pin_boards()[name].part
    assert vivado.calls[2] == ("synth_design", "-top", "top", "-part", part)
    assert vivado.calls[-1][0] == "write_bitstream"
    late = Vivado("-0.25")
    with pytest.raises(tkinter.TclError, match=r"worst setup slack is `-0.25` ns, expected 0"):
        late.tcl.eval(f"source {{{script}}}")
    assert "write_bitstream" not in {call[0] for call in late.calls}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOARDS)
def test_yosys_knows_every_cell_and_port_of_the_project(name, project):
    verilog, pins, _ = project(name)
    flow = (
        "read_verilog top.v; synth_xilinx -family xc7 -top top -run begin:prepare; proc; "
        "check -assert; select top; write_json -selected out.json"
    )
    text = run_in_new_folder(YOSYS, {"top.v": verilog.read_text()}, ["-q", "-p", flow], "out.json")
    top = json.loads(text)["modules"]["top"]
    assert set(top["ports"]) == set(pin_boards()[name].pins)
    for port, pin in pin_boards()[name].pins.items():
        assert f"PACKAGE_PIN {{{pin.site}}} [get_ports {port}]" in pins.read_text()


def test_the_command_refuses_what_has_no_effect(capsys):
    assert main(["build", "--board", "Arty-A7-35T", "--seeds", "3"]) == 2
    said = capsys.readouterr().err
    assert said == "error: `--seeds`: board `Arty-A7-35T` has no use for it; leave it out\n"
