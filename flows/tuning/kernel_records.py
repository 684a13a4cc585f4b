"""Records of tuned kernels in the database of sweeps, and the choices that compilations take.

A trial is a record of the machine's evaluator. A schedule that was measured to be faster than the
default, with all turns, is also one of `best_of` that; only these are used. The fields of a key
hold: the hash of the program as `version`, of the workload as `network`, of the machine as
`configuration`, and the choices as `memory`. So a record is found with its machine only.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llvmlite.binding import llvm_version_info

from ... import __version__
from ...atomic_write import write_output
from ...compiler.cpu.execution.kernel import code_generator_digest
from ...compiler.cpu.kernels.choices import Choice, choice_of, choice_text, workload_of
from ...errors import TilewrightError, UsageError
from ...file_access import parse_json, read_part, reason
from ..execution.recorded_choices import (
    KERNELS,
    LAYERS,
    best_of,
)
from ..sweep.record_checks import MAX_TEXT, ImpossibleError
from ..sweep.records import (
    LOST,
    Database,
    Record,
    RecordKey,
    check_row,
)
from .features import Features
from .outcome import Times, TrialOutcome, TrialVerdict
from .ranking import TriedTask
from .run_log import RUN
from .tasks import KernelTask

EXPORTED = (*KERNELS, *map(best_of, KERNELS), RUN, LAYERS)
"""Evaluators whose records are exported and imported, including schedules of layers."""

LINE_FIELDS = (
    "evaluator", "version", "workload", "target", "choice", "figures", "error", "name",
    "parameters",
)  # fmt: skip
"""Fields of a line of an exported file."""


class KernelRecords:
    """The records of kernels in a database.

    Parameters
    ----------
    versions
        Versions that are noted with each trial.
    """

    def __init__(self, database: Database, versions: Mapping[str, str] | None = None) -> None:
        self.database = database
        self.versions = dict(versions or versions_now())

    def known(self, task: KernelTask) -> dict[Choice, TrialOutcome]:
        """Return outcomes of this task that the present code generator would build again."""
        found: dict[Choice, TrialOutcome] = {}
        configuration = task.machine.digest
        for key, record in self.database.of_evaluator(task.machine.evaluator, task.workload):
            figures = record.figures
            is_current = figures.get("versions") == self._versions_of(task)
            if key.configuration != configuration or not is_current:
                continue
            if (record.error or "").startswith(LOST):
                continue
            outcome = outcome_of(key, record)
            if outcome is not None:
                found[outcome.choice] = outcome
        return found

    def _versions_of(self, task: KernelTask) -> Mapping[str, str]:
        return {**self.versions, **task.machine.versions}

    def history(self, task: KernelTask) -> list[TriedTask]:
        """Return what is known of other tasks, on any machine of the kind."""
        mine = task.workload, task.machine.digest
        found: dict[tuple[str, str], list[tuple[Features, float | None]]] = {}
        for key, record in self.database.of_evaluator(task.machine.evaluator):
            outcome = outcome_of(key, record)
            features = features_in(record)
            place = key.network, key.configuration
            if place != mine and features and outcome and outcome.verdict is not TrialVerdict.LOST:
                found.setdefault(place, []).append((features, outcome.ratio))
        return [
            TriedTask([each for each, _ in tried], [ratio for _, ratio in tried])
            for _, tried in sorted(found.items())
        ]

    def add(self, task: KernelTask, outcome: TrialOutcome, how: Mapping[str, Any]) -> None:
        """Record a trial.

        Parameters
        ----------
        how
            The tuner and its seed, as JSON values.
        """
        error = None
        if outcome.verdict is not TrialVerdict.OK:
            error = f"{outcome.verdict}: {outcome.text}"
        if outcome.verdict is TrialVerdict.LOST:
            error = f"{LOST}{outcome.text}"
        self._add(task.machine.evaluator, task, outcome, how, error)

    def add_best(self, task: KernelTask, outcome: TrialOutcome, how: Mapping[str, Any]) -> None:
        """Record a schedule that compilations shall use."""
        self._add(best_of(task.machine.evaluator), task, outcome, how, None)

    def _add(
        self,
        evaluator: str,
        task: KernelTask,
        outcome: TrialOutcome,
        how: Mapping[str, Any],
        error: str | None,
    ) -> None:
        name = workload_of(task.product)[:MAX_TEXT]
        self.database.name_network(task.workload, name)
        target = self.database.add_parameters(task.machine.parameters)
        key = RecordKey(
            evaluator, outcome.program, task.workload, target, choice_text(outcome.choice)
        )
        features = task.features(outcome.choice)
        figures = {
            **outcome.figures(),
            **how,
            "features": features,
            "versions": self._versions_of(task),
        }
        self.database.add([(key, Record(figures, error))])

    def export(self, path: Path) -> int:
        """Write all records of kernels as JSON lines, and return their number."""
        lines = list(self._lines())
        write_output(path, "".join(f"{json.dumps(one)}\n" for one in lines), f"`--export {path}`")
        return len(lines)

    def _lines(self) -> Iterator[dict[str, Any]]:
        names, parameters = self.database.names(), self.database.parameters()
        for evaluator in EXPORTED:
            for key, record in self.database.of_evaluator(evaluator):
                yield {
                    "evaluator": key.evaluator,
                    "version": key.version,
                    "workload": key.network,
                    "target": key.configuration,
                    "choice": key.memory,
                    "figures": dict(record.figures),
                    "error": record.error,
                    "name": names.get(key.network, ""),
                    "parameters": parameters.get(key.configuration, {}),
                }

    def merge_lines(self, path: Path) -> int:
        """Add the records of a file of JSON lines, and return the number of new ones.

        Raises
        ------
        UsageError
            If it cannot be read, or a line is not a record; then nothing is added.
        """
        try:
            lines = read_part(path).decode().splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(
                f"`--import {path}`: expected a file of JSON lines, got `{reason(problem)}`; check "
                "the path"
            ) from None
        rows: dict[str, list[tuple[Any, ...]]] = {
            "networks": [], "configurations": [], "records": [],
        }  # fmt: skip
        for number, line in enumerate(lines, 1):
            try:
                _add_line(rows, parse_json(line))
            except (ValueError, ImpossibleError, TilewrightError, RecursionError) as problem:
                raise UsageError(
                    f"`--import {path}`: line {number}: expected a record of `tilewright tune`, "
                    f"got `{problem}`; export it again"
                ) from None
        return self.database.merge_rows(rows)


def _add_line(rows: dict[str, list[tuple[Any, ...]]], line: object) -> None:
    if not isinstance(line, dict) or set(line) != set(LINE_FIELDS):
        raise ImpossibleError("other fields")
    if line["evaluator"] not in EXPORTED:
        raise ImpossibleError("a record of another evaluator")
    if line["evaluator"] != LAYERS:
        choice_of(str(line["choice"]))
    texts = ("evaluator", "version", "workload", "target", "choice")
    if not all(isinstance(line[name], str) for name in texts):
        raise ImpossibleError("fields that are not text")
    key = RecordKey(*(line[name] for name in texts))
    if not isinstance(line["figures"], dict):
        raise ImpossibleError("figures that are not an object")
    figures, fields = line["figures"], [line[name] for name in texts]
    text = json.dumps(line["parameters"], sort_keys=True)
    row = (key.digest, *fields, figures.get("cycles"), json.dumps(figures), line["error"])
    for table, one in (
        ("networks", (key.network, line["name"])),
        ("configurations", (key.configuration, text)),
        ("records", row),
    ):
        check_row(table, one)
        rows[table].append(one)


def outcome_of(key: RecordKey, record: Record) -> TrialOutcome | None:
    """Return the outcome that a record holds; None if it holds none of this version."""
    figures = record.figures
    try:
        verdict = TrialVerdict(figures["verdict"])
        choice = choice_of(key.memory)
        times = None
        if "ratio" in figures:
            values = (
                float(figures[name])
                for name in ("ratio", "to_incumbent", "median_s", "spread_s", "default_s")
            )
            times = Times(*values, turns=int(figures["turns"]))
    except (TilewrightError, KeyError, TypeError, ValueError):
        return None
    _, _, text = (record.error or "").partition(": ")
    steps = str(figures.get("steps", ""))
    return TrialOutcome(choice, verdict, text, key.version, steps, times)


def features_in(record: Record) -> Features:
    """Return the features that a record holds; none if they are no numbers by name."""
    found = record.figures.get("features")
    if not isinstance(found, dict):
        return {}
    return {name: float(one) for name, one in found.items() if isinstance(one, int | float)}


def versions_now() -> dict[str, str]:
    """Return the versions that a time depends on."""
    return {
        "tilewright": __version__,
        "llvm": ".".join(map(str, llvm_version_info)),
        "code": code_generator_digest()[:32],
    }
