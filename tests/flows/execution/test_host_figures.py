"""Speeds of the host are measured once, kept, and measured again when in doubt."""

import json
from dataclasses import asdict

import pytest

from tilewright.compiler.placement.costs import HostSpeed
from tilewright.flows.execution import host_figures
from tilewright.flows.execution.host_figures import measured_host, measured_while_busy
from tilewright.flows.execution.hosts import host_title
from tilewright.runtime.benchmark import HostLoad

FIGURES = HostSpeed(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The hosts measured on a quiet machine, each a bit faster, in a cache of the test's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    seen = []

    def measure(_):
        seen.append(HostSpeed(FIGURES.int8_gops + len(seen), *list(asdict(FIGURES).values())[1:]))
        return seen[-1]

    monkeypatch.setattr(host_figures, "measure_host", measure)
    monkeypatch.setattr(host_figures.Watch, "load", lambda self: HostLoad(1.0, 1.0, 0.0))
    measured_host.cache_clear()
    yield seen
    measured_host.cache_clear()


@pytest.fixture
def kept(measured, tmp_path):
    """The file of kept figures; another process would ask for them next."""
    assert measured_host() == FIGURES
    measured_host.cache_clear()
    (path,) = (tmp_path / "cache" / "host").iterdir()
    return path


def test_another_process_reads_what_was_measured(measured, kept):
    assert measured_host() == FIGURES
    assert len(measured) == 1


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "",
        "[" * 100_000,
        "[]",
        "{}",
        json.dumps({"gbps": 3.0}),
        json.dumps({**asdict(FIGURES), "more": 1.0}),
        *(
            json.dumps({**asdict(FIGURES), "gbps": wrong})
            for wrong in (0.0, -1.0, float("nan"), float("inf"), "3.0", None, True, 10**400)
        ),
    ],
    ids=lambda text: text[:60],
)
def test_kept_figures_in_doubt_are_measured_anew(measured, kept, text):
    kept.write_text(text)
    assert measured_host() == measured[1]
    measured_host.cache_clear()
    assert measured_host() == measured[1]
    assert len(measured) == 2


def test_another_code_generator_is_measured(measured, kept, monkeypatch):
    monkeypatch.setattr(host_figures, "code_generator_digest", lambda: "faster")
    assert measured_host() == measured[1]


def test_figures_are_kept_whole_or_not_at_all(measured, kept, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    kept.write_text("nonsense")
    monkeypatch.setattr("os.replace", fail)
    assert measured_host() == measured[1]
    assert kept.read_text() == "nonsense"


def test_a_process_measures_once_where_nothing_can_be_kept(measured, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    assert measured_host() == measured_host() == FIGURES
    assert len(measured) == 1


def test_this_machine_can_be_measured():
    host = host_figures.measure_host(host_figures.host_target())
    figures = (host.int8_gops, host.float_gops, host.gbps, host.numpy_gops, host.numpy_ns)
    assert all(0 < figure < 1e5 for figure in figures)
    assert 0 < host.kernel_call_us < 1e5
    assert 0 < host.numpy_call_us < 1e5


def test_figures_of_a_busy_machine_are_not_kept(measured, tmp_path, monkeypatch):
    assert not measured_while_busy(measured_host())
    assert not host_title("here").endswith("busy")
    measured_host.cache_clear()
    (path,) = (tmp_path / "cache" / "host").iterdir()
    path.unlink()
    monkeypatch.setattr(host_figures.Watch, "load", lambda self: HostLoad(1.0, 0.5, 0.5))
    assert measured_while_busy(measured_host())
    assert host_title("here").endswith(" while it was busy")
    assert not path.exists()
