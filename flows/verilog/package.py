"""A core as a package for other people's flows: FuseSoC, IP-XACT, an AXI4 wrapper, a data sheet.

Everything is generated from the ports and registers of the core, so that no description differs
from it.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass

from ... import __version__
from ...hardware.technology import Technology
from ...hardware.verilog import TOP
from ...isa.configuration import CONTRACT_VERSION, Configuration
from ...isa.registers import REGISTER_SPACE_BYTES, REGISTERS
from .readable import VerilogPort, core_ports, write_core

WRAPPER = "core_axi"
IPXACT = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"

CONSTANT = {
    "awid": 0, "awlock": 0, "awcache": 3, "awprot": 0, "awqos": 0, "awregion": 0,
    "arid": 0, "arlock": 0, "arcache": 3, "arprot": 0, "arqos": 0, "arregion": 0,
}  # fmt: skip
"""Outputs of AXI4 that the core leaves out, and their value: bufferable and modifiable."""

WIDTHS = {"lock": 1, "cache": 4, "prot": 3, "qos": 4, "region": 4, "id": 1}

IGNORED = {"m_axi_bid": 1, "m_axi_rid": 1, "s_axi_awprot": 3, "s_axi_arprot": 3}
"""Inputs of AXI4 and AXI4-Lite that the core leaves out, and their bits."""

NOTES = {
    "clk": "the only clock; every register and memory takes its data at the rising edge",
    "rst": "synchronous, active high; one cycle is enough, at any time",
    "interrupt": "level; high while the run is done, or after an error stopped it",
    "events": "two bits a unit (LOAD, GEMM, VECTOR, STORE): an instruction starts, one retires",
}


@dataclass(frozen=True, slots=True)
class Package:
    """The files of a package, text by name."""

    files: dict[str, str]


def write_package(configuration: Configuration, technology: Technology | None = None) -> Package:
    """Return the core with all descriptions of it."""
    text, memories = write_core(configuration, technology)
    ports = core_ports(configuration)
    return Package(
        {
            "core.v": text,
            f"{WRAPPER}.v": axi_wrapper(ports),
            "memories.json": json.dumps([one.to_json() for one in memories], indent=2) + "\n",
            "tilewright.core": fusesoc_core(),
            "tilewright.xml": ipxact(ports),
            "datasheet.md": data_sheet(configuration, ports),
        }
    )


def fusesoc_core() -> str:
    """Return the description of the package for FuseSoC."""
    return f"""\
CAPI=2:
name: tilewright:accelerator:core:{__version__}
description: Tilewright tensor accelerator, contract {CONTRACT_VERSION}, AXI4 and AXI4-Lite
filesets:
  rtl:
    files: [core.v, {WRAPPER}.v]
    file_type: verilogSource
