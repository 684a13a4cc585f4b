"""Rules for all tests: a missing tool is a broken set-up, so a skip counts as a failure.

A missing feature of the processor is not. A test that needs one compiles its kernels all the same
(`processor.target_at`) and is reported as `not run`; a line of the summary says how many tests that
are, and which levels this processor lacks. Nor is `tkinter`: some systems keep this part of Python
in a package of their own, and pip has none. Nor is the extra `firmware`, a C compiler of 410 MB.
"""

import gc
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tilewright.compiler.cpu import LEVELS, host, host_levels
from tilewright.compiler.cpu_level import level_cap
from tilewright.errors import ProcessorError
from tilewright.flows.execution.recorded_choices import NO_RECORDS, RECORDS_VARIABLE
from tilewright.sim.verilate import ASSERTIONS

# Machines are noisy: time is measured by `make bench`, never a reason to fail. Examples are the
# same in every run, so that a failure is a change's and can be seen again.
settings.register_profile(
    "tilewright", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tilewright")

HAS_TCL = find_spec("_tkinter") is not None

HAS_ZIG = find_spec("ziglang") is not None

collect_ignore = [] if HAS_TCL else ["flows/board/test_zynq.py"]
collect_ignore += [] if HAS_ZIG else ["flows/bare_metal/test_soft_cpu.py"]

# A shell starts jobs in the background with Ctrl-C ignored, and `nohup` ignores the terminal's end.
# What a test starts would inherit that.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)

# Some systems tell Python to keep no bytecode. Then each process compiles all sources that it
# imports: six seconds for a worker of pytest, half a second for most commands.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nor do programs depend on what the user has tuned on this computer.
os.environ[RECORDS_VARIABLE] = NO_RECORDS

# All hardware that is simulated checks its assertions, in other processes too.
os.environ[ASSERTIONS] = "1"

TESTS = Path(__file__).parent

MODELS = TESTS.parents[1] / "shared" / "models"

LONG_FILES = (
    "flows/board/test_bitstreams.py",
    "flows/verify/test_gate_level.py",
    "flows/sweep/test_bounds.py",
    "flows/verify/test_agreement.py",
    "cosim/test_benches.py",
    "flows/synthesis/test_synth.py",
    "flows/sweep/test_sweep.py",
    "compiler/test_chains.py",
    "networks/test_transformer_devices.py",
    "hardware/test_mac_array.py",
    "flows/board/test_memory_fit.py",
    "flows/verify/mutation/test_mutation_score.py",
    "flows/area/test_counts.py",
    "flows/conformance/test_conformance.py",
    "flows/hex_export/test_hex_export.py",
    "formal/test_deadlock.py",
    "networks/test_shared_models.py",
    "test_networks.py",
    "test_tutorials.py",
    "formal/test_requantizer.py",
    "flows/sweep/test_faults.py",
    "flows/board/test_virtual_board.py",
    "flows/verify/test_hostile_edges.py",
)
"""Files that take from half a minute to several minutes. They run first: a worker that began one at
the end would keep the run waiting."""

LONG_PATHS = frozenset(TESTS / name for name in LONG_FILES)

REASON = "processor"
"""Name of the property of a report that says why its test was not run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processor-seconds", type=int, metavar="N",
        help="table of the N files and the N fixtures that take most processor time",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if rows := config.getoption("processor_seconds"):
        # Here, since some tests copy this file alone.
        from .processor_seconds import ProcessorSeconds

        config.pluginmanager.register(ProcessorSeconds(rows))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLines(config))


class FailureLines:
    """Plugin that names each failure at once, since a run that is stopped never ends with them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason, _, _ = str(crash.message if crash else report.longrepr).partition("\n")
            after = time.monotonic() - self.began
            terminal.write_line(f"\n{report.nodeid} failed after {after:.0f} s: {reason}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread in which no test can have the marks that `-m` selects.

    Reading all of them takes each worker ten seconds, and few have slow tests.
    """
    selection = config.option.markexpr
    if not selection or collection_path.suffix != ".py":
        return None
    marks = set(re.findall(r"\w+", selection)) - {"and", "or", "not"}
    # Fixtures of a folder bring their marks to every file in it.
    sources = (collection_path, collection_path.with_name("conftest.py"))
    text = "".join(source.read_text("utf-8") for source in sources if source.is_file())
    named = marks & {*re.findall(r"mark\.(\w+)", text)}
    for count in range(len(named) + 1):
        for held in combinations(named, count):
            if eval(selection, {}, {mark: mark in held for mark in marks}):
                return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Hide what lives to the end, half a million objects, from the cyclic garbage collector.

    It would visit them while they are made, and again and again while the tests run: that took a
    third of the time of some tests. What the tests make themselves is visited less often, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under a capped level, leave out tests that name a level: the cap does not change them."""
    items.sort(key=lambda item: item.path not in LONG_PATHS)
    if level_cap() not in LEVELS:
        return
    of_a_level = [
        item for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        and "level" in item.callspec.params
    ]  # fmt: skip
    config.hook.pytest_deselected(items=of_a_level)
    named = set(of_a_level)
    items[:] = [item for item in items if item not in named]


@pytest.fixture(autouse=True)
def cpu_kernels(request: pytest.FixtureRequest) -> None:
    """Tests marked `cpu_kernels` need a processor that the CPU target has schedules for."""
    if request.node.get_closest_marker("cpu_kernels"):
        host()


@pytest.fixture(autouse=True)
def current_folder() -> Iterator[None]:
    """A test leaves the process in the folder in which it found it, not in one that is removed."""
    before = os.getcwd()
    yield
    assert os.getcwd() == before


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
def pytest_runtest_makereport(call: pytest.CallInfo):
    """See `refuse_skip`; this one sees each test, and what the processor cannot run."""
    report = yield
    refuse_skip(report)
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, ProcessorError) and host_levels() != tuple(LEVELS):
        report.outcome, report.longrepr = "skipped", (*report.location[:2], str(error))
        report.user_properties.append((REASON, str(error)))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """See `refuse_skip`; this one sees whole files."""
    report = yield
    refuse_skip(report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Give the tests that this processor cannot run a category of their own."""
    if REASON in dict(getattr(report, "user_properties", ())) and report.skipped:
        return "not run", "n", "NOT RUN"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line each what was not run here, and why."""
    if not HAS_ZIG:
        terminalreporter.write_line(
            "ziglang: the extra `firmware` is not installed; exported C was not run on a soft CPU"
        )
    if not HAS_TCL:
        terminalreporter.write_line("tkinter: Python has none here; Vivado's scripts were not run")
    runs = host_levels()
    missing = [level for level in LEVELS if level not in runs]
    if not missing:
        return
    reports = terminalreporter.stats.get("not run", ())
    reasons = sorted({dict(report.user_properties)[REASON] for report in reports})
    compiled = "compiled for them but " if runs else ""
    terminalreporter.write_line(
        f"processor: runs {', '.join(runs) or 'no level'}, not {', '.join(missing)}; "
        f"{len(reports)} tests {compiled}not run" + "".join(f"; {why}" for why in reasons)
    )
