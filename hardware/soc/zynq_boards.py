"""The Zynq boards for which `tilewright build` writes a project: parts, ports of the processors.

Sources: names and settings of `processing_system7` (PG082) and `zynq_ultra_ps_e` (PG201), address
maps of UG585 and UG1085. This file imports no hardware description language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingSystem:
    """The processing system of a chip, as it appears in Vivado's block design.

    Parameters
    ----------
    ip, rule
        The block, and the rule that connects it to the board.
    automation
        Options of the rule.
    settings
        Values of the block's parameters, apart from the clock.
    clock_setting
        The parameter that holds the frequency of the clock in MHz.
    clock, reset, interrupt
        Pins: the clock and the reset of the logic (active low), and the interrupt.
    clock_inputs
        Pins that take the clock of each port.
    registers_port, memory_port
        Interfaces: the AXI master that reaches the registers, and a slave that reaches main memory.
    registers_base
        Byte address of the registers.
    """

    ip: str
    rule: str
    automation: Mapping[str, str]
    settings: Mapping[str, int]
    clock_setting: str
    clock: str
    reset: str
    interrupt: str
    clock_inputs: tuple[str, ...]
    registers_port: str
    memory_port: str
    registers_base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZynqBoard:
    """A board with processors and logic on one chip.

    Parameters
    ----------
    name
        As `--board` takes it.
    device
        The chip, as `tilewright synth --device` takes it.
    part
        The vendor's name of chip, package and speed grade.
    board_files
        Pattern of the names of the board's files in Vivado.
    system
        Its processors.
    configuration
        The preset that is usual for it.
    url
        Where it is described.
    """

    name: str
    device: str
    part: str
    board_files: str
    system: ProcessingSystem
    configuration: str
    url: str


_ZYNQ_7000 = ProcessingSystem(
    ip="xilinx.com:ip:processing_system7",
    rule="xilinx.com:bd_rule:processing_system7",
    automation={
        "make_external": "FIXED_IO, DDR",
        "apply_board_preset": "1",
        "Master": "Disable",
        "Slave": "Disable",
    },
    settings={
        "PCW_USE_M_AXI_GP0": 1,
        "PCW_USE_M_AXI_GP1": 0,
        "PCW_USE_S_AXI_HP0": 1,
        "PCW_S_AXI_HP0_DATA_WIDTH": 64,
        "PCW_EN_CLK0_PORT": 1,
        "PCW_EN_RST0_PORT": 1,
        "PCW_USE_FABRIC_INTERRUPT": 1,
        "PCW_IRQ_F2P_INTR": 1,
    },
    clock_setting="PCW_FPGA0_PERIPHERAL_FREQMHZ",
    clock="FCLK_CLK0",
    reset="FCLK_RESET0_N",
    interrupt="IRQ_F2P",
    clock_inputs=("M_AXI_GP0_ACLK", "S_AXI_HP0_ACLK"),
    registers_port="M_AXI_GP0",
    memory_port="S_AXI_HP0",
    registers_base=0x43C0_0000,
)

_ULTRASCALE = ProcessingSystem(
    ip="xilinx.com:ip:zynq_ultra_ps_e",
    rule="xilinx.com:bd_rule:zynq_ultra_ps_e",
    automation={"apply_board_preset": "1"},
    settings={
        "PSU__USE__M_AXI_GP0": 1,
        "PSU__USE__M_AXI_GP1": 0,
        "PSU__USE__M_AXI_GP2": 0,
        "PSU__USE__S_AXI_GP2": 1,
        "PSU__SAXIGP2__DATA_WIDTH": 128,
        "PSU__FPGA_PL0_ENABLE": 1,
        "PSU__USE__FABRIC__RST": 1,
        "PSU__USE__IRQ0": 1,
    },
    clock_setting="PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ",
    clock="pl_clk0",
    reset="pl_resetn0",
    interrupt="pl_ps_irq0",
    clock_inputs=("maxihpm0_fpd_aclk", "saxihp0_fpd_aclk"),
    registers_port="M_AXI_HPM0_FPD",
    memory_port="S_AXI_HP0_FPD",
    registers_base=0xA000_0000,
)

_BOARDS = (
    ZynqBoard(
        name="PYNQ-Z2",
        device="xc7z020",
        part="xc7z020clg400-1",
        board_files="tul.com.tw:pynq-z2:part0:*",
        system=_ZYNQ_7000,
        configuration="zynq7020",
        url="https://www.tulembedded.com/FPGA/ProductsPYNQ-Z2.html",
    ),
    ZynqBoard(
        name="Ultra96",
        device="xczu3eg",
        part="xczu3eg-sbva484-1-i",
        board_files="*:ultra96v2:part0:*",
        system=_ULTRASCALE,
        configuration="ultra96",
        url="https://www.96boards.org/product/ultra96/",
    ),
)

ZYNQ_BOARDS: Mapping[str, ZynqBoard] = MappingProxyType({board.name: board for board in _BOARDS})
"""Boards by name."""


def find_zynq_board(name: str) -> ZynqBoard | None:
    """Find a board by its name, in any case; None if it is not a Zynq board."""
    known = {each.lower(): board for each, board in ZYNQ_BOARDS.items()}
    return known.get(name.lower().replace("_", "-"))
