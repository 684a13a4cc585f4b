"""The tuning of a network: trials go to the kernel with the most to gain, until a stop.

Every outcome is recorded as soon as it is known, so a run that was interrupted continues where it
was: known outcomes are taken from the records, in the order in which the tuner asks for them.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...compiler.cpu.kernels.choices import Choice, choice_of, choice_text
from ...errors import UsageError
from ...quoting import is_count
from ...wording import counted
from ..execution.shipped_choices import shipped_texts
from .features import work_of
from .kernel_records import KernelRecords
from .measuring import TrialMeasurer
from .outcome import TrialOutcome, TrialVerdict
from .run_log import MAX_TITLE, LoggedTrial, RunLog, add_log
from .tasks import KernelSpace, KernelTask
from .trial import CONFIRMING_TURNS
from .tuners import Tuner, open_tuner

BATCH = 8
"""Candidates between two decisions on the next task."""

MIN_GAIN = 0.02
"""A candidate is better if it is faster than the incumbent by this share; less is noise."""

PATIENCE = 4
"""Batches without a better candidate after which a task is left alone."""

OPTIMISM = 0.3
"""Share of a kernel's time that its first batch is expected to save."""


@dataclass(frozen=True, slots=True)
class TuningBudget:
    """A limit of a run; None sets none.

    Parameters
    ----------
    seconds
        Seconds of the whole run.
    trials
        Trials of all tasks, known ones included.
    """

    seconds: float | None = None
    trials: int | None = None

    @classmethod
    def parse(cls, text: str) -> "TuningBudget":
        """Read `60s`, `5m`, `2h` or a number of trials.

        Raises
        ------
        UsageError
            For another text.
        """
        units = {"s": 1, "m": 60, "h": 3600}
        number, unit = (text[:-1], units.get(text[-1:])) if text[-1:] in units else (text, None)
        if is_count(number) and 0 < int(number) < 10_000_000:
            return cls(seconds=int(number) * unit) if unit else cls(trials=int(number))
        raise UsageError(
            f"`--budget {text}`: expected a time such as 60s, 5m or 2h, or a number of trials"
        )


@dataclass(slots=True)
class TaskState:
    """A task in the middle of its search.

    Parameters
    ----------
    best
        The incumbent; its ratio is 1 before a better one is known.
    stopped
        Why it gets no more trials; empty while it may.
    shipped
        The point of the schedule that is shipped for the task; None without one.
    """

    task: KernelTask
    space: KernelSpace
    tuner: Tuner
    known: dict[Choice, TrialOutcome]
    best: TrialOutcome | None = None
    outcomes: list[TrialOutcome] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    batches: int = 0
    idle_batches: int = 0
    last_gain: float = 0.0
    default_s: float = 0.0
    stopped: str = ""
    shipped: int | None = None

    @property
    def ratio(self) -> float:
        """Time of the best schedule over the default's."""
        return (self.best and self.best.ratio) or 1.0

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of outcomes by verdict."""
        return dict(Counter(str(one.verdict) for one in self.outcomes))

    def log(self, tuner: str, seed: int, target: str) -> RunLog:
        """Return its trials for the page, in order."""
        return RunLog(
            self.task.title[:MAX_TITLE], self.task.machine.title, self.task.workload, target, tuner,
            seed, len(self.space), "s", self.default_s, 0.0,
            tuple(
                LoggedTrial(
                    dict(one.choice), str(one.verdict), one.ratio,
                    one.times.noise if one.times else 0.0, score,
                )
                for one, score in zip(self.outcomes, self.scores, strict=True)
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The end of a run.

    Parameters
    ----------
    stopped
        Why it ended.
    before_s, after_s
        Seconds of all tuned kernels of a run of the network, with their defaults, and with the
        best schedules; by the times of the trials.
    """

    states: tuple[TaskState, ...]
    stopped: str

    @property
    def before_s(self) -> float:
        return math.fsum(one.default_s * one.task.count for one in self.states)

    @property
    def after_s(self) -> float:
        return math.fsum(one.default_s * one.task.count * one.ratio for one in self.states)

    @property
    def trials(self) -> int:
        """Trials of all tasks."""
        return sum(len(one.outcomes) for one in self.states)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "stopped": self.stopped,
            "trials": self.trials,
            "before_s": self.before_s,
            "after_s": self.after_s,
            "tasks": [
                {
                    "kernels": list(one.task.names),
                    "workload": one.task.workload,
                    "space": len(one.space),
                    "trials": len(one.outcomes),
                    "verdicts": one.verdicts,
                    "default_s": one.default_s,
                    "ratio": one.ratio,
                    "choice": choice_text(one.best.choice) if one.best else "default",
                    "stopped": one.stopped,
                    "log": [
                        {
                            "choice": choice_text(each.choice),
                            "verdict": str(each.verdict),
                            "text": each.text,
                            "ratio": each.ratio,
                        }
                        for each in one.outcomes
                    ],
                }
                for one in self.states
            ],
        }


Watch = Callable[[TaskState, int], None]
"""Called after each batch with its task and the number of all trials so far."""


