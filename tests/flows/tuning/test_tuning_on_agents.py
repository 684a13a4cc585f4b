"""Tuning on devices that agents lend over TLS: processors, simulators and boards."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tilewright import PRESETS, import_model
from tilewright.compiler.cpu import MatrixProduct
from tilewright.compiler.frontend import recognise_layers
from tilewright.errors import UsageError
from tilewright.flows.cli.main import main
from tilewright.flows.execution.recorded_choices import CPU_KERNEL, RECORDS_VARIABLE
from tilewright.flows.sweep import Space, evaluators, sweep
from tilewright.flows.sweep.agent_executor import OnAgents
from tilewright.flows.sweep.executors import InProcess, Job
from tilewright.flows.sweep.outcome import SweepNetwork
from tilewright.flows.sweep.records import Database, DatabaseError, Record, RecordKey
from tilewright.flows.tuning import agent_measuring, shared_devices
from tilewright.flows.tuning.agent_measuring import AgentMeasurer
from tilewright.flows.tuning.kernel_records import versions_now
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.outcome import TrialVerdict
from tilewright.flows.tuning.shared_devices import SharedDevices
from tilewright.flows.tuning.tasks import tasks_of
from tilewright.flows.tuning.trial import TuningSetting
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import remote
from tilewright.runtime.wire import JobError, JobVerdict

from ...runtime.stub_board import StubBoard, serve_in_background
from ..agent.agents import allow, know, person, running

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["8x8"]
HOSTS = ["remote://left/host", "remote://right/host"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two agents whose owners know Ann, the second with two boards; an impostor has no key."""
    home = tmp_path_factory.mktemp("homes")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as held:
        left, right, liar, ann = (
            person(home, name, patch) for name in ("left", "right", "liar", "ann")
        )
        for owner in (left, right):
            allow(owner, ann)
        boards = [
            held.enter_context(serve_in_background(StubBoard(MACHINE, 1 << 20))) for _ in range(2)
        ]
        named = [
            word
            for name, board in zip(("one", "two"), boards, strict=True)
            for word in ("--board", f"{name}={board.port.address}")
        ]
        first = held.enter_context(running(left, "--offer", "sim,host"))
        second = held.enter_context(running(right, "--offer", "sim,host", *named))
        ann.use(patch)
        know("left", first, left)
        know("right", second, right)
        know("impostor", first, liar)
        yield ann, left


@pytest.fixture(autouse=True)
def ann(lab, monkeypatch):
    monkeypatch.setenv(RECORDS_VARIABLE, "none")
    return lab[0].use(monkeypatch)


def tuned(tmp_path, devices: list[str], *options: str) -> dict:
    """Tune the digits network with the command, and return its JSON."""
    out = tmp_path / "tuned.json"
    named = [word for one in devices for word in ("--device", one)]
    database = ["--database", str(tmp_path / "records.db")]
    assert main(["tune", str(DIGITS), *named, *options, *database, "--json", str(out)]) == 0
    return json.loads(out.read_text("utf-8"))


def used(said: str) -> dict[str, int]:
    """Return the runs of each device, from the lines about time in queues."""
    lines = [line.split(": ", 1) for line in said.splitlines() if line.startswith("remote://")]
    assert all("s in the queue" in times for _, times in lines)
    return {name: int(times.split(" s in ")[-1].split()[0]) for name, times in lines}


def test_two_agents_tune_the_kernels_of_a_network(tmp_path, capsys):
    found = tuned(tmp_path, HOSTS, "--budget", "16", "--threads", "1")
    runs = used(capsys.readouterr().out)
    trials = [trial for task in found["tasks"] for trial in task["log"]]
    assert len(trials) == found["trials"] == sum(runs.values()) == 16  # none lost, none doubled
    assert all(runs[name] for name in HOSTS)
    assert {trial["verdict"] for trial in trials} <= {"ok", "illegal", "timeout"}
    again = tuned(tmp_path, HOSTS, "--budget", "16", "--threads", "1")
    assert sum(used(capsys.readouterr().out).values()) == 0  # all from the records
    assert again["tasks"] == found["tasks"]


