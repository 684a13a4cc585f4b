"""Projects for Vivado, checked without it: the script, the wrapper, the core behind its driver."""

import json
import re
import tkinter
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.lib.wiring import In, Out

from tilewright import compile_graph, import_model
from tilewright.errors import HardwareError, UsageError
from tilewright.flows.area.counts import count_blocks
from tilewright.flows.board.known_boards import find_board, known_boards
from tilewright.flows.board.processors import ZynqBoard
from tilewright.flows.board.vivado import WRAPPER, ZynqDesign, wrapper, write_project
from tilewright.flows.cli.main import main
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.flows.verilog.readable import readable_verilog
from tilewright.hardware.axi import read_port, write_port
from tilewright.hardware.axi_lite import axi_lite_port
from tilewright.hardware.control import ADDRESS_BITS
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import Session, open_device, zynq
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder
from tilewright.sim.rtl import harness_constants
from tilewright.sim.verilate import build_library

from ...runtime.mapped_core import simulated_core
from .vivado_commands import Vivado, WrongScriptError

ZYNQ_BOARDS = {
    name: board for name, board in known_boards().items() if isinstance(board, ZynqBoard)
}
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
SMALL = replace(PRESETS["tiny"], name="small", address_bits=32)
INSTALLED = (
    "digilentinc.com:zybo-z7-10:part0:1.1",
    "digilentinc.com:zybo-z7-20:part0:1.1",
    "www.digilentinc.com:pynq-z1:part0:1.0",
    "xilinx.com:kv260_som:part0:1.4",
    "tul.com.tw:pynq-z2:part0:1.0",
    "avnet.com:ultra96v2:part0:1.1",
    "avnet.com:ultra96v2:part0:1.2",
)


def usual(name: str) -> ZynqDesign:
    board = ZYNQ_BOARDS[name]
    return ZynqDesign(board, PRESETS[board.configuration], board.clock_mhz)


# The boards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZYNQ_BOARDS)
def test_parts_and_presets_fit_the_chip(name):
    design = usual(name)
    device, technology = design.device, design.device.family.technology
    assert technology
    assert design.board.part.upper().startswith(device.part.split()[0])
    counts = count_blocks(design.configuration, technology)
    assert counts.multipliers <= device.capacity["multipliers"]
    assert counts.ram is None or counts.ram <= device.capacity["ram"]


def test_a_larger_machine_is_refused():
    with pytest.raises(HardwareError) as problem:
        ZynqDesign(ZYNQ_BOARDS["PYNQ-Z2"], PRESETS["ultra96"], 100)
    assert str(problem.value).startswith(
        "configuration `ultra96` on `PYNQ-Z2`: needs 304 multipliers, the device has 220; lower "
        "`vector_lanes`, then `lanes_in` or `lanes_out`"
    )


def test_a_machine_that_cannot_reach_the_memory_is_refused():
    with pytest.raises(UsageError) as problem:
        ZynqDesign(ZYNQ_BOARDS["PYNQ-Z2"], PRESETS["tiny"], 100)
    assert str(problem.value) == (
        "configuration `tiny` on `PYNQ-Z2`: addresses of 20 bits do not reach the board's memory; "
        "add `--set address_bits=32`"
    )


def test_names_are_found_in_any_case():
    assert find_board("pynq_z2") is ZYNQ_BOARDS["PYNQ-Z2"]


# The script --------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Projects have an empty module in place of the core."""
    core = empty_core()
    monkeypatch.setattr(
        "tilewright.flows.verilog.readable.readable_verilog", lambda *arguments: core
    )


@pytest.fixture
def project(quick, tmp_path):
    """Write a board's project; return the path of the script."""
    return lambda name: write_project(usual(name), tmp_path / "a folder" / name)[-1]


def empty_core() -> str:
    """A module with the ports of a core."""
    port = axi_lite_port(ADDRESS_BITS).flip()
    signatures = {"m_axi": [read_port(SMALL), write_port(SMALL)], "s_axi": [port]}
    ways = {"clk": In, "rst": In, "interrupt": Out} | {
        f"{prefix}_{name}": member.flow
        for prefix, found in signatures.items()
        for signature in found
        for name, member in signature.members.items()
    }
    lines = (f"  {'input' if way is In else 'output'} {name};\n" for name, way in ways.items())
    return f"\nmodule core({', '.join(ways)});\n{''.join(lines)}endmodule\n"


