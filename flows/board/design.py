"""A configuration on a board: its clock, its main memory, its serial port, and its RTL."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HardwareError, UsageError
from ...hardware.soc.board import Board
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.sdram import Sdram
from ...sim.gate.rtlil import keep_rtlil
from ..area.counts import BLOCKS, blocks_of_ram, count_blocks
from ..synthesis.devices import DEVICES, FpgaDevice
from ..synthesis.flow import shared_multipliers
from ..synthesis.netlist import TOP
from ..synthesis.parts import find_part
from .constraints import CONSTRAINTS

if TYPE_CHECKING:
    from amaranth.hdl import Elaboratable

    from ...hardware.soc.pll import PllSettings

LINK_RAMS = 2
"""Block RAMs of the bridge, at most."""

MIN_WORDS = 2048
"""Words of a bank of main memory, at least: no block RAM holds more than one byte of a word.

A program may read a word while other bytes of it are written. A block loses such reads.
"""

MIN_DIVISOR = 4
"""Cycles of a bit of the serial port, at least."""

MAX_SDRAM_HZ = 120_000_000
"""The fastest clock for which the pads of an SDRAM leave enough time; see `CLOCK_LEAD_NS`."""

DDR_CLOCK_HZ = 81_250_000
"""A quarter of the memory's 325 MHz, as Digilent's files for AMD's controller (MIG) choose it."""

DDR_LATENCY_CYCLES = 40
"""An estimate: the controller reorders, refreshes and crosses widths; it was not measured."""

UNCOUNTED_KIB = 16
"""Main memory of a chip whose block RAMs are not counted, if the board does not say how much."""

BAUD_ERROR = 0.02
"""Greatest error of the serial port's rate; the two sides together may differ by 4 %."""


