"""The SDRAM controller keeps every byte and every rule of the chip; the chip finds broken rules."""

import gc
import random
import re
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.errors import HardwareError
from tilewright.hardware.axi import read_port, write_port
from tilewright.hardware.soc.sdram import SdramController
from tilewright.hardware.soc.sdram_chip import SENTENCES, SdramChip, Violation
from tilewright.hardware.soc.sdram_pads import SdramPads
from tilewright.hardware.soc.sdram_pins import PRECHARGE_ALL, SdramCommand, sdram_pins
from tilewright.isa.configuration import PRESETS
from tilewright.isa.sdram import BUFFERED_BURSTS, SDRAMS, Sdram

from .simulated import Simulated

CLOCK_HZ = 100_000_000
SMALL = replace(SDRAMS["sdr-x16"], row_bits=4, column_bits=7, startup_ns=200.0)
WIDE = replace(SDRAMS["sdr-x32"], row_bits=4, column_bits=7, startup_ns=200.0, cas_cycles=2)
LATE = replace(SMALL, startup_ns=20_000.0, refi_ns=1000.0)
"""It starts up for longer than refreshes may be missing."""

CASES = {
    "late": (PRESETS["8x8"], LATE, 50_000_000),
    "x16, 64 bits": (PRESETS["8x8"], SMALL, CLOCK_HZ),
    "x32, 64 bits": (PRESETS["8x8"], WIDE, CLOCK_HZ),
    "x16, 32 bits, slow": (PRESETS["tiny"].replace(outstanding_bursts=4), SMALL, 25_000_000),
    "x32, 32 bits": (PRESETS["tiny"], WIDE, 143_000_000),
    "x16, 64 bits, no masks": (PRESETS["8x8"], replace(SMALL, has_masks=False), CLOCK_HZ),
    "x32, 64 bits, no masks": (PRESETS["8x8"], replace(WIDE, has_masks=False), CLOCK_HZ),
    "x32, 32 bits, no masks": (PRESETS["tiny"], replace(WIDE, has_masks=False), 143_000_000),
}


