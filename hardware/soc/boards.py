"""The boards that `tilewright build` knows: chips, oscillators, pins, memories.

The facts are public. `amaranth-boards` has the ULX3S, the OrangeCrab and the ECPIX-5, and a test
compares the pins; those of the Colorlight i5 and i9, of the Tang Nano 20K and of the boards with a
GateMate are in `litex-boards` (`platforms/colorlight_i5.py`, `sipeed_tang_nano_20k.py`,
`olimex_gatemate_a1_evb.py`, `colognechip_gatemate_evb.py`). Apicula's chip database has the sites
of the memory in the Tang Nano 20K's chip (`sip_cst`). Names of programmers are openFPGALoader's
(`doc/boards.yml` there). This file imports no hardware description language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...errors import UsageError, did_you_mean
from ...isa.sdram import SDRAMS, Sdram
from .zynq_boards import ZYNQ_BOARDS


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
        """Geometry and timing of its chip."""
        return SDRAMS[self.kind]

    @property
    def usable(self) -> bool:
        """Whether it can be main memory: single bytes can be written."""
        return "dqm" in self.sites


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board with a chip that the open tools place.

    Parameters
    ----------
    name
        As `--board` takes it.
    device
        The chip, as `tilewright synth --device` takes it.
    part
        The vendor's name of chip, speed grade and package.
    chip, package, speed
        What the placer calls them; empty where the device says it all.
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
    configuration
        The preset that is usual for it.
    clock_mhz
        The clock that is usual with this preset.
    programmer
        The name by which openFPGALoader knows it.
    sdram
        Its SDRAM, if it has one with a single data rate.
    block_memory_kib
        Size of main memory of block RAM at most; None for all that core and bridge leave.
    url
        Where it is described.
    """

    name: str
    device: str
    part: str
    chip: str = ""
    package: str = ""
    speed: str = ""
    oscillator_hz: int
    oscillator: Pin
    rx: Pin
    tx: Pin
    baud: int
    adapter: str
    leds: tuple[Pin, ...]
    button: Pin | None = None
    high: tuple[Pin, ...] = ()
    standard: str = "LVCMOS33"
    configuration: str
    clock_mhz: float
    programmer: str
    sdram: BoardSdram | None = None
    block_memory_kib: int | None = None
    url: str

    @property
    def memory(self) -> BoardSdram | None:
        """The SDRAM used as main memory; None if main memory is block RAM."""
        return self.sdram if self.sdram and self.sdram.usable else None

    @property
    def pins(self) -> dict[str, Pin]:
        """The pins that the design uses, by the names of its ports."""
        pins = {"oscillator": self.oscillator, "rx": self.rx, "tx": self.tx}
        pins |= {f"led_{index}": pin for index, pin in enumerate(self.leds)}
        pins |= {f"high_{index}": pin for index, pin in enumerate(self.high)}
        if self.memory:
            for name, sites in self.memory.sites.items():
                for bit, site in enumerate(sites):
                    pins[f"sdram_{name}_{bit}"] = Pin(site, fast=True)
        return pins | ({"button": self.button} if self.button else {})


def _pins(sites: str, *, low: bool = False, pull: str = "") -> tuple[Pin, ...]:
    return tuple(Pin(site, low, pull) for site in sites.split())


def _sites(**signals: str) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({name: tuple(sites.split()) for name, sites in signals.items()})


_ULX3S_SDRAM = BoardSdram(
    kind="sdr-x16",
    sites=_sites(
        clk="F19",
        cke="F20",
        cs_n="P20",
        ras_n="R20",
        cas_n="T19",
        we_n="T20",
        ba="P19 N20",
        a="M20 M19 L20 L19 K20 K19 K18 J20 J19 H20 N19 G20 G19",
        dqm="U19 E20",
        dq="J16 L18 M18 N18 P18 T18 T17 U20 E19 D20 D19 C20 E18 F18 J18 J17",
    ),
)

_COLORLIGHT_SDRAM = BoardSdram(
    kind="sdr-x32",
    sites=_sites(
        clk="B9",
        ras_n="B10",
        cas_n="A9",
        we_n="A10",
        ba="B11 C8",
        a="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
        dq="D15 E14 E13 D12 E12 D11 C10 B17 B8 A8 C7 A7 A6 B6 A5 B5 "
        "D5 C5 D6 C6 E7 D7 E8 D8 E9 D9 E11 C11 C12 D13 D14 C15",
    ),
)