targets:
  default:
    filesets: [rtl]
    toplevel: {WRAPPER}
  lint:
    filesets: [rtl]
    toplevel: {WRAPPER}
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]
"""


def axi_wrapper(ports: Iterable[VerilogPort]) -> str:
    """Return a module with all signals of AXI4 and AXI4-Lite."""
    declared = [f"  {p.direction} wire {_range(p.bits)}{p.name}" for p in ports]
    extra, assigned = [], []
    for name, value in CONSTANT.items():
        bits = next(width for suffix, width in WIDTHS.items() if name.endswith(suffix))
        extra.append(f"  output wire {_range(bits)}m_axi_{name}")
        assigned.append(f"  assign m_axi_{name} = {bits}'d{value};")
    extra += [f"  input wire {_range(bits)}{name}" for name, bits in IGNORED.items()]
    joined = ",\n".join(f"    .{port.name}({port.name})" for port in ports)
    return (
        "// The core with the signals of AXI4 that it has no use for: identifiers of one bit,\n"
        "// accesses that are bufferable and modifiable, neither locked nor privileged.\n"
        f"module {WRAPPER} (\n" + ",\n".join(declared + extra) + "\n);\n"
        + "\n".join(assigned)
        + f"\n  wire unused = &{{1'b0, {', '.join(IGNORED)}}};\n\n"
        f"  {TOP} core (\n{joined}\n  );\nendmodule\n"
    )  # fmt: skip


def _range(bits: int) -> str:
    return f"[{bits - 1}:0] " if bits > 1 else ""


def data_sheet(configuration: Configuration, ports: Iterable[VerilogPort]) -> str:
    """Return ports, clock, reset and registers in Markdown."""
    lines = [
        f"# Data sheet: {configuration.name}", "",
        f"Top module `{TOP}`, contract version {CONTRACT_VERSION}, configuration hash "
        f"{configuration.hash:#010x}.", "",
        "## Ports", "",
        "| port | direction | bits | meaning |", "| --- | --- | --- | --- |",
        *(f"| `{p.name}` | {p.direction} | {p.bits} | {_note(p.name)} |" for p in ports), "",
        "Transfers on `m_axi` are INCR bursts of whole, aligned beats of "
        f"{configuration.bus_bytes} bytes, at most {configuration.burst_beats} beats and never "
        "across 4 KiB. There are no identifiers: responses come in the order of requests, and "
        f"at most {configuration.outstanding_bursts} bursts of LOAD and as many of STORE are open.",
        "",
        "## Registers", "", "| offset | name | access | meaning |", "| --- | --- | --- | --- |",
        *(
            f"| 0x{r.offset:02x} | `{r.name}` | {'read, write' if r.writable else 'read'} | "
            f"{r.text} |"
            for r in REGISTERS
        ), "",
        "## Parameters", "", "| parameter | value |", "| --- | --- |",
        *(f"| `{name}` | {value} |" for name, value in configuration.parameters().items()), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _note(name: str) -> str:
    if name.startswith("m_axi_"):
        return f"AXI4 master, {name[6:].upper()}"
    if name.startswith("s_axi_"):
        return f"AXI4-Lite slave, {name[6:].upper()}"
    return NOTES[name]


def ipxact(ports: Iterable[VerilogPort]) -> str:
    """Return the core as an IP-XACT component (IEEE 1685-2014)."""
    ports = list(ports)
    ElementTree.register_namespace("ipxact", IPXACT)
    root = _element("component")
    for name, text in zip(
        ("vendor", "library", "name", "version"),
        ("tilewright", "accelerator", TOP, __version__),
        strict=True,
    ):
        _add(root, name, text)
    buses = _add(root, "busInterfaces")
    for name, kind, mode in (("m_axi", "AXI4", "master"), ("s_axi", "AXI4Lite", "slave")):
        bus = _bus(buses, name, "amba.com", "AMBA4", kind, "r0p0_0", {
            p.name[6:].upper(): p.name for p in ports if p.name.startswith(name)
        })  # fmt: skip
        side = _add(bus, mode)
        reference = "addressSpaceRef" if mode == "master" else "memoryMapRef"
        _add(side, reference).set(reference, f"{name}_space")
    for name, kind, port in (("clock", "CLK", "clk"), ("reset", "RST", "rst")):
        bus = _bus(buses, name, "tilewright", "signal", name, "1.0", {kind: port})
        _add(bus, "slave")
    spaces = _add(root, "addressSpaces")
    space = _add(spaces, "addressSpace")
    bits = {port.name: port.bits for port in ports}
    for name, text in (
        ("name", "m_axi_space"),
        ("range", str(1 << bits["m_axi_araddr"])),
        ("width", str(bits["m_axi_rdata"])),
    ):
        _add(space, name, text)
    maps = _add(root, "memoryMaps")
    memory_map = _add(maps, "memoryMap")
    _add(memory_map, "name", "s_axi_space")
    block = _add(memory_map, "addressBlock")
    for name, text in (
        ("name", "registers"),
        ("baseAddress", "0"),
        ("range", str(REGISTER_SPACE_BYTES)),
        ("width", "32"),
    ):
        _add(block, name, text)
    for register in REGISTERS:
        one = _add(block, "register")
        access = "read-write" if register.writable else "read-only"
        for name, text in (
            ("name", register.name),
            ("description", register.text),
            ("addressOffset", str(register.offset)),
            ("size", "32"),
            ("access", access),
        ):
            _add(one, name, text)
        # The schema asks for a field of every register, also of one that is a single number.
        field = _add(one, "field")
        for name, text in (
            ("name", "value"), ("bitOffset", "0"), ("bitWidth", "32"), ("access", access)
        ):  # fmt: skip
            _add(field, name, text)
    _add_model(root, ports)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_model(root: ElementTree.Element, ports: Iterable[VerilogPort]) -> None:
    model = _add(root, "model")
    view = _add(_add(model, "views"), "view")
    _add(view, "name", "rtl")
    _add(view, "componentInstantiationRef", "verilog")
    instance = _add(_add(model, "instantiations"), "componentInstantiation")
    _add(instance, "name", "verilog")
    _add(instance, "language", "verilog")
    _add(instance, "moduleName", TOP)
    _add(_add(instance, "fileSetRef"), "localName", "rtl")
    listed = _add(model, "ports")
    for port in ports:
        one = _add(listed, "port")
        _add(one, "name", port.name)
        wire = _add(one, "wire")
        _add(wire, "direction", port.direction.removesuffix("put"))
        if port.bits > 1:
            vector = _add(_add(wire, "vectors"), "vector")
            _add(vector, "left", str(port.bits - 1))
            _add(vector, "right", "0")
    files = _add(_add(root, "fileSets"), "fileSet")
    _add(files, "name", "rtl")
    file = _add(files, "file")
    _add(file, "name", "core.v")
    _add(file, "fileType", "verilogSource")


def _bus(
    parent: ElementTree.Element, name: str, vendor: str, library: str, kind: str, version: str,
    signals: dict[str, str],
) -> ElementTree.Element:  # fmt: skip
    bus = _add(parent, "busInterface")
    _add(bus, "name", name)
    identity = {"vendor": vendor, "library": library, "name": kind, "version": version}
    for tag, suffix in (("busType", ""), ("abstractionRef", "_rtl")):
        where = bus
        if suffix:
            where = abstraction = _add(_add(bus, "abstractionTypes"), "abstractionType")
        reference = _add(where, tag)
        for key, value in identity.items():
            reference.set(key, value + suffix if key == "name" else value)
    maps = _add(abstraction, "portMaps")
    for logical, physical in signals.items():
        one = _add(maps, "portMap")
        _add(_add(one, "logicalPort"), "name", logical)
        _add(_add(one, "physicalPort"), "name", physical)
    return bus


def _element(name: str) -> ElementTree.Element:
    return ElementTree.Element(f"{{{IPXACT}}}{name}")


def _add(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = _element(name)
    child.text = text
    parent.append(child)
    return child