def test_an_agent_with_a_wrong_key_is_refused_with_a_sentence(capsys):
    devices = [word for one in (*HOSTS, "remote://impostor/host") for word in ("--device", one)]
    assert main(["tune", str(DIGITS), *devices]) == 1
    *_, line = capsys.readouterr().err.splitlines()  # a slow machine tells its progress, too
    assert "agent `impostor`: it shows another key than the one you know" in line


@pytest.mark.parametrize(
    "devices",
    [["remote://left/sim", "remote://right/sim"], ["remote://right/one", "remote://right/two"]],
    ids=["simulators", "boards"],
)
def test_layers_are_tuned_on_two_devices(tmp_path, capsys, devices):
    options = ["--target", "accelerator", "--config", "8x8", "--budget", "8"]
    found = tuned(tmp_path, devices, *options)
    runs = used(capsys.readouterr().out)
    assert set(runs) == set(devices)
    assert all(runs.values())
    trials = found["trials"]
    assert {trial["device"] for trial in trials} == set(devices)
    assert {trial["verdict"] for trial in trials} == {"ok"}
    assert all(trial["cycles"] > 0 for trial in trials)
    assert sum(layer["timed"] for layer in found["layers"]) + len(found["chains"]) == 8
    assert found["cycles"] <= found["cycles_before"]
    is_board = "one" in devices[0]
    proven = [one for one in found["layers"] if "lower bound" in one["certificate"]]
    assert not (is_board and proven)  # the bound does not know a board's memory


def test_an_interrupted_run_on_an_agent_is_continued(lab, tmp_path, capsys):
    """Tuner and agent are killed in the middle; no trial that was recorded is lost or repeated."""
    _, owner = lab
    options = ("--budget", "16", "--threads", "1")
    with running(owner, "--offer", "host") as brief:
        know("brief", brief, owner)
        command = [
            sys.executable, "-m", "tilewright.flows.cli.main", "tune", str(DIGITS), "--device",
            "remote://brief/host", *options, "--database", str(tmp_path / "records.db"),
        ]  # fmt: skip
        tuner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while len(recorded(tmp_path)) < 4:
                assert tuner.poll() is None, "it ended before it was interrupted"
                time.sleep(0.02)
        finally:
            tuner.kill()
            tuner.wait()
        brief.kill()
    before = recorded(tmp_path)
    assert 4 <= len(before) < 16
    with running(owner, "--offer", "host") as later:
        know("brief", later, owner)
        found = tuned(tmp_path, ["remote://brief/host"], *options)
    runs = used(capsys.readouterr().out)["remote://brief/host"]
    after = recorded(tmp_path)
    assert {key: after[key] for key in before} == before
    assert len(after) == found["trials"] == len(before) + runs == 16


def recorded(tmp_path) -> dict[RecordKey, Record]:
    """Return the trials in the database, by their keys."""
    path = tmp_path / "records.db"
    if not path.exists():
        return {}
    with suppress(DatabaseError), Database(path, read_only=True) as database:
        return dict(database.of_evaluator(CPU_KERNEL))
    return {}


def test_work_of_an_agent_that_dies_goes_to_another_one(lab, monkeypatch):
    """Both kill and work are real; only the wait for the agent's return is cut short."""
    monkeypatch.setattr(remote, "RECONNECTING_S", 0.2)
    _, owner = lab
    graph = recognise_layers(import_model(DIGITS))
    with running(owner, "--offer", "host") as brief:
        know("brief", brief, owner)
        addresses = ["remote://brief/host", "remote://right/host"]
        measurer = AgentMeasurer(addresses, graph, versions_now())
        task = max(
            tasks_of(graph, CpuMachine(measurer.target, 1)), key=lambda one: len(one.space())
        )
        choices = task.space().points[:8]
        job = remote.RemoteDevice.job

        def dying(device, op, *arguments, **fields):
            if device.name == addresses[0] and brief.process.poll() is None:
                brief.kill()
            return job(device, op, *arguments, **fields)

        monkeypatch.setattr(remote.RemoteDevice, "job", dying)
        try:
            found = list(measurer.measure(task.setting(0), choices, ()))
            assert [one.choice for one in found] == list(choices)
            assert not [one for one in found if one.verdict is TrialVerdict.LOST]
            (lost,) = measurer.shared.lost
            assert lost.startswith("`remote://brief/host` is lost: ")
        finally:
            measurer.close()


