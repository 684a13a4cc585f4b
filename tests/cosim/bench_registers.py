"""Every register of the map: what it is after reset, and what a host may do to it."""

import cocotb
from bench import CONFIGURATION, Bench

from tilewright.isa.configuration import CONTRACT_VERSION
from tilewright.isa.registers import MAGIC, REGISTER_SPACE_BYTES, REGISTERS

FIXED = {"ID": MAGIC, "VERSION": CONTRACT_VERSION, "CONFIGURATION": CONFIGURATION.hash}
PATTERNS = {"PROGRAM_BASE": 0x000A_55E0, "DATA_BASE": 0x0005_A000}
"""Values that fit 20 address bits and the alignment of each register."""


@cocotb.test()
async def registers_hold_their_reset_values(dut):
    bench = await Bench.create(dut, 1)
    for register in REGISTERS:
        value = await bench.read(register.name)
        assert value == FIXED.get(register.name, 0), f"{register.name} resets to {value:#x}"
    bench.checker.finish()


@cocotb.test()
async def writable_registers_keep_what_was_written(dut):
    bench = await Bench.create(dut, 2)
    names = [r.name for r in REGISTERS if r.writable and r.name != "CONTROL"]
    for round_ in (0, 1):
        for index, name in enumerate(names):
            value = PATTERNS.get(name, 0x1234_5678 + index) if round_ else 0
            await bench.write(name, value)
        for index, name in enumerate(names):
            value = PATTERNS.get(name, 0x1234_5678 + index) if round_ else 0
            assert await bench.read(name) == value, name
    bench.checker.finish()


@cocotb.test()
async def other_registers_cannot_be_written(dut):
    bench = await Bench.create(dut, 3)
    for register in REGISTERS:
        if not register.writable:
            before = await bench.read(register.name)
            await bench.write(register.name, ~before & 0xFFFF_FFFF)
            assert await bench.read(register.name) == before, register.name
    bench.checker.finish()


@cocotb.test()
async def offsets_without_a_register_read_zero(dut):
    bench = await Bench.create(dut, 4)
    known = {register.offset for register in REGISTERS}
    for offset in range(0, REGISTER_SPACE_BYTES, 4):
        if offset not in known:
            dut.s_axi_araddr.value = offset
            bench.host.begin("ar", "r")
            await bench._until_idle()
            assert bench.host.answer == 0, hex(offset)
    bench.checker.finish()
