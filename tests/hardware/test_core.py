"""The whole core in Amaranth's simulator, driven as by a host: random and faulty programs."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.hardware.core import Core
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.encoding import encode_program, word_bytes
from tilewright.isa.instructions import Gemm, Halt, Load, Loop, Store, Sync, Unit, peers
from tilewright.isa.pipeline import GEMM_REVISIT_STEPS, GEMM_TAIL_CYCLES
from tilewright.isa.registers import OFFSETS, Error
from tilewright.isa.semantics import Machine

from .axi_memory import ReadMemory, WriteMemory, simulate
from .simulated import simulated

DATA_BASE = 0x4000
DATA_BYTES = 4096
BUSY, DONE, FAILED = 1, 2, 4


class Port:
    """Members of a top level that share a prefix, by their names without it."""

    def __init__(self, core: Core, prefix: str):
        for name in core.signature.members:
            if name.startswith(prefix):
                setattr(self, name.removeprefix(prefix), getattr(core, name))


@dataclass
class ScriptedHost:
    """Perform register accesses in order; `("wait",)` waits for the interrupt.

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
    platform: Technology | None = None,
) -> tuple[np.ndarray, ScriptedHost, int]:
    """Return (data window afterwards, host, cycles)."""
    memory = np.zeros(DATA_BASE + image.size, dtype=np.uint8)
    memory[: len(code)] = np.frombuffer(code, dtype=np.uint8)
    memory[DATA_BASE:] = image
    block = simulated(Core, configuration, platform)
    core = block.top
    generator = random.Random(seed)
    port = Port(core, "m_axi_")
    arguments = (memory, configuration.bus_bytes, configuration.burst_bytes, generator, idle)
    host = ScriptedHost(core, script)
    models = [
        ReadMemory(port, *arguments, latency=latency, failing=failing),
        WriteMemory(port, *arguments, latency=latency, failing=failing),
        host,
    ]
    cycles = simulate(block, models, host.finished)
    return memory[DATA_BASE:], host, cycles


TINY = PRESETS["tiny"]
IMAGE = np.arange(DATA_BYTES, dtype=np.uint32).astype(np.uint8)


def run_program(program, script: list[tuple], data_bytes: int = DATA_BYTES, **options):
    """Run instructions on the tiny machine: (data window, values read, events per cycle)."""
    code = encode_program(program, TINY)
    memory, host, _ = run(TINY, code, IMAGE, [*start(len(code), data_bytes), *script], **options)
    return memory, host.values, host.events


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed", "idle", "latency"),
    [("tiny", 1, 0.3, 9), ("tiny", 2, 0.1, 30), ("4x4", 3, 0.2, 5)],
)
def test_random_programs_leave_the_memory_that_the_definition_leaves(name, seed, idle, latency):
    configuration = PRESETS[name]
    program, image = random_program(configuration, seed, data_bytes=DATA_BYTES)
    machine = Machine(configuration, image.copy())
    machine.run(program)
    code = encode_program(program, configuration)
    script = [*start(len(code)), ("wait",), ("read", "STATUS"), ("read", "FETCHED")]
    got, host, _ = run(configuration, code, image, script, seed, idle, latency)
    assert host.values == [DONE, len(program) - 1]
    np.testing.assert_array_equal(got, machine.memories[Memory.DRAM])


@pytest.mark.slow
def test_parts_that_sleep_in_simulators_change_no_cycle():
    program, image = random_program(TINY, 7, length=24, data_bytes=DATA_BYTES)
    code = encode_program(program, TINY)
    script = [*start(len(code)), ("wait",), ("read", "CYCLES_LOW"), ("read", "GEMM_BUSY")]
    portable, sleeping = (
        run(TINY, code, image, script, 3, 0.2, 6, platform=platform)
        for platform in (None, Technology.SIMULATION)
    )
    np.testing.assert_array_equal(portable[0], sleeping[0])
    assert portable[1].values == sleeping[1].values
    assert portable[1].events == sleeping[1].events


