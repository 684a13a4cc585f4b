"""Shared parts of the whole-core benches: clock, host port, an irregular memory, the checker.

All inputs change at the falling edge of the clock and all signals are sampled after they have
settled, still half a cycle before the rising edge.
"""

import os
import random
from collections import deque

import cocotb
import numpy as np
from axi_checker import AxiChecker
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from tilewright.isa.encoding import encode_program
from tilewright.isa.registers import OFFSETS, Error
from tilewright.isa.settings import load_configuration

CONFIGURATION = load_configuration(os.environ.get("TILEWRIGHT_BENCH", "tiny"))
PROGRAM_BASE, DATA_BASE = 0x8000, 0x1000
BUSY, DONE, ERROR = 1, 2, 4
OKAY, SLVERR = 0, 2
START, STOP = 1, 2


class RandomMemory:
    """Main memory whose every burst has its own latency and whose channels stall at random."""

    def __init__(self, dut, seed: int, *, latency: int, stalls: float) -> None:
        self.dut = dut
        self.chance = random.Random(seed)
        self.latency, self.stalls = latency, stalls
        self.bytes = np.zeros(1 << 17, dtype=np.uint8)
        self.faults: tuple[int, int] = (0, 0)
        self.cycle = 0
        self.reads: deque[list[int]] = deque()
        self.addresses: deque[list[int]] = deque()
        self.data: deque[tuple[int, int]] = deque()
        self.responses: deque[tuple[int, int]] = deque()
        self.offered_read = self.offered_response = False

    def _willing(self) -> int:
        return int(self.chance.random() >= self.stalls)

    def _faulty(self, address: int) -> bool:
        return self.faults[0] <= address < self.faults[1]

    def drive(self) -> None:
        """Inputs of the next cycle."""
        dut, bus = self.dut, CONFIGURATION.bus_bytes
        self.cycle += 1
        for channel in ("ar", "aw", "w"):
            getattr(dut, f"m_axi_{channel}ready").value = self._willing()
        if not self.offered_read and self.reads:
            address, left, due = self.reads[0]
            if self.cycle >= due and self._willing():
                self.offered_read = True
                beat = self.bytes[address : address + bus].tobytes()
                dut.m_axi_rdata.value = int.from_bytes(beat, "little")
                dut.m_axi_rresp.value = SLVERR if self._faulty(address) else OKAY
                dut.m_axi_rlast.value = int(left == 1)
        dut.m_axi_rvalid.value = int(self.offered_read)
        if not self.offered_response and self.responses:
            response, due = self.responses[0]
            if self.cycle >= due and self._willing():
                self.offered_response = True
                dut.m_axi_bresp.value = response
        dut.m_axi_bvalid.value = int(self.offered_response)

    def _moves(self, channel: str) -> bool:
        valid = getattr(self.dut, f"m_axi_{channel}valid").value
        ready = getattr(self.dut, f"m_axi_{channel}ready").value
        return bool(int(valid) and int(ready))

    def _due(self) -> int:
        return self.cycle + self.chance.randint(1, self.latency)

    def sample(self) -> None:
        """Take what was agreed on."""
        dut, bus = self.dut, CONFIGURATION.bus_bytes
        if self._moves("r"):
            self.offered_read = False
            self.reads[0][0] += bus
            self.reads[0][1] -= 1
            if not self.reads[0][1]:
                self.reads.popleft()
        if self._moves("ar"):
            address = int(dut.m_axi_araddr.value) // bus * bus
            self.reads.append([address, int(dut.m_axi_arlen.value) + 1, self._due()])
        if self._moves("b"):
            self.offered_response = False
            self.responses.popleft()
        if self._moves("aw"):
            address = int(dut.m_axi_awaddr.value) // bus * bus
            self.addresses.append([address, int(dut.m_axi_awlen.value) + 1, OKAY])
        if self._moves("w"):
            self.data.append((int(dut.m_axi_wdata.value), int(dut.m_axi_wstrb.value)))
        while self.addresses and self.data:
            self._write(*self.data.popleft())

    def _write(self, beat: int, strobe: int) -> None:
        burst, bus = self.addresses[0], CONFIGURATION.bus_bytes
        if self._faulty(burst[0]):
            burst[2] = SLVERR
        for lane, byte in enumerate(beat.to_bytes(bus, "little")):
            if strobe >> lane & 1:
                self.bytes[burst[0] + lane] = byte
        burst[0] += bus
        burst[1] -= 1
        if not burst[1]:
            self.responses.append((burst[2], self._due()))
            self.addresses.popleft()


