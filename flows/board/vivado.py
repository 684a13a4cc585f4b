"""A project for AMD's Vivado: the core, a wrapper with its interfaces, a script to the bitstream.

A block design takes a Verilog module by reference and reads its interfaces from attributes of the
ports (UG994). So the wrapper replaces a packaged core: there is no IP-XACT description.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...atomic_write import make_output_folder, write_files
from ...errors import HardwareError, UsageError
from ...isa.configuration import Configuration
from ...isa.pipeline import FETCH_BURSTS
from ...quoting import comment, tcl_list, tcl_word
from ..area.counts import count_blocks
from ..synthesis.devices import DEVICES, FpgaDevice
from ..synthesis.flow import shortages
from .processors import ZynqBoard

WRAPPER = "tilewright"
"""Module that the block design takes."""

COMMAND = "vivado -mode batch -source"
SCRIPT, IMPLEMENT = "build.tcl", "implement.tcl"

PORT = re.compile(r"^  (input|output) (\[\d+:0\] )?(\w+);", re.MULTILINE)
"""A port of the core: direction, range, name."""

REACHED_BITS = 32
"""Bits of an address that the core needs to reach all of a board's memory."""

AXI, CLOCK, RESET, INTERRUPT = (
    "xilinx.com:interface:aximm:1.0",
    "xilinx.com:signal:clock:1.0",
    "xilinx.com:signal:reset:1.0",
    "xilinx.com:signal:interrupt:1.0",
)


@dataclass(frozen=True)
class ZynqDesign:
    """A configuration on a Zynq board.

    Parameters
    ----------
    board, configuration
    clock_mhz
        The clock of the logic.

    Raises
    ------
    HardwareError
        If the chip has too few multipliers or block RAMs.
    UsageError
        If the core cannot reach the board's memory.
    """

    board: ZynqBoard
    configuration: Configuration
    clock_mhz: float

    def __post_init__(self) -> None:
        configuration, technology = self.configuration, self.device.family.technology
        if configuration.address_bits < REACHED_BITS:
            raise UsageError(
                f"configuration `{configuration.name}` on `{self.board.name}`: addresses of "
                f"{configuration.address_bits} bits do not reach the board's memory; add `--set "
                f"address_bits={REACHED_BITS}`"
            )
        counts = count_blocks(configuration, technology)
        used = {"multipliers": counts.multipliers, "ram": counts.ram or 0}
        if problems := shortages(self.device, used, "take a board with"):
            raise HardwareError(
                f"configuration `{configuration.name}` on `{self.board.name}`: "
                + "; ".join(problems)
            )

    @property
    def device(self) -> FpgaDevice:
        """The chip."""
        return DEVICES[self.board.device]

    @property
    def clock_hz(self) -> int:
        """The clock of the logic."""
        return round(self.clock_mhz * 1e6)

    @property
    def memory_sentence(self) -> str:
        """Kind of main memory."""
        return "the processors'"

    @property
    def result(self) -> str:
        """The result of `tilewright build`."""
        return "Vivado project"

    def to_json(self, files: list[Path]) -> dict[str, Any]:
        """Return what is built as JSON values, with the paths of the files."""
        return {
            "board": self.board.name,
            "part": self.board.part,
            "configuration": self.configuration.name,
            "parameters": self.configuration.parameters(),
            "hash": f"{self.configuration.hash:#010x}",
            "clock_mhz": self.clock_mhz,
            "files": [str(file) for file in files],
        }


def write_project(design: ZynqDesign, folder: Path) -> list[Path]:
    """Write a project for Vivado, of a design for the Zynq; return its files, the script last.

    Raises
    ------
    UsageError
        When the folder or a file cannot be written.
    """
    # Imported here: it brings the hardware description language, which takes time.
    from ...hardware.verilog import TOP
    from ..verilog.readable import readable_verilog

    make_output_folder(folder)
    core = readable_verilog(design.configuration, design.device.family.technology)
    texts = {
        "core.v": core,
        f"{WRAPPER}.v": wrapper(design.configuration, core, TOP),
        SCRIPT: script(design),
    }
    return write_files(folder, texts)