# The memory lies in the chip's package, so its sites have names instead of numbers of pins.
_TANG_NANO_20K_SDRAM = BoardSdram(
    kind="sdr-x32",
    sites=_sites(
        clk="IOR11B",
        cke="IOL13A",
        cs_n="IOL14B",
        ras_n="IOL13B",
        cas_n="IOL14A",
        we_n="IOL12B",
        ba="IOR13A IOR12A",
        a="IOR14A IOR13B IOR14B IOR15A IOL16B IOL17B IOL16A IOL17A IOL15B IOL15A IOR12B",
        dqm="IOL12A IOR11A IOL18A IOR15B",
        dq="IOL3A IOL3B IOL8A IOL8B IOL9A IOL9B IOL11A IOL11B "
        "IOR9B IOR9A IOR5B IOR6A IOR5A IOR4B IOR3B IOR3A "
        "IOL39B IOL39A IOL35B IOL35A IOL30B IOL30A IOL20A IOL18B "
        "IOR17A IOR16A IOR16B IOR17B IOR18A IOR18B IOR44A IOR44B",
    ),
)


def _ulx3s(size: str, device: str, configuration: str, clock_mhz: float) -> Board:
    # A low level at the ESP32's GPIO0 (L2) lets its firmware take over the chip.
    return Board(
        name=f"ULX3S-{size}F",
        device=device,
        part=f"LFE5U-{size}F-6BG381C",
        chip=f"--{size}k",
        package="CABGA381",
        speed="6",
        oscillator_hz=25_000_000,
        oscillator=Pin("G2"),
        rx=Pin("M1"),
        tx=Pin("L4"),
        baud=3_000_000,
        adapter="FT231X, USB port US1",
        leds=_pins("B2 C2 C1 D2"),
        button=Pin("R1", pull="DOWN"),
        high=_pins("L2"),
        configuration=configuration,
        clock_mhz=clock_mhz,
        programmer="ulx3s",
        sdram=_ULX3S_SDRAM,
        url="https://radiona.org/ulx3s/",
    )


def _colorlight(name: str, chip: str, led: str, button: Pin | None) -> Board:
    return Board(
        name=f"Colorlight-{name}",
        device=f"ecp5-{chip}",
        part=f"LFE5U-{chip}F-6BG381C",
        chip=f"--{chip}k",
        package="CABGA381",
        speed="6",
        oscillator_hz=25_000_000,
        oscillator=Pin("P3"),
        rx=Pin("H18"),
        tx=Pin("J17"),
        baud=115_200,
        adapter="DAPLink of the extension board",
        leds=_pins(led, low=True),
        button=button,
        configuration="ecp5-25",
        clock_mhz=100,
        programmer=f"colorlight-{name}",
        sdram=_COLORLIGHT_SDRAM,
        url="https://github.com/wuxx/Colorlight-FPGA-Projects",
    )


def _orangecrab(size: str, configuration: str, clock_mhz: float) -> Board:
    return Board(
        name=f"OrangeCrab-{size}F",
        device=f"ecp5-{size}",
        part=f"LFE5U-{size}F-8MG285C",
        chip=f"--{size}k",
        package="CSFBGA285",
        speed="8",
        oscillator_hz=48_000_000,
        oscillator=Pin("A9"),
        rx=Pin("N17", pull="UP"),
        tx=Pin("M18"),
        baud=115_200,
        adapter="any one for 3.3 V at the pins 0 (to the board) and 1 (from it)",
        leds=_pins("K4 M3 J3", low=True),
        configuration=configuration,
        clock_mhz=clock_mhz,
        programmer="orangeCrab",
        url="https://github.com/orangecrab-fpga/orangecrab-hardware",
    )


def _ecpix5(size: str, configuration: str, clock_mhz: float) -> Board:
    return Board(
        name=f"ECPIX-5-{size}F",
        device=f"ecp5-{size}",
        part=f"LFE5UM5G-{size}F-8BG554",
        chip=f"--um5g-{size}k",
        package="CABGA554",
        speed="8",
        oscillator_hz=100_000_000,
        oscillator=Pin("K23"),
        rx=Pin("R26", pull="UP"),
        tx=Pin("R24"),
        baud=3_000_000,
        adapter="FT2232H, micro-USB port",
        leds=_pins("R21 W21 K24 R23", low=True),
        button=Pin("AB1", low=True, pull="UP"),
        configuration=configuration,
        clock_mhz=clock_mhz,
        programmer="ecpix5",
        url="https://docs.lambdaconcept.com/ecpix-5/",
    )


