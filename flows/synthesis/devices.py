"""The devices that `tilewright synth` knows: families with their tools, chips with their resources.

A resource is counted in the units of its family. Block RAMs of an iCE40 hold 4 Kbit, those of a
GateMate 20 Kbit, all others 18 Kbit; multipliers of Gowin are 9x9, of which an 18x18 one takes two.
Capacities are those of the vendors' data sheets. `asic` is no chip but a library of gates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TypeVar

from ...errors import UsageError, did_you_mean
from ...hardware.technology import Technology
from ...sim.gate.mapping import ECP5, GOWIN, ICE40, CellMapping
from .free_rows import empty_rows
from .multiplier_sites import ecp5_sites
from .tools import (
    ECPPACK,
    GMPACK,
    GOWIN_PACK,
    NEXTPNR_ECP5,
    NEXTPNR_GATEMATE,
    NEXTPNR_GOWIN,
    NEXTPNR_ICE40,
    Tool,
)

Resources = Mapping[str, int]
"""Counts by name: some of `RESOURCES`, and `LOGIC_RAM`."""

Cost = Mapping[str, int | Fraction]
"""Resources of one cell; gate equivalents may be fractions."""

_Count = TypeVar("_Count", bound=Cost)

LOGIC_RAM = "logic_ram_bits"
"""Name of the bits of RAM that is made of logic cells, whose tables count as `lut` too."""

MEMORY = "$mem_v2"
"""Yosys' cell type for a memory that it has not mapped. Its cost is given for each bit."""

RESOURCES: Mapping[str, str] = MappingProxyType(
    {
        "gates": "gate equivalents",
        "lut": "LUT",
        "ff": "FF",
        "ram": "RAM",
        "large_ram": "large RAM",
        "multipliers": "multipliers",
        "memory_bits": "memory bits",
    }
)
"""Resources in the order of tables, with their headings."""

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "lut": "lower `vector_lanes`, then `lanes_in` or `lanes_out`",
        "ff": "lower `vector_lanes`, then `lanes_in` or `lanes_out`",
        "ram": "lower `act_depth`, `wgt_depth` or `acc_depth`, or the number of their banks",
        "large_ram": "lower `act_depth`, `wgt_depth` or `acc_depth`",
        "multipliers": "lower `vector_lanes`, then `lanes_in` or `lanes_out`",
    }
)
"""Parameters to change when a resource is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of FPGAs that share cells and tools, or an ASIC.

    Parameters
    ----------
    name
        The vendor's name of the family.
    mapping
        Maps a design to the family's cells.
    layout
        The placer's arguments for the file from which a bitstream is packed, `{}` in them its name;
        empty without a packer.
    packer
        The tool that packs a bitstream.
    packing
        Its arguments, with `{layout}`, `{bitstream}` and `{part}`, the vendor's name of the chip.
    suffix
        Of a bitstream's file.
    refines
        Whether the placer's result is refined before it is routed.
    lut
        The heading of look-up tables in tables.
    cells
        Resources that one cell of each type takes. Types that are left out take none.
    bels
        Resources that one place of each kind on the chip holds; nextpnr counts the places after
        packing.
    logic_cells
        Whether `lut` counts logic cells of one look-up table and one flip-flop, which a flip-flop
        alone takes as well.
    placer
        The place-and-route tool; None if there is no open one, so that only counts are known.
    """

    name: str
    mapping: CellMapping
    cells: Mapping[str, Cost]
    bels: Mapping[str, Resources]
    placer: Tool | None
    lut: str = ""
    logic_cells: bool = False
    layout: tuple[str, ...] = ()
    packer: Tool | None = None
    packing: tuple[str, ...] = ()
    suffix: str = ".bit"
    refines: bool = False

    @property
    def technology(self) -> Technology:
        """The description of the hardware that is synthesised."""
        return self.mapping.technology

    @property
    def resources(self) -> list[str]:
        """The resources that its cells take, in the order of tables."""
        return [name for name in RESOURCES if any(name in cost for cost in self.cells.values())]