def wrapper(configuration: Configuration, verilog: str, top: str) -> str:
    """Return a Verilog module with the ports of another one, and attributes that tell interfaces.

    Parameters
    ----------
    verilog, top
        The other module's text and name: the core, or a system with memory outside.
    """
    found = PORT.findall(verilog.partition(f"\nmodule {top}(")[2].partition("endmodule")[0])
    names = {name for _, _, name in found}
    buses = [bus for bus in ("m_axi", "s_axi") if f"{bus}_awaddr" in names]
    ports = []
    for way, size, name in found:
        attributes = "".join(
            f"  (* {each} *)\n" for each in _attributes(name, configuration, buses)
        )
        ports.append(f"{attributes}  {way} wire {size}{name}")
    joined = ",\n".join(f"    .{name}({name})" for _, _, name in found)
    return (
        f"// `{top}` as Vivado's block design takes it: `create_bd_cell -type module`.\n"
        f"module {WRAPPER} (\n" + ",\n".join(ports) + f"\n);\n  {top} core (\n{joined}\n  );\n"
        "endmodule\n"
    )


def _attributes(port: str, configuration: Configuration, buses: Sequence[str]) -> Iterator[str]:
    """Yield the attributes of a port; an address has the parameters of its interface."""
    bus, _, signal = port.rpartition("_")
    kinds = {
        "clk": (f"{CLOCK} clk CLK", f"ASSOCIATED_BUSIF {':'.join(buses)}, ASSOCIATED_RESET rst"),
        "rst": (f"{RESET} rst RST", "POLARITY ACTIVE_HIGH"),
        "interrupt": (f"{INTERRUPT} interrupt INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    }
    if bus in ("m_axi", "s_axi"):
        info, parameters = f"{AXI} {bus} {signal.upper()}", ""
    elif port in kinds:
        bus, (info, parameters) = port, kinds[port]
    else:
        return
    bursts = configuration.outstanding_bursts
    if port == "m_axi_araddr":
        parameters = (
            f"PROTOCOL AXI4, DATA_WIDTH {configuration.bus_bits}, "
            f"ADDR_WIDTH {configuration.address_bits}, ID_WIDTH 0, "
            f"MAX_BURST_LENGTH {configuration.burst_beats}, SUPPORTS_NARROW_BURST 0, "
            f"NUM_READ_OUTSTANDING {bursts + FETCH_BURSTS}, NUM_WRITE_OUTSTANDING {bursts}"
        )
    elif port == "s_axi_awaddr":
        parameters = "PROTOCOL AXI4LITE"
    yield f'X_INTERFACE_INFO = "{info}"'
    if parameters:
        yield f'X_INTERFACE_PARAMETER = "XIL_INTERFACENAME {bus}, {parameters}"'


def script(design: ZynqDesign) -> str:
    """Return the script for Vivado."""
    board, system = design.board, design.board.system
    settings = {**system.settings, system.clock_setting: f"{design.clock_mhz:g}"}
    values = {
        "name": board.name,
        "part": board.part,
        "board_files": board.board_files,
        "clock_mhz": f"{design.clock_mhz:g}",
        "registers_base": f"{system.registers_base:#010x}",
        "ps_ip": system.ip,
        "ps_rule": system.rule,
        "ps_automation": _words(system.automation),
        "ps_settings": _words({f"CONFIG.{name}": value for name, value in settings.items()}),
        "ps_clock": system.clock,
        "ps_clock_inputs": tcl_list(system.clock_inputs),
        "ps_reset": system.reset,
        "ps_interrupt": system.interrupt,
        "ps_registers_port": system.registers_port,
        "ps_memory_port": system.memory_port,
    }
    head = (
        f"# `{comment(design.configuration.name)}` on {comment(board.name)}, written by "
        f"`tilewright build`. Run it with:\n#   vivado -mode batch -source {SCRIPT}\n"
    )
    return head + script_of(values, SCRIPT)


def script_of(values: Mapping[str, str], name: str) -> str:
    """Return a Tcl script: its settings, the procedures that projects share, and its steps."""
    lines = "".join(f"set {name} {tcl_word(value)}\n" for name, value in values.items())
    files = (Path(__file__).with_name(each) for each in (IMPLEMENT, name))
    return lines + "".join(file.read_text("utf-8") for file in files)


def _words(values: Mapping[str, object]) -> str:
    """Return a Tcl list of names and values."""
    return " ".join(f"{name} {tcl_word(str(value))}" for name, value in values.items())
