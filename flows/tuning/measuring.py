"""Measuring of candidates in child processes, with a limit on the time of each.

Candidates are built in parallel, and timed one by one while nothing is built.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Protocol

from ...compiler.cpu.kernels.choices import Choice
from ...quoting import printable
from ..sweep.child_process import ChildProcess, close_all, pickled
from .outcome import TrialOutcome, TrialVerdict
from .trial import (
    BEGUN,
    BuildRequest,
    BuiltCandidate,
    TimeRequest,
    TrialAnswer,
    TuningSetting,
)

START_S = 60.0
"""Seconds that a child has to start and to compute the definition, however loaded the computer."""

BUILD_S = 60.0
"""Seconds that building may take."""

MIN_RUN_S, CALLS = 30.0, 400.0
"""Seconds that a candidate may run, at least; and the number of the incumbent's calls that its
check and its turns may take."""

MODULE = f"{__package__}.trial"
MAX_TEXT = 300
"""Characters of a verdict's text."""


class TrialMeasurer(Protocol):
    """Judges candidates."""

    def measure(
        self, setting: TuningSetting, choices: Sequence[Choice], incumbent: Choice
    ) -> Iterator[TrialOutcome]:
        """Judge candidates of a task, in order, against its default, `()`, and its incumbent."""
        ...

    def close(self) -> None:
        """Stop all processes."""
        ...

    def sentences(self) -> list[str]:
        """Return what people should know of the machines that measured."""
        return []


@dataclass(slots=True)
class _Known:
    """Candidates of a task.

    Parameters
    ----------
    call_s
        Seconds of the default's call; 0 before it is known.
    """

    built: dict[Choice, BuiltCandidate] = field(default_factory=dict)
    by_program: dict[str, TrialOutcome] = field(default_factory=dict)
    call_s: float = 0.0


