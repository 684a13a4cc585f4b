"""Processor seconds of tests: of the worker and of the processes that it has waited for.

`pytest --processor-seconds 25` ends with a table of the 25 files, and one of the 25 fixtures, that
take most. Unlike `--durations` this leaves out the time in which other programs have the processor.
"""

import os
from collections import Counter
from typing import Any

import pytest

SECONDS = "processor_seconds"
"""Name of a report's property: its seconds, and pairs of a fixture and its seconds."""


def _now() -> float:
    return sum(os.times()[:4])


class ProcessorSeconds:
    """The plugin, in each worker and in the process that reports.

    Parameters
    ----------
    rows
        Length of the tables.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.began = 0.0
        self.fixtures: list[tuple[str, float]] = []
        self.nested = [0.0]
        self.of_files: Counter[str] = Counter()
        self.of_fixtures: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.began = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef):
        self.nested.append(0.0)
        began = _now()
        try:
            return (yield)
        finally:
            took = _now() - began
            self.fixtures.append(
                (f"{fixturedef.baseid}::{fixturedef.argname}", took - self.nested.pop())
            )
            self.nested[-1] += took

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = _now()
        report.user_properties.append((SECONDS, (now - self.began, self.fixtures)))
        self.began, self.fixtures = now, []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        seconds, fixtures = properties.get(SECONDS, (0.0, ()))  # none after a crash
        self.of_files[report.location[0]] += seconds
        for name, each in fixtures:
            self.of_fixtures[name] += each

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for kind, seconds in ("file", self.of_files), ("fixture", self.of_fixtures):
            terminalreporter.section(f"processor seconds by {kind}: {seconds.total():.1f} in all")
            for name, each in seconds.most_common(self.rows):
                terminalreporter.write_line(f"{each:8.2f} {name}")