@dataclass(frozen=True, slots=True, kw_only=True)
class FpgaDevice:
    """One chip in one package.

    Parameters
    ----------
    name
        As `--chip` takes it.
    part
        The vendor's name of the chip.
    package
        Package and speed grade, as far as the tools ask for them.
    capacity
        Resources of the chip; empty without a limit.
    clock_mhz
        The clock that the placer aims at if the user names none.
    arguments
        Arguments of the place-and-route tool.
    files
        Files that the arguments name, with their text.
    multiplier_sites
        Sites for the multipliers of a design; empty if the placer decides.
    empty_tiles
        Tiles of logic that a small design leaves empty, so that wires find room.
    """

    name: str
    family: Family
    part: str
    package: str
    capacity: Resources
    clock_mhz: float
    arguments: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    multiplier_sites: tuple[str, ...] = ()
    empty_tiles: tuple[str, ...] = ()

    def short(self, used: Resources) -> list[str]:
        """Resources of which the device has fewer than are used."""
        if not self.capacity:
            return []
        return [name for name in RESOURCES if used.get(name, 0) > self.capacity.get(name, 0)]


def _each(count: _Count, *types: str) -> dict[str, _Count]:
    return dict.fromkeys(types, count)


_ECP5 = Family(
    name="ECP5",
    mapping=ECP5,
    lut="LUT4",
    cells={
        **_each({"lut": 1}, "LUT4"),
        **_each({"lut": 2}, "CCU2C"),
        **_each({"lut": 4, LOGIC_RAM: 64}, "TRELLIS_DPR16X4"),
        **_each({"ff": 1}, "TRELLIS_FF"),
        **_each({"ram": 1}, "DP16KD", "PDPW16KD"),
        **_each({"multipliers": 1}, "MULT18X18D"),
    },
    bels={
        "TRELLIS_COMB": {"lut": 1},
        "TRELLIS_FF": {"ff": 1},
        "DP16KD": {"ram": 1},
        "MULT18X18D": {"multipliers": 1},
    },
    placer=NEXTPNR_ECP5,
    layout=("--textcfg", "{}"),
    packer=ECPPACK,
    packing=("--compress", "{layout}", "{bitstream}"),
    refines=True,
)

_ICE40 = Family(
    name="iCE40 UltraPlus",
    mapping=ICE40,
    lut="LC",
    cells={
        **_each({"lut": 1}, "SB_LUT4"),
        **_each(
            {"ff": 1},
            *(
                f"SB_DFF{edge}{kind}"
                for edge in ("", "N")
                for kind in ("", "E", "SR", "R", "SS", "S", "ESR", "ER", "ESS", "ES")
            ),
        ),
        **_each({"ram": 1}, *(f"SB_RAM40_4K{kind}" for kind in ("", "NR", "NW", "NRNW"))),
        **_each({"large_ram": 1}, "SB_SPRAM256KA"),
        **_each({"multipliers": 1}, "SB_MAC16"),
    },
    bels={
        "ICESTORM_LC": {"lut": 1},
        "ICESTORM_RAM": {"ram": 1},
        "ICESTORM_SPRAM": {"large_ram": 1},
        "ICESTORM_DSP": {"multipliers": 1},
    },
    placer=NEXTPNR_ICE40,
    logic_cells=True,
)

_GOWIN = Family(
    name="Gowin GW2A",
    mapping=GOWIN,
    lut="LUT4",
    cells={
        **_each({"lut": 1}, "LUT1", "LUT2", "LUT3", "LUT4", "ALU"),
        # In nextpnr, a RAM occupies a tile.
        **_each({"lut": 8, "ff": 6}, "RAM16SDP4", "RAM16SDP2", "RAM16SDP1"),
        **_each(
            {"ff": 1},
            *(
                f"DFF{edge}{kind}"
                for edge in ("", "N")
                for kind in ("", "E", "S", "SE", "R", "RE", "P", "PE", "C", "CE")
            ),
        ),
        **_each({"ram": 1}, "SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B", "pROM", "pROMX9"),
        **_each({"multipliers": 1}, "MULT9X9"),
        **_each({"multipliers": 2}, "MULT18X18"),
        **_each({"multipliers": 8}, "MULT36X36"),
    },
    bels={
        # Cells that stop others from using a place count too: one for each ALU, and a RAM's tile.
        **_each({"lut": 1}, "LUT4"),
        **_each({"ff": 1}, "DFF"),
        **_each({"ram": 1}, "BSRAM"),
        **_each({"multipliers": 1}, "MULT9X9"),
        **_each({"multipliers": 2}, "MULT18X18"),
        **_each({"multipliers": 8}, "MULT36X36"),
    },
    placer=NEXTPNR_GOWIN,
    layout=("--write", "{}"),
    packer=GOWIN_PACK,
    packing=("-d", "{part}", "-o", "{bitstream}", "{layout}"),
    suffix=".fs",
)

