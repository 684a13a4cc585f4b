"""A child process of the tuner: it builds candidates, or checks and times them.

Machine code of a candidate runs here and nowhere else, so a candidate that crashes or hangs takes
only this process with it.
"""

import statistics
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiler.cpu.kernels.choices import Choice, digest_of
from ...compiler.cpu.kernels.description import TunableDescription
from ...errors import CompileError, DeviceError
from ..sweep.child_process import begin_service
from .definitions import Arrays, data_of, expected_of, has_definition
from .machines import LoadedCandidate, TuningMachine
from .outcome import Times, TrialVerdict

MIN_SAMPLE_S = 5e-4
"""Seconds of a sample; faster kernels are called several times for one."""

FEW_TURNS, TURNS, CONFIRMING_TURNS = 3, 11, 31
"""Turns after which a candidate is given up, of a trial, and of one that seems to be best."""

HOPELESS = 1.15
"""A candidate is given up if its fastest turn took this many times the incumbent's median."""

SLOW, SLOW_S = 20.0, 0.5
"""A candidate times out if a call takes this many times the default's, and this many seconds."""


@dataclass(frozen=True, slots=True)
class TuningSetting:
    """A task, as a child knows it."""

    product: TunableDescription
    machine: TuningMachine
    seed: int


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Build a candidate."""

    setting: TuningSetting
    choice: Choice


@dataclass(frozen=True, slots=True)
class BuiltCandidate:
    """A candidate that was built; `program` is the hash of that of its `CandidateCode`."""

    choice: Choice
    program: str
    steps: str
    code: bytes


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """Check a candidate, then time it in turns with the default and the incumbent."""

    setting: TuningSetting
    candidate: BuiltCandidate
    default: BuiltCandidate
    incumbent: BuiltCandidate


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The answer to a request; `built` after building, `times` after timing."""

    verdict: TrialVerdict
    text: str = ""
    built: BuiltCandidate | None = None
    times: Times | None = None


BEGUN = "begun"
"""The child's message before a candidate runs for the first time."""


def serve(descriptor: int) -> None:
    """Answer requests that arrive on a pipe, until its other end is closed."""
    connection = begin_service(descriptor)
    with suppress(EOFError, OSError):
        connection.recv()  # a child has no setting of its own
        connection.send(None)  # ready
        bench: TrialBench | None = None
        while True:
            request = connection.recv()
            if bench is None or bench.setting != request.setting:
                bench = TrialBench(request.setting, lambda: connection.send(BEGUN))
            connection.send(bench.answer(request))


