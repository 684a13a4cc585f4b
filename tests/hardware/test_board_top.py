"""The top level: clock, reset, serial port and LEDs around a system that echoes bytes."""

from dataclasses import replace

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.hardware.soc import board_top
from tilewright.hardware.soc.board import Board, Pin
from tilewright.hardware.soc.board_top import BoardTop
from tilewright.hardware.soc.pll import find_settings
from tilewright.hardware.technology import Technology

from .echo import Echo

BOARDS = pin_boards()
DIVISOR = 4
PLLS = {Technology.ECP5: "EHXPLLL", Technology.GOWIN: "rPLL", Technology.GATEMATE: "CC_PLL"}
PLLS |= {Technology.XILINX7: "MMCME2_BASE", Technology.CYCLONE5: "altera_pll"}
HALF_S = 1e-8


class DirectClock(wiring.Component):
    """In place of a PLL: the oscillator is the clock, and the test says when it is steady."""

    oscillator: In(1)
    clock: Out(1)
    ahead: Out(1)
    locked: Out(1)

    def __init__(self, settings, lead_ns):
        super().__init__()
        self.steady = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.clock.eq(self.oscillator), self.locked.eq(self.steady)]
        return m


def technology_of(board: Board) -> Technology:
    technology = DEVICES[board.device].family.technology
    assert technology
    return technology


def top_of(board) -> BoardTop:
    settings = find_settings(
        technology_of(board), board.oscillator_hz, round(board.clock_mhz * 1e6)
    )
    return BoardTop(board, Echo(board.sdram and board.sdram.chip), settings, DIVISOR)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_board_elaborates_with_its_pins(board):
    technology = technology_of(board)
    text = rtlil.convert(top_of(board), name="top", platform=technology)
    top = text.partition("module \\top\n")[2].partition("\nend\n")[0]
    ports = {
        line.split("\\")[1]: line.split()[-3]
        for line in top.splitlines()
        if {"input", "output", "inout"} & set(line.split())
    }
    directions = {"oscillator": "input", "rx": "input", "button": "input"}
    directions |= {name: "inout" for name in board.pins if name.startswith("sdram_dq_")}
    assert ports == {name: directions.get(name, "output") for name in board.pins}
    assert PLLS[technology] in text


@pytest.mark.parametrize("low", [False, True], ids=["high", "low"])
def test_bytes_are_echoed_until_the_button_resets(low, monkeypatch):
    clocks = []
    monkeypatch.setattr(
        board_top, "Pll", lambda *given: clocks.append(made := DirectClock(*given)) or made
    )
    leds = tuple(Pin(str(index), low) for index in range(4))
    board = replace(
        BOARDS["Colorlight-i5"], sdram=None, leds=leds, button=Pin("B", low), high=(Pin("H"),)
    )
    top = top_of(board)

    async def cycle(ctx, count=1):
        for _ in range(count):
            for level in (1, 0):
                ctx.set(top.oscillator, level)
                await ctx.delay(HALF_S)

    async def send(ctx, byte):
        for bit in (0, *(byte >> n & 1 for n in range(8)), 1):
            ctx.set(top.rx, bit)
            await cycle(ctx, DIVISOR)

    async def receive(ctx):
        for _ in range(100):
            if not ctx.get(top.tx):
                break
            await cycle(ctx)
        await cycle(ctx, DIVISOR // 2)
        bits = []
        for _ in range(9):
            bits.append(ctx.get(top.tx))
            await cycle(ctx, DIVISOR)
        await cycle(ctx, DIVISOR)
        return sum(bit << n for n, bit in enumerate(bits[1:]))

    async def exchange(ctx, byte):
        await send(ctx, byte)
        return await receive(ctx)

    async def bench(ctx):
        (pll,) = clocks
        ctx.set(top.rx, 1)
        ctx.set(top.button, low)
        await cycle(ctx, 4)
        assert await exchange(ctx, 0x21) == 0xFF, "no clock yet: the line stays idle"
        ctx.set(pll.steady, 1)
        await cycle(ctx, 4)
        assert [await exchange(ctx, byte) for byte in (0x21, 0x80, 0xFE)] == [0x21, 0x81, 0x00]
        assert ctx.get(top.led_2) ^ low == 1, "three requests"
        assert ctx.get(top.led_1) ^ low == 1, "busy"
        assert ctx.get(top.led_3) ^ low == 0, "not ended"
        seen = set()
        for _ in range(32):
            await cycle(ctx)
            seen.add(ctx.get(top.led_0))
        assert seen == {0, 1}, "the heart beats"
        ctx.set(top.button, not low)
        await cycle(ctx, 4)
        ctx.set(top.button, low)
        await cycle(ctx, 4)
        assert await exchange(ctx, 0x21) == 0x21, "it counts anew"
        assert ctx.get(top.high_0) == 1

    simulator = Simulator(top)
    simulator.add_testbench(bench)
    simulator.run()
