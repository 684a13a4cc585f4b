"""Facts of a board that the hardware needs: pins, oscillator, main memory.

Boards are files; `flows/board/board_file.py` reads them. This file imports no hardware description
language.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...isa.sdram import SDRAMS, Sdram


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin of the chip.

    Parameters
    ----------
    site
        As the vendor names it.
    low
        Whether it is active at the low level.
    pull
        `UP` or `DOWN` for a resistor in the chip; empty for none.
    fast
        Whether its edges are steep, with a weak driver for a short wire.
    """

    site: str
    low: bool = False
    pull: str = ""
    fast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSdram:
    """A single-data-rate SDRAM on a board.

    Parameters
    ----------
    kind
        Its name in `isa.sdram.SDRAMS`.
    sites
        Sites by signal, lowest bit first. Signals that are left out are fixed on the board.
    """

    kind: str
    sites: Mapping[str, tuple[str, ...]]

    @property
    def chip(self) -> Sdram:
        """Geometry and timing of its chip; `dqm` may be tied to ground on the board."""
        return replace(SDRAMS[self.kind], has_masks="dqm" in self.sites)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDdr:
    """A DDR memory on a board, with a controller that the vendor's tool makes.

    Parameters
    ----------
    board_files
        Pattern of the names of the board's files in the vendor's tool.
    interface
        Name of the memory in these files.
    mib
        Its size.
    """

    board_files: str
    interface: str
    mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """Facts of any board.

    Parameters
    ----------
    name
        As `--board` takes it.
    part
        The vendor's name of chip, package and speed grade.
    device
        The chip, as `tilewright synth --device` takes it.
    configuration
        The preset that is usual for it.
    clock_mhz
        The clock that is usual with this preset.
    url
        Where it is described.
    sources
        Where its facts were found.
    checked
        The checks that it passed, and how.
    """

    name: str
    part: str
    device: str
    configuration: str
    clock_mhz: float
    url: str
    sources: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board(BoardFacts):
    """A board whose pins are connected to a `System`.

    Parameters
    ----------
    oscillator_hz
        Frequency of the oscillator.
    oscillator, rx, tx
        Pins of the oscillator, and of the serial port: from the host, to the host.
    baud
        Rate in bits a second that its serial adapter supports.
    adapter
        The serial adapter, as messages describe it.
    leds
        The first ones show: heartbeat, busy, a bit that changes with each request, end of a run.
    button
        The pin that resets the system.
    high
        Pins that must be driven high.
    standard
        Electrical standard of all pins.
    programmer
        The name by which openFPGALoader knows it; empty if it does not.
    sdram
        Its SDRAM with a single data rate, if that is main memory.
    block_memory_kib
        Size of main memory of block RAM at most; None for all that core and bridge leave.
    ddr
        Its DDR memory, if that is main memory; the controller's clock is that of the system.
    """

    oscillator_hz: int
    oscillator: Pin
    rx: Pin
    tx: Pin
    baud: int
    adapter: str
    leds: tuple[Pin, ...] = ()
    button: Pin | None = None
    high: tuple[Pin, ...] = ()
    standard: str = "LVCMOS33"
    programmer: str = ""
    sdram: BoardSdram | None = None
    block_memory_kib: int | None = None
    ddr: BoardDdr | None = None

    @property
    def pins(self) -> dict[str, Pin]:
        """The pins that the design uses, by the names of its ports."""
        pins = {"oscillator": self.oscillator, "rx": self.rx, "tx": self.tx}
        pins |= {f"led_{index}": pin for index, pin in enumerate(self.leds)}
        pins |= {f"high_{index}": pin for index, pin in enumerate(self.high)}
        if self.sdram:
            for name, sites in self.sdram.sites.items():
                for bit, site in enumerate(sites):
                    pins[f"sdram_{name}_{bit}"] = Pin(site, fast=True)
        return pins | ({"button": self.button} if self.button else {})
