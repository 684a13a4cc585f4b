"""The mutation score of the hardware: faults in the RTL, found by running it."""

import time
from pathlib import Path

from ....isa.configuration import Configuration
from .equivalence import prove_equal, reached_registers
from .netlist import NetlistFault, build_faulty_core
from .outcome import FaultOutcome, MutantStatus, Score, progress
from .score import Crash, Kill, Suite, try_all
from .stimuli import LONG, stimuli
from .survivors import beyond_reach, reason

PROGRAMS = 60
COUNTERS = "control"
"""The only part with faults that may need the longest stimulus."""

ROOT = Path(__file__).parents[3]


def score_hardware(
    configuration: Configuration,
    count: int,
    seed: int,
    *,
    jobs: int = 2,
    budget_s: float = float("inf"),
    programs: int = PROGRAMS,
) -> Score:
    """Draw faults, try them all, and analyse the survivors.

    Parameters
    ----------
    count, seed
        Number of faults, and seed of the draw.
    jobs
        Processes at once.
    budget_s
        Seconds after which no more faults are tried; proofs take extra time.
    programs
        Largest number of random programs per fault.

    Raises
    ------
    ToolError
        When Yosys, Verilator or the compiler is missing.
    HardwareError
        When the core without faults does not pass.
    """
    began = time.monotonic()
    core = build_faulty_core(configuration, count, seed)
    faults = {fault.number: fault for fault in core.faults}
    suite = Suite(core.library, configuration, stimuli(configuration, programs))
    progress(f"the core without faults passes; trying {count} faults")

    def attempt(number: int) -> Kill | None:
        needless = frozenset() if faults[number].unit == COUNTERS else frozenset({LONG})
        return suite.try_fault(number, needless)

    found: dict[int, object] = {}
    for number, result in try_all(attempt, list(faults), jobs, budget_s):
        found[number] = result
        if len(found) % 20 == 0:
            killed = sum(kill is not None for kill in found.values())
            progress(f"{len(found)} of {count} tried, {killed} killed")
    alive = [number for number, result in found.items() if result is None]
    progress(f"{len(alive)} of {len(found)} not killed; looking for proofs")
    equal = prove_equal(core.netlist, alive)
    registers = reached_registers(core.netlist, [n for n in alive if n not in equal])
    outcomes = [
        _outcome(configuration, fault, found, number in equal, registers.get(number, ()))
        for number, fault in faults.items()
    ]
    target = f"the hardware, configuration `{configuration.name}`, seed {seed}"
    return Score(target, tuple(outcomes), time.monotonic() - began)


def _outcome(
    configuration: Configuration,
    fault: NetlistFault,
    found: dict[int, object],
    equal: bool,
    registers: tuple[str, ...],
) -> FaultOutcome:
    source = source_of(fault)
    verdict, by = MutantStatus.SURVIVED, ""
    result = found.get(fault.number, fault)
    if result is fault:
        verdict = MutantStatus.UNTRIED
    elif isinstance(result, Crash):
        verdict, by = MutantStatus.KILLED, "the simulation does not settle"
    elif isinstance(result, Kill):
        verdict, by = MutantStatus.KILLED, f"{_kind(result.stimulus)}: {result.kind}"
    elif equal:
        verdict = MutantStatus.EQUAL
    elif argument := reason(f"{configuration.name}/{fault.place}", source, registers):
        verdict, by = MutantStatus.ARGUED, argument
    else:
        listed = ", ".join(registers[:4]) + (", ..." if len(registers) > 4 else "")
        by = beyond_reach(fault.place) or f"can change {listed}"
    return FaultOutcome(fault.number, fault.unit, fault.place, source, verdict, by)


def _kind(stimulus: str) -> str:
    """Name of a stimulus without its number."""
    return stimulus.rstrip("0123456789 ")


def source_of(fault: NetlistFault) -> str:
    """The most specific source line of a fault, with its text."""
    if not fault.sources:
        return ""
    place = fault.sources[0]
    file, _, line = place.partition(":")
    first = int(line.partition(".")[0].partition("-")[0])
    lines = (ROOT / file).read_text("utf-8").splitlines()
    return f"{file}:{first}: {lines[first - 1].strip()}" if first <= len(lines) else place
