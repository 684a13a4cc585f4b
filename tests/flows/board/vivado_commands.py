"""Vivado's commands by their recorded signatures, and a block design that knows its pins.

Signatures: UG835 (Vivado Design Suite Tcl Command Reference). Pins of the blocks: PG082
(processing_system7), PG201 (zynq_ultra_ps_e), PG164 (proc_sys_reset), PG247 (smartconnect), UG586
(mig_7series), PB040 (xlconstant). Those of the accelerator are read from the attributes in its
wrapper. What is not here does not exist.
"""

import re
import tkinter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

PATTERNS = "[-regexp] [-hierarchical] [-filter <arg>] [-of_objects <args>] [<patterns>]"

SIGNATURES = {
    "add_files": "[-fileset <arg>] [-of_objects <args>] [-norecurse] [-copy_to <arg>] [-force] "
    "[-scan_for_includes] [<files>...]",
    "apply_board_connection": "[-board_interface <arg>] [-ip_intf <arg>] -diagram <arg>",
    "apply_bd_automation": "-rule <arg> [-config <args>] <objects>...",
    "assign_bd_address": "[-target_address_space <arg>] [-boundary] [-master_boundary] [-external] "
    "[-import_from_file <arg>] [-export_to_file <arg>] [-export_gui_to_file <arg>] [-offset <arg>] "
    "[-range <arg>] [-base_high <arg>] [-force] [<objects>...]",
    "connect_bd_intf_net": "[-intf_net <arg>] [-boundary_type <arg>] <object1> <object2> [<auto>]",
    "connect_bd_net": "[-net <arg>] [-boundary_type <arg>] <objects>...",
    "create_bd_cell": "[-vlnv <arg>] [-type <arg>] [-reference <arg>] [-revision <arg>] <name>",
    "create_bd_port": "[-from <arg>] [-to <arg>] -dir <arg> [-type <arg>] <name>",
    "create_bd_design": "[-dir <arg>] [-cell <arg>] <name>",
    "create_project": "[-part <arg>] [-force] [-in_memory] [-ip] [-rtl_kernel] [<name>] [<dir>]",
    "current_fileset": "[-constrset] [-simset] [-srcset] [-blockset] [<fileset>...]",
    "current_project": "[<project>]",
    "get_bd_addr_segs": PATTERNS,
    "get_bd_addr_spaces": PATTERNS,
    "get_bd_cells": PATTERNS,
    "get_bd_intf_pins": PATTERNS,
    "delete_bd_objs": "[<objects>...]",
    "get_bd_nets": PATTERNS,
    "get_bd_pins": PATTERNS,
    "get_bd_ports": PATTERNS,
    "get_board_parts": "[-regexp] [-nocase] [-latest_file_version] [-latest_hw_revision] "
    "[-filter <arg>] [<patterns>...]",
    "get_files": "[-regexp] [-nocase] [-filter <arg>] [-of_objects <args>] [<patterns>...]",
    "get_property": "[-min] [-max] <name> <object>",
    "get_runs": "[-regexp] [-nocase] [-filter <arg>] [<patterns>...]",
    "launch_runs": "[-jobs <arg>] [-scripts_only] [-dir <arg>] [-to_step <arg>] [-next_step] "
    "[-force] <runs>...",
    "make_wrapper": "[-top] [-testbench] [-inst_template] [-fileset <arg>] [-import] [-force] "
    "<files>",
    "save_bd_design": "[<name>]",
    "set_property": "[-dict <args>] <name> <value> <objects>...",
    "update_compile_order": "[-force_gui] [-fileset <arg>]",
    "validate_bd_design": "[-include_pfm] [-design <arg>] [-force]",
    "wait_on_run": "[-timeout <arg>] <run>",
    "write_hw_platform": "[-fixed] [-force] [-include_bit] [-include_sim_content] [-minimal] [-hw] "
    "[-hw_emu] [<file>]",
}
"""Commands of Vivado; each takes `-quiet` and `-verbose` as well."""

OPTION = re.compile(r"\[?(-\w+)( <args?>)?\]?")
OTHER = re.compile(r"(?<!-)(\[?)<(?!args?>)\w+>\]?(\.\.\.)?")


