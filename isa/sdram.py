"""SDR SDRAM: geometry and timing of a chip, and the cycles that follow for its controller.

Source: JEDEC JESD21-C, section 3.11.5, with values of data sheets.
"""

from dataclasses import dataclass
from math import ceil, floor

BUFFERED_BURSTS = 4
"""Bursts of each direction that the controller keeps the data of."""

PAD_CYCLES = 2
"""Cycles in the pad registers: one on the way to the chip, one on the way back."""

MODE_CYCLES = 2
"""From the setting of the mode register to the next command."""

STARTUP_REFRESHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdram:
    """Geometry and timing of an SDR SDRAM, as its data sheet gives them.

    Parameters
    ----------
    name : str
    data_bits, bank_bits, row_bits, column_bits : int
        Width of the data pins, and of the addresses.
    cas_cycles : int
        From the read of a column to its data: 2 or 3.
    rcd_ns, rp_ns, rc_ns, ras_ns, wr_ns, rrd_ns, rfc_ns : float
        tRCD, tRP, tRC, tRAS, tWR, tRRD, tRFC: the least times between two commands.
    refi_ns : float
        tREFI: the mean time from one refresh to the next.
    startup_ns : float
        From a stable clock to the first command.
    has_masks : bool
        Whether the pins that select single bytes of a word are connected.
    """

    name: str
    data_bits: int
    bank_bits: int = 2
    row_bits: int
    column_bits: int
    cas_cycles: int = 3
    rcd_ns: float
    rp_ns: float
    rc_ns: float
    ras_ns: float
    wr_ns: float
    rrd_ns: float
    rfc_ns: float
    refi_ns: float
    startup_ns: float = 200_000.0
    has_masks: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole chip."""
        return self.row_bytes << (self.bank_bits + self.row_bits)

    @property
    def row_bytes(self) -> int:
        return (self.data_bits // 8) << self.column_bits

    def at(self, clock_hz: int) -> "SdramCycles":
        """Its timing in cycles of a clock."""

        def least(time_ns: float, cycles: int = 1) -> int:
            return max(cycles, ceil(time_ns * clock_hz / 1e9 - 1e-9))

        return SdramCycles(
            cas=self.cas_cycles,
            rcd=least(self.rcd_ns, 2),
            rp=least(self.rp_ns, 2),
            rc=least(self.rc_ns),
            ras=least(self.ras_ns),
            wr=least(self.wr_ns),
            rrd=least(self.rrd_ns),
            rfc=least(self.rfc_ns, 2),
            refi=floor(self.refi_ns * clock_hz / 1e9),
            startup=least(self.startup_ns),
            has_masks=self.has_masks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SdramCycles:
    """Timing of an SDR SDRAM in cycles, with the names of `Sdram`."""

    cas: int
    rcd: int
    rp: int
    rc: int
    ras: int
    wr: int
    rrd: int
    rfc: int
    refi: int
    startup: int
    has_masks: bool

    @property
    def answer(self) -> int:
        """From the cycle that asks for a word to the one that takes it."""
        return self.cas + PAD_CYCLES + 1

    def schedule(self, beat_words: int) -> "SdramSchedule":
        """How the controller spaces its commands.

        Parameters
        ----------
        beat_words
            Words of the chip in a beat of the bus; the shortest burst has as many.
        """
        read_close = max(0, self.ras - self.rcd - beat_words)
        write_close = max(self.wr - 1, read_close)
        # The next activation of the same bank, and the next write's data behind the last read's.
        rest = max(
            self.rp,
            self.rc - self.rcd - beat_words - read_close,
            self.cas + 1 - self.rcd - read_close,
        )
        merge = 0 if self.has_masks else 2 * beat_words + self.answer
        return SdramSchedule(
            beat_cycles=beat_words,
            latency_cycles=self.rcd + beat_words + self.answer + 1,
            read_close_cycles=read_close,
            write_close_cycles=write_close,
            rest_cycles=rest,
            read_gap_cycles=self.rcd + read_close + rest,
            write_gap_cycles=self.rcd + merge + write_close + rest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SdramSchedule:
    """The controller's spacing of commands; the same for every address.

    Parameters
    ----------
    beat_cycles : int
        Cycles of a beat: the words of the chip that it consists of.
    latency_cycles : int
        From accepting a read's address to its first beat, while nothing else waits.
    read_close_cycles, write_close_cycles : int
        From the cycle after a burst's last word to the precharge.
    rest_cycles : int
        From the precharge to the next activation or refresh.
    read_gap_cycles, write_gap_cycles : int
        Cycles that a burst takes beyond those of its words. A chip whose bytes cannot be masked has
        the first and the last beat read before a burst is written.
    """

    beat_cycles: int
    latency_cycles: int
    read_close_cycles: int
    write_close_cycles: int
    rest_cycles: int
    read_gap_cycles: int
    write_gap_cycles: int


SDRAMS = {
    chip.name: chip
    for chip in (
        # The slowest of the chips that such boards carry: AS4C16M16SA-7, MT48LC16M16A2-75.
        Sdram(
            name="sdr-x16",
            data_bits=16,
            row_bits=13,
            column_bits=9,
            rcd_ns=21,
            rp_ns=21,
            rc_ns=66,
            ras_ns=44,
            wr_ns=15,
            rrd_ns=15,
            rfc_ns=66,
            refi_ns=7812.5,
        ),
        # 64 Mbit beside the logic of a GW2AR-18.
        Sdram(
            name="sdr-x32",
            data_bits=32,
            row_bits=11,
            column_bits=8,
            rcd_ns=18,
            rp_ns=18,
            rc_ns=60,
            ras_ns=42,
            wr_ns=14,
            rrd_ns=14,
            rfc_ns=60,
            refi_ns=15_625,
        ),
    )
}
"""SDRAMs by name: 32 MiB on 16 pins as on the ULX3S, and 8 MiB on 32 as in the Tang Nano 20K."""
