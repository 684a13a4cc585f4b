"""Tuning for GPUs: the static filter, trials on a device with OpenCL, and the use of records."""

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright import import_model
from tilewright.compiler.cpu import MatrixProduct, Requantisation
from tilewright.compiler.cpu.kernels.choices import Choices, choice_of, choice_text
from tilewright.compiler.gpu import GpuTarget, compile_kernel
from tilewright.compiler.gpu.kernel import space_plan
from tilewright.compiler.placement import HOST, Placement
from tilewright.errors import CompileError
from tilewright.flows.cli.main import main
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.execution.recorded_choices import RECORDS_VARIABLE, best_texts
from tilewright.flows.sweep.records import Database
from tilewright.flows.tuning import gpu_machine
from tilewright.flows.tuning.gpu_assembler import Assembled, assembled
from tilewright.flows.tuning.gpu_estimates import estimate
from tilewright.flows.tuning.gpu_machine import GpuMachine
from tilewright.flows.tuning.kernel_records import KernelRecords
from tilewright.flows.tuning.outcome import Times, TrialOutcome, TrialVerdict
from tilewright.flows.tuning.tasks import tasks_of
from tilewright.flows.tuning.trial import BuildRequest, TimeRequest, TrialBench, TuningSetting
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Session, open_device
from tilewright.runtime.devices import GpuDevice
from tilewright.runtime.gpu.interpreter import InterpreterDriver
from tilewright.runtime.gpu.opencl import OpenClDriver

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
BYTES = Requantisation("int8", 3).epilogue()
PRODUCT = MatrixProduct(40, 64, 24, "int8", BYTES)
SM80 = GpuMachine("", "", GpuTarget("sm80"))


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


def seconds(product: MatrixProduct, text: str) -> dict[str, float]:
    plan = space_plan(product, GpuTarget("sm80"), Choices(choice_of(text)))
    assert plan is not None
    return estimate(plan, GpuTarget("sm80"))


def test_the_space_begins_with_the_default_and_fits_a_block():
    product = MatrixProduct(512, 512, 512, "int8", BYTES)
    points = SM80.space(product)
    assert 500 < len(points) < 20_000
    codes = [
        compile_kernel(product.with_choice(one), SM80.target).module for one in (points[0], ())
    ]
    assert codes[0] == codes[1]
    sizes = [seconds(product, choice_text(point))["shared_bytes"] for point in points[::50]]
    assert max(sizes) <= SM80.target.properties.shared_bytes


def test_estimates_favour_parts_of_deep_sums_and_groups_are_no_slower():
    deep = MatrixProduct(64, 1 << 15, 64, "int8", BYTES)
    assert seconds(deep, "split=8")["seconds"] < seconds(deep, "split=1")["seconds"]
    large = MatrixProduct(4096, 4096, 4096, "int8", BYTES)
    found = seconds(large, "default")
    assert found["seconds"] > 2 * 4096**3 / 624e12
    assert found["seconds"] < 2 * found["compute_s"]


def test_candidates_that_spill_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_machine, "assembled", lambda code, target: Assembled((255,), 0, 16))
    with pytest.raises(CompileError, match="16 bytes are spilled"):
        SM80.build(PRODUCT)


def test_the_assembler_tells_the_registers_of_a_kernel():
    code = compile_kernel(PRODUCT, SM80.target).module.code
    found = assembled(code, SM80.target)
    assert found is not None
    assert 16 < max(found.registers) < 128
    assert found.spilled_bytes == 0


def machine_of(driver: OpenClDriver) -> GpuMachine:
    machine = GpuMachine.of(driver)
    return replace(machine, target=replace(machine.target, units=32))


