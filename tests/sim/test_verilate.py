"""A design that Verilator does not accept leaves nothing behind."""

import pytest

from tilewright.errors import HardwareError
from tilewright.sim.verilate import build_library

CONSTANTS = {"BUS_BYTES": 4, "BURST_BYTES": 64, "CONTROL_OFFSET": 12}


def test_bad_verilog_is_refused_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(HardwareError, match=r"Verilator rejected the design:\n.*syntax error"):
        build_library("module broken(;", "broken", CONSTANTS, "broken")
    assert not list(tmp_path.rglob("*.so"))
