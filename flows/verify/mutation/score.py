"""Run every faulty core in a process of its own until a test distinguishes it from the good one.

A fault can make a core oscillate, which ends the simulator's process; this counts as found. The
process also hides the output of failing assertions.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ....errors import DeviceError, HardwareError
from ....isa.configuration import Configuration
from .session import FaultSession, Observation, ObservationKind, Stimulus


@dataclass(frozen=True, slots=True)
class Kill:
    """Detection of a fault: the stimulus, and the kind and place of the difference."""

    stimulus: str
    kind: ObservationKind
    seen: str


class Suite:
    """All stimuli with the observations of the core without faults.

    Parameters
    ----------
    library
        From `build_faulty_core`.
    stimuli
        By name, in order.

    Raises
    ------
    HardwareError
        When the core without faults leaves other bytes than the definition, breaks a rule, or does
        not show the same twice.
    """

    def __init__(
        self, library: Path, configuration: Configuration, stimuli: dict[str, Stimulus]
    ) -> None:
        self.library, self.configuration, self.stimuli = library, configuration, stimuli
        session = FaultSession(library, configuration)
        self.expected = {name: list(apply(session)) for name, apply in stimuli.items()}
        self.durations = session.durations
        session.close()
        for name, seen in self.expected.items():
            broken = next(
                (o.name for o in seen if o.kind is ObservationKind.RULE and o.value), None
            )
            if broken is not None:
                raise HardwareError(f"mutation: the core without faults, {name}: {broken}")
        again = self.try_fault(0)
        if again is not None:
            raise HardwareError(f"mutation: the core without faults differs from itself: {again}")

    def try_fault(self, number: int, leave_out: frozenset[str] = frozenset()) -> Kill | None:
        """Apply stimuli until one detects the fault; None if none does."""
        session = FaultSession(self.library, self.configuration, number, iter(self.durations))
        try:
            for name, apply in self.stimuli.items():
                if name in leave_out:
                    continue
                kill = self._tell(session, name, apply)
                if kill is not None:
                    return kill
        finally:
            session.close()
        return None

    def _tell(self, session: FaultSession, name: str, apply: Stimulus) -> Kill | None:
        found = apply(session)
        try:
            for expected in self.expected[name]:
                seen: Observation | None = next(found, None)
                if seen != expected:
                    shown = (
                        seen if seen is not None and seen.kind is ObservationKind.RULE else expected
                    )
                    return Kill(name, shown.kind, shown.name)
        except DeviceError:
            return Kill(name, ObservationKind.HANG, "register port")
        return None


def try_all(
    attempt: Callable[[int], object],
    numbers: Sequence[int],
    jobs: int,
    budget_s: float,
    limit_s: float = 120,
) -> Iterator[tuple[int, object]]:
    """Call `attempt` for every number, each in its own process; yield results as they come.

    Parameters
    ----------
    attempt
        Its result must be picklable. A process that dies or does not end yields a `Crash`.
    jobs
        Processes at once.
    budget_s
        Seconds after which no new process starts.
    limit_s
        Seconds after which a process counts as hanging.
    """
    context = multiprocessing.get_context("fork")
    began = time.monotonic()
    left = list(reversed(numbers))
    running: dict[Connection, tuple[int, BaseProcess, float]] = {}
    try:
        while running or left:
            while left and len(running) < jobs:
                if time.monotonic() - began > budget_s:
                    left.clear()
                    break
                number = left.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_call, args=(attempt, number, theirs))
                process.start()
                theirs.close()
                running[ours] = number, process, time.monotonic()
            for _, process, started in running.values():
                if time.monotonic() - started > limit_s:
                    process.kill()
            for ready in wait(list(running), timeout=1):
                assert isinstance(ready, Connection)
                number, process, _ = running.pop(ready)
                try:
                    result = ready.recv()
                except EOFError:
                    result = Crash()
                process.join()
                ready.close()
                yield number, result
    finally:
        for _, process, _ in running.values():
            process.terminate()
            process.join()


@dataclass(frozen=True, slots=True)
class Crash:
    """The process ended without a result."""


def _call(attempt: Callable[[int], object], number: int, answer: Connection) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    answer.send(attempt(number))
    answer.close()
    os._exit(0)
