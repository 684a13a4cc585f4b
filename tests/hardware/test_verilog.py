"""The Verilog of a core for the simulator is complete, and the same every time."""

import re

import pytest

from tilewright.hardware.verilog import TOP, generate_verilog
from tilewright.isa.configuration import PRESETS


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
