"""The Verilog for people and for other tools."""

import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.comparison import DATA_BYTES, time_differences
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.flows.verilog.memories import MemoryShape
from tilewright.flows.verilog.readable import readable_verilog, write_core
from tilewright.hardware.technology import Technology
from tilewright.hardware.verilog import TOP
from tilewright.isa.clearing import clearing_program
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder
from tilewright.sim.rtl import RtlCore, harness_constants
from tilewright.sim.timing import Timer
from tilewright.sim.verilate import build_library

from .linter import lint

ROOT = Path(__file__).parents[3]
TINY = PRESETS["tiny"]

OPTIONS = replace(
    TINY, lanes_in=4, lanes_out=4, depthwise_taps=1, depthwise_lines="two", row_statistics="all",
    lut_tables=2, transposed_weights="int8", packed_weights="int4",
)  # fmt: skip
"""A machine with all that a configuration can add."""

PROGRAM = 400
"""Instructions of a random program: enough to show a wrong word in the table of reciprocals."""


verilog_of = cache(readable_verilog)


@pytest.fixture(scope="module")
def readable() -> str:
    return verilog_of(TINY)


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
def test_a_machine_of_another_name_is_not_written_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))  # other tests write machines too
    tiny = readable_verilog(TINY)
    monkeypatch.setattr("tilewright.flows.verilog.readable.run_yosys", None)
    assert readable_verilog(replace(TINY, name="other")) == tiny.replace("`tiny`", "`other`", 1)
    with pytest.raises(TypeError):
        readable_verilog(replace(TINY, token_bits=3))


def with_random_state(text: str) -> str:
    """The text with random values at power-up in every register and every word of a memory."""
    rng = random.Random(40)

    def value(high: str | None) -> str:
        width = int(high or 0) + 1
        return f"{width}'h{rng.getrandbits(width):x}"

    def register(found: re.Match) -> str:
        return f"{found[0]}\n  initial {found[2]} = {value(found[1])};"

    def memory(found: re.Match) -> str:
        rows = range(int(found[3]) + 1)
        words = "".join(f" {found[2]}[{row}] = {value(found[1])};" for row in rows)
        return f"{found[0]}\n  initial begin{words} end"

    text = re.sub(r"^  reg (?:signed )?(?:\[(\d+):0\] )?(\w+);$", register, text, flags=re.M)
    text = re.sub(r"^  reg \[(\d+):0\] (\w+) \[(\d+):0\];$", memory, text, flags=re.M)
    words = "integer row; initial for (row = 0; row < DEPTH; row = row + 1) words[row] = ~row * 7;"
    return text.replace("  integer granule;", f"  integer granule;\n  {words}")


@pytest.fixture(scope="module")
def asic() -> tuple[str, list[MemoryShape]]:
    return write_core(OPTIONS, Technology.ASIC)


@pytest.fixture(scope="module")
def library(asic) -> Path:
    """A simulator of the Verilog for an ASIC that starts in a random state."""
    text = with_random_state(asic[0])
    assert text.count(" initial ") > 300
    return build_library(text, TOP, harness_constants(OPTIONS), "Verilog for an ASIC")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_from_any_state_it_runs_programs_like_the_model(library, seed):
    program, image = random_program(OPTIONS, seed, PROGRAM, DATA_BYTES)
    reference = Machine(OPTIONS, image.copy())
    reference.run(program)
    core, memory = RtlCore(OPTIONS, library=library), MemoryModel()
    clearing = clearing_program(OPTIONS)
    core.run(encode_program(clearing, OPTIONS), image, clearing)
    run = core.run(encode_program(program, OPTIONS), image, program)
    with pytest.raises(DeviceError, match="scratchpads of this simulator cannot be read"):
        core.scratchpads()
    core.close()
    assert np.array_equal(image, reference.memories[Memory.DRAM])
    assert list(time_differences(Timer(program, OPTIONS).run(memory), run)) == []


@pytest.mark.slow
def test_an_asic_has_no_initial_values(readable, asic):
    assert "initial" in readable
    assert "initial" not in asic[0]


@pytest.mark.slow
def test_the_list_of_memories_is_complete(asic):
    text, memories = asic
    assert len(re.findall(r"^  tilewright_ram #\(", text, re.M)) == sum(
        memory.module == "tilewright_ram" for memory in memories
    )
    assert len(re.findall(r"^  reg \[\d+:0\] \w+ \[\d+:0\];", text, re.M)) == sum(
        not memory.module for memory in memories
    )
    for scratchpad in Memory:
        if scratchpad in (Memory.DRAM, Memory.LUT):
            continue
        banks = [m for m in memories if m.path.startswith(f"{scratchpad.name.lower()}.bank_")]
        assert sum(m.depth * m.width for m in banks) == 8 * OPTIONS.size_bytes(scratchpad)
        assert {(m.read_cycles, m.module) for m in banks} == {(1, "tilewright_ram")}
    tables = [m for m in memories if "table_" in m.path]
    assert len(tables) == OPTIONS.vector_lanes
    assert sum(m.depth * m.width for m in tables) == 8 * 256 * OPTIONS.lut_tables * len(tables)


DEEP = "without counters or depthwise mode, a deep scratchpad, a wide bus, one loop"

MACHINES = {
    "tiny": TINY,
    "all options": OPTIONS,
    DEEP: replace(
        TINY, counters="none", depthwise_taps=0, act_depth=65536, bus_bits=64, tile_loops=1,
        dma_loops=1, outstanding_bursts=1,
    ),
    "other widths": replace(
        PRESETS["4x4"], lanes_out=8, vector_lanes=2, address_bits=32, lut_tables=4, burst_beats=1
    ),
}  # fmt: skip


@pytest.mark.slow
def test_a_deep_scratchpad_is_as_short_as_a_shallow_one(readable):
    deep = verilog_of(MACHINES[DEEP])
    assert ".DEPTH(32'd65536)" in deep
    assert len(deep) < len(readable), "which has counters and the depthwise mode"
    assert all(int(rows) <= 64 for rows in re.findall(r"row < (\d+)", deep))


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_linters_find_nothing(machine, tmp_path):
    assert lint(verilog_of(machine), tmp_path) == ""


@pytest.mark.slow
def test_linters_find_nothing_for_an_asic(asic, tmp_path):
    assert lint(asic[0], tmp_path) == ""


@pytest.mark.slow
def test_the_linter_would_find_a_fault(readable, tmp_path):
    faulty = readable.replace("endmodule", "  wire [3:0] four = clk;\nendmodule", 1)
    assert "WIDTHEXPAND" in lint(faulty, tmp_path)
