"""Rules for all tests: a missing tool is a broken set-up, so a skip counts as a failure."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines are noisy: time is measured by `make bench`, never a reason to fail. Examples are the
# same in every run, so that a failure is a change's and can be seen again.
settings.register_profile(
    "tilewright", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tilewright")

MODELS = Path(__file__).parents[2] / "shared" / "models"


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail a skipped report unless it names the shared models and their folder is absent."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if MODELS.is_dir() or "shared models" not in reason:
        report.outcome = "failed"
        report.longrepr = (
            f"a skipped test counts as failed: {reason}\n"
            f"expected: it runs, or it skips because the `shared models` are not at `{MODELS}`"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """See `refuse_skip`; this one sees each test."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """See `refuse_skip`; this one sees whole files."""
    report = yield
    refuse_skip(report)
    return report