def tune(
    tasks: Sequence[KernelTask],
    measurer: TrialMeasurer,
    records: KernelRecords,
    tuner: str,
    budget: TuningBudget,
    *,
    seed: int = 0,
    watch: Watch = lambda state, trials: None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningReport:
    """Tune the kernels of a network.

    Parameters
    ----------
    clock
        Seconds, for the budget.

    Returns
    -------
    TuningReport
        Also after Ctrl-C, with what was found until then.
    """
    states = [_begun(task, records, tuner, seed) for task in tasks]
    how = {"tuner": tuner, "seed": seed}
    started, trials, stopped = clock(), 0, ""
    try:
        while not stopped:
            state = _most_to_gain(states)
            if state is None:
                stopped = "no task has anything left to gain"
                break
            count = BATCH if budget.trials is None else min(BATCH, budget.trials - trials)
            if budget.trials is not None and count <= 0:
                stopped = f"budget of {counted(budget.trials, 'trial')}"
            elif budget.seconds is not None and clock() - started >= budget.seconds:
                stopped = f"budget of {budget.seconds:,.0f} s"
            else:
                trials += _run_batch(state, count, measurer, records, how, seed)
                watch(state, trials)
    except KeyboardInterrupt:
        stopped = "interrupted; the same command continues"
    for state in states:
        add_log(records.database, state.log(tuner, seed, state.task.machine.digest))
    return TuningReport(tuple(states), stopped)


def _begun(task: KernelTask, records: KernelRecords, tuner: str, seed: int) -> TaskState:
    space = task.space()
    method = open_tuner(tuner, task, space, seed, records.history(task))
    state = TaskState(task, space, method, records.known(task))
    for place in task.machine.shipped:
        text = shipped_texts().get((task.workload, place))
        if text and (choice := choice_of(text)) in space.points:
            state.shipped = space.points.index(choice)
    return state


def _next_points(state: TaskState, count: int) -> list[int]:
    """Choose the candidates of a batch: the default, then the shipped one, then the tuner's."""
    if state.batches == 0:
        return state.tuner.propose(1)  # alone, because the others are compared with it
    first = [state.shipped] if state.shipped and state.batches == 1 else []
    while proposed := state.tuner.propose(count - len(first)):
        if points := [point for point in proposed if point != state.shipped]:
            return [*first, *points]
    return first


def _keep_default(state: TaskState, records: KernelRecords, how: Mapping[str, Any]) -> None:
    """Record that a shipped schedule is no faster here, so that compilations keep the default."""
    default = state.outcomes[0]
    if default.times is not None:
        times = replace(default.times, ratio=1.0)
        records.add_best(state.task, replace(default, choice=(), times=times), how)


def _most_to_gain(states: Sequence[TaskState]) -> TaskState | None:
    """Return the task with the largest expected gain for the network."""
    timed = [one for one in states if one.default_s]
    rates = sorted(one.default_s / work_of(one.task.product) for one in timed)
    s_per_mac = rates[len(rates) // 2] if rates else 1.0

    def gain(state: TaskState) -> float:
        once = state.default_s or s_per_mac * work_of(state.task.product)
        expected = max(state.last_gain, OPTIMISM / (1 + state.batches) ** 2)
        return once * state.task.count * state.ratio * expected

    return max((one for one in states if not one.stopped), key=gain, default=None)


def _run_batch(
    state: TaskState,
    count: int,
    measurer: TrialMeasurer,
    records: KernelRecords,
    how: Mapping[str, Any],
    seed: int,
) -> int:
    """Judge the next candidates of a task, and return their number."""
    points = _next_points(state, count)
    choices = {point: state.space.points[point] for point in points}
    incumbent = state.best.choice if state.best else ()
    before = state.ratio
    missing = [one for one in choices.values() if one not in state.known]
    measured = measurer.measure(state.task.setting(seed), missing, incumbent) if missing else ()
    fresh = iter(measured)
    for point, choice in choices.items():
        outcome = state.known.get(choice)
        if outcome is None:
            outcome = next(fresh)
            records.add(state.task, outcome, how)
        state.outcomes.append(outcome)
        state.scores.append(state.tuner.score(point))
        state.tuner.learn(point, outcome.ratio)
        if outcome.times is None:
            continue
        if not state.default_s:
            state.default_s = outcome.times.default_s
        times, most = outcome.times, 1 - MIN_GAIN
        # A known one was compared with the incumbent of another run.
        gained = times.ratio / state.ratio if choice in state.known else times.to_incumbent
        is_better = gained < most and times.ratio < min(state.ratio, most)
        is_sure = outcome.verdict is TrialVerdict.OK and times.turns >= CONFIRMING_TURNS
        if is_better and is_sure:
            state.best = outcome
            records.add_best(state.task, outcome, how)
    if state.batches == 1 and state.shipped and state.best is None:
        _keep_default(state, records, how)
    state.batches += 1
    state.last_gain = 1 - state.ratio / before
    state.idle_batches = 0 if state.last_gain else state.idle_batches + 1
    if len(state.outcomes) == len(state.space) or not points:
        state.stopped = "all of its space was tried"
    elif state.idle_batches > PATIENCE:
        state.stopped = f"no gain over the noise in {PATIENCE} batches"
    elif not state.default_s:
        state.stopped = f"its default failed: {state.outcomes[0].text}"
    return len(points)