class ProcessMeasurer(TrialMeasurer):
    """Judges candidates in processes of this computer.

    Parameters
    ----------
    builders
        Processes that build at the same time.
    clock
        Seconds, for the limits.
    """

    def __init__(
        self, builders: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._builders = builders or min(4, len(os.sched_getaffinity(0)))
        self._building: list[ChildProcess] = []
        self._timer: ChildProcess | None = None
        self._tasks: dict[TuningSetting, _Known] = {}

    def measure(
        self, setting: TuningSetting, choices: Sequence[Choice], incumbent: Choice
    ) -> Iterator[TrialOutcome]:
        """Judge candidates; equal programs are judged once."""
        self._setting, task = setting, self._tasks.setdefault(setting, _Known())
        self._built, self._by_program = task.built, task.by_program
        missing = [one for one in ((), incumbent, *choices) if one not in self._built]
        answers = self._build(list(dict.fromkeys(missing)))
        for choice, answer in answers.items():
            if answer.built is not None:
                self._built[choice] = answer.built
        for choice in choices:
            built = self._built.get(choice)
            if built is not None:
                yield self._judge(built, incumbent)
            else:
                answer = answers[choice]
                yield TrialOutcome(choice, answer.verdict, _short(answer.text))

    def close(self) -> None:
        """Stop all processes."""
        close_all([*self._building, *([self._timer] if self._timer else [])])
        self._building, self._timer = [], None

    def _judge(self, built: BuiltCandidate, incumbent: Choice) -> TrialOutcome:
        known = self._by_program.get(built.program)
        if known is not None:
            return replace(known, choice=built.choice, steps=built.steps)
        default = self._built.get(())
        best = self._built.get(incumbent)
        if default is None or best is None:
            text = "the default schedule could not be built"
            return TrialOutcome(built.choice, TrialVerdict.TOOL_ERROR, text)
        request = TimeRequest(self._setting, built, default, best)
        answer = self._time(request)
        if answer.verdict is TrialVerdict.LOST:
            answer = self._time(request)
        if answer.times is not None:
            self._tasks[self._setting].call_s = answer.times.default_s
        outcome = TrialOutcome(
            built.choice, answer.verdict, _short(answer.text), built.program, built.steps,
            answer.times,
        )  # fmt: skip
        if outcome.verdict is not TrialVerdict.LOST:
            self._by_program[built.program] = outcome
        return outcome

    # Building ------------------------------------------------------------------------------------

    def _build(self, choices: Sequence[Choice]) -> dict[Choice, TrialAnswer]:
        """Build candidates in several processes; one that dies fails its candidate alone."""
        found: dict[Choice, TrialAnswer] = {}
        waiting, tried = list(choices), dict.fromkeys(choices, 0)
        busy: dict[ChildProcess, Choice] = {}
        idle = list(self._building)
        while waiting or busy:
            while waiting and (idle or len(busy) < self._builders):
                child = idle.pop() if idle else self._start()
                if child not in self._building:
                    self._building.append(child)
                choice = waiting.pop(0)
                tried[choice] += 1
                busy[child] = choice
                self._send(child, BuildRequest(self._setting, choice), BUILD_S)
            for child in self._ready(list(busy)):
                answer = self._receive(child)
                if isinstance(answer, TrialAnswer):
                    found[busy.pop(child)] = answer
                    idle.append(child)
                elif isinstance(answer, TrialVerdict):
                    choice = busy.pop(child)
                    self._building.remove(child)
                    if answer is TrialVerdict.LOST and tried[choice] < 2:
                        waiting.insert(0, choice)
                    else:
                        found[choice] = TrialAnswer(
                            TrialVerdict.TIMEOUT if answer is TrialVerdict.HANG else answer,
                            f"building it: {self._last}",
                        )
        return found

    # Timing --------------------------------------------------------------------------------------

    def _time(self, request: TimeRequest) -> TrialAnswer:
        if self._timer is None:
            self._timer = self._start()
        child = self._timer
        self._send(child, request, START_S)
        while True:
            for ready in self._ready([child]):
                answer = self._receive(ready)
                if answer == BEGUN:
                    child.deadline = self._clock() + max(
                        MIN_RUN_S, CALLS * self._tasks[request.setting].call_s
                    )
                elif isinstance(answer, TrialAnswer):
                    if answer.verdict is TrialVerdict.CRASH:
                        child.end()
                        self._timer = None
                    return answer
                elif isinstance(answer, TrialVerdict):
                    self._timer = None
                    return TrialAnswer(answer, f"running it: {self._last}")

    # Children ------------------------------------------------------------------------------------

    def _start(self) -> ChildProcess:
        return ChildProcess.start(MODULE, pickled(None))

    def _send(self, child: ChildProcess, request: object, limit_s: float) -> None:
        child.limit_s = limit_s
        child.deadline = self._clock() + limit_s + (0 if child.is_ready else START_S)
        with suppress(OSError):  # it has died, which `_receive` finds
            child.connection.send(request)

    def _ready(self, children: list[ChildProcess]) -> list[ChildProcess]:
        """Wait until a child has answered, died or passed its deadline."""
        left_s = min(child.deadline for child in children) - self._clock()
        ready = wait([child.connection for child in children], max(0.0, left_s))
        now = self._clock()
        return [one for one in children if one.connection in ready or one.deadline <= now]

    def _receive(self, child: ChildProcess) -> object:
        """Return a child's message, or the verdict on what ended it; then it is gone."""
        if not child.connection.poll():
            return self._ended(child, TrialVerdict.HANG, f"no end after {child.limit_s:,.0f} s")
        try:
            message = child.connection.recv()
        except (EOFError, OSError):
            pass
        except Exception as problem:  # not a message at all
            text = f"its process sent no message, `{type(problem).__name__}`"
            return self._ended(child, TrialVerdict.CRASH, text)
        else:
            if message is None:
                child.is_ready = True
            return message
        status = child.process.wait()
        if -status in (signal.SIGKILL, signal.SIGTERM):  # the system or the user took it away
            return self._ended(child, TrialVerdict.LOST, f"its process got {_name(-status)}")
        how = f"got {_name(-status)}" if status < 0 else f"ended with {status}"
        return self._ended(child, TrialVerdict.CRASH, f"its process {how}")

    _last = ""
    """The reason of the last verdict of `_receive`."""

    def _ended(self, child: ChildProcess, verdict: TrialVerdict, text: str) -> TrialVerdict:
        child.end()
        self._last = text
        return verdict


def _name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _short(text: str) -> str:
    return printable(" ".join(text.split()))[:MAX_TEXT]