@dataclass(frozen=True)
class Design:
    """A configuration on a board, with the board's clock and baud.

    Parameters
    ----------
    board, configuration

    Raises
    ------
    HardwareError
        If the clock cannot be made, or there is no room for main memory.
    UsageError
        If the serial port would be too fast for the clock.
    """

    board: Board
    configuration: Configuration

    def __post_init__(self) -> None:
        reached = self.clock_hz / self.divisor
        if abs(reached / self.board.baud - 1) > BAUD_ERROR:
            raise UsageError(
                f"serial port of {self.board.baud:,} baud: a clock of {self.clock_hz / 1e6:g} MHz "
                f"gives {reached:,.0f} baud; choose a lower `--baud` or a faster `--clock`"
            )
        if self.sdram and self.clock_hz > MAX_SDRAM_HZ:
            raise UsageError(
                f"`{self.board.name}` at {self.clock_hz / 1e6:g} MHz: its SDRAM takes at most "
                f"{MAX_SDRAM_HZ / 1e6:g} MHz; choose a lower `--clock`"
            )
        if self.board.ddr and self.clock_hz % DDR_CLOCK_HZ:
            raise UsageError(
                f"`{self.board.name}` at {self.clock_hz / 1e6:g} MHz: the controller of its memory "
                f"makes a clock of {DDR_CLOCK_HZ / 1e6:g} MHz for the system; leave `--clock` out"
            )
        _ = self.memory_bytes

    @cached_property
    def settings(self) -> "PllSettings":
        """Settings of the PLL."""
        # Imported here: it brings the hardware description language, which takes time.
        from ...hardware.soc.pll import find_settings

        wanted_hz = round(self.board.clock_mhz * 1e6)
        return find_settings(self.technology, self.board.oscillator_hz, wanted_hz)

    @property
    def clock_hz(self) -> int:
        """The clock that the PLL makes, or the controller of a DDR memory."""
        if self.board.ddr:
            return round(self.board.clock_mhz * 1e6)
        return round(self.settings.clock_hz)

    @property
    def divisor(self) -> int:
        """Cycles of a bit of the serial port."""
        return max(MIN_DIVISOR, round(self.clock_hz / self.board.baud))

    @property
    def sdram(self) -> Sdram | None:
        """The SDRAM used as main memory; None if main memory is block RAM."""
        return self.board.sdram and self.board.sdram.chip

    @property
    def memory(self) -> MemoryModel:
        """Timing of main memory; an estimate for a DDR memory."""
        if self.board.ddr:
            return MemoryModel(latency_cycles=DDR_LATENCY_CYCLES)
        if self.sdram:
            return MemoryModel.of_sdram(self.sdram, self.configuration, self.clock_hz)
        # Imported here: it brings the hardware description language, which takes time.
        from ...hardware.soc.block_memory import LATENCY_CYCLES

        return MemoryModel(latency_cycles=LATENCY_CYCLES)

    @property
    def memory_sentence(self) -> str:
        """Size and kind of main memory."""
        if self.board.ddr:
            return f"{self.memory_bytes >> 20} MiB of DDR"
        if self.sdram is None:
            return f"{self.memory_bytes // 1024} KiB of block RAM"
        return f"{self.memory_bytes >> 20} MiB of SDRAM"

    @property
    def result(self) -> str:
        """The result of `tilewright build`."""
        if self.device.family.packer:
            return "bitstream"
        return "Quartus project" if self.technology is Technology.CYCLONE5 else "Vivado project"

    @property
    def technology(self) -> Technology:
        return DEVICES[self.board.device].family.technology

    @cached_property
    def memory_bytes(self) -> int:
        """Size of main memory: the SDRAM, or all block RAM that the core and the bridge leave."""
        reach = 1 << self.configuration.address_bits
        if self.board.ddr:
            return min(self.board.ddr.mib << 20, reach)
        if self.sdram:
            return min(self.sdram.size_bytes, reach)
        blocks = BLOCKS.get(self.technology)
        if blocks is None:
            return min((self.board.block_memory_kib or UNCOUNTED_KIB) << 10, reach)
        device = DEVICES[self.board.device]
        multipliers = device.capacity.get("multipliers")
        counts = count_blocks(self.configuration, self.technology, multipliers)
        if counts.ram is None:
            raise HardwareError(
                f"configuration `{self.configuration.name}` on `{self.board.name}`: its block RAMs "
                "are unknown; lower `queue_depth`, `act_depth`, `wgt_depth` or `acc_depth`"
            )
        left = max(0, device.capacity["ram"] - counts.ram - LINK_RAMS)
        most = self.board.block_memory_kib
        limit = reach if most is None else min(reach, most << 10)
        words, bank = 0, blocks.shape.deepest
        while bank >= MIN_WORDS:
            each = blocks_of_ram(bank, self.configuration.bus_bits, 8, blocks)
            words += left // each * bank
            left %= each
            bank //= 2
        if not words:
            raise HardwareError(
                f"configuration `{self.configuration.name}` on `{self.board.name}`: the core takes "
                f"{counts.ram} of {device.capacity['ram']} RAM, which leaves too few for main "
                "memory; lower `act_depth`, `wgt_depth` or `acc_depth`, or the number of their "
                "banks"
            )
        return min(words * self.configuration.bus_bytes, limit)

    @property
    def device(self) -> FpgaDevice:
        """The chip with the board's constraints, for placing."""
        board, part = self.board, find_part(self.board.part)
        assert part is not None
        name, write = CONSTRAINTS[self.technology]
        files = ((name, write(board)),)
        return replace(part.device, name=board.name, part=board.part, files=files)

    def rtlil(self) -> str:
        """Return the RTLIL of the whole design, without source lines; kept in the cache."""
        multipliers = shared_multipliers(DEVICES[self.board.device])

        def describe() -> "Elaboratable":
            from ...hardware.soc.board_top import BoardTop
            from ...hardware.soc.external_top import ExternalTop
            from ...hardware.soc.system import System

            if self.board.ddr:
                system = System(
                    self.configuration, self.memory_bytes, self.clock_hz, multipliers,
                    external=self.memory,
                )  # fmt: skip
                return ExternalTop(self.board, system, self.divisor)
            system = System(
                self.configuration, self.memory_bytes, self.clock_hz, multipliers, self.sdram
            )
            return BoardTop(self.board, system, self.settings, self.divisor)

        clock = str(self.board.ddr or self.settings)
        parts = [str(self.configuration.parameters()), str(self.board.pins), clock]
        parts += [str(self.divisor), str(self.memory_bytes), str(self.sdram), str(multipliers)]
        return keep_rtlil(parts, self.technology, describe, TOP)


def usual_folder(board: str) -> Path:
    """Return the folder in which a build for a board leaves its results by default."""
    return Path("build") / board