@pytest.mark.opencl
def test_a_candidate_is_checked_and_timed_on_the_device():
    setting = TuningSetting(PRODUCT, machine_of(OpenClDriver()), 0)
    bench = TrialBench(setting)
    names = (), choice_of("split=2,group=1")
    built = [bench.answer(BuildRequest(setting, name)).built for name in names]
    default, other = built
    assert default is not None
    assert other is not None
    assert default.program != other.program
    answer = bench.answer(TimeRequest(setting, other, default, default))
    assert answer.verdict is TrialVerdict.OK, answer.text
    assert answer.times is not None
    assert answer.times.median_s > 0
    module = pickle.loads(other.code)
    kernels = (*module.kernels[:-1], replace(module.kernels[-1], grid=(1, 1, 1)))
    wrong = replace(other, code=pickle.dumps(replace(module, kernels=kernels)), program="wrong")
    answer = bench.answer(TimeRequest(setting, wrong, default, default))
    assert answer.verdict is TrialVerdict.WRONG


def test_a_session_uses_the_records_of_its_gpu_alone(tmp_path: Path, monkeypatch):
    graph, device = import_model(DIGITS), open_device("gpu:interpreter", DEFAULT)
    assert isinstance(device, GpuDevice)
    machine = GpuMachine.of(device.driver)
    path = tmp_path / "records.db"
    tasks = tasks_of(graph, machine)
    task = max(tasks, key=lambda one: one.product.macs)
    choice = choice_of("tile=32x16x16x16,depth=2")
    times = Times(0.5, 0.5, 1e-6, 0.0, 2e-6, 31)
    with Database(path) as database:
        records = KernelRecords(database)
        records.add_best(task, TrialOutcome(choice, TrialVerdict.OK, times=times), {})
        (place,) = best_texts(database)
    assert place == (task.workload, f"gpu {device.driver.digest}")
    monkeypatch.setenv(RECORDS_VARIABLE, str(path))
    module = compile_graph(graph, placement=Placement(HOST))
    assert choice_text(choice) in module.choices.values()
    loaded: list[str] = []
    load = InterpreterDriver.load

    def recorded(self: InterpreterDriver, module):
        loaded.append(module.code)
        return load(self, module)

    monkeypatch.setattr(InterpreterDriver, "load", recorded)
    tuned = compile_kernel(task.product.with_choice(choice), machine.target).module.code
    for changed in (False, True):
        loaded.clear()
        device.driver.device = "another" if changed else device.driver.device
        Session(module, device)
        assert (tuned in loaded) is not changed


# The command -------------------------------------------------------------------------------------


@pytest.mark.opencl
def test_a_network_is_tuned_on_the_device_and_runs_with_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "new.db"
    command = ["tune", str(DIGITS), "--target", "gpu", "--database", str(path), "--json"]
    assert main([*command, "--budget", "2", "--device", "gpu:opencl"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["trials"] == 2
    verdicts = [one["verdict"] for task in report["tasks"] for one in task["log"]]
    assert verdicts == ["ok", "ok"]


def test_candidates_are_listed_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gpu_machine, "ASSEMBLED", 1)
    command = ["tune", str(DIGITS), "--target", "gpu", "--device", "gpu:sm80", "--list"]
    assert main([*command, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {task["kind"] for task in listed["tasks"]} == {"Convolution"}
    for task in listed["tasks"]:
        assert task["level"] == "sm80"
        assert task["left_out"] == {}
        best, *others = task["estimated"]
        assert best["registers"] > 16
        assert best["spilled_bytes"] == 0
        assert all(best["seconds"] <= one["seconds"] for one in others)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--device", "gpu:cuda"], 3, "without a GPU, `--device gpu:sm80 --list` lists candidates"),
        (["--device", "gpu:sm80"], 2, "a level of GPUs has no times; add `--list`"),
        (["--device", "gpu:interpreter"], 2, "its times are not those of a GPU"),
        (["--device", "sim"], 2, "expected one GPU for `--target gpu`"),
        (["--threads", "2"], 2, "schedules of a GPU choose their threads; leave it out"),
        (["--config", "4x4"], 2, "`--config`: expected `--target accelerator`"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert main(["tune", str(DIGITS), "--target", "gpu", *words]) == code
    assert said in capsys.readouterr().err
