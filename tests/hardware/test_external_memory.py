"""A system whose memory port leads outside runs programs on whatever answers there."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.flows.board.server import Server, TcpPort
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.hardware.soc.block_memory import BlockMemory
from tilewright.hardware.soc.simulated_ram import VERILOG
from tilewright.hardware.soc.system import STATE, System
from tilewright.hardware.verilog import convert
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import open_device
from tilewright.runtime.board import BoardDevice
from tilewright.sim import board
from tilewright.sim.verilate import build_library

from ..runtime.stub_board import serve_in_background

SMALL = PRESETS["tiny"]
MEMORY_BYTES, CLOCK_HZ = 1 << 17, 81_250_000


class WithController(wiring.Component):
    """A system, and in place of the vendor's controller another slave of the same protocol."""

    def __init__(self, system: System):
        self.system = system
        members = dict(system.signature.members)
        del members["read"], members["write"]
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.system = system = self.system
        m.submodules.memory = memory = BlockMemory(system.configuration, MEMORY_BYTES)
        wiring.connect(m, system.read, memory.read)
        wiring.connect(m, system.write, memory.write)
        wiring.connect(m, wiring.flipped(self.received), system.received)
        wiring.connect(m, system.sent, wiring.flipped(self.sent))
        m.d.comb += [getattr(self, each).eq(getattr(system, each)) for each in STATE]
        return m


@pytest.mark.slow
def test_programs_run_on_memory_outside(monkeypatch):
    outside = MemoryModel(latency_cycles=40)
    system = System(SMALL, MEMORY_BYTES, CLOCK_HZ, external=outside)
    verilog = convert(WithController(system), board.TOP) + VERILOG
    library = build_library(verilog, board.TOP, {}, "a system", harness="board.cpp")
    monkeypatch.setattr(board, "build_board", lambda *_, **__: library)
    virtual = board.VirtualBoard(SMALL, MEMORY_BYTES, CLOCK_HZ)
    with (
        serve_in_background(virtual, port=TcpPort(0)) as server,
        open_device(server.port.address, SMALL) as device,
        open_device("reference", SMALL) as reference,
    ):
        assert isinstance(server, Server)
        assert isinstance(device, BoardDevice)
        assert device.memory == outside, "an estimate, which is not that of the slave here"
        for seed in range(8):
            program, image = random_program(SMALL, seed)
            found = device.run(program, image.copy())
            expected = reference.run(program, image.copy())
            np.testing.assert_array_equal(found.dram, expected.dram)
            assert found.spans is None, "cycles of another memory than the one described"
