"""A project for Intel's Quartus: the whole system in Verilog, its pins, its clock, a script.

Commands and files: the Quartus Prime Standard Edition Handbook, volume 2 (scripting), and the
TimeQuest Timing Analyzer Cookbook (MNL-01035).
"""

from pathlib import Path

from ...atomic_write import make_output_folder, write_files
from ...quoting import comment, tcl_word
from ..synthesis.netlist import TOP
from .constraints import CONSTRAINTS
from .design import Design

COMMAND = "quartus_sh -t"
SCRIPT, TOP_FILE, CLOCK_FILE = "quartus.tcl", "top.v", "clocks.sdc"


def write_quartus_project(design: Design, folder: Path) -> list[Path]:
    """Write a project for Quartus; return the paths of its files, the script last.

    Raises
    ------
    UsageError
        When the folder or a file cannot be written.
    """
    # Imported here: it brings the hardware description language, which takes time.
    from ..verilog.readable import readable_rtlil

    make_output_folder(folder)
    name, write = CONSTRAINTS[design.technology]
    texts = {
        TOP_FILE: readable_rtlil(design.rtlil(), TOP),
        name: write(design.board),
        CLOCK_FILE: clocks(design),
        SCRIPT: script(design),
    }
    return write_files(folder, texts)


def clocks(design: Design) -> str:
    """Return the timing constraints: the oscillator, from which the PLL's clock follows."""
    period_ns = 1e9 / design.board.oscillator_hz
    return (
        f"create_clock -name oscillator -period {period_ns:.3f} [get_ports oscillator]\n"
        "derive_pll_clocks\nderive_clock_uncertainty\n"
        # The serial port and the button are sampled, and the LEDs are for eyes.
        "set_false_path -from [get_ports {rx button}]\nset_false_path -to [get_ports {tx led_*}]\n"
    )


def script(design: Design) -> str:
    """Return the script for Quartus: the values of the board, then `quartus.tcl`."""
    board = design.board
    values = {"name": board.name, "part": board.part, "clock_mhz": f"{design.clock_hz / 1e6:g}"}
    head = (
        f"# {comment(board.name)}, written by `tilewright build`. Run it with:\n"
        f"#   quartus_sh -t {SCRIPT}\n"
    )
    lines = "".join(f"set {name} {tcl_word(value)}\n" for name, value in values.items())
    return head + lines + Path(__file__).with_name(SCRIPT).read_text("utf-8")