class WrongScriptError(Exception):
    """The script does what Vivado refuses."""


def parse(command: str, words: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Split the words of a command into options and others, as its signature says."""
    takes = {name: bool(value) for name, value in OPTION.findall(SIGNATURES[command])}
    takes |= {"-quiet": False, "-verbose": False}
    others = OTHER.findall(SIGNATURES[command])
    options, rest, left = {}, [], list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            rest.append(word)
        elif word not in takes:
            raise WrongScriptError(f"{command}: unknown option {word}")
        elif takes[word] and not left:
            raise WrongScriptError(f"{command}: {word} without a value")
        else:
            options[word] = left.pop(0) if takes[word] else ""
    # With `-dict`, neither name nor value is given.
    least = sum(not optional for optional, _ in others) - 2 * ("-dict" in options)
    most = 1000 if any(dots for _, dots in others) else len(others)
    if not least <= len(rest) <= most:
        raise WrongScriptError(f"{command}: {len(rest)} words, expected {least} to {most}")
    return options, rest


@dataclass
class Cell:
    """A block: direction by pin (`i`, `o`), role by interface, parameters that were set."""

    kind: str
    pins: dict[str, str]
    interfaces: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


PS7 = Cell(
    "xilinx.com:ip:processing_system7",
    {
        "FCLK_CLK0": "o",
        "FCLK_RESET0_N": "o",
        "M_AXI_GP0_ACLK": "i",
        "S_AXI_HP0_ACLK": "i",
        "IRQ_F2P": "i",
    },
    {"M_AXI_GP0": "master", "S_AXI_HP0": "slave"},
)

PS8 = Cell(
    "xilinx.com:ip:zynq_ultra_ps_e",
    {
        "pl_clk0": "o",
        "pl_resetn0": "o",
        "maxihpm0_fpd_aclk": "i",
        "saxihp0_fpd_aclk": "i",
        "pl_ps_irq0": "i",
    },
    {"M_AXI_HPM0_FPD": "master", "S_AXI_HP0_FPD": "slave"},
)

SWITCHES = {
    "M_AXI_GP0": "PCW_USE_M_AXI_GP0",
    "S_AXI_HP0": "PCW_USE_S_AXI_HP0",
    "FCLK_CLK0": "PCW_EN_CLK0_PORT",
    "FCLK_RESET0_N": "PCW_EN_RST0_PORT",
    "M_AXI_GP0_ACLK": "PCW_USE_M_AXI_GP0",
    "S_AXI_HP0_ACLK": "PCW_USE_S_AXI_HP0",
    "IRQ_F2P": "PCW_USE_FABRIC_INTERRUPT",
    "M_AXI_HPM0_FPD": "PSU__USE__M_AXI_GP0",
    "S_AXI_HP0_FPD": "PSU__USE__S_AXI_GP2",
    "pl_clk0": "PSU__FPGA_PL0_ENABLE",
    "pl_resetn0": "PSU__USE__FABRIC__RST",
    "maxihpm0_fpd_aclk": "PSU__USE__M_AXI_GP0",
    "saxihp0_fpd_aclk": "PSU__USE__S_AXI_GP2",
    "pl_ps_irq0": "PSU__USE__IRQ0",
}
"""Parameters of the processors without which a pin or an interface does not exist."""

OTHERS = {"PSU__USE__M_AXI_GP1", "PSU__USE__M_AXI_GP2", "PSU__SAXIGP2__DATA_WIDTH"}
OTHERS |= {"PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ", "PCW_FPGA0_PERIPHERAL_FREQMHZ"}
OTHERS |= {"PCW_USE_M_AXI_GP1", "PCW_S_AXI_HP0_DATA_WIDTH", "PCW_IRQ_F2P_INTR"}
PARAMETERS = {f"CONFIG.{name}" for name in (*SWITCHES.values(), *OTHERS, "NUM_SI", "NUM_MI")}

RESET = Cell(
    "xilinx.com:ip:proc_sys_reset",
    {
        "slowest_sync_clk": "i",
        "ext_reset_in": "i",
        "dcm_locked": "i",
        "peripheral_reset": "o",
        "peripheral_aresetn": "o",
        "interconnect_aresetn": "o",
    },
)

DDR = Cell(
    "xilinx.com:ip:mig_7series",
    {
        "sys_clk_i": "i",
        "sys_rst": "i",
        "clk_ref_i": "i",
        "aresetn": "i",
        "ui_clk": "o",
        "ui_addn_clk_0": "o",
        "ui_clk_sync_rst": "o",
        "init_calib_complete": "o",
        "mmcm_locked": "o",
    },
    {"S_AXI": "slave"},
)

CONSTANT = Cell("xilinx.com:ip:xlconstant", {"dout": "o"})

OPTIONAL = {"reset/dcm_locked"}
"""Inputs that may be left alone; the tool gives them their value."""

SMARTCONNECT = Cell(
    "xilinx.com:ip:smartconnect",
    {"aclk": "i", "aresetn": "i"},
    {"S00_AXI": "slave", "M00_AXI": "master"},
)

PLAIN_PORT = re.compile(r"^  (input|output) wire (\w+)", re.MULTILINE)

PORT = re.compile(
    r'\(\* X_INTERFACE_INFO = "(\S+) (\S+) (\S+)" \*\)'
    r'(?:\s+\(\* X_INTERFACE_PARAMETER = "XIL_INTERFACENAME [^"]+" \*\))?\s+(input|output) wire'
)


def module_cell(text: str) -> Cell:
    """Return the block of a module, as Vivado infers it from the attributes of its ports."""
    cell = Cell("module", {})
    for way, name in PLAIN_PORT.findall(text):
        if not name.startswith(("m_axi_", "s_axi_")):
            cell.pins[name] = way[0]
    for kind, name, signal, way in PORT.findall(text):
        if kind != "xilinx.com:interface:aximm:1.0":
            cell.pins[name] = way[0]
        elif signal == "AWADDR":
            cell.interfaces[name] = "master" if way == "output" else "slave"
    return cell


class Vivado:
    """An interpreter of Tcl with Vivado's commands.

    Parameters
    ----------
    board_parts
        Names of the boards whose files are installed.
    slack
        Worst slack in ns that implementation reaches.
    """

    def __init__(self, board_parts: tuple[str, ...], slack: str = "0.125") -> None:
        self.board_parts, self.slack = board_parts, slack
        self.calls: list[tuple[str, ...]] = []
        self.project = Path()
        self.top = ""
        self.files: list[Path] = []
        self.cells: dict[str, Cell] = {}
        self.drivers: dict[str, str] = {}
        self.ports: dict[str, str] = {}
        self.board_interface = ""
        self.links: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        self.validated = self.implemented = False
        self.wrong: list[str] = []
        self.tcl = tkinter.Tcl()
        for name in SIGNATURES:
            self.tcl.createcommand(name, lambda *words, name=name: self._call(name, words))

    def source(self, path: Path) -> None:
        """Run a script.

        Raises
        ------
        WrongScriptError
            If Vivado would refuse it.
        tkinter.TclError
            If it stops by itself.
        """
        try:
            self.tcl.eval(f"source {{{path}}}")
        except tkinter.TclError:
            if self.wrong:
                raise WrongScriptError(self.wrong[0]) from None
            raise

    def _call(self, name: str, words: tuple[str, ...]) -> str:
        self.calls.append((name, *words))
        try:
            return getattr(self, name, self._nothing)(*parse(name, words)) or ""
        except WrongScriptError as problem:
            self.wrong.append(str(problem))
            raise

    def _nothing(self, options, rest) -> None:
        return None

    def _list(self, text: str) -> tuple[str, ...]:
        return tuple(map(str, self.tcl.splitlist(text)))

    def _find(self, known, rest: list[str], what: str) -> str:
        (name,) = rest
        if name not in known:
            raise WrongScriptError(f"there is no {what} `{name}`")
        return name

    # Project ---------------------------------------------------------------------------------

    def get_board_parts(self, options, rest) -> str:
        """Find boards."""
        return " ".join(name for name in self.board_parts if fnmatchcase(name, rest[0]))

    def create_project(self, options, rest) -> None:
        """Remember the folder."""
        self.project = Path(rest[1])

    def add_files(self, options, rest) -> None:
        """Check that there are such files."""
        self.files += [Path(name) for word in rest for name in self._list(word)]
        if not all(path.is_file() for path in self.files):
            raise WrongScriptError(f"add_files: one of {self.files} is missing")

    def get_files(self, options, rest) -> str:
        """Find the block design."""
        return self._find({"system.bd"}, rest, "file")

    def current_project(self, options, rest) -> str:
        """The project."""
        return "project"

    def current_fileset(self, options, rest) -> str:
        """The sources."""
        return "sources_1"

    # Block design ----------------------------------------------------------------------------

    def create_bd_cell(self, options, rest) -> None:
        """Add a block."""
        if options["-type"] == "module":
            path = next(path for path in self.files if path.stem == options["-reference"])
            self.cells[rest[0]] = module_cell(path.read_text())
            return
        for kind in (PS7, PS8, RESET, SMARTCONNECT, DDR, CONSTANT):
            if kind.kind == options["-vlnv"]:
                self.cells[rest[0]] = Cell(kind.kind, kind.pins, kind.interfaces)
                return
        raise WrongScriptError(f"create_bd_cell: there is no block `{options['-vlnv']}`")

    def get_bd_cells(self, options, rest) -> str:
        """Find a block."""
        return self._find(self.cells, rest, "cell")

    def apply_bd_automation(self, options, rest) -> None:
        """Check that the rule is that of the block."""
        if options["-rule"].split(":")[2] != self.cells[rest[0]].kind.split(":")[2]:
            raise WrongScriptError(f"apply_bd_automation: no rule `{options['-rule']}`")
        if len(self._list(options["-config"])) % 2:
            raise WrongScriptError("apply_bd_automation: -config is not a list of pairs")

    def apply_board_connection(self, options, rest) -> None:
        """Give the controller what the board's files say; both clocks get ports, as in Vivado."""
        cell, interface = options["-ip_intf"].split("/")
        if self.cells[cell].kind != DDR.kind or interface != "mig_ddr_interface":
            raise WrongScriptError(f"apply_board_connection: no interface `{options['-ip_intf']}`")
        self.board_interface = options["-board_interface"]
        for pin in ("sys_clk_i", "clk_ref_i"):
            self.ports[pin] = "i"
            self.drivers[f"{cell}/{pin}"] = pin

    def get_bd_nets(self, options, rest) -> str:
        """Find a net of a port, which Vivado names after it."""
        return rest[0] if rest[0].removesuffix("_1") in self.ports else ""

    def get_bd_ports(self, options, rest) -> str:
        """Find a port of the block design."""
        return rest[0] if "-quiet" in options else self._find(self.ports, rest, "port")

    def create_bd_port(self, options, rest) -> None:
        """Add a port."""
        self.ports[rest[0]] = options["-dir"].lower()

    def delete_bd_objs(self, options, rest) -> None:
        """Delete nets and ports."""
        for name in rest:
            port = name.removesuffix("_1")
            self.drivers = {pin: one for pin, one in self.drivers.items() if one != port}
            if name == port:
                self.ports.pop(port, None)

    def set_property(self, options, rest) -> None:
        """Set parameters of a block; other properties are only noted."""
        words = self._list(options["-dict"]) if "-dict" in options else tuple(rest[:2])
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        if rest[-1] == "sources_1":
            self.top = pairs["top"]
        if rest[-1] in self.cells:
            if unknown := pairs.keys() - PARAMETERS:
                raise WrongScriptError(f"set_property: no parameters {sorted(unknown)}")
            self.cells[rest[-1]].settings |= pairs

    def _exists(self, cell: Cell, name: str) -> bool:
        switch = SWITCHES.get(name)
        return switch is None or cell.settings.get(f"CONFIG.{switch}") == "1"

    def _members(self, of: str) -> dict[str, str]:
        return {
            f"{name}/{member}": way
            for name, cell in self.cells.items()
            for member, way in getattr(cell, of).items()
            if self._exists(cell, member)
        }

    def get_bd_pins(self, options, rest) -> str:
        """Find a pin."""
        return self._find(self._members("pins"), rest, "pin")

    def get_bd_intf_pins(self, options, rest) -> str:
        """Find an interface."""
        return self._find(self._members("interfaces"), rest, "interface")

    def connect_bd_net(self, options, rest) -> None:
        """Connect an output to inputs."""
        pins = self._members("pins") | {
            name: {"i": "o", "o": "i"}[way] for name, way in self.ports.items()
        }
        (source,) = (pin for pin in rest if pins[pin] == "o")
        for pin in rest:
            if pin != source and self.drivers.setdefault(pin, source) != source:
                raise WrongScriptError(f"pin `{pin}` has two drivers")

    def connect_bd_intf_net(self, options, rest) -> None:
        """Connect a master to a slave."""
        roles = self._members("interfaces")
        if [roles[each] for each in rest] != ["master", "slave"]:
            raise WrongScriptError(f"{rest} are not a master and a slave")
        for one, other in (rest, rest[::-1]):
            if self.links.setdefault(one, other) != other:
                raise WrongScriptError(f"interface `{one}` is connected twice")

    def get_bd_addr_spaces(self, options, rest) -> str:
        """Find an address space."""
        return self._find({"ps/Data", "core/m_axi"}, rest, "address space")

    def get_bd_addr_segs(self, options, rest) -> str:
        """Find an address segment."""
        known = {"ddr/memmap/memaddr"} if "ddr" in self.cells else {"core/s_axi/reg0"}
        return self._find(known, rest, "address segment")

    def assign_bd_address(self, options, rest) -> None:
        """Remember an address; without a segment, all others get one."""
        self.addresses |= dict.fromkeys(rest, options.get("-offset", ""))
        if not rest:
            self.addresses["memory"] = "automatic"

    def validate_bd_design(self, options, rest) -> None:
        """Check that no input, interface or address is left."""
        inputs = {pin for pin, way in self._members("pins").items() if way == "i"}
        left = (inputs - self.drivers.keys()) | (self._members("interfaces").keys() - self.links)
        left |= {name for name, way in self.ports.items() if way == "o"} - self.drivers.keys()
        ddr = "ddr" in self.cells
        addresses = {"ddr/memmap/memaddr"} if ddr else {"core/s_axi/reg0", "memory"}
        left = (left | addresses - self.addresses.keys()) - OPTIONAL
        if left:
            raise WrongScriptError(f"not connected: {sorted(left)}")
        self.validated = True

    # Runs ------------------------------------------------------------------------------------

    def make_wrapper(self, options, rest) -> None:
        """Check that the block design is complete; write its hand-off file, as Vivado does."""
        if not self.validated:
            raise WrongScriptError("make_wrapper: the block design is not valid")
        folder = self.project / f"{self.project.name}.gen/sources_1/bd/system/hw_handoff"
        folder.mkdir(parents=True)
        (folder / "system.hwh").write_text("hand-off")

    def get_runs(self, options, rest) -> str:
        """Find a run."""
        return self._find({"synth_1", "impl_1"}, rest, "run")

    def launch_runs(self, options, rest) -> None:
        """Implement, and write the bitstream if asked."""
        self.implemented = True
        if options.get("-to_step") == "write_bitstream":
            self.project.mkdir(exist_ok=True)
            (self.project / f"{self.top}.bit").write_text(f"bitstream of {self.top}")

    def get_property(self, options, rest) -> str:
        """Tell a property of a run, or the top of the sources."""
        if rest == ["top", "sources_1"]:
            return self.top
        if rest[0] == "DIR":
            return self._members("pins")[rest[1]].upper()
        values = {"PROGRESS": "100%", "STATUS": "done", "DIRECTORY": str(self.project)}
        values |= {"STATS.WNS": self.slack, "STATS.WHS": "0.031"}
        return values[self._find(values, rest[:1], "property")]

    def write_hw_platform(self, options, rest) -> None:
        """Write a file."""
        Path(rest[0]).write_text("platform")
