"""Candidates in child processes: each fault has its verdict, and the next candidate still runs."""

import sys
from dataclasses import replace

import pytest

from tilewright.compiler.cpu import MatrixProduct, host
from tilewright.flows.sweep import child_process
from tilewright.flows.tuning import measuring
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.measuring import ProcessMeasurer
from tilewright.flows.tuning.outcome import TrialVerdict
from tilewright.flows.tuning.trial import (
    BuildRequest,
    TimeRequest,
    TrialBench,
    TuningSetting,
)

pytestmark = pytest.mark.cpu_kernels

PRODUCT = MatrixProduct(12, 40, 48)

POISON = """
import os, signal, sys, time
sys.path[:] = PATH
from tilewright.flows.tuning import trial
check, build = trial.TrialBench._difference, trial.TrialBench.build
def difference(bench, kernel):
    rows = dict(kernel.description.choice).get("rows")
    if rows == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if rows == 2:
        time.sleep(600)
    shift = 1e6 * (rows == 3)
    bench._cases[1][1].values[0] += shift
    found = check(bench, kernel)
    bench._cases[1][1].values[0] -= shift
    return found
def built(bench, choice):
    if dict(choice).get("unroll") == 1:
        raise RuntimeError("no room")
    if dict(choice).get("unroll") == 2 and not os.path.exists(SEEN):
        open(SEEN, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return build(bench, choice)
trial.TrialBench._difference, trial.TrialBench.build = difference, built
"""
"""Code that a child runs first: faults by the choices of a candidate."""


def setting(product=PRODUCT, seed=0):
    return TuningSetting(product, CpuMachine(host(), 1), seed)


@pytest.fixture
def measurer():
    found = ProcessMeasurer(builders=1)
    yield found
    found.close()


def test_every_fault_has_its_verdict_and_the_run_goes_on(measurer, tmp_path, monkeypatch):
    poison = POISON.replace("PATH", repr(sys.path)).replace("SEEN", repr(str(tmp_path / "seen")))
    code = poison.replace("{", "{{").replace("}", "}}") + child_process.CODE
    monkeypatch.setattr(child_process, "CODE", code)
    monkeypatch.setattr(measuring, "CALLS", 0.0)
    choices = {
        "crash": (("rows", 1),),
        "hang": (("rows", 2),),
        "wrong result": (("rows", 3),),
        "tool error": (("unroll", 1),),
        "illegal": (("rows", 99),),
        "ok": (("vectors", 1),),
        "lost once": (("unroll", 2),),
    }
    measured, outcomes = measurer.measure(setting(), list(choices.values()), ()), []
    for name in choices:
        monkeypatch.setattr(measuring, "MIN_RUN_S", 0.5 if name == "hang" else 15.0)
        outcomes.append(next(measured))
    assert list(measured) == []
    found = {name: one.verdict for name, one in zip(choices, outcomes, strict=True)}
    assert found.pop("lost once") is TrialVerdict.OK  # the second time
    assert {str(verdict): str(verdict) for verdict in found.values()} == {
        name: name for name in found
    }
    texts = dict(zip(choices, (one.text for one in outcomes), strict=True))
    assert texts["crash"] == "running it: its process got SIGSEGV"
    assert texts["hang"].startswith("running it: no end after")
    assert "differ from the definition" in texts["wrong result"]
    assert texts["tool error"] == "RuntimeError: no room"
    assert texts["illegal"].startswith("kernel: `rows=99`: expected one of")
    times = outcomes[5].times
    assert times is not None
    assert times.ratio > 0
    assert times.turns >= 3


def test_a_candidate_with_the_default_program_is_not_run(measurer):
    first = setting().product.questions(host())
    default = tuple((name, values[0]) for name, values in first.items())
    again = (*default[:-1], default[-1])
    found = list(measurer.measure(setting(), [default, again[::-1]], ()))
    assert found[0].program == found[1].program
    assert found[1] == replace(found[0], choice=found[1].choice, steps=found[1].steps)


def test_what_is_compared_is_data_of_all_kinds():
    """A kernel that forgets the last element of the reduction is found by the single number."""
    bench = TrialBench(setting())
    default = bench.build(())
    other = TrialBench(setting(replace(PRODUCT, inner=39))).build(())
    request = TimeRequest(setting(), default, default, default)
    assert bench.answer(request).verdict is TrialVerdict.OK
    arrays, expected = bench._cases[2]
    assert arrays["x"].any()
    cut = arrays["x"].copy()
    cut[:, -1] = 0
    assert expected is not None
    short = cut @ arrays["w"] + arrays["bias"]
    assert expected.difference(short).startswith("48 of 576 values differ")
    assert other.program != default.program
    refused = bench.answer(BuildRequest(setting(), (("wings", 2),)))
    assert refused.verdict is TrialVerdict.ILLEGAL
