"""Generation of Verilog, with the same text every time for the same configuration.

Amaranth's own Yosys writes it, as in `amaranth.back.verilog`, but runs our passes first. They move
enables and resets into the registers and make operators as narrow as their results. This doubles
the speed of the simulation. The simulator's Verilog has assertions and no source lines; the one
for people and other tools (`readable_verilog`) has source lines and no assertions.
"""

import contextlib
import re
from itertools import count
from pathlib import Path

import amaranth
from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ..isa.configuration import Configuration
from .core import Core
from .technology import Technology

TOP = "core"

SIMPLIFY = """
proc
opt_clean
opt_expr
opt_dff
opt_clean
wreduce
opt_clean
memory_collect
"""

REMOVE_INTERNAL = """
attrmap -remove generator
attrmap -remove amaranth.hierarchy -remove amaranth.decoding
"""

FOR_SIMULATION = f"""
{SIMPLIFY}
attrmap -remove src
{REMOVE_INTERNAL}
write_verilog -norename
"""

FOR_READERS = f"""
{SIMPLIFY}
delete t:$check t:$print
opt_clean
{REMOVE_INTERNAL}
attrmap -modattr -remove generator
write_verilog
"""

FOLDERS = (
    (Path(amaranth.__file__).parent, "amaranth/"),
    (Path(contextlib.__file__).parent, "python/"),
    (Path(__file__).parents[1], ""),
)
"""Folders of sources, and the prefixes of their paths in source attributes.

The last folder may contain the others, because a clone contains its environment.
"""

ESCAPED = re.compile(r"\\(\S+) (\w?)")
"""A name that is no Verilog identifier, and the word behind it."""

HEADER = """\
// {summary}
//
// Tilewright's accelerator `{configuration}`, written by `tilewright verilog`: change the
// configuration or the sources that the `src` attributes name, not this file.
//
// Parameters:
{parameters}
//
// Technology: {technology}
//
// Clock and reset:
//   clk  every register and memory takes its data at the rising edge
//   rst  active high, sampled by `clk`; one cycle is enough
//
// Ports:
//   m_axi_*    AXI4 master without identifiers: reads the program, reads and writes data
//   s_axi_*    AXI4-Lite slave: the registers of the host (docs/isa.md)
//   interrupt  high while the run is done, or after an error stopped it
//   events     two bits a unit (LOAD, GEMM, VECTOR, STORE): an instruction starts, one retires
//
{ports}

"""

PORTABLE = "portable; memories and multipliers are inferred"

ZEROS = re.compile(r"( +initial begin\n)(?: +\S+\[\d+\] = \d+'[a-z]0+;\n)+( +end\n)")
"""A memory's initial contents, one line per word."""


def generate_verilog(configuration: Configuration) -> str:
    """Return the Verilog of `Core(configuration)` for simulation, top module `core`."""
    return convert(Core(configuration), TOP)


def readable_verilog(
    configuration: Configuration,
    technology: Technology | None = None,
    multipliers: int | None = None,
) -> str:
    """Return the Verilog of a core for people and for other tools, top module `core`.

    Hierarchy and names are those of the sources, and `src` attributes name file and line. A comment
    describes configuration, ports, clock and reset.

    Parameters
    ----------
    technology
        Its cells form memories and multipliers; None for a description that every tool understands.
    multipliers
        Multiplier blocks of the chip, as in `Core`.
    """
    core = Core(configuration, multipliers)
    source = rtlil.convert(core, name=TOP, emit_src=True, platform=technology)
    text = _plain_names(_run(_relative_sources(source), FOR_READERS))
    text = _zeroed(text, system_verilog=False)
    _, _, body = text.partition("\n")
    return _header(core, technology) + body.lstrip("\n")


def readable_rtlil(source: str) -> str:
    """Return the Verilog of a design that is given as RTLIL, for people and for other tools."""
    text = _plain_names(_run(source, FOR_READERS))
    return _zeroed(text, system_verilog=False).partition("\n")[2].lstrip("\n")


def _header(core: Core, technology: Technology | None) -> str:
    configuration = core.configuration
    members = [
        (".".join(map(str, path)), member.flow, len(Value.cast(value)))
        for path, member, value in core.signature.flatten(core)
    ]
    ports = [
        f"//   {'input ' if flow is In else 'output'} {bits:4}  {name}"
        for name, flow, bits in [("clk", In, 1), ("rst", In, 1), *members]
    ]
    parameters = [f"//   {name} = {value}" for name, value in configuration.parameters().items()]
    return HEADER.format(
        summary=f"{configuration.lanes_in}x{configuration.lanes_out} multiply-accumulates a cycle, "
        f"{configuration.bus_bits}-bit memory port, hash {configuration.hash:#010x}",
        configuration=configuration.name,
        parameters="\n".join(parameters),
        technology=technology.value if technology else PORTABLE,
        ports="\n".join(["//   direction bits name", *ports]),
    )


def _relative_sources(source: str) -> str:
    for folder, name in FOLDERS:
        source = source.replace(f'"{folder}/', f'"{name}').replace(f"|{folder}/", f"|{name}")
    return source


def _plain_names(text: str) -> str:
    """Replace escaped names by identifiers that occur nowhere else."""
    used = set(re.findall(r"\w+", text))
    plain: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _ in ESCAPED.findall(text)):
        base = re.sub(r"\W+", "_", name).strip("_")
        base = base if base[:1].isalpha() else f"n_{base}"
        free = (f"{base}_{number}" if number else base for number in count())
        plain[name] = next(word for word in free if word not in used)
        used.add(plain[name])
    return ESCAPED.sub(lambda found: f"{plain[found[1]]} {found[2]}".rstrip(), text)


def convert(block: wiring.Component, name: str) -> str:
    """Return the Verilog of a block, top module `name`.

    Memories are zero at power-up. A loop initialises them, in place of one line per word.
    """
    source = rtlil.convert(block, name=name, emit_src=False, platform=Technology.SIMULATION)
    return _zeroed(_run(source, FOR_SIMULATION), system_verilog=True)


def _run(source: str, passes: str) -> str:
    yosys = find_yosys(lambda version: version >= (0, 40))
    script = f"read_rtlil <<rtlil\n{source}\nrtlil\n{passes}"
    return yosys.run(["-q", "-"], script, ignore_warnings=True)


def _zeroed(text: str, *, system_verilog: bool) -> str:
    """Clear each memory in a loop; plain Verilog declares the loop's variable in a named block."""

    def loop(block: re.Match) -> str:
        lines = block[0].splitlines()[1:-1]
        word = re.match(r"( +)(\S+)\[\d+\] = (\d+'[a-z])0+;", lines[0])
        assert word is not None
        indent, memory, size = word.groups()
        begin, declared = block[1], "integer "
        if not system_verilog:
            begin = f"{block[1].rstrip()} : clear_{memory}\n{indent}integer row;\n"
            declared = ""
        return (
            f"{begin}{indent}for ({declared}row = 0; row < {len(lines)}; row = row + 1)\n"
            f"{indent}  {memory}[row] = {size}0;\n{block[2]}"
        )

    return ZEROS.sub(loop, text)
