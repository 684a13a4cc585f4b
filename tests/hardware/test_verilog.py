"""The Verilog of a core is complete, and the same every time."""

import re
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.comparison import DATA_BYTES, time_differences
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.hardware.verilog import TOP, generate_verilog, readable_verilog
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder
from tilewright.sim.rtl import RtlCore, harness_constants
from tilewright.sim.timing import Timer
from tilewright.sim.verilate import build_library

ROOT = Path(__file__).parents[2]
TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def readable() -> str:
    return readable_verilog(TINY)


@pytest.mark.slow
def test_the_same_configuration_gives_the_same_text():
    first, second = (generate_verilog(PRESETS["tiny"]) for _ in range(2))
    assert first == second
    header = re.search(rf"module {TOP}\((.*?)\);", first, re.DOTALL)
    assert header is not None
    ports = {name.strip() for name in header[1].split(",")}
    assert {"clk", "rst", "interrupt", "events", "m_axi_araddr", "s_axi_wdata"} <= ports
    assert not re.search(r"ram\[\d+\] = \d+'[a-z]0+;", first), "a memory is cleared line by line"
    assert "falling" in first, "no part sleeps"


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
