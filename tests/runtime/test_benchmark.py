"""Repeated timing with a clock of the test's own."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import Session, compile_graph, import_model, open_device
from tilewright.errors import InputError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import benchmark as benchmarks
from tilewright.runtime.benchmark import Benchmark, HostLoad, benchmark

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


class Machine:
    """A clock, and a call that takes longer the first times; half of each call is waited for."""

    def __init__(self, monkeypatch, *, first_s: float, then_s: float, waiting: float = 0.0) -> None:
        self.now, self.calls, self.waiting = 0.0, 0, waiting
        self.first_s, self.then_s = first_s, then_s
        clock = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: 3 * self.now)
        monkeypatch.setattr(benchmarks, "time", clock)
        monkeypatch.setattr(benchmarks, "_waited", lambda: {"1": self.waiting * self.now})

    def call(self) -> None:
        self.now += self.then_s if self.calls else self.first_s
        self.calls += 1


def test_cold_calls_do_not_count(monkeypatch):
    machine = Machine(monkeypatch, first_s=7.0, then_s=0.125)
    found = benchmark(machine.call, repeat=4)
    assert found == Benchmark((0.125,) * 4, 1, 0.375, 0.0)
    assert (found.median, found.mean, found.std, machine.calls) == (0.125, 0.125, 0.0, 5)


def test_short_calls_are_repeated_until_the_clock_can_tell(monkeypatch):
    machine = Machine(monkeypatch, first_s=1.0, then_s=1e-4)
    found = benchmark(machine.call, repeat=3, min_repeat_ms=20)
    assert found.number * 1e-4 >= 0.02
    assert found.seconds == pytest.approx((1e-4,) * 3)
    assert found.processor_s == pytest.approx(3e-4)


def test_calls_in_a_repetition_are_at_least_as_many_as_asked_for(monkeypatch):
    machine = Machine(monkeypatch, first_s=1.0, then_s=0.5)
    assert benchmark(machine.call, number=3, repeat=1).number == 3
    assert machine.calls == 4


def test_a_busy_machine_is_mentioned(monkeypatch):
    machine = Machine(monkeypatch, first_s=1.0, then_s=0.125, waiting=0.4)
    found = benchmark(machine.call)
    assert found.busy
    assert found.sentences() == [
        "host times: median of 10 repetitions of 1 run, warmed up; 125 ms to 125 ms a run, 375 ms "
        "of processor time",
        "this machine was busy: a thread waited 40% of the time for a processor, so host times are "
        "too long; measure again when it is idle",
    ]
    assert found.sentences(is_whole=False)[0].endswith("warmed up")
    assert found.to_json()["busy"] is True
    quiet = Machine(monkeypatch, first_s=1.0, then_s=0.125, waiting=0.05)
    assert len(benchmark(quiet.call).sentences()) == 1


def test_a_moment_says_nothing_about_the_machine():
    assert not HostLoad(0.001, 0.001, 0.001).busy
    assert HostLoad(0.1, 0.1, 0.05).busy


@pytest.mark.parametrize("wrong", [{"number": 0}, {"repeat": 0}, {"min_repeat_ms": -1.0}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(InputError, match="expected `number` and `repeat` of 1 or more"):
        benchmark(lambda: None, **wrong)


def test_a_benchmark_leaves_the_states_of_a_session_alone():
    module = compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), PRESETS["8x8"])
    with open_device("sim", module.configuration) as sim:
        session = Session(module, sim)
        held = session._held
        found = session.benchmark(
            np.zeros((1, 1, 8, 8), np.float32), repeat=2, min_repeat_ms=0, warm_up_s=0
        )
    assert len(found.seconds) == 2
    assert len(session.step_times) == 3
    assert session._held is held
    assert repr(found).startswith("<Benchmark: median ")