_GATEMATE = Family(
    name="Cologne Chip GateMate",
    mapping=CellMapping(technology=Technology.GATEMATE, synthesis="synth_gatemate -luttree -nomx8"),
    lut="LUT tree",
    cells={
        **_each({"lut": 1}, "CC_LUT1", "CC_LUT2", "CC_L2T4", "CC_MX2", "CC_ADDF"),
        **_each({"lut": 2}, "CC_L2T5", "CC_MX4"),
        **_each({"ff": 1}, "CC_DFF"),
        **_each({"ram": 1}, "CC_BRAM_20K"),
        **_each({"ram": 2}, "CC_BRAM_40K"),
    },
    bels={
        # Half of a logic cell: a tree of small tables, and a register. They make multipliers too.
        "CPE_LT": {"lut": 1},
        "CPE_FF": {"ff": 1},
        "RAM_HALF": {"ram": 1},
    },
    placer=NEXTPNR_GATEMATE,
    layout=("--vopt", "out={}"),
    packer=GMPACK,
    packing=("{layout}", "{bitstream}"),
)


def _xilinx(technology: Technology, name: str, family: str, dsp: str, ram: str) -> Family:
    return Family(
        name=name,
        mapping=CellMapping(
            technology=technology,
            synthesis=f"synth_xilinx -family {family} -flatten -noiopad -nodsp",
            finish="autoname; ",
        ),
        lut="LUT6",
        cells={
            **_each({"lut": 1}, *(f"LUT{inputs}" for inputs in range(1, 7)), "SRL16E", "SRLC32E"),
            **_each({"lut": 1}, "RAM32X1S", "RAM64X1S"),
            **_each({"lut": 2}, "RAM32X1D", "RAM64X1D"),
            **_each({"lut": 4}, "RAM32M", "RAM64M", "RAM128X1D"),
            **_each({"lut": 8}, "RAM32M16", "RAM64M8"),
            **_each({"ff": 1}, "FDRE", "FDSE", "FDCE", "FDPE"),
            **_each({"ram": 1}, f"RAMB18{ram}"),
            **_each({"ram": 2}, f"RAMB36{ram}"),
            **_each({"multipliers": 1}, dsp),
        },
        bels={},
        placer=None,
    )


_XILINX7 = _xilinx(Technology.XILINX7, "Xilinx 7", "xc7", "DSP48E1", "E1")
_ULTRASCALE = _xilinx(Technology.ULTRASCALE, "Xilinx UltraScale+", "xcup", "DSP48E2", "E2")

_CYCLONE5 = Family(
    name="Intel Cyclone V",
    mapping=CellMapping(
        technology=Technology.CYCLONE5, synthesis="synth_intel_alm -family cyclonev -noiopad"
    ),
    lut="ALUT",
    cells={
        **_each({"lut": 1}, *(f"MISTRAL_ALUT{inputs}" for inputs in range(2, 7))),
        **_each({"lut": 1}, "MISTRAL_NOT", "MISTRAL_ALUT_ARITH"),
        **_each({"ff": 1}, "MISTRAL_FF"),
        **_each({"lut": 1}, "MISTRAL_MLAB"),  # twenty of them take a block of ten ALMs
        **_each({"ram": 1}, "MISTRAL_M10K"),
        **_each({"multipliers": 1}, "MISTRAL_MUL9X9", "MISTRAL_MUL18X18"),
        **_each({"multipliers": 2}, "MISTRAL_MUL27X27"),
    },
    bels={},
    placer=None,
)

SITES: Mapping[str, int] = MappingProxyType(
    {
        **{"$_NOT_": 2, "$_NAND_": 3, "$_NOR_": 3, "$_AND_": 4, "$_OR_": 4},
        **{"$_AOI3_": 4, "$_OAI3_": 4, "$_XOR_": 6, "$_XNOR_": 6, "$_MUX_": 7, "$_DFF_P_": 17},
    }
)
"""Placement sites of gates, of which NAND2 takes three.

Those of INV_X1, NAND2_X1 and so on in the Nangate Open Cell Library for 45 nm, where a site has
0.266 square micrometres (`area` in `examples/nangate45_typ.lib.gz` of OpenSTA).
"""

