"""Projects for Quartus, checked without it."""

import contextlib
import json
import re
import tkinter
from pathlib import Path

import pytest

from tilewright.atomic_write import write_files
from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.board.quartus import write_quartus_project
from tilewright.hardware.soc import system
from tilewright.isa.configuration import PRESETS
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder

from ...hardware.echo import Echo

BOARD = pin_boards()["DE10-Nano"]

PACKAGES = {
    "::quartus::project": ("project_new", "project_close", "set_global_assignment",
                           "set_instance_assignment", "set_location_assignment",
                           "export_assignments"),
    "::quartus::flow": ("execute_flow",),
    "::quartus::report": ("load_report", "unload_report", "get_report_panel_names",
                          "get_report_panel_row_index", "get_report_panel_data"),
}  # fmt: skip
"""Commands by the package that has them (Quartus Prime Standard Edition, scripting reference)."""

PANEL = "Timing Analyzer||Multicorner Timing Analysis Summary"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, str]:
    """The files of a project with a small system in place of a core."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "System", lambda *arguments: Echo(arguments[-1]))
        patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
        paths = write_quartus_project(Design(BOARD, PRESETS[BOARD.configuration]), folder)
    return {path.name: path.read_text() for path in paths}


@pytest.fixture
def project(written, tmp_path) -> list[Path]:
    """The paths of the files in a folder of their own."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    return write_files(folder, written)


class Quartus:
    """An interpreter of Tcl with Quartus' commands, each one there once its package is."""

    def __init__(self, slack: str):
        self.calls: list[tuple[str, ...]] = []
        self.slack = slack
        self.tcl = tkinter.Tcl()
        self.tcl.createcommand("package", self._package)

    def _package(self, word: str, name: str) -> str:
        assert word == "require"
        for command in PACKAGES[name]:
            self.tcl.createcommand(command, lambda *words, c=command: self._call(c, words))
        return "1.0"

    def _call(self, name: str, words: tuple[str, ...]):
        self.calls.append((name, *words))
        if name == "execute_flow":
            output = Path(self.assigned("PROJECT_OUTPUT_DIRECTORY"))
            output.mkdir()
            (output / f"{BOARD.name}.sof").write_text("bitstream")
        if name == "get_report_panel_names":
            return ("Flow Summary", PANEL)
        if name == "get_report_panel_row_index":
            assert words == ("-name", PANEL, "Worst-case Slack")
            return "0"
        if name == "get_report_panel_data":
            assert words[:4] == ("-name", PANEL, "-row", "0")
            return self.slack if words[-1] == "Setup" else "0.2"
        return ""

    def source(self, script: Path) -> None:
        """Run a script, whose `cd` moves this process too."""
        with contextlib.chdir(script.parent):
            self.tcl.eval(f"source {{{script}}}")

    def assigned(self, name: str) -> str:
        """The value of a global assignment."""
        (value,) = (call[3] for call in self.calls if call[0] == "set_global_assignment"
                    and call[2] == name)  # fmt: skip
        return value


def test_the_script_compiles_the_project_and_checks_the_clock(project):
    top, pins, clocks, script = project
    folder = script.parent
    quartus = Quartus("0.1")
    quartus.source(script)
    assert quartus.calls[0] == ("project_new", "-overwrite", BOARD.name)
    assert quartus.assigned("DEVICE") == BOARD.part
    assert (folder / quartus.assigned("VERILOG_FILE")) == top
    assert (folder / quartus.assigned("SDC_FILE")) == clocks
    assert f"module {quartus.assigned('TOP_LEVEL_ENTITY')}(" in top.read_text()
    located = {call[3]: call[1] for call in quartus.calls if call[0] == "set_location_assignment"}
    assert located == {port: f"PIN_{pin.site}" for port, pin in BOARD.pins.items()}
    standards = {call[4:] for call in quartus.calls if call[0] == "set_instance_assignment"}
    assert standards == {("-to", port) for port in BOARD.pins}
    assert all("3.3-V LVTTL" in call for call in quartus.calls if "IO_STANDARD" in call)
    assert (folder / f"{BOARD.name}.sof").read_text() == "bitstream"
    assert pins.read_text().count("set_location_assignment") == len(BOARD.pins)


def test_a_missed_clock_gives_no_bitstream(project):
    script = project[-1]
    with pytest.raises(tkinter.TclError, match=r"at 75 MHz: worst Setup slack is `-0.25` ns"):
        Quartus("-0.25").source(script)
    assert not list(script.parent.rglob("*.sof"))


def test_the_clock_of_the_oscillator_is_constrained(project):
    text = project[2].read_text()
    assert "create_clock -name oscillator -period 20.000 [get_ports oscillator]" in text
    assert re.findall(r"\{(.*?)\}", text) == ["rx button", "tx led_*"]


@pytest.mark.slow
def test_yosys_knows_every_cell_and_port_of_the_project(project):
    flow = (
        "read_verilog -lib +/intel_alm/common/megafunction_bb.v; read_verilog top.v; "
        "hierarchy -check -top top; proc; check -assert; select top; write_json -selected out.json"
    )
    files = {"top.v": project[0].read_text()}
    top = json.loads(run_in_new_folder(YOSYS, files, ["-q", "-p", flow], "out.json"))
    assert set(top["modules"]["top"]["ports"]) == set(BOARD.pins)
