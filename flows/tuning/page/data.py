"""The data of the page: tasks with their candidates, and in which order tuners tried them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from .... import __version__
from ....compiler.cpu.kernels.choices import choice_text
from ..outcome import TrialVerdict
from ..run_log import RunLog
from ..tune import MIN_GAIN


def page_data(name: str, logs: Iterable[RunLog]) -> dict[str, Any]:
    """Return the data of the logs of runs, tasks with the longest times first.

    Parameters
    ----------
    name
        The model, or the database if runs of several models are shown.
    """
    tasks: dict[tuple[str, ...], list[RunLog]] = {}
    for log in logs:
        tasks.setdefault((log.unit, log.workload, log.target, log.title, log.place), []).append(log)
    rows = sorted(map(_task, tasks.values()), key=lambda row: (-row["default"], row["title"]))
    return {
        "name": name,
        "version": __version__,
        "date": datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        "min_gain": MIN_GAIN,
        "tasks": rows,
    }


def _task(logs: list[RunLog]) -> dict[str, Any]:
    """Return a task: `points` are its candidates, to which the trials of `runs` refer.

    A trial has a ratio of its own, because another version may have measured the candidate again.
    """
    logs = sorted(logs, key=lambda log: (log.tuner, log.seed))
    first, points = logs[0], {}
    for log in logs:
        for trial in log.trials:
            text = choice_text(tuple(trial.choice.items()))
            points.setdefault(text, (len(points), trial))
    return {
        "title": first.title,
        "place": first.place,
        "space": max(log.space for log in logs),
        "unit": first.unit,
        "default": first.default,
        "bound": first.bound,
        "points": [
            {
                "choice": dict(trial.choice),
                "verdict": trial.verdict,
                "ratio": trial.ratio,
                "noise": trial.noise,
            }
            for _, trial in points.values()
        ],
        "runs": [
            {
                "tuner": log.tuner,
                "seed": log.seed,
                "trials": [
                    [
                        points[choice_text(tuple(one.choice.items()))][0],
                        one.ratio if one.verdict == TrialVerdict.OK else None,
                        one.predicted,
                    ]
                    for one in log.trials
                ],
            }
            for log in logs
        ],
    }
