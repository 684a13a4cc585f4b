"""The mutation scores of the checker and of the timing model: faults in Python, found by tests.

Faults of the checker are tried with its unit tests, then with good and mutated programs whose
verdicts are known. Faults of the timing model are tried with programs whose RTL cycles are known.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from types import ModuleType

import numpy as np

from ....errors import ToolError
from ....isa import checker, footprints, legality, tokens
from ....isa.configuration import PRESETS, Configuration, Memory
from ....isa.encoding import encode_program
from ....isa.instructions import Gemm, Halt, Instruction, Load, Loop, Store, Unit, Vector
from ....isa.memory_model import MemoryModel
from ....sim.rtl import RtlCore
from ....sim.timing import COLUMNS, channels, definition, fetch, shared_bus, transfers
from ....sim.timing.native import TimedProgram
from ..programs.mutants import mutants
from ..programs.random_configurations import (
    random_memory_parameters,
    verification_configurations,
)
from ..programs.random_programs import random_program
from .outcome import FaultOutcome, MutantStatus, Score, progress
from .python_faults import PythonFault, draw_faults, put_fault
from .reasons import software_reason
from .score import Crash, try_all

Program = tuple[Instruction, ...]
Attempt = Callable[[], str | None]
"""Looks for the fault in this process; returns what found it, or None."""

ROOT = Path(__file__).parents[3]
CHECKER_TESTS = (
    "tests/isa/test_checker.py",
    "tests/isa/test_footprints.py",
    "tests/isa/test_legality.py",
    "tests/isa/test_tokens.py",
)
CONFIGURATIONS = ("tiny", "4x4")
PROGRAMS, SPOILT = 10, 12
DATA_BYTES = 4096
TIMED_PROGRAMS = 30
COMPILED_PROGRAMS = 5
"""Programs per configuration that are compared with the compiled model, in all columns."""


def score_checker(count: int, seed: int, *, jobs: int = 2, budget_s: float = float("inf")) -> Score:
    """Faults in the checker, in footprints, legality and tokens.

    Raises
    ------
    ToolError
        When pytest is missing.
    """
    modules = (checker, footprints, legality, tokens)
    known = _verdicts()

    def attempt() -> str | None:
        return _other_verdict(known) or _unit_tests()

    return _score("the checker", modules, attempt, count, seed, jobs, budget_s, 90)


def score_timing(count: int, seed: int, *, jobs: int = 2, budget_s: float = float("inf")) -> Score:
    """Faults in the timing model's definition, found by comparison with RTL and compiled model."""
    modules = (definition, fetch, transfers, channels, shared_bus)
    runs = [run for name in CONFIGURATIONS for run in _rtl_runs(PRESETS[name])]
    compiled = list(_compiled_runs())

    def attempt() -> str | None:
        for program, configuration, memory, cycles, spans in runs:
            found, times = shared_bus.model_of(program, configuration, memory).run()
            if found != cycles:
                return "RTL: cycles of the run"
            columns = [COLUMNS.index("start"), COLUMNS.index("retired")]
            if not np.array_equal(times[:-1, columns], spans[:-1]):
                return "RTL: cycles of an instruction"
        for program, configuration, memory, cycles, expected in compiled:
            found, times = shared_bus.model_of(program, configuration, memory).run()
            if found != cycles or not np.array_equal(times, expected):
                return "compiled model"
        return None

    return _score("the timing model", modules, attempt, count, seed, jobs, budget_s, 10)


def _score(
    target: str,
    modules: Sequence[ModuleType],
    attempt: Attempt,
    count: int,
    seed: int,
    jobs: int,
    budget_s: float,
    limit_s: float,
) -> Score:
    began = time.monotonic()
    faults = dict(enumerate(draw_faults(modules, count, seed), start=1))
    progress(f"trying {len(faults)} faults of {target}")

    def with_fault(number: int) -> str | None:
        if number == 0:
            return attempt()
        try:
            put_fault(faults[number])
            return attempt()
        except (Exception, SystemExit) as problem:
            return f"raises {type(problem).__name__}"

    found: dict[int, object] = {}
    for number, result in try_all(with_fault, [0, *faults], jobs, budget_s, limit_s):
        if number == 0 and result is not None:
            raise ToolError(f"mutation: {target} without faults does not pass: {result}")
        found[number] = result
        if len(found) % 50 == 0:
            progress(f"{len(found)} of {len(faults)} tried")
    outcomes = tuple(_outcome(number, fault, found) for number, fault in faults.items())
    return Score(f"{target}, seed {seed}", outcomes, time.monotonic() - began)


def _outcome(number: int, fault: PythonFault, found: dict[int, object]) -> FaultOutcome:
    module = fault.module.partition(".")[2].replace(".", "/")
    file = ROOT / f"{module}.py"
    text = file.read_text("utf-8").splitlines()[fault.line - 1].strip()
    source = f"{module}.py:{fault.line}: {text}"
    verdict, by = MutantStatus.SURVIVED, ""
    result = found.get(number, fault)
    if result is fault:
        verdict = MutantStatus.UNTRIED
    elif isinstance(result, Crash):
        verdict, by = MutantStatus.KILLED, "does not end, or ends the process"
    elif isinstance(result, str):
        verdict, by = MutantStatus.KILLED, result
    elif argument := software_reason(fault.text, text):
        verdict, by = MutantStatus.ARGUED, argument
    return FaultOutcome(number, fault.module.rpartition(".")[2], fault.text, source, verdict, by)


