"""The Verilog for people and for other tools."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.comparison import DATA_BYTES, time_differences
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.flows.verilog.readable import readable_verilog
from tilewright.hardware.verilog import TOP
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder
from tilewright.sim.rtl import RtlCore, harness_constants
from tilewright.sim.timing import Timer
from tilewright.sim.toolchain import find_verilator
from tilewright.sim.verilate import build_library

ROOT = Path(__file__).parents[3]
TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def readable() -> str:
    return readable_verilog(TINY)


@pytest.mark.slow
def test_the_header_describes_configuration_and_ports(readable):
    header = readable.partition("\n\n")[0]
    assert all(line.startswith("//") for line in header.splitlines())
    for name, value in TINY.parameters().items():
        assert f"//   {name} = {value}\n" in header
    ports = re.findall(r"^//   (input|output) +(\d+)  (\w+)$", header, re.MULTILINE)
    top = readable.partition(f"module {TOP}(")[2].partition("endmodule")[0]
    declared = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", top, re.MULTILINE)
    assert {(way, int(bits or 0) + 1, name) for way, bits, name in declared} == {
        (way, int(bits), name) for way, bits, name in ports
    }


@pytest.mark.slow
def test_source_attributes_lead_back_to_the_python(readable):
    places = set(re.findall(r'src = "([^"]*)"', readable))
    assert len(places) > 100
    for place in {one for several in places for one in several.split("|")}:
        file, line = place.split(":")
        if file.startswith("hardware/"):
            assert int(line) <= len((ROOT / file).read_text().splitlines())
        else:
            assert re.match(r"(amaranth|python)/[\w/]+\.py$", file), file


@pytest.mark.slow
def test_the_text_is_plain_verilog(readable):
    assert "\\" not in readable, "a name is escaped"
    assert not re.search(r"\bport_\d+", readable), "a port has a number for a name"
    assert "assert" not in readable
    script = f"read_verilog core.v; hierarchy -check -top {TOP}; write_file out a"
    run_in_new_folder(YOSYS, {"core.v": readable, "a": "read"}, ["-q", "-p", script], "out")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_runs_programs_like_the_model(readable, seed):
    library = build_library(readable, TOP, harness_constants(TINY), "readable Verilog of `tiny`")
    program, image = random_program(TINY, seed, 40, DATA_BYTES)
    reference = Machine(TINY, image.copy())
    reference.run(program)
    core, memory = RtlCore(TINY, library=library), MemoryModel()
    run = core.run(encode_program(program, TINY), image, program)
    with pytest.raises(DeviceError, match="scratchpads of this simulator cannot be read"):
        core.scratchpads()
    core.close()
    assert np.array_equal(image, reference.memories[Memory.DRAM])
    assert list(time_differences(Timer(program, TINY).run(memory), run)) == []


MACHINES = {
    "tiny": TINY,
    "without counters or depthwise mode": replace(TINY, counters="none", depthwise_taps=0),
    "wide bus, one loop": replace(
        TINY, bus_bits=64, tile_loops=1, dma_loops=1, outstanding_bursts=1
    ),
    "other widths": replace(
        PRESETS["4x4"], lanes_out=8, vector_lanes=2, address_bits=32, lut_tables=4, burst_beats=1
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_linters_find_nothing(machine, tmp_path):
    assert lint(readable_verilog(machine), tmp_path) == ""


@pytest.mark.slow
def test_the_linter_would_find_a_fault(readable, tmp_path):
    faulty = readable.replace("endmodule", "  wire [3:0] four = clk;\nendmodule", 1)
    assert "WIDTHEXPAND" in lint(faulty, tmp_path)


def lint(text: str, folder: Path) -> str:
    """The warnings of Verilator, all kinds enabled, of which a pragma may silence two."""
    silenced = set(re.findall(r"lint_off (\w+)", text))
    assert silenced == {"DECLFILENAME", "SYMRSVDWORD"}
    (folder / "core.v").write_text(text)
    verilator = find_verilator()
    command = [verilator / "bin" / "verilator_bin", "--lint-only", "-Wall", "--quiet"]
    return subprocess.run(
        [*command, "--top-module", TOP, folder / "core.v"],
        env={**os.environ, "VERILATOR_ROOT": str(verilator)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    ).stderr