class ControllerWithChip(wiring.Component):
    """A controller in front of a chip, which may be another one than the controller expects."""

    def __init__(self, configuration, sdram: Sdram, clock_hz: int, chip: Sdram | None = None):
        self.configuration = configuration
        self.controller = SdramController(configuration, sdram, clock_hz)
        self.chip = SdramChip(chip or sdram, clock_hz)
        super().__init__(
            {
                "read": In(read_port(configuration)),
                "write": In(write_port(configuration)),
                "restart": In(1),
                "violation": Out(Violation),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.controller = controller = self.controller
        m.submodules.chip = chip = self.chip
        m.submodules.pads = pads = SdramPads(controller.sdram)
        wiring.connect(m, controller.pins, pads.controller)
        wiring.connect(m, pads.chip, chip.pins)
        for port in ("read", "write"):
            wiring.connect(m, wiring.flipped(getattr(self, port)), getattr(controller, port))
        m.d.comb += [controller.restart.eq(self.restart), self.violation.eq(chip.violation)]
        return m


@cache
def system(case: str) -> Simulated:
    return Simulated(ControllerWithChip(*CASES[case]))


@dataclass
class Traffic:
    """Random bursts, those in flight apart from each other, compared with an array of bytes."""

    top: ControllerWithChip
    generator: random.Random
    idle: float
    longest: bool = False
    writes: float = 0.5
    words: dict[int, bytes] = field(default_factory=dict)
    moved: int = 0
    first: int = -1
    last: int = -1

    def begin(self) -> None:
        configuration = self.top.configuration
        self.bus_bytes = configuration.bus_bytes
        self.burst = configuration.burst_beats
        self.most = configuration.outstanding_bursts
        beats = self.top.controller.sdram.size_bytes // self.bus_bytes
        self.groups = beats // self.burst
        self.reads, self.asked = deque(), deque()
        self.addresses, self.data, self.unanswered = deque(), deque(), deque()
        self.busy: set[int] = set()

    def add(self) -> None:
        """Begin another burst, if one may be in flight."""
        if self.generator.random() < self.idle:
            return
        writes = self.generator.random() < self.writes
        flying = self.addresses if writes else self.asked
        behind = len(self.unanswered) if writes else len(self.reads)
        if len(flying) + behind >= self.most:
            return
        group = self.generator.randrange(self.groups)
        if group in self.busy:
            return
        self.busy.add(group)
        count = self.burst if self.longest else self.generator.randint(1, self.burst)
        first = group * self.burst + self.generator.randint(0, self.burst - count)
        if not writes:
            self.asked.append((group, first, count))
            return
        self.addresses.append((group, first, count))
        unmasked = not self.top.controller.sdram.has_masks
        for beat in range(count):
            data = self.generator.randbytes(self.bus_bytes)
            strobe = self._strobe(whole=unmasked and 0 < beat < count - 1)
            self.data.append((first + beat, data, strobe, beat == count - 1))

    def _strobe(self, whole: bool) -> int:
        full = (1 << self.bus_bytes) - 1
        return full if whole or self.generator.random() < 0.7 else self.generator.randint(0, full)

    def drive(self, ctx) -> None:
        read, write = self.top.read, self.top.write
        for port, prefix, queue in ((read, "ar", self.asked), (write, "aw", self.addresses)):
            ctx.set(getattr(port, f"{prefix}valid"), bool(queue))
            if queue:
                _, first, count = queue[0]
                ctx.set(getattr(port, f"{prefix}addr"), first * self.bus_bytes)
                ctx.set(getattr(port, f"{prefix}len"), count - 1)
        # Data follow their address, as those behind the arbiter do.
        ready = len(self.data) and not (self.addresses and self._is_first(self.addresses[0]))
        ctx.set(write.wvalid, bool(ready))
        if ready:
            _, data, strobe, last = self.data[0]
            ctx.set(write.wdata, int.from_bytes(data, "little"))
            ctx.set(write.wstrb, strobe)
            ctx.set(write.wlast, last)
        ctx.set(read.rready, self.generator.random() >= self.idle / 2)
        ctx.set(write.bready, self.generator.random() >= self.idle / 2)

    def _is_first(self, burst) -> bool:
        return self.data[0][0] == burst[1]

    def sample(self, ctx, cycle: int) -> None:
        read, write = self.top.read, self.top.write
        if ctx.get(read.rvalid) and ctx.get(read.rready):
            burst = self.reads[0]
            group, first, count, done = burst
            wanted = self.words.get(first + done, None)
            found = ctx.get(read.rdata).to_bytes(self.bus_bytes, "little")
            assert wanted is None or found == wanted
            self.words.setdefault(first + done, found)
            assert ctx.get(read.rlast) == (done + 1 == count)
            burst[3] += 1
            if done + 1 == count:
                self.reads.popleft()
                self.busy.remove(group)
            self._moved(cycle)
        if ctx.get(write.bvalid) and ctx.get(write.bready):
            self.busy.remove(self.unanswered.popleft())
        if ctx.get(write.wvalid) and ctx.get(write.wready):
            place, data, strobe, _ = self.data.popleft()
            self._store(place, data, strobe)
            self._moved(cycle)
        if ctx.get(read.arvalid) and ctx.get(read.arready):
            self.reads.append([*self.asked.popleft(), 0])
        if ctx.get(write.awvalid) and ctx.get(write.awready):
            self.unanswered.append(self.addresses.popleft()[0])

    def _store(self, place: int, data: bytes, strobe: int) -> None:
        before = self.words.get(place, bytes(self.bus_bytes))
        lanes = enumerate(zip(before, data, strict=True))
        self.words[place] = bytes(new if strobe >> n & 1 else old for n, (old, new) in lanes)

    def _moved(self, cycle: int) -> None:
        self.moved += 1
        self.first = cycle if self.first < 0 else self.first
        self.last = cycle

    async def run(self, ctx, cycles: int) -> Violation:
        self.begin()
        for cycle in range(cycles):
            self.add()
            self.drive(ctx)
            await ctx.delay(0)
            self.sample(ctx, cycle)
            await ctx.tick()
        return Violation(ctx.get(self.top.violation))


def violation_after(simulated: Simulated, traffic: Traffic, cycles: int) -> Violation:
    found = []

    async def bench(ctx):
        found.append(await traffic.run(ctx, cycles))

    simulated.run(bench)
    return found[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("idle", [0.0, 0.9])
def test_every_byte_is_kept_and_no_rule_broken(case, idle):
    simulated = system(case)
    traffic = Traffic(simulated.top, random.Random(1), idle)
    assert violation_after(simulated, traffic, 2000) is Violation.NONE
    assert traffic.moved > 100


@pytest.mark.parametrize(("writes", "share"), [(0.0, 0.9), (0.3, 0.88)])
def test_long_bursts_use_the_data_pins(writes, share):
    """Bursts of 16 beats of 64 bits, one behind the other, on 16 data pins."""
    simulated = system("x16, 64 bits")
    traffic = Traffic(simulated.top, random.Random(2), 0.0, longest=True, writes=writes)
    assert violation_after(simulated, traffic, 6000) is Violation.NONE
    # Data of writes may wait in the controller at the end.
    moved = traffic.moved - (BUFFERED_BURSTS * traffic.burst if writes else 0)
    words = moved * simulated.top.controller.beat_words
    assert words >= share * (traffic.last - traffic.first)


SHORTENED = {
    "rcd_ns": (40, Violation.RCD),
    "rp_ns": (40, Violation.RP),
    "rc_ns": (200, Violation.RC),
    "ras_ns": (130, Violation.RAS),
    "wr_ns": (40, Violation.WR),
    "rrd_ns": (200, Violation.RRD),
    "rfc_ns": (90, Violation.RFC),
    "refi_ns": (600, Violation.REFRESH),
    "startup_ns": (300, Violation.STARTUP),
}


@pytest.mark.parametrize("timing", SHORTENED)
def test_a_controller_that_is_too_fast_for_its_chip_is_found(timing):
    need, violation = SHORTENED[timing]
    chip = replace(SMALL, **{timing: need})
    top = ControllerWithChip(PRESETS["8x8"], SMALL, CLOCK_HZ, chip)
    traffic = Traffic(top, random.Random(3), 0.0)
    assert violation_after(Simulated(top), traffic, 2500) is violation


def test_a_controller_of_another_latency_is_found():
    top = ControllerWithChip(PRESETS["8x8"], SMALL, CLOCK_HZ, replace(SMALL, cas_cycles=2))
    traffic = Traffic(top, random.Random(3), 0.0)
    assert violation_after(Simulated(top), traffic, 2500) is Violation.MODE


class Pins(wiring.Component):
    """A chip whose pins the test sets."""

    pins: In(sdram_pins(SMALL))
    violation: Out(Violation)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.chip = chip = SdramChip(SMALL, CLOCK_HZ)
        wiring.connect(m, wiring.flipped(self.pins), chip.pins)
        m.d.comb += self.violation.eq(chip.violation)
        return m


CHIP = Simulated(Pins())
ALL = 1 << PRECHARGE_ALL
START = (
    (25, SdramCommand.PRECHARGE, 0, ALL),
    *((10, SdramCommand.REFRESH, 0, 0),) * 8,
    (10, SdramCommand.MODE, 0, 3 << 4),
    (4, SdramCommand.ACTIVATE, 1, 5),
)
"""Cycles to wait, command, bank and address; then bank 1 is open."""

FAULTS = {
    "before the start": ((5, SdramCommand.PRECHARGE, 0, ALL), Violation.STARTUP),
    "not prepared": ((25, SdramCommand.ACTIVATE, 0, 0), Violation.UNPREPARED),
}
"""The first command of all, and what it breaks."""

LATER_FAULTS = {
    "a closed bank is read": ((9, SdramCommand.READ, 0, 0), Violation.CLOSED_BANK),
    "an open bank is activated": ((9, SdramCommand.ACTIVATE, 1, 0), Violation.OPEN_BANK),
    "a bank is open at a refresh": ((9, SdramCommand.REFRESH, 0, 0), Violation.OPEN_BANK),
    "a second bank at once": ((1, SdramCommand.ACTIVATE, 2, 0), Violation.RRD),
    "a column at once": ((1, SdramCommand.READ, 1, 0), Violation.RCD),
    "closed at once": ((2, SdramCommand.PRECHARGE, 1, 0), Violation.RAS),
    "a write without data": ((9, SdramCommand.WRITE, 1, 0), Violation.NO_DATA),
    "a stop": ((9, SdramCommand.STOP, 1, 0), Violation.UNKNOWN),
}
"""The command behind `START`, and what it breaks."""


def violation_of(*commands, drives_after: int | None = None) -> Violation:
    found = []

    async def bench(ctx):
        pins = CHIP.top.pins
        ctx.set(pins.cke, 1)
        ctx.set(pins.cs_n, 0)
        for cycles, command, bank, address in commands:
            ctx.set(pins.command, SdramCommand.NOTHING)
            for _ in range(cycles - 1):
                await ctx.tick()
            ctx.set(pins.command, command)
            ctx.set(pins.bank, bank)
            ctx.set(pins.address, address)
            await ctx.tick()
        ctx.set(pins.command, SdramCommand.NOTHING)
        for cycle in range(6):
            ctx.set(pins.drives, cycle == drives_after)
            await ctx.tick()
        ctx.set(pins.drives, 0)
        found.append(Violation(ctx.get(CHIP.top.violation)))

    CHIP.run(bench)
    return found[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_chip_wants_its_start(fault):
    command, violation = FAULTS[fault]
    assert violation_of(command) is violation


@pytest.mark.parametrize("fault", LATER_FAULTS)
def test_the_chip_names_the_broken_rule(fault):
    command, violation = LATER_FAULTS[fault]
    assert violation_of(*START) is Violation.NONE
    assert violation_of(*START, command) is violation


def test_two_that_drive_the_data_pins_collide():
    read = (4, SdramCommand.READ, 1, 0)
    assert violation_of(*START, read, drives_after=1) is Violation.NONE
    assert violation_of(*START, read, drives_after=2) is Violation.COLLISION


def test_the_mode_needs_its_time():
    assert violation_of(*START[:-1], (1, SdramCommand.ACTIVATE, 0, 0)) is Violation.MRD


def test_each_violation_has_a_sentence():
    assert set(SENTENCES) == set(Violation) - {Violation.NONE}


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_chip_that_does_not_fit_is_refused():
    wide = replace(SDRAMS["sdr-x32"], name="pair", data_bits=64)
    for configuration, sdram, sentence in (
        (
            PRESETS["tiny"],
            wide,
            "SDRAM `pair`: `bus_bits` = 32 is narrower than its 64 data pins; raise `bus_bits`",
        ),
        (
            PRESETS["8x8"].replace(burst_beats=256),
            SDRAMS["sdr-x16"],
            "SDRAM `sdr-x16`: bursts of 2048 bytes are longer than its rows of 1024 bytes; "
            "lower `burst_beats`",
        ),
    ):
        with pytest.raises(HardwareError, match=f"^{re.escape(sentence)}$"):
            SdramController(configuration, sdram, CLOCK_HZ)
    gc.collect()  # while the warning is off