def test_a_kernel_that_the_network_lacks_is_refused(ann):
    measurer = AgentMeasurer(HOSTS[:1], recognise_layers(import_model(DIGITS)), versions_now())
    try:
        setting = TuningSetting(MatrixProduct(3, 5, 7), CpuMachine(measurer.target, 1), 0)
        (outcome,) = measurer.measure(setting, [()], ())
        assert outcome.verdict is TrialVerdict.TOOL_ERROR
        assert "candidates of a kernel that the network lacks" in outcome.text
    finally:
        measurer.close()


def test_agents_of_another_version_are_refused():
    graph = recognise_layers(import_model(DIGITS))
    with pytest.raises(UsageError, match="install the same Tilewright and llvmlite on both sides"):
        AgentMeasurer(HOSTS[:1], graph, {"code": "other"})


def test_unlike_processors_are_not_mixed(monkeypatch):
    told = iter([("a", 1), ("b", 1)])
    monkeypatch.setattr(
        AgentMeasurer, "_processor",
        lambda *_: (agent_measuring.CpuTarget("t", next(told)[0], "", "avx2"), 1),
    )  # fmt: skip
    with pytest.raises(UsageError, match="tune unlike machines one after the other"):
        AgentMeasurer(HOSTS, recognise_layers(import_model(DIGITS)), versions_now())


def test_an_outcome_that_cannot_be_right_is_the_agents_fault(monkeypatch):
    """Candidates are not blamed: the agent counts as lost, and nothing of it is recorded."""
    job = remote.RemoteDevice.job

    def lying(device, op, *arguments, **fields):
        answer = job(device, op, *arguments, **fields)
        for one in answer.fields.get("outcomes", ()):
            one["times"] = {**one["times"], "ratio": -1.0}
        return answer

    graph = recognise_layers(import_model(DIGITS))
    measurer = AgentMeasurer(HOSTS[:1], graph, versions_now())
    monkeypatch.setattr(remote.RemoteDevice, "job", lying)
    task = tasks_of(graph, CpuMachine(measurer.target, 1))[0]
    try:
        (outcome,) = measurer.measure(task.setting(0), [()], ())
    finally:
        measurer.close()
    assert outcome.verdict is TrialVerdict.LOST
    assert "it sent times that are none" in outcome.text


class NamedDevice:
    """A device that is open, and does nothing."""

    def __init__(self, name, *_):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_each_device_has_work_while_there_is_some(monkeypatch):
    """A device whose thread starts late does not lose its first piece to a fast one."""
    monkeypatch.setattr(shared_devices, "open_device", NamedDevice)
    with closing(SharedDevices(["a", "b", "c"])) as shared:
        for count in (3, 4) * 50:
            found = shared.share(range(count), lambda device, piece: device.name)
            assert found[:3] == ["a", "b", "c"]
        assert shared.share([1, 2], lambda device, piece: device.name) == ["a", "b"]