def test_a_copy_passes_all_gates_and_is_counted():
    program = [
        Load(destination=Memory.ACT, length=24, memory=100, local=2, signal={Unit.STORE}),
        Store(source=Memory.ACT, length=20, local=4, memory=1001, wait={Unit.LOAD}),
        Halt(),
    ]
    names = ("STATUS", "LOAD_INSTRUCTIONS", "LOAD_BYTES", "STORE_BYTES", "STORE_WAIT0")
    script = [("wait",), *(("read", name) for name in names)]
    memory, values, events = run_program(program, script, latency=20)
    expected = IMAGE.copy()
    expected[1001:1021] = IMAGE[102:122]
    np.testing.assert_array_equal(memory, expected)
    assert values[:4] == [DONE, 1, 24, 20]
    assert values[4] > 10
    times = {bit: [t for t, e in enumerate(events) if e >> bit & 1] for bit in range(8)}
    assert [len(times[bit]) for bit in range(8)] == [1, 1, 0, 0, 0, 0, 1, 1]
    load, store = Unit.LOAD, Unit.STORE
    assert times[2 * load][0] < times[2 * load + 1][0] < times[2 * store][0]
    assert times[2 * store][0] < times[2 * store + 1][0]


def test_a_tile_of_sixteen_rows_takes_as_many_cycles():
    tiles, rows = 6, 16
    gemm = Gemm(
        act=0,
        wgt=0,
        acc=0,
        tile_loops=(Loop(tiles, (1, 1, 0)),),
        row_loops=(Loop(rows, (1, 1)),),
    )
    script = [("wait",), ("read", "GEMM_BUSY"), ("read", "STATUS")]
    _, (busy, status), _ = run_program([gemm, Halt()], script)
    assert status == DONE
    start = GEMM_REVISIT_STEPS + 1
    assert tiles * rows <= busy <= tiles * rows + start + GEMM_TAIL_CYCLES + TINY.lanes_in


ILLEGAL = (15).to_bytes(word_bytes(TINY), "little")
FAR_LOAD = Load(destination=Memory.ACT, length=8, memory=DATA_BYTES - 7, local=0)
FAR_STORE = Store(source=Memory.ACT, length=8, memory=DATA_BYTES - 7, local=0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ILLEGAL, Error.ILLEGAL_INSTRUCTION),
        (encode_program([FAR_LOAD, Halt()], TINY), Error.OUT_OF_WINDOW),
        (encode_program([FAR_STORE, Halt()], TINY), Error.OUT_OF_WINDOW),
        (encode_program([Sync(target=Unit.GEMM)], TINY), Error.NO_HALT),
    ],
    ids=["illegal", "load", "store", "no-halt"],
)
def test_errors_stop_the_machine_and_the_next_start_runs(code, error):
    copy = [
        Load(destination=Memory.ACT, length=8, memory=0, local=0, signal={Unit.STORE}),
        Store(source=Memory.ACT, length=8, local=0, memory=64, wait={Unit.LOAD}),
        Halt(),
    ]
    good = encode_program(copy, TINY)
    script = [
        *start(len(code)),
        ("wait",),
        ("read", "STATUS"),
        ("write", "PROGRAM_BASE", 0x400),
        ("write", "PROGRAM_BYTES", len(good)),
        ("write", "CONTROL", 1),
        ("wait",),
        ("read", "STATUS"),
    ]
    both = code.ljust(0x400, b"\0") + good
    memory, host, _ = run(TINY, both, IMAGE, script, idle=0.1, platform=Technology.SIMULATION)
    assert host.values == [FAILED | error << 4, DONE]
    np.testing.assert_array_equal(memory[64:72], IMAGE[:8])


def test_a_failed_read_is_reported():
    program = [Load(destination=Memory.ACT, length=8, memory=256, local=0), Halt()]
    script = [("wait",), ("read", "STATUS")]
    failing = frozenset({DATA_BASE + 256})
    _, values, _ = run_program(program, script, failing=failing, latency=9)
    assert values == [FAILED | Error.MEMORY_RESPONSE << 4]


def test_a_stop_ends_a_program_that_waits_for_ever():
    stuck = Store(source=Memory.ACT, length=8, local=0, memory=64, wait={Unit.GEMM})
    script = [
        *[("pause",)] * 80,
        ("read", "STORE_STATE"),
        ("read", "STATUS"),
        ("write", "CONTROL", 2),
        *[("pause",)] * 10,
        ("read", "STATUS"),
        ("read", "STORE_STATE"),
    ]
    _, values, _ = run_program([stuck, Halt()], script)
    waits_for_gemm = 2 << peers(Unit.STORE).index(Unit.GEMM)
    assert values == [waits_for_gemm | 1 << 8, BUSY, 0, 0]