_GATES = ",".join(kind[2:-1] for kind in SITES if kind not in ("$_NOT_", "$_DFF_P_"))

_ASIC = Family(
    name="ASIC",
    mapping=CellMapping(
        technology=Technology.ASIC,
        synthesis="synth -flatten -noshare -run begin:fine",
        # Clock enables and resets become gates, as in a library whose flip-flops have neither.
        finish="opt -fast -full; techmap; dfflegalize -cell $_DFF_P_ 01; opt_clean; "
        f"abc -g {_GATES}; opt_clean; autoname; ",
    ),
    cells={
        **{kind: {"gates": Fraction(sites, SITES["$_NAND_"])} for kind, sites in SITES.items()},
        "$_DFF_P_": {"gates": Fraction(SITES["$_DFF_P_"], SITES["$_NAND_"]), "ff": 1},
        MEMORY: {"memory_bits": 1},
    },
    bels={},
    placer=None,
)


_ECP5_PINS = 'LOCATE COMP "clk" SITE "G2";\n'
"""A pin from which the clock reaches the chip's clock network; any will do for the others."""


def ecp5_arguments(chip: str, package: str, speed: str, *more: str) -> tuple[str, ...]:
    """Return the placer's arguments for an ECP5, with the constraints in `pins.lpf`.

    The static placer gives a quarter more clock than `heap`, and ends on the largest chip too. In
    crowded parts of a chip, router2's conflicts rise without end; router1 resolves them.
    """
    return (
        *(chip, "--package", package, "--speed", speed, "--lpf", "pins.lpf", *more),
        *("--placer", "static", "--router", "router1"),
    )


def _ecp5(
    name: str,
    size: str,
    luts: int,
    ram: int,
    multiplier_sites: tuple[str, ...],
    clock_mhz: float,
    empty_tiles: tuple[str, ...] = (),
) -> FpgaDevice:
    return FpgaDevice(
        name=name,
        family=_ECP5,
        part=f"LFE5U-{size}F",
        package="CABGA381, speed grade 6",
        capacity={"lut": luts, "ff": luts, "ram": ram, "multipliers": len(multiplier_sites)},
        clock_mhz=clock_mhz,
        multiplier_sites=multiplier_sites,
        empty_tiles=empty_tiles,
        arguments=ecp5_arguments(f"--{size}k", "CABGA381", "6", "--lpf-allow-unconstrained"),
        files=(("pins.lpf", _ECP5_PINS),),
    )


_GOWIN_PINS = """\
IO_LOC "clk" 4;
IO_LOC "rst" 88;
IO_LOC "shift_in" 87;
IO_LOC "shift_out" 15;
"""
"""The tool wants a place for every pin; any will do."""

_GOWIN_256_PINS = """\
IO_LOC "clk" H11;
IO_LOC "rst" T10;
IO_LOC "shift_in" T13;
IO_LOC "shift_out" M11;
"""

_GATEMATE_PINS = """\
NET "clk" Loc = "IO_SB_A8";
NET "rst" Loc = "IO_SB_B7";
NET "shift_in" Loc = "IO_SA_A6";
NET "shift_out" Loc = "IO_SA_B6";
"""
"""The clock must come in at a pin that leads to the clock network; any will do for the others."""

_ANY_ATTEMPTS = ("--placer-heap-cell-placement-timeout", "0")
"""nextpnr's limit of the attempts for a cell follows from the square of the number of cells, which
overflows from 46,341 cells on; then it gives up too early.
"""


def _gowin2a(name: str, part: str, package: str, pins: str) -> FpgaDevice:
    return FpgaDevice(
        name=name,
        family=_GOWIN,
        part=part,
        package=package,
        capacity={"lut": 20_736, "ff": 15_552, "ram": 46, "multipliers": 96},
        clock_mhz=90,
        arguments=(
            *("--device", part, "--vopt", "family=GW2A-18C"),
            *("--vopt", "cst=pins.cst", *_ANY_ATTEMPTS),
        ),
        files=(("pins.cst", pins),),
    )