# The checker ------------------------------------------------------------------------------------


def _unit_tests() -> str | None:
    """Run the unit tests in this process, which has the fault."""
    try:
        import pytest
    except ImportError:
        raise ToolError("mutation: pytest is not installed; run `pip install pytest`") from None
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", f"--rootdir={ROOT}"]
    code = pytest.main([*options, *(str(ROOT / name) for name in CHECKER_TESTS)])
    return "unit tests" if code else None


def _cases() -> list[tuple[Program, Configuration]]:
    cases = []
    for name in CONFIGURATIONS:
        for seed in range(PROGRAMS):
            program, _ = random_program(PRESETS[name], seed, 24, DATA_BYTES)
            spoilt = [mutant.program for mutant in islice(mutants(program, seed), SPOILT)]
            cases += [(each, PRESETS[name]) for each in (program, *spoilt)]
    return cases


def _verdict(program: Program, configuration: Configuration) -> object:
    """Faults of a program with their places, or its report; and the tokens it would get.

    Messages are not compared; the unit tests check them.
    """
    faults = [fault.index for fault in checker.faults(program, configuration, DATA_BYTES)]
    if faults:
        return faults
    report = checker.check(program, configuration, DATA_BYTES)
    fields = (report.instructions, report.tokens, report.concurrent_pairs)
    peaks = sorted(report.peak_tokens.items())
    legal = [legality.has_faults(each, configuration, DATA_BYTES) for each in program]
    woven = tokens.synthesise_tokens(program, configuration, lambda count: 0 if count else None)
    return fields, peaks, legal, tokens.synthesise_tokens(program, configuration), woven


def _verdicts() -> list[tuple[Program, Configuration, object]]:
    return [(*case, _verdict(*case)) for case in _cases()]


def _other_verdict(known: list[tuple[Program, Configuration, object]]) -> str | None:
    for program, configuration, verdict in known:
        if _verdict(program, configuration) != verdict:
            return "verdict on a program"
    return None


# The timing model -------------------------------------------------------------------------------


Timed = tuple[Program, Configuration, MemoryModel, int, np.ndarray]


def _steady_memory(chance: random.Random) -> MemoryModel:
    """Any memory without random stalls."""
    parameters = random_memory_parameters(chance.randrange(1 << 16))
    return MemoryModel.of_parameters({**parameters, "stall_probability": 0.0})


def _compiled_runs() -> Iterator[Timed]:
    """Programs on all configurations of the verification, timed by the compiled model."""
    for configuration in verification_configurations().values():
        for giver, taker in permutations(Unit, 2):
            program = _full_counters(giver, taker, configuration)
            memory = MemoryModel(latency_cycles=3)
            yield program, configuration, memory, *TimedProgram(program, configuration).run(memory)
        for seed in range(COMPILED_PROGRAMS):
            chance = random.Random(seed)
            program, _ = random_program(configuration, 100 + seed, chance.choice((20, 40, 90)))
            memory = _steady_memory(chance)
            yield program, configuration, memory, *TimedProgram(program, configuration).run(memory)


def _full_counters(giver: Unit, taker: Unit, configuration: Configuration) -> Program:
    """One unit runs ahead until it must wait to signal; the other starts with long work."""
    loops = (Loop(16, (0, 0)),)
    work: dict[Unit, Instruction] = {
        Unit.LOAD: Load(destination=Memory.LUT, length=1, memory=64, local=0, loops=loops),
        Unit.GEMM: Gemm(act=0, wgt=0, acc=0),
        Unit.VECTOR: Vector(dst=0, a=1, reduce_loops=(Loop(16, (0, 0)),)),
        Unit.STORE: Store(source=Memory.ACC, length=1, local=0, memory=512, loops=loops),
    }
    gives = replace(work[giver], signal=frozenset({taker}))
    takes = replace(work[taker], wait=frozenset({giver}))
    limit = configuration.token_limit
    turns = [takes, gives] * 6
    return (*[work[taker]] * 2, *[gives] * limit, *turns, *[takes] * limit, Halt())


def _rtl_runs(configuration: Configuration) -> list[Timed]:
    """Programs, memories without random stalls, and the cycles that the RTL took."""
    core = RtlCore(configuration)
    runs = []
    programs = [
        (_full_counters(*pair, configuration), np.zeros(DATA_BYTES, dtype=np.uint8))
        for pair in permutations(Unit, 2)
    ]
    for seed in range(TIMED_PROGRAMS):
        chance = random.Random(seed)
        programs.append(random_program(configuration, seed, chance.choice((20, 40, 90))))
    for seed, (program, image) in enumerate(programs):
        core.memory = _steady_memory(random.Random(seed))
        run = core.run(encode_program(program, configuration), image, program)
        runs.append((program, configuration, core.memory, run.cycles, run.spans(program)))
    core.close()
    return runs