class Host:
    """AXI4-Lite accesses with address, data and response each as late as the dice say."""

    def __init__(self, dut, seed: int) -> None:
        self.dut = dut
        self.chance = random.Random(seed)
        self.jobs: dict[str, int] = {}
        self.delays: dict[str, int] = {}
        self.answer: int | None = None
        self.response = OKAY

    def drive(self) -> None:
        """Raise what is due, keep what is not accepted."""
        for channel in ("aw", "w", "ar"):
            due = channel in self.jobs and self.delays[channel] <= 0
            getattr(self.dut, f"s_axi_{channel}valid").value = int(due)
        for channel in ("b", "r"):
            due = channel in self.jobs and self.delays[channel] <= 0
            getattr(self.dut, f"s_axi_{channel}ready").value = int(due)
        for channel in self.delays:
            self.delays[channel] -= 1

    def sample(self) -> None:
        """Take what was agreed on."""
        for channel in list(self.jobs):
            valid = int(getattr(self.dut, f"s_axi_{channel}valid").value)
            if not (valid and int(getattr(self.dut, f"s_axi_{channel}ready").value)):
                continue
            del self.jobs[channel]
            if channel == "r":
                self.answer = int(self.dut.s_axi_rdata.value)
            if channel in ("b", "r"):
                self.response = int(getattr(self.dut, f"s_axi_{channel}resp").value)

    def begin(self, *channels: str) -> None:
        """Ask for an access that uses these channels."""
        self.jobs = dict.fromkeys(channels, 1)
        self.delays = {channel: self.chance.choice((0, 0, 1, 3)) for channel in channels}


class Bench:
    """The core with everything around it."""

    def __init__(self, dut, seed: int, *, latency: int = 40, stalls: float = 0.3) -> None:
        self.dut = dut
        self.memory = RandomMemory(dut, seed, latency=latency, stalls=stalls)
        self.host = Host(dut, seed + 1)
        self.checker = AxiChecker(dut, CONFIGURATION)
        self.starts = [0] * 4
        self.retirements = [0] * 4
        self.cycles = 0

    @staticmethod
    async def create(dut, seed: int, **moods) -> "Bench":
        """Start the clock, reset, and run the parts from now on."""
        bench = Bench(dut, seed, **moods)
        dut.rst.value = 1
        for name in ("rvalid", "rresp", "rlast", "rdata", "bvalid", "bresp"):
            getattr(dut, f"m_axi_{name}").value = 0
        cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
        cocotb.start_soon(bench._live())
        await bench.wait(4)
        dut.rst.value = 0
        await bench.wait(2)
        return bench

    async def _live(self) -> None:
        parts = (self.memory, self.host, self.checker)
        while True:
            await FallingEdge(self.dut.clk)
            for part in parts:
                part.drive()
            await ReadOnly()
            for part in parts:
                part.sample()
            events = int(self.dut.events.value)
            for unit in range(4 if events else 0):
                self.starts[unit] += events >> (2 * unit) & 1
                self.retirements[unit] += events >> (2 * unit + 1) & 1
            self.cycles += 1

    async def wait(self, cycles: int) -> None:
        """Let cycles pass."""
        for _ in range(cycles):
            await FallingEdge(self.dut.clk)

    async def _until_idle(self) -> None:
        for _ in range(1000):
            await FallingEdge(self.dut.clk)
            if not self.host.jobs:
                return
        raise AssertionError(f"the register port does not answer: {self.host.jobs}")

    async def write(self, register: str, value: int, strobe: int = 15) -> None:
        """Write a register."""
        self.dut.s_axi_awaddr.value = OFFSETS[register]
        self.dut.s_axi_wdata.value = value
        self.dut.s_axi_wstrb.value = strobe
        self.host.begin("aw", "w", "b")
        await self._until_idle()
        assert self.host.response == OKAY

    async def read(self, register: str) -> int:
        """Read a register."""
        self.dut.s_axi_araddr.value = OFFSETS[register]
        self.host.begin("ar", "r")
        await self._until_idle()
        assert self.host.response == OKAY
        assert self.host.answer is not None
        return self.host.answer

    async def start(self, code: bytes, dram: np.ndarray) -> None:
        """Place program and data, set the registers, start."""
        self.memory.bytes[DATA_BASE : DATA_BASE + dram.size] = dram
        words = np.frombuffer(code, dtype=np.uint8)
        self.memory.bytes[PROGRAM_BASE : PROGRAM_BASE + words.size] = words
        for register, value in (
            ("PROGRAM_BASE", PROGRAM_BASE),
            ("PROGRAM_BYTES", len(code)),
            ("DATA_BASE", DATA_BASE),
            ("DATA_BYTES", dram.size),
            ("CONTROL", START),
        ):
            await self.write(register, value)

    async def finish(self, limit: int = 60_000) -> tuple[bool, Error]:
        """Wait for the interrupt; returns whether the run is done, and its error."""
        for _ in range(limit):
            await FallingEdge(self.dut.clk)
            if int(self.dut.interrupt.value):
                break
        else:
            raise AssertionError(f"no interrupt after {limit} cycles")
        status = await self.settle()
        return bool(status & DONE), Error(status >> 4 & 15)

    async def settle(self, limit: int = 2000) -> int:
        """Wait until nothing is in flight, after an error or a stop; returns the status."""
        for _ in range(limit):
            status = await self.read("STATUS")
            if not status & BUSY:
                return status
        raise AssertionError(f"still busy after {limit} reads of STATUS")

    async def run(self, program, dram: np.ndarray, limit: int = 60_000) -> np.ndarray:
        """Run a legal program; returns the data window."""
        await self.start(encode_program(program, CONFIGURATION), dram)
        done, error = await self.finish(limit)
        assert (done, error) == (True, Error.NONE)
        return self.data(dram.size)

    def data(self, size: int) -> np.ndarray:
        """The data window as it is now."""
        return self.memory.bytes[DATA_BASE : DATA_BASE + size].copy()
