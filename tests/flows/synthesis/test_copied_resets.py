"""On a chip, each part of a system has a register of its own for its reset."""

import json

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.lib import wiring

from tilewright.hardware.fan_out import add_with_resets
from tilewright.hardware.technology import Technology
from tilewright.sim.gate.mapping import ECP5
from tilewright.sim.gate.tools import YOSYS, run_in_new_folder


class Counter(wiring.Component):
    def __init__(self) -> None:
        super().__init__({})
        self.counted = Signal(4)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.counted.eq(self.counted + 1)
        return m


def flip_flops() -> tuple[list[dict], int]:
    """The flip-flops of two counters on an ECP5, and the net of the reset."""
    m = Module()
    parts = {"first": Counter(), "second": Counter()}
    clock, reset = Signal(name="clock"), Signal(name="reset")
    m.domains.sync = ClockDomain("sync")
    m.d.comb += [ClockSignal().eq(clock), ResetSignal().eq(reset)]
    add_with_resets(m, Technology.ECP5, parts)
    ports = [clock, reset, *(part.counted for part in parts.values())]
    text = rtlil.convert(m, name="top", ports=ports, platform=Technology.ECP5, emit_src=False)
    script = f"read_rtlil rtl.il; {ECP5.synthesis} -top top; write_json m.json"
    mapped = run_in_new_folder(YOSYS, {"rtl.il": text}, ["-q", "-p", script], "m.json")
    module = json.loads(mapped)["modules"]["top"]
    cells = [cell for cell in module["cells"].values() if cell["type"] == "TRELLIS_FF"]
    return [cell["connections"] for cell in cells], module["ports"]["reset"]["bits"][0]


def test_the_reset_reaches_two_registers_and_each_of_them_a_part():
    found, reset = flip_flops()
    copies = [pins["Q"][0] for pins in found if pins["DI"] == [reset]]
    assert len(copies) == len(set(copies)) == 2
    counters = [pins["LSR"][0] for pins in found if pins["DI"] != [reset]]
    assert {net: counters.count(net) for net in counters} == dict.fromkeys(copies, 4)
