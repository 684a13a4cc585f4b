"""Runs an exported network on the core under cocotb 2, and compares main memory.

The top level is `core`, the working directory this folder. Only cocotb is needed.
"""

import json
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

HERE = Path(__file__).parent
NETWORK = json.loads((HERE / "network.json").read_text("utf-8"))
BUS_BYTES = NETWORK["BUS_BITS"] // 8
DONE, ERROR = 2, 4


def words(name: str) -> list[int]:
    """The words of a hex file."""
    return [int(word, 16) for word in (HERE / name).read_text("utf-8").split()]


class MainMemory:
    """Main memory: one burst at a time in each direction, a beat per cycle."""

    def __init__(self, dut):
        self.dut, self.words = dut, words("memory.hex")
        self.read = self.write = None
        self.answers = False

    def drive(self):
        """Set the inputs of the coming clock edge."""
        dut = self.dut
        dut.m_axi_arready.value = self.read is None
        dut.m_axi_rvalid.value = self.read is not None
        if self.read is not None:
            address, left = self.read
            dut.m_axi_rdata.value = self.words[address // BUS_BYTES]
            dut.m_axi_rlast.value = left == 0
        dut.m_axi_awready.value = self.write is None and not self.answers
        dut.m_axi_wready.value = self.write is not None
        dut.m_axi_bvalid.value = self.answers

    def sample(self):
        """Look at what the coming clock edge transfers."""
        dut = self.dut
        if self.read is None:
            if int(dut.m_axi_arvalid.value):
                self.read = (int(dut.m_axi_araddr.value), int(dut.m_axi_arlen.value))
        elif int(dut.m_axi_rready.value):
            address, left = self.read
            self.read = (address + BUS_BYTES, left - 1) if left else None
        if self.answers:
            self.answers = not int(dut.m_axi_bready.value)
        elif self.write is None:
            if int(dut.m_axi_awvalid.value):
                self.write = int(dut.m_axi_awaddr.value)
        elif int(dut.m_axi_wvalid.value):
            self.store(int(dut.m_axi_wdata.value), int(dut.m_axi_wstrb.value))
            self.answers = bool(int(dut.m_axi_wlast.value))
            self.write = None if self.answers else self.write + BUS_BYTES

    def store(self, data: int, strobe: int):
        """Write the bytes of a beat that its strobe names."""
        mask = sum(255 << 8 * lane for lane in range(BUS_BYTES) if strobe >> lane & 1)
        index = self.write // BUS_BYTES
        self.words[index] = self.words[index] & ~mask | data & mask


class Bench:
    """The core with clock, memory and host; inputs change at the falling edge."""

    def __init__(self, dut):
        self.dut, self.memory, self.cycles = dut, MainMemory(dut), 0

    async def step(self):
        """Pass one cycle."""
        self.memory.drive()
        await ReadOnly()
        self.memory.sample()
        await FallingEdge(self.dut.clk)
        self.cycles += 1
        assert self.cycles < NETWORK["MAX_CYCLES"], "the program has no end"

    async def reset(self):
        """Start the clock, and reset the core."""
        dut = self.dut
        for name in ("aw", "w", "ar"):
            getattr(dut, f"s_axi_{name}valid").value = 0
        dut.s_axi_bready.value = dut.s_axi_rready.value = 1
        dut.s_axi_wstrb.value = 15
        dut.m_axi_rresp.value = dut.m_axi_bresp.value = 0
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        await FallingEdge(dut.clk)
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def offer(self, channels: list[str], answer: str):
        """Offer transfers until each is taken, then wait for the answer."""
        open_channels = set(channels)
        answered = False
        while open_channels or not answered:
            self.memory.drive()
            for name in channels:
                getattr(self.dut, f"s_axi_{name}valid").value = name in open_channels
            await ReadOnly()
            taken = {n for n in open_channels if int(getattr(self.dut, f"s_axi_{n}ready").value)}
            answered |= bool(int(getattr(self.dut, f"s_axi_{answer}valid").value))
            self.result = int(self.dut.s_axi_rdata.value) if answer == "r" and answered else 0
            self.memory.sample()
            await FallingEdge(self.dut.clk)
            self.cycles += 1
            open_channels -= taken
        for name in channels:
            getattr(self.dut, f"s_axi_{name}valid").value = 0

    async def write(self, register: str, value: int):
        """Write a register."""
        self.dut.s_axi_awaddr.value = NETWORK[register]
        self.dut.s_axi_wdata.value = value
        await self.offer(["aw", "w"], "b")

    async def read(self, register: str) -> int:
        """Read a register."""
        self.dut.s_axi_araddr.value = NETWORK[register]
        await self.offer(["ar"], "r")
        return self.result

    async def run(self, numbers: list[int]):
        """Run a program, given address and size of its code and of its data, in bytes."""
        names = ("PROGRAM_BASE", "PROGRAM_BYTES", "DATA_BASE", "DATA_BYTES")
        for name, value in zip(names, numbers, strict=True):
            await self.write(name, value)
        await self.write("CONTROL", 1)
        while not (status := await self.read("STATUS")) & (DONE | ERROR):
            await self.step()
        assert not status & ERROR, f"error {status >> 4 & 15}"

    async def run_all(self):
        """Reset the core, and run all programs of the network."""
        self.memory.drive()
        await self.reset()
        numbers = words("runs.hex")
        for start in range(0, len(numbers), 4):
            await self.run(numbers[start : start + 4])


@cocotb.test()
async def memory_is_as_expected(dut):
    """Run all programs, then compare every word."""
    bench = Bench(dut)
    await bench.run_all()
    assert bench.memory.words == words("expected.hex")
