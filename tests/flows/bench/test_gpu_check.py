"""`make gpu-check` on the interpreter of PTX, with tiny shapes."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tilewright import import_model
from tilewright.compiler.graph import Graph
from tilewright.flows.bench import gpu_check, gpu_products
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.trial import TrialBench
from tilewright.runtime.gpu import GpuBuffer
from tilewright.runtime.gpu.interpreter import InterpreterDriver

from ...compiler.onnx_models import model, value

TINY = ["--device", "gpu:interpreter", "--sizes", "32", "--elements", "100", "--match", "test_tanh"]


PEER = gpu_products.peer


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_products, "ROUNDS", 1)
    monkeypatch.setattr(gpu_check, "REPEATS", 1)
    monkeypatch.setattr(gpu_products, "peer", lambda: None)
    monkeypatch.setattr(gpu_check, "peer", lambda: None)
    monkeypatch.setattr(gpu_check, "networks", lambda: iter([dense()]))


def dense() -> Graph:
    """One layer; other tests run the networks of the check."""
    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return import_model(
        model(nodes, [value("x", np.float32, (4, 8))], ["y"], {"w": w}).SerializeToString()
    )


def test_a_report_has_checks_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "found.json"
    assert gpu_check.main([*TINY, "-o", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["device"].startswith("PTX interpreter in software")
    assert report["level"] == "sm80"
    assert report["torch"] is None
    assert report["operators"] == {"run": 2, "kernels": 2, "of": 2, "wrong": []}
    (network,) = report["networks"]
    assert network["right"]
    assert network["median_s"] >= network["smallest_s"] > 0
    assert [(row["size"], row["dtype"], row["right"]) for row in report["products"]] == [
        (32, dtype, True) for dtype in gpu_products.DTYPES
    ]
    assert report["tuned"] == []
    assert {row["kernel"]: row["right"] for row in report["memory"]} == {
        "copy": True,
        "chain": True,
    }
    assert "gpu-check: 0 wrong" in capsys.readouterr().out


def test_a_gpu_that_computes_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    copy_out = InterpreterDriver.copy_out

    def flips(self: InterpreterDriver, buffer: GpuBuffer, array: np.ndarray) -> None:
        copy_out(self, buffer, array)
        array.reshape(-1).view(np.uint8)[-1] ^= 0x20

    monkeypatch.setattr(InterpreterDriver, "copy_out", flips)
    path = tmp_path / "found.json"
    assert gpu_check.main([*TINY, "-o", str(path)]) == gpu_check.WRONG
    report = json.loads(path.read_text(encoding="utf-8"))
    assert len(report["operators"]["wrong"]) == 2
    for part in ("networks", "products", "memory"):
        assert not any(row["right"] for row in report[part]), part
    assert "wrong: products: {'size': 32" in capsys.readouterr().out


def test_operator_tests_end_with_their_budget(tmp_path: Path):
    path = tmp_path / "found.json"
    short = ["--device", "gpu:interpreter", "--sizes", "--elements", "8", "--budget", "0"]
    assert gpu_check.main([*short, "-o", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))["operators"]
    assert found["run"] == 0
    assert found["of"] > 1000


class GivenTimes:
    """Judges candidates without running them; every second one takes half as long."""

    def measure(self, setting, choices, incumbent):
        bench = TrialBench(setting)
        for place, choice in enumerate(choices):
            if place == 0 and not incumbent:
                bench.build(choice)
            ratio = 0.5 if place % 2 else 1.0
            times = Times(ratio, ratio, ratio * 1e-3, 0.0, 1e-3, 31)
            yield TrialOutcome(choice, TrialVerdict.OK, "", f"{place}", "", times)

    def close(self):
        pass


def test_products_are_tuned_where_a_gpu_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_check, "ProcessMeasurer", GivenTimes)
    rows = [*gpu_check.tune_products(InterpreterDriver(), 3)]
    assert [row["product"] for row in rows] == [
        "2048x2048x2048 int8", "512x512x512 float32", "64x4608x512 int8"
    ]  # fmt: skip
    for row in rows:
        assert row["right"]
        assert (row["trials"], row["ratio"], row["default_s"]) == (3, 0.5, 1e-3)
        assert len(row["log"]) == 3
        assert row["space"] > 100
    assert [*gpu_check.tune_products(InterpreterDriver(), 0)] == []


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert gpu_check.main(["--device", "gpu:cuda"]) == gpu_check.NO_GPU == 3
    assert capsys.readouterr().err.startswith(
        "gpu-check: nothing was run: device `gpu:cuda`: the Python package `cuda-bindings`"
    )


class Clock:
    """An event of a GPU."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: "Clock") -> float:
        return (other.at - self.at) * 1e3


class OnGpu(np.ndarray):
    """An array that PyTorch has on a GPU."""

    def cuda(self) -> "OnGpu":
        return self

    def t(self) -> "OnGpu":
        return self.T

    def copy_(self, other: np.ndarray) -> None:
        self[...] = other


def test_cublas_and_torch_are_measured_where_they_are(monkeypatch: pytest.MonkeyPatch):
    called: list[tuple[str, str]] = []

    def product(name: str) -> Any:
        def run(a: np.ndarray, b: np.ndarray) -> None:
            called.append((name, a.dtype.name))

        return run

    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: True, Event=Clock, synchronize=lambda: None),
        from_numpy=lambda array: array.view(OnGpu), mm=product("mm"), _int_mm=product("_int_mm"),
        empty_like=np.empty_like,
    )  # fmt: skip
    monkeypatch.setattr(gpu_products, "peer", PEER)
    monkeypatch.setattr(gpu_products, "import_module", lambda name: torch)
    rows = [*gpu_products.measure_products(InterpreterDriver(), [16])]
    assert {*called} == {("_int_mm", "int8"), ("mm", "float16"), ("mm", "float32")}
    assert all(row["cublas_s"] > 0 for row in rows)
    *_, copy = gpu_products.measure_memory(InterpreterDriver(), 100)
    assert copy["kernel"] == "torch copy"
    torch.cuda.is_available = lambda: False
    assert gpu_products.peer() is None