def _xilinx_chip(
    name: str, part: str, family: Family, luts: int, ram: int, multipliers: int, clock_mhz: float
) -> FpgaDevice:
    """Return a chip with two flip-flops for each table; block RAMs are those of 18 Kbit."""
    return FpgaDevice(
        name=name,
        family=family,
        part=part,
        package="any package",
        capacity={"lut": luts, "ff": 2 * luts, "ram": ram, "multipliers": multipliers},
        clock_mhz=clock_mhz,
    )


_DEVICES = (
    _ecp5("ecp5-25", "25", 24_288, 56, ecp5_sites([13], 3, 4), 130),
    _ecp5("ecp5-45", "45", 43_848, 108, ecp5_sites([22, 46], 4, 5), 120),
    _ecp5(
        *("ecp5-85", "85", 83_640, 208, ecp5_sites([10, 34, 58], 7, 6), 110),
        empty_rows(94, [10, 22, 34, 46, 58, 70, 82], range(4, 125)),
    ),
    FpgaDevice(
        name="up5k",
        family=_ICE40,
        part="iCE40UP5K",
        package="SG48",
        capacity={"lut": 5_280, "ff": 5_280, "ram": 30, "large_ram": 4, "multipliers": 8},
        clock_mhz=24,
        arguments=("--up5k", "--package", "sg48", "--pcf-allow-unconstrained"),
    ),
    _gowin2a("gw2ar-18", "GW2AR-LV18QN88C8/I7", "QN88, speed grade C8/I7", _GOWIN_PINS),
    _gowin2a("gw2a-18", "GW2A-LV18PG256C8/I7", "PBGA256, speed grade C8/I7", _GOWIN_256_PINS),
    FpgaDevice(
        name="ccgm1a1",
        family=_GATEMATE,
        part="CCGM1A1",
        package="FBGA324, worst case of the economy mode (1.0 V)",
        capacity={"lut": 40_960, "ff": 40_960, "ram": 64},
        clock_mhz=25,
        arguments=(
            *("--device", "CCGM1A1", "--vopt", "fpga_mode=economy", "--vopt", "time_mode=worst"),
            # With the static placer, the router takes hours even for a small system.
            *("--vopt", "ccf=pins.ccf", "--placer", "heap", "--router", "router2"),
            *_ANY_ATTEMPTS,
        ),
        files=(("pins.ccf", _GATEMATE_PINS),),
    ),
    _xilinx_chip("xc7z020", "XC7Z020 (Zynq-7020)", _XILINX7, 53_200, 280, 220, 100),
    _xilinx_chip("xc7a35t", "XC7A35T (Artix-7)", _XILINX7, 20_800, 100, 90, 100),
    _xilinx_chip("xc7a100t", "XC7A100T (Artix-7)", _XILINX7, 63_400, 270, 240, 100),
    _xilinx_chip("xczu3eg", "XCZU3EG (Zynq UltraScale+)", _ULTRASCALE, 70_560, 432, 360, 200),
    _xilinx_chip("xck26", "XCK26 (Zynq UltraScale+)", _ULTRASCALE, 117_120, 288, 1_248, 200),
    # CV-51001: an ALM has two tables and four registers, a DSP block multiplies 18x18 bits twice.
    FpgaDevice(
        name="5csea6",
        family=_CYCLONE5,
        part="5CSEBA6 (Cyclone V SE)",
        package="any package",
        capacity={"lut": 83_820, "ff": 167_640, "ram": 553, "multipliers": 224},
        clock_mhz=100,
    ),
    FpgaDevice(
        name="asic",
        family=_ASIC,
        part="NAND2 equivalents",
        package="gates of the Nangate Open Cell Library",
        capacity={},
        clock_mhz=100,
    ),
)

DEVICES: Mapping[str, FpgaDevice] = {device.name: device for device in _DEVICES}
"""Devices by name."""


def find_device(name: str) -> FpgaDevice:
    """Find a device by its name, in any case.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    found = DEVICES.get(name.lower())
    if found is None:
        raise UsageError(
            f"`--chip {name}`: expected one of {', '.join(DEVICES)}"
            + did_you_mean(name, DEVICES, "; choose one")
        )
    return found