def test_only_what_a_lost_machine_had_is_done_again(monkeypatch):
    monkeypatch.setattr(shared_devices, "open_device", NamedDevice)
    shared, tried = SharedDevices(["a", "b"]), []

    def run(device, piece):
        tried.append((device.name, piece))
        if piece == 2:
            raise JobError(JobVerdict.TIMEOUT, "too slow")
        if device.name == "a" and len(tried) > 2:
            raise JobError(JobVerdict.LOST, "gone")
        return piece

    answers = shared.share(range(6), run)
    assert [one for one in answers if isinstance(one, int)] == [0, 1, 3, 4, 5]
    assert sum(piece == 2 for _, piece in tried) == 1
    assert len(tried) == 6 + len(shared.lost)
    shared.devices.clear()
    (answer,) = shared.share([7], run)
    assert isinstance(answer, JobError)
    assert answer.verdict is JobVerdict.LOST


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--device", "rtl"], "`--device rtl`: expected `remote://AGENT/host`"),
        (
            ["--target", "accelerator", "--device", "remote://left/host"],
            "expected a device with an accelerator",
        ),
        (["--target", "accelerator", "--workers", "-1"], "`--workers -1`: expected 0 or more"),
        (["--workers", "2"], "`--workers`: expected `--target accelerator` without `--device`"),
        (
            ["--target", "accelerator", "--scheduler", "tcp://lab:8786", "--device", "sim"],
            "`--scheduler`: expected `--target accelerator` without `--device`",
        ),
    ],
)
def test_devices_that_cannot_measure_are_refused(options, says, capsys):
    assert main(["tune", str(DIGITS), *options]) == 2
    assert says in capsys.readouterr().err


def test_devices_with_unlike_memories_are_not_mixed(capsys):
    command = ["tune", str(DIGITS), "--target", "accelerator", "--config", "8x8"]
    assert main([*command, "--device", "remote://right/sim", "--device", "remote://right/one"]) == 2
    assert "expected devices with equal main memories" in capsys.readouterr().err


def test_the_front_of_a_sweep_runs_on_agents():
    """Their `sim` stands for the RTL, whose simulators take minutes to build."""
    network = SweepNetwork("digits", import_model(DIGITS))
    addresses = ["remote://left/sim", "remote://right/sim"]
    executor = OnAgents([network.graph], addresses, InProcess([network.graph]))
    try:
        space = Space.of({"lanes": "8x8,16x16"})
        outcome = sweep([network], space, executor=executor, rtl=True, exhaustive=True)
    finally:
        executor.close()
    assert outcome.front
    assert all(point.rtl == point.cycles for point in outcome.front)


def test_only_a_lost_agent_has_its_machine_simulated_elsewhere(monkeypatch):
    asked = []

    def rtl(graph, configuration, memories, program_for, device):
        asked.append(device)
        error = "lost: gone" if device == "a" else "device fault: it hangs"
        return [Record(error=error)]

    monkeypatch.setattr(evaluators, "rtl", rtl)
    job = Job(evaluators.RTL, "", 0, MACHINE, (MemoryModel(),))
    executor = OnAgents([import_model(DIGITS)], ["a", "b"], InProcess([]))
    try:
        handles = [executor.submit([job]) for _ in range(6)]
        found = []
        while handles:
            for handle, done in executor.wait(handles):
                handles.remove(handle)
                found += done.records
    finally:
        executor.close()
    assert [one.error for (one,) in found] == ["device fault: it hangs"] * 6
    assert (asked.count("a"), asked.count("b")) == (1, 6)
    executor = OnAgents([import_model(DIGITS)], ["a"], InProcess([]))
    try:
        ends = [executor.submit([job]).result() for _ in range(2)]
    finally:
        executor.close()
    assert [end.records[0][0].error for end in ends] == ["lost: gone", "lost: no agent is left"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--device", "remote://left/rtl"], "expected `--rtl` with it"),
        (["--rtl", "--device", "remote://left/one"], "expected `remote://AGENT/rtl`"),
        (["--rtl", "--device", "rtl"], "expected `remote://AGENT/rtl`"),
    ],
)
def test_devices_that_are_no_simulators_are_refused_by_sweeps(options, says, capsys):
    assert main(["sweep", str(DIGITS), *options]) == 2
    assert says in capsys.readouterr().err
