"""The whole core in Amaranth's simulator, driven as a host drives it: random programs, bad ones."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tilewright.hardware.core import Core
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.encoding import encode_program, word_bytes
from tilewright.isa.instructions import Halt, Load, Sync, Unit
from tilewright.isa.random_programs import random_program
from tilewright.isa.registers import MAGIC, OFFSETS, Error
from tilewright.isa.semantics import Machine

from .axi_memory import ReadMemory, WriteMemory, simulate

DATA_BASE = 0x4000
DATA_BYTES = 4096
BUSY, DONE, FAILED = 1, 2, 4


class Port:
    """The members of a top level that share a prefix, without it."""

    def __init__(self, core: Core, prefix: str):
        for name in core.signature.members:
            if name.startswith(prefix):
                setattr(self, name.removeprefix(prefix), getattr(core, name))


@dataclass
class Host:
    """Work through register accesses in order; `("wait",)` waits for the interrupt.

    Reads are checked by `finished` through `values`, in order.
    """

    core: Core
    script: list[tuple]
    values: list[int] = field(default_factory=list)
    step: int = 0
    address_sent: bool = False
    data_sent: bool = False
    events: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.port = Port(self.core, "s_axi_")

    def drive(self, ctx):
        port = self.port
        access = self.script[self.step] if self.step < len(self.script) else ("none",)
        kind = access[0]
        ctx.set(port.awvalid, kind == "write" and not self.address_sent)
        ctx.set(port.wvalid, kind == "write" and not self.data_sent)
        ctx.set(port.arvalid, kind == "read" and not self.address_sent)
        ctx.set(port.bready, 1)
        ctx.set(port.rready, 1)
        ctx.set(port.wstrb, 15)
        if kind == "write":
            ctx.set(port.awaddr, OFFSETS[access[1]])
            ctx.set(port.wdata, access[2])
        if kind == "read":
            ctx.set(port.araddr, OFFSETS[access[1]])

    def sample(self, ctx):
        port = self.port
        self.events.append(ctx.get(self.core.events))
        if self.step == len(self.script):
            return
        kind = self.script[self.step][0]
        if kind == "wait":
            self.step += ctx.get(self.core.interrupt)
        elif kind == "pause":
            self.step += 1
        elif kind == "write":
            self.address_sent |= bool(ctx.get(port.awready))
            self.data_sent |= bool(ctx.get(port.wready))
            if ctx.get(port.bvalid):
                self._next()
        else:
            self.address_sent |= bool(ctx.get(port.arready))
            if ctx.get(port.rvalid):
                self.values.append(ctx.get(port.rdata))
                self._next()

    def _next(self):
        self.step += 1
        self.address_sent = self.data_sent = False

    def finished(self, ctx) -> bool:
        return self.step == len(self.script)


def start(code_bytes: int, data_bytes: int = DATA_BYTES) -> list[tuple]:
    return [
        ("write", "PROGRAM_BASE", 0),
        ("write", "PROGRAM_BYTES", code_bytes),
        ("write", "DATA_BASE", DATA_BASE),
        ("write", "DATA_BYTES", data_bytes),
        ("write", "CONTROL", 1),
    ]


def run(
    configuration: Configuration,
    code: bytes,
    image: np.ndarray,
    script: list[tuple],
    seed: int = 0,
    idle: float = 0.0,
    latency: int = 1,
    failing: frozenset[int] = frozenset(),
) -> tuple[np.ndarray, Host, int]:
    """Return (data window afterwards, host, cycles)."""
    memory = np.zeros(DATA_BASE + image.size, dtype=np.uint8)
    memory[: len(code)] = np.frombuffer(code, dtype=np.uint8)
    memory[DATA_BASE:] = image
    core = Core(configuration)
    generator = random.Random(seed)
    port = Port(core, "m_axi_")
    arguments = (memory, configuration.bus_bytes, configuration.burst_bytes, generator, idle)
    host = Host(core, script)
    models = [
        ReadMemory(port, *arguments, latency=latency, failing=failing),
        WriteMemory(port, *arguments, latency=latency, failing=failing),
        host,
    ]
    cycles = simulate(core, models, host.finished)
    return memory[DATA_BASE:], host, cycles


CASES = [("tiny", 0, 0.0, 1), ("tiny", 1, 0.3, 9), ("tiny", 2, 0.1, 30), ("4x4", 3, 0.2, 5)]


@pytest.mark.parametrize(("name", "seed", "idle", "latency"), CASES)
def test_random_programs_leave_the_memory_that_the_definition_leaves(name, seed, idle, latency):
    configuration = PRESETS[name]
    program, image = random_program(configuration, seed, data_bytes=DATA_BYTES)
    machine = Machine(configuration, image.copy())
    machine.run(program)
    code = encode_program(program, configuration)
    script = [*start(len(code)), ("wait",), ("read", "STATUS"), ("read", "FETCHED")]
    got, host, _ = run(configuration, code, image, script, seed, idle, latency)
    assert host.values[0] == DONE
    assert host.values[1] == len(program) - 1
    np.testing.assert_array_equal(got, machine.memories[5])
