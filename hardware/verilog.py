"""Generation of Verilog, with the same text every time for the same configuration.

Amaranth's own Yosys writes it, as in `amaranth.back.verilog`, but runs our passes first. They move
enables and resets into the registers and make operators as narrow as their results. This doubles
the speed of the simulation. The simulator's Verilog has assertions and no source lines;
`flows.verilog` writes the one for people and other tools.
"""

import re

from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.lib import wiring

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

ZEROS = re.compile(r"( +initial begin\n)(?: +\S+\[\d+\] = \d+'[a-z]0+;\n)+( +end\n)")
"""A memory's initial contents, one line per word."""


def generate_verilog(configuration: Configuration) -> str:
    """Return the Verilog of `Core(configuration)` for simulation, top module `core`."""
    return convert(Core(configuration), TOP)


def convert(block: wiring.Component, name: str) -> str:
    """Return the Verilog of a block, top module `name`.

    Memories are zero at power-up. A loop initialises them, in place of one line per word.
    """
    source = rtlil.convert(block, name=name, emit_src=False, platform=Technology.SIMULATION)
    return clear_in_loops(run_yosys(source, FOR_SIMULATION), system_verilog=True)


def run_yosys(source: str, passes: str) -> str:
    """Return what passes print about a netlist in RTLIL."""
    yosys = find_yosys(lambda version: version >= (0, 40))
    script = f"read_rtlil <<rtlil\n{source}\nrtlil\n{passes}"
    return yosys.run(["-q", "-"], script, ignore_warnings=True)


def clear_in_loops(text: str, *, system_verilog: bool) -> str:
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