class TrialBench:
    """Builds, checks and times candidates of one task.

    Parameters
    ----------
    setting
        The task.
    begin
        Called before code runs that never ran before.
    """

    def __init__(self, setting: TuningSetting, begin: Callable[[], None] = lambda: None) -> None:
        self.setting, self._begin = setting, begin
        self._runs: dict[str, Callable[[int], float]] = {}
        self._cases: list[tuple[Arrays, Any]] = []
        self._reference: list[np.ndarray] = []

    def answer(self, request: BuildRequest | TimeRequest) -> TrialAnswer:
        """Answer a request; every failure is an answer."""
        try:
            if isinstance(request, BuildRequest):
                return TrialAnswer(TrialVerdict.OK, built=self.build(request.choice))
            return self._time(request)
        except CompileError as problem:
            return TrialAnswer(TrialVerdict.ILLEGAL, str(problem))
        except DeviceError as problem:  # a fault of a kernel, after which its device is no use
            return TrialAnswer(TrialVerdict.CRASH, str(problem))
        except Exception as problem:
            return TrialAnswer(TrialVerdict.TOOL_ERROR, f"{type(problem).__name__}: {problem}")

    def build(self, choice: Choice) -> BuiltCandidate:
        """Compile a candidate.

        Raises
        ------
        CompileError
            If its schedule is illegal.
        """
        product = self.setting.product.with_choice(choice)
        built = self.setting.machine.build(product)
        return BuiltCandidate(choice, digest_of(built.program), built.steps, built.code)

    def _time(self, request: TimeRequest) -> TrialAnswer:
        default = self._loaded(request.default)
        if not self._reference:
            self._prepare(default)
        run = self._runs.get(request.candidate.program)
        if run is None:
            self._begin()
            kernel = self._loaded(request.candidate)
            if difference := self._difference(kernel):
                return TrialAnswer(TrialVerdict.WRONG, difference)
            run = self._runs.setdefault(request.candidate.program, self._clock(kernel))
        runs = [self._known_run(request.default), self._known_run(request.incumbent), run]
        # Each has arrays of its own, so memory would run out.
        used = {one.program for one in (request.default, request.incumbent, request.candidate)}
        self._runs = {name: one for name, one in self._runs.items() if name in used}
        return self._raced(runs)

    def _loaded(self, built: BuiltCandidate) -> LoadedCandidate:
        product = self.setting.product.with_choice(built.choice)
        return self.setting.machine.load(product, built.code)

    def _known_run(self, built: BuiltCandidate) -> Callable[[int], float]:
        if built.program not in self._runs:
            self._runs[built.program] = self._clock(self._loaded(built))
        return self._runs[built.program]

    def _prepare(self, default: LoadedCandidate) -> None:
        """Compute what every candidate has to give, by the definition and by the default."""
        product = self.setting.product
        for arrays in data_of(product, self.setting.seed):
            expected = expected_of(product, arrays) if has_definition(product) else None
            self._cases.append((arrays, expected))
            self._reference.append(default(*arrays.values()))

    def _difference(self, kernel: LoadedCandidate) -> str:
        """Say how results differ from the definition; integers also equal the default's."""
        for (arrays, expected), reference in zip(self._cases, self._reference, strict=True):
            got = kernel(*arrays.values())
            if expected is not None and (text := expected.difference(got)):
                return text
            if got.dtype != np.float32 and not np.array_equal(got, reference):
                return "bytes differ from those of the default schedule"
            if expected is None and got.dtype == np.float32:
                close = np.isclose(got, reference, rtol=1e-3, atol=1e-4, equal_nan=True)
                if not close.all():
                    return "results differ from those of the default schedule"
        return ""

    def _clock(self, kernel: LoadedCandidate) -> Callable[[int], float]:
        """Return what calls a kernel, whose arrays are bound once."""
        return kernel.clock(self._cases[0][0])

    def _raced(self, runs: list[Callable[[int], float]]) -> TrialAnswer:
        """Time the default, the incumbent and a candidate in turns."""
        once = []
        for run in runs:
            run(1)
            once.append(run(1))
        if once[2] > max(SLOW_S, SLOW * once[0]):
            text = f"a call took {once[2]:.3g} s, the default {once[0]:.3g} s"
            return TrialAnswer(TrialVerdict.TIMEOUT, text)
        repeats = max(1, round(MIN_SAMPLE_S / max(min(once), 1e-7)))
        found: list[list[float]] = [[], [], []]
        turns = TURNS
        order = [0, 1, 2]
        while len(found[2]) < turns:
            for place in order:
                found[place].append(runs[place](repeats) / repeats)
            order.append(order.pop(0))  # none profits from its place
            count = len(found[2])
            if count == FEW_TURNS and min(found[2]) > HOPELESS * statistics.median(found[1]):
                break
            if count == TURNS and _ratio(found[2], found[1]) < 1:
                turns = CONFIRMING_TURNS
        low, median_s, high = _quartiles(found[2])
        return TrialAnswer(
            TrialVerdict.OK,
            times=Times(
                ratio=_ratio(found[2], found[0]),
                to_incumbent=_ratio(found[2], found[1]),
                median_s=median_s,
                spread_s=(high - low) / 2,
                default_s=statistics.median(found[0]),
                turns=len(found[2]),
            ),
        )


def _ratio(mine: list[float], others: list[float]) -> float:
    return statistics.median(max(a, 1e-9) / max(b, 1e-9) for a, b in zip(mine, others, strict=True))


def _quartiles(samples: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(samples, n=4)
    return low, middle, high