@pytest.mark.parametrize("name", ZYNQ_BOARDS)
def test_vivado_takes_the_script(name, project):
    script = project(name)
    vivado = Vivado(INSTALLED)
    vivado.source(script)
    board = ZYNQ_BOARDS[name]
    results = {path.name for path in script.parent.glob("[!.]*")} - {"vivado"}
    assert results == {"core.v", "tilewright.v", "build.tcl", *(
        f"{name}.{end}" for end in ("bit", "hwh", "xsa"))}  # fmt: skip
    (made,) = (call for call in vivado.calls if call[0] == "create_project")
    assert made[made.index("-part") + 1] == board.part
    assert ("set_property", "board_part", next(
        part for part in reversed(INSTALLED) if fnmatchcase(part, board.board_files)), "project"
    ) in vivado.calls  # fmt: skip
    assert int(vivado.addresses["core/s_axi/reg0"], 16) == board.system.registers_base
    assert vivado.links["core/m_axi"] == "memory/S00_AXI"
    assert vivado.links["memory/M00_AXI"] == f"ps/{board.system.memory_port}"
    assert vivado.drivers["core/rst"] == "reset/peripheral_reset", "active high"
    clock = vivado.cells["ps"].settings[f"CONFIG.{board.system.clock_setting}"]
    assert float(clock) == DEVICES[board.device].clock_mhz


def test_a_missed_clock_gives_no_bitstream(project):
    script = project("PYNQ-Z2")
    with pytest.raises(tkinter.TclError) as stopped:
        Vivado(INSTALLED, slack="-0.250").source(script)
    assert str(stopped.value) == (
        "timing at 100 MHz: worst setup slack is `-0.250` ns, expected 0 or more; write the "
        "project again with a lower `--clock`"
    )
    assert not list(script.parent.rglob("*.bit"))


def test_missing_board_files(project):
    with pytest.raises(tkinter.TclError) as stopped:
        Vivado(()).source(project("Ultra96"))
    assert str(stopped.value) == (
        "no board files match `*:ultra96v2:part0:*`: install those of Ultra96 in Vivado's store of "
        "boards"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("core/m_axi memory/S00_AXI", "core/maxi memory/S00_AXI", "no interface `core/maxi`"),
        ("create_project -force", "create_project -overwrite", "unknown option -overwrite"),
        ("CONFIG.PCW_USE_S_AXI_HP0 {1}", "CONFIG.PCW_USE_S_AXI_HP0 {0}", "no pin `ps/S_AXI_HP0_A"),
        ("PCW_USE_S_AXI_HP0", "PCW_USE_S_AXI_HPO", "no parameters ['CONFIG.PCW_USE_S_AXI_HPO']"),
        ("reset/slowest_sync_clk", "", "not connected: ['reset/slowest_sync_clk']"),
        ("assign_bd_address\n", "\n", "not connected: ['memory']"),
        ("validate_bd_design\n", "\n", "the block design is not valid"),
        ("wait_on_run $run", "wait_on_run", "0 words, expected 1 to 1"),
    ],
)
def test_the_check_finds_mistakes(right, wrong, message, project):
    script = project("PYNQ-Z2")
    text = script.read_text()
    assert right in text
    script.write_text(text.replace(right, wrong))
    with pytest.raises(WrongScriptError, match=re.escape(message)):
        Vivado(INSTALLED).source(script)


def test_commands_that_vivado_lacks_are_refused(project):
    script = project("PYNQ-Z2")
    script.write_text(script.read_text().replace("save_bd_design", "save_design_of_blocks"))
    with pytest.raises(tkinter.TclError, match='invalid command name "save_design_of_blocks"'):
        Vivado(INSTALLED).source(script)


# The wrapper -------------------------------------------------------------------------------------

LITE = {
    *(f"{channel}{name}" for channel in ("AW", "AR") for name in ("ADDR", "VALID", "READY")),
    *(f"W{name}" for name in ("DATA", "STRB", "VALID", "READY")),
    *(f"{channel}{name}" for channel in ("B", "R") for name in ("RESP", "VALID", "READY")),
    "RDATA",
}
"""Signals of AXI4-Lite that are not optional (IHI 0022, part B), without protection types."""

AXI4 = LITE | {"AWLEN", "AWSIZE", "AWBURST", "WLAST", "ARLEN", "ARSIZE", "ARBURST", "RLAST"}
"""Those of a master with bursts and without identifiers (IHI 0022, section A9.3)."""


def elaborated(family: str, core: str) -> Mapping[str, Any]:
    """The modules of a project's Verilog in Yosys, every cell known and every port connected."""
    script = (
        f"read_verilog core.v {WRAPPER}.v; synth_xilinx -family {family} -top {WRAPPER} "
        f"-run begin:prepare; proc; check -assert; select {WRAPPER} core; write_json -selected "
        "out.json"
    )
    files = {"core.v": core, f"{WRAPPER}.v": wrapper(SMALL, core, "core")}
    text = run_in_new_folder(YOSYS, files, ["-q", "-p", script], "out.json")
    return json.loads(text)["modules"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ZYNQ_BOARDS)
