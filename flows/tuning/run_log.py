"""The log of a tuning run on one task: its trials in order, for the page of `tilewright tune`.

Records of trials say what is known of a candidate, not when a tuner asked for it. A log is written
when a run ends, also by Ctrl-C; a run that is continued writes a longer one, which then counts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...compiler.cpu.kernels.choices import Choice, choice_text
from ...quoting import printable
from ..sweep.record_checks import MAX_TEXT
from ..sweep.records import Database, Record, RecordKey, digest_of

RUN = "tuning run"
"""The evaluator of logs."""

MAX_TITLE = 200


@dataclass(frozen=True, slots=True)
class LoggedTrial:
    """A trial of a run.

    Parameters
    ----------
    choice
        The candidate.
    ratio
        Its time or its cycles over the default's; None without a time.
    noise
        Half of the range between the quartiles of its times, relative to their median; 0 for exact
        cycles.
    predicted
        What a model expected before the trial: the ratio for layers of the accelerator; a score of
        `--tuner xgboost`, of which only the order counts; None without a model.
    """

    choice: Mapping[str, int | str]
    verdict: str
    ratio: float | None
    noise: float = 0.0
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class RunLog:
    """All trials of a tuner with a seed on one task.

    Parameters
    ----------
    title, place
        The task for people, and the machine that ran its trials.
    workload, target
        The hashes under which records of the task stand.
    space
        Number of candidates.
    unit, default
        `s` or `cycles`, and how many of them the default takes.
    bound
        Lower bound of the ratio; 0 if none is known.
    """

    title: str
    place: str
    workload: str
    target: str
    tuner: str
    seed: int
    space: int
    unit: str
    default: float
    bound: float
    trials: tuple[LoggedTrial, ...]


def add_log(database: Database, log: RunLog) -> None:
    """Record a log, unless nothing was measured."""
    if not (log.trials and log.default):
        return
    figures = asdict(log)
    how: Choice = (("tuner", log.tuner), ("seed", log.seed))
    version = digest_of(json.dumps(figures))
    key = RecordKey(RUN, version, log.workload, log.target, choice_text(how))
    database.add([(key, Record(figures))])


def logs_of(database: Database) -> Iterator[RunLog]:
    """Yield the longest log of each task, tuner and seed; those of other versions are left out."""
    longest: dict[tuple[str, ...], RunLog] = {}
    for key, record in database.of_evaluator(RUN):
        log = _log_of(key, record.figures)
        if log is not None:
            one = log.workload, log.target, log.title, log.place, log.tuner, str(log.seed)
            if one not in longest or len(longest[one].trials) < len(log.trials):
                longest[one] = log
    yield from longest.values()


def _log_of(key: RecordKey, figures: Mapping[str, Any]) -> RunLog | None:
    """Return the log in a record, which may come from a stranger; None if it is none."""
    try:
        trials = tuple(map(_trial_of, figures["trials"]))
        log = RunLog(
            _text(figures["title"], MAX_TITLE),
            _text(figures["place"]),
            key.network,
            key.configuration,
            _text(figures["tuner"]),
            int(figures["seed"]),
            int(figures["space"]),
            _text(figures["unit"]),
            float(figures["default"]),
            float(figures["bound"]),
            trials,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return log if trials and log.unit in ("s", "cycles") and log.default > 0 else None


def _trial_of(values: Mapping[str, Any]) -> LoggedTrial:
    choice = {_text(name): _answer(one) for name, one in values["choice"].items()}
    ratio, predicted = (
        None if values[name] is None else float(values[name]) for name in ("ratio", "predicted")
    )
    if ratio is not None and ratio <= 0:
        raise ValueError(f"expected a positive ratio, got {ratio}")
    return LoggedTrial(choice, _text(values["verdict"]), ratio, float(values["noise"]), predicted)


def _answer(value: object) -> int | str:
    return value if isinstance(value, int) else _text(value)


def _text(value: object, most: int = MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return printable(value)[:most]
