"""Races, kills, forks and threads: the short form of each stress test, and that it can fail."""

import os
import signal
from pathlib import Path

import pytest

from tilewright.flows.verify.stress import kills
from tilewright.flows.verify.stress.__main__ import main
from tilewright.flows.verify.stress.forks import fork_after_use
from tilewright.flows.verify.stress.kills import KINDS, NEW, OLD, WriteKind, kill_writers
from tilewright.flows.verify.stress.processes import KILLED, StressError, outcomes
from tilewright.flows.verify.stress.races import race
from tilewright.flows.verify.stress.threads import share_module


@pytest.mark.parametrize("name", KINDS)
def test_a_killed_writer_leaves_the_old_or_the_new(name):
    found = list(kill_writers(name, step=11))
    assert len(found) > 1
    assert found[-1] == NEW


def write_badly(folder: Path) -> None:
    (folder / "out").write_text("")
    (folder / "out").write_text(NEW)


def test_a_torn_write_is_told(monkeypatch):
    monkeypatch.setattr(kills, "WATCHED", {__file__})
    bad = WriteKind(
        write_badly,
        lambda folder: (folder / "out").read_text(),
        lambda folder: (folder / "out").write_text(OLD),
    )
    monkeypatch.setattr(kills, "KINDS", {"bad": bad})
    with pytest.raises(StressError, match="bad, killed before line 2: killed;  then new"):
        list(kill_writers("bad"))


def test_processes_that_race_on_the_cache_all_get_the_right_result():
    race(2)


def test_forked_children_run_the_sessions_of_their_parent():
    fork_after_use(1)


def test_threads_share_a_module():
    share_module(2, 3)


def test_a_process_that_dies_or_fails_is_told():
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    found = outcomes(lambda end: end(), [(die,), (lambda: {}["key"],), (lambda: "x",)])
    assert found[0] == KILLED
    assert found[1].endswith("KeyError: 'key'\n")
    assert found[2] == "x"


def test_no_round_at_all_makes_no_sense(capsys):
    assert main(["--rounds", "0"]) == 2
    assert capsys.readouterr().err == "error: `--rounds 0`: expected at least 1; correct it\n"