def test_the_wrapper_has_the_ports_of_the_core_and_tells_interfaces(name):
    board = ZYNQ_BOARDS[name]
    technology = DEVICES[board.device].family.technology
    family = DEVICES[board.device].family.mapping.synthesis.split()[2]
    modules = elaborated(family, readable_verilog(SMALL, technology))

    def ports(module: str) -> dict[str, tuple[str, int]]:
        found = modules[module]["ports"]
        return {port: (each["direction"], len(each["bits"])) for port, each in found.items()}

    assert ports(WRAPPER) == ports("core")
    interfaces: dict[str, dict[str, str]] = {}
    for port in modules[WRAPPER]["ports"]:
        attributes = modules[WRAPPER]["netnames"][port]["attributes"]
        if "X_INTERFACE_INFO" in attributes:
            kind, interface, signal = attributes["X_INTERFACE_INFO"].split()
            interfaces.setdefault(f"{kind} {interface}", {})[signal] = port
    axi = "xilinx.com:interface:aximm:1.0"
    assert interfaces.pop(f"{axi} m_axi") == {each: f"m_axi_{each.lower()}" for each in AXI4}
    assert interfaces.pop(f"{axi} s_axi") == {each: f"s_axi_{each.lower()}" for each in LITE}
    assert interfaces == {
        "xilinx.com:signal:clock:1.0 clk": {"CLK": "clk"},
        "xilinx.com:signal:reset:1.0 rst": {"RST": "rst"},
        "xilinx.com:signal:interrupt:1.0 interrupt": {"INTERRUPT": "interrupt"},
    }


@pytest.mark.slow
def test_the_driver_runs_the_digits_on_the_wrapped_core(monkeypatch):
    """Registers and memory go through the wrapper's AXI ports, whose rules the memory checks."""
    configuration = PRESETS["tiny"].replace(
        act_depth=512, wgt_depth=512, acc_depth=128, param_depth=64, extent_bits=8, address_bits=24
    )
    core = readable_verilog(configuration)
    text = core + wrapper(configuration, core, "core")
    constants = harness_constants(configuration)
    library = build_library(text, WRAPPER, constants, "a wrapped core", quick=True)
    memory = MemoryModel(latency_cycles=40, stall_probability=0.2, seed=3)
    mapped = simulated_core(library, memory)
    monkeypatch.setattr(zynq, "open_core", lambda name: mapped)
    module = compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), configuration)
    with np.load(DIGITS / "test_digits.npz") as file:
        scans = file["inputs"][:3]
    with (
        open_device("zynq:///dev/uio0", configuration) as board,
        open_device("sim", configuration) as sim,
    ):
        for seed in range(3):
            program, image = random_program(configuration, seed)
            ours, theirs = image.copy(), image.copy()
            board.run(program, ours)
            sim.run(program, theirs)
            np.testing.assert_array_equal(ours, theirs)
        ours, theirs = Session(module, board), Session(module, sim)
        for scan in scans:
            got, expected = ours.run(scan[None]), theirs.run(scan[None])
            np.testing.assert_array_equal(got.outputs["logits"], expected.outputs["logits"])
            assert got.results[0].cycles


# The command -------------------------------------------------------------------------------------


def test_the_command_writes_a_project(quick, tilewright, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["build", "--board", "pynq-z2", "--set", "lanes_in=4", "--clock", "125"]
    said = tilewright(*words)
    folder = Path("build") / "PYNQ-Z2"
    assert f"next           vivado -mode batch -source {folder}/build.tcl" in said
    assert "clock          125 MHz" in said
    assert "set clock_mhz {125}\n" in (folder / "build.tcl").read_text()
    report = json.loads(tilewright(*words, "--json"))
    assert {Path(file) for file in report["files"]} == set(folder.glob("[!.]*"))
    assert report["parameters"]["lanes_in"] == 4
    assert report["clock_mhz"] == 125


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--baud", "9600"], "`--baud`: board `PYNQ-Z2` has no use for it; leave it out"),
        (["--seeds", "3"], "`--seeds`: board `PYNQ-Z2` has no use for it; leave it out"),
        (["--clock", "0"], "`--clock 0`: expected 1 to 400; correct it"),
    ],
)
def test_wrong_arguments(words, message, capsys):
    assert main(["build", "--board", "PYNQ-Z2", *words]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
