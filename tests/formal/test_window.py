"""DMA never leaves the window that the host programmed, whatever a command asks for."""

from dataclasses import replace

import pytest
from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data

from tilewright.hardware.axi import WINDOW_BITS
from tilewright.hardware.bursts import BurstIssuer
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.configuration_rules import PAGE_BYTES
from tilewright.isa.instructions import Load, Store

from .bench import ProofBench, probe
from .prove import bounded, induction

SMALL = replace(PRESETS["tiny"], name="one loop", dma_loops=1, extent_bits=4)

PAGE_BITS = (PAGE_BYTES - 1).bit_length()


class WindowBench(ProofBench):
    """Commands with arbitrary fields, a window with an arbitrary place and size."""

    def __init__(self, family, configuration: Configuration = SMALL, fault: str = "") -> None:
        super().__init__()
        self.family, self.configuration, self.fault = family, configuration, fault

    def world(self, m: Module) -> None:
        configuration = self.configuration
        issuer = BurstIssuer(self.family, configuration)
        inside = probe(m, "issuer", issuer)
        base = self.some(m, "data_base", configuration.address_bits)
        size = self.some(m, "data_bytes", WINDOW_BITS)
        m.d.comb += [
            issuer.data_base.eq(base),
            issuer.data_bytes.eq(size),
            issuer.commands.valid.eq(self.any(m, "valid")),
            issuer.commands.payload.eq(self.any(m, "command", issuer.commands.payload.shape())),
            issuer.bursts.ready.eq(self.any(m, "ready")),
        ]
        window = (base >> PAGE_BITS) << PAGE_BITS
        burst_bits = (configuration.burst_bytes - 1).bit_length()

        # Bursts that enter the queue at the output; `test_queues` proves that the queue hands out
        # what it takes.
        burst = data.View(issuer.layout, inside["input__payload"])
        is_fill = burst.fill if self.family is Load else Const(0)
        accesses = inside["input__valid"] & ~is_fill
        offset = Signal(configuration.address_bits)
        m.d.comb += offset.eq(burst.address - window)
        beat_bits = (configuration.bus_bytes - 1).bit_length()
        first = burst.address[:beat_bits]
        burst_end = Cat(burst.end_byte[:beat_bits], burst.beats_minus_one)
        self.claim(m, ~accesses | (burst_end >= first), "a burst ends after it starts")
        bytes_minus_one = Signal(len(burst_end))
        m.d.comb += bytes_minus_one.eq(burst_end - first)
        length = bytes_minus_one + (3 if self.fault else 1)
        self.claim(m, ~accesses | (offset + length <= size), "every byte lies in the window")
        end = burst.address[:burst_bits] + bytes_minus_one
        self.claim(m, ~accesses | (end < configuration.burst_bytes), "no burst crosses a boundary")
        self.goal(
            m, accesses & (burst.beats_minus_one == configuration.burst_beats - 1), "a long burst"
        )

        # Invariant: `room` belongs to the length, and the rest of a run ends inside the window.
        run = data.View(issuer.layout, inside["run"])
        room = inside["room"] + inside["length"] + 1
        self.claim(m, ~inside["nest.active"] | (room == size), "room is the window less a run")
        self.claim(m, inside["nest.idle"] ^ inside["nest.active"], "the nest is idle or active")
        is_long = inside["is_long"] == inside["length"][burst_bits:].any()
        self.claim(m, ~inside["nest.active"] | is_long, "a long run is recognised")
        to_memory = Const(1)
        if self.family is Load:
            to_memory = ~run.fill
        stands = inside["valid"] & ~inside["leaves"] & to_memory
        start = Signal(configuration.address_bits)
        m.d.comb += start.eq(run.address - window)
        final = Cat(Const(0, burst_bits), start[burst_bits:]) + inside["end"]
        self.claim(m, ~stands | (final < size), "a run ends in the window")
        ordered = start[:burst_bits] <= inside["end"]
        self.claim(m, ~stands | ordered, "a run ends after it starts")
        more = inside["end"][burst_bits:].any() & to_memory
        moves = inside["valid"] & ~inside["leaves"]
        self.claim(m, ~moves | (inside["crosses"] == more), "a run crosses what it must")
        self.claim(m, ~moves | (inside["stays"] == more), "a run stays while it crosses")
        stops = inside["valid"] & inside["leaves"]
        self.claim(m, ~stops | inside["stays"], "what leaves the window stays for ever")
        left = Signal()
        m.d.sync += left.eq(left | issuer.out_of_window)
        self.claim(m, ~left | stops, "an error stays")
        self.claim(m, ~left | ~inside["input__valid"], "after an error nothing is issued")


@pytest.mark.slow
@pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(SMALL, id=SMALL.name),
        pytest.param(PRESETS["16x16"], id="16x16"),
    ],
)
@pytest.mark.parametrize("family", [Load, Store])
def test_no_burst_leaves_the_window(prover, family, configuration):
    prover.proves(WindowBench(family, configuration), induction())


@pytest.mark.slow
def test_the_proof_of_windows_can_fail(prover):
    prover.refutes(
        WindowBench(Store, fault="two bytes more"), "every byte lies in the window", bounded(8)
    )
    prover.reaches(WindowBench(Load), "a long burst", bounded(12))