_GATEMATE_KIB = 40
"""Enough for the digits. With nearly all block RAMs in use, nextpnr leaves cells unplaced."""

_BOARDS = (
    _ulx3s("12", "ecp5-25", "ecp5-25", 100),
    _ulx3s("25", "ecp5-25", "ecp5-25", 100),
    _ulx3s("45", "ecp5-45", "ecp5-25", 100),
    _ulx3s("85", "ecp5-85", "ecp5-85", 80),
    _colorlight("i5", "25", "U16", Pin("K18", low=True, pull="UP")),
    _colorlight("i9", "45", "L2", None),
    _orangecrab("25", "ecp5-25", 100),
    _orangecrab("85", "ecp5-85", 80),
    _ecpix5("45", "ecp5-25", 100),
    _ecpix5("85", "ecp5-85", 80),
    Board(
        name="Tang-Nano-20K",
        device="gw2ar-18",
        part="GW2AR-LV18QN88C8/I7",
        oscillator_hz=27_000_000,
        oscillator=Pin("4"),
        rx=Pin("70", pull="UP"),
        tx=Pin("69"),
        baud=115_200,
        adapter="BL616, USB port",
        leds=_pins("15 16 17 18", low=True),
        configuration="gowin20",
        clock_mhz=54,
        programmer="tangnano20k",
        sdram=_TANG_NANO_20K_SDRAM,
        url="https://wiki.sipeed.com/hardware/en/tang/tang-nano-20k/nano-20k.html",
    ),
    Board(
        name="GateMateA1-EVB",
        device="ccgm1a1",
        part="CCGM1A1",
        oscillator_hz=10_000_000,
        oscillator=Pin("IO_SB_A8"),
        rx=Pin("IO_SA_A6", pull="UP"),
        tx=Pin("IO_SA_B6"),
        baud=115_200,
        adapter="RP2040, USB port",
        leds=_pins("IO_SB_B6", low=True),
        button=Pin("IO_SB_B7", low=True, pull="UP"),
        configuration="gatemate",
        clock_mhz=20,
        block_memory_kib=_GATEMATE_KIB,
        programmer="olimex_gatemateevb",
        url="https://www.olimex.com/Products/FPGA/GateMate/GateMateA1-EVB/",
    ),
    Board(
        name="GateMate-EVB",
        device="ccgm1a1",
        part="CCGM1A1",
        oscillator_hz=10_000_000,
        oscillator=Pin("IO_SB_A8"),
        rx=Pin("IO_NB_A2", pull="UP"),
        tx=Pin("IO_NB_A1"),
        baud=115_200,
        adapter="Digilent's Pmod USBUART at PMODA",
        leds=_pins("IO_EB_B1 IO_EB_B2 IO_EB_B3 IO_EB_B4", low=True),
        button=Pin("IO_EB_B0", low=True, pull="UP"),
        configuration="gatemate",
        clock_mhz=20,
        block_memory_kib=_GATEMATE_KIB,
        programmer="gatemate_evb_jtag",
        url="https://colognechip.com/programmable-logic/gatemate-evaluation-board/",
    ),
)

BOARDS: Mapping[str, Board] = MappingProxyType({board.name: board for board in _BOARDS})
"""Boards by name."""

OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "iCEBreaker": "no configuration fits its iCE40UP5K; choose a board with a larger chip",
        "Arty-A7": "its Artix-7 needs AMD's tools; write a core for them with `tilewright verilog "
        "--technology xilinx7`",
        **{
            name: "AMD's Vivado makes its bitstream; write a project for it with `tilewright build "
            f"--board {name}`"
            for name in ZYNQ_BOARDS
        },
    }
)
"""Boards without a bitstream, and why."""


def find_board(name: str) -> Board:
    """Find a board by its name, in any case.

    Raises
    ------
    UsageError
        For an unknown board, or one without a bitstream.
    """
    known = {each.lower(): each for each in (*BOARDS, *OTHERS)}
    found = known.get(name.lower().replace("_", "-"))
    if found in BOARDS:
        return BOARDS[found]
    if found is not None:
        raise UsageError(f"board `{found}`: {OTHERS[found]}")
    raise UsageError(
        f"board `{name}`: expected one of {', '.join(BOARDS)}"
        + did_you_mean(name, BOARDS, "; choose one")
    )
