"""The pads of a board pass all signals on, a cycle later, to the right pins."""

import os
import random
import subprocess
import sys

import pytest
from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tilewright.flows.board.known_boards import pin_boards
from tilewright.hardware.soc.board import BoardSdram
from tilewright.hardware.soc.sdram_pads import CELLS, BoardSdramPads, SdramPads
from tilewright.hardware.technology import Technology

BOARD_OF = {Technology.ECP5: "ULX3S-25F", Technology.GOWIN: "Tang-Nano-20K"}


class Register(wiring.Component):
    """In place of a register in a pad."""

    def __init__(self, value, output):
        self.value, self.output = value, output
        super().__init__({})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.output.eq(self.value)
        return m


class DataPad(wiring.Component):
    """In place of a pad with a pin of data, which the test drives."""

    output: In(1)
    drives: In(1)
    input: Out(1)

    def __init__(self, port):
        self.port, self.pin = port, Signal()
        self.shown, self.driven = Signal(), Signal()
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += [
            self.shown.eq(self.output),
            self.driven.eq(self.drives),
            self.input.eq(self.pin),
        ]
        return m


class Beside(wiring.Component):
    """Both kinds of pads with the same inputs."""

    def __init__(self, sdram: BoardSdram):
        self.plain, self.pads = SdramPads(sdram.chip), BoardSdramPads(sdram)
        super().__init__({})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.plain, m.submodules.pads = self.plain, self.pads
        for name, member in self.plain.controller.signature.members.items():
            if member.flow is Out:
                plain, pads = (getattr(each.controller, name) for each in (self.plain, self.pads))
                m.d.comb += pads.eq(plain)
        return m


@pytest.mark.parametrize("technology", CELLS, ids=str)
def test_all_signals_reach_their_pins_a_cycle_later(technology, monkeypatch):
    data = {}
    cells = CELLS[technology]
    monkeypatch.setattr(cells, "pad_register", Register)
    monkeypatch.setattr(
        cells, "BidirectionalPad", lambda port: data.setdefault(port.name, DataPad(port))
    )
    monkeypatch.setattr(cells, "forwarded_clock", lambda clock, output: Register(clock, output))
    sdram = pin_boards()[BOARD_OF[technology]].sdram
    assert sdram
    bits = sdram.chip.data_bits
    top = Beside(sdram)
    pads, controller, chip = top.pads, top.plain.controller, top.plain.chip
    generator = random.Random(5)

    async def bench(ctx):
        for _ in range(200):
            for name, member in controller.signature.members.items():
                if member.flow is Out:
                    signal = getattr(controller, name)
                    ctx.set(signal, generator.getrandbits(len(signal)))
            word = generator.getrandbits(bits)
            ctx.set(chip.read, word)
            for bit in range(bits):
                ctx.set(data[f"sdram_dq_{bit}"].pin, word >> bit & 1)
            await ctx.tick()
            command = ctx.get(chip.command)
            assert (ctx.get(pads.ras_n), ctx.get(pads.cas_n), ctx.get(pads.we_n)) == (
                command >> 2, command >> 1 & 1, command & 1
            )  # fmt: skip
            for name, plain in (
                ("cke", chip.cke), ("cs_n", chip.cs_n), ("ba", chip.bank), ("a", chip.address),
                ("dqm", chip.mask),
            ):  # fmt: skip
                assert ctx.get(getattr(pads, name)) == ctx.get(plain), name
            for bit in range(bits):
                pad = data[f"sdram_dq_{bit}"]
                assert ctx.get(pad.shown) == ctx.get(chip.written) >> bit & 1
                assert ctx.get(pad.driven) == ctx.get(chip.drives)
            assert ctx.get(pads.controller.read) == ctx.get(controller.read) == word

    simulator = Simulator(Fragment.get(top, technology))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert [port.name for port in pads.dq] == list(data)


CODE = """
from amaranth.back import rtlil
from tilewright.flows.board.known_boards import pin_boards
from tilewright.hardware.soc.sdram_pads import BoardSdramPads
from tilewright.hardware.technology import Technology
pads = BoardSdramPads(pin_boards()["Tang-Nano-20K"].sdram)
print(rtlil.convert(pads, platform=Technology.GOWIN, emit_src=False))
"""


def test_the_pads_have_one_order():
    """Another order would be another placement with each build."""
    texts = [
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
