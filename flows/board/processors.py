"""The processors of Zynq chips as they appear in Vivado, and the boards that have them.

Sources: names and settings of `processing_system7` (PG082) and `zynq_ultra_ps_e` (PG201), address
maps of UG585 and UG1085.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...hardware.soc.board import BoardFacts


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


ZYNQ_7000 = ProcessingSystem(
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

ZYNQ_ULTRASCALE = ProcessingSystem(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ZynqBoard(BoardFacts):
    """A board with processors and logic on one chip.

    Parameters
    ----------
    board_files
        Pattern of the names of the board's files in Vivado.
    """

    board_files: str

    @property
    def system(self) -> ProcessingSystem:
        """Its processors."""
        return ZYNQ_7000 if self.part.startswith("xc7z") else ZYNQ_ULTRASCALE
