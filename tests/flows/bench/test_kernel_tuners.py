"""The benchmark of tuners, replayed on times that are made up."""

from collections.abc import Callable

import pytest

from tilewright.compiler.cpu import generic
from tilewright.flows.bench import kernel_tuners
from tilewright.flows.bench.kernel_tuners import excess_of, row_of, tasks, trials_of
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.ranking import TriedTask
from tilewright.flows.tuning.tasks import KernelTask
from tilewright.flows.tuning.tuners import GridTuner

pytest.importorskip("xgboost")


def ratio_of(features: dict[str, float]) -> float:
    """Wide tiles are fast, on every machine and for every kernel."""
    return 1 + features["loads"] + features["rows wasted"]


def tried(task: KernelTask, ratio: Callable[[dict[str, float]], float]) -> list[TrialOutcome]:
    return [
        TrialOutcome(
            point, TrialVerdict.OK, times=Times(ratio(task.features(point)), 1.0, 1.0, 0.0, 1.0, 31)
        )
        for point in task.space().points
    ]


def history(task: KernelTask, ratio: Callable[[dict[str, float]], float]) -> TriedTask:
    outcomes = tried(task, ratio)
    return TriedTask([task.features(one.choice) for one in outcomes], [o.ratio for o in outcomes])


def kernels(level: str) -> list[KernelTask]:
    return [task for task in tasks(generic(level), 1) if "depthwise" in task.title]


def test_what_holds_elsewhere_is_predicted_and_its_opposite_is_not():
    first, second = kernels("avx2")
    outcomes = tried(second, ratio_of)
    good = excess_of(second, outcomes, 0, [history(first, ratio_of)])
    bad = excess_of(second, outcomes, 0, [history(first, lambda one: 10 - ratio_of(one))])
    assert 0 <= good < 0.05 < bad


def test_the_machine_whose_kernel_is_predicted_is_not_among_the_others(monkeypatch):
    known: list[int] = []

    def excess(task, outcomes, seed, history):
        known.append(len(history))
        return 0.0

    monkeypatch.setattr(kernel_tuners, "excess_of", excess)
    monkeypatch.setattr(kernel_tuners, "trials_of", lambda *arguments: 1)
    found = {task: tried(task, ratio_of) for level in ("avx2", "sse2") for task in kernels(level)}
    found |= {task: tried(task, ratio_of) for task in kernels("avx512vnni")[:1]}
    first = next(iter(found))
    assert row_of(first, found, 1)["excess"] == {"kernel": 0.0, "machine": 0.0}
    assert known == [2, 3], "the other kernel on two machines, and all kernels of two machines"
    alone = {task: one for task, one in found.items() if task.machine == first.machine}
    assert set(row_of(first, alone, 1)["excess"]) == {"kernel"}


def test_the_default_is_tried_alone_before_a_model_chooses(monkeypatch):
    """As in `tune`, whose model chooses from the second trial on."""
    task, asked = kernels("avx2")[0], []

    class Asked(GridTuner):
        def propose(self, count: int) -> list[int]:
            asked.append(count)
            return super().propose(count)

    monkeypatch.setattr(kernel_tuners, "open_tuner", lambda *arguments: Asked(task.space(), 0))
    outcomes = tried(task, lambda features: 1.0)
    outcomes[12] = tried(task, lambda features: 0.5)[12]
    assert trials_of("grid", task, outcomes, 0, ()) == 13
    assert asked == [1, 8, 8]
