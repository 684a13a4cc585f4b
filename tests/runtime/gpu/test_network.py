"""Whole networks on a GPU, through its driver: they compute what the CPU target computes."""

import gc
import operator
import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright import import_model
from tilewright.compiler.cpu.target import host_levels
from tilewright.compiler.gpu import planned_for
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import Binary, Concat, Reshape, Slice, Transpose, Unary
from tilewright.compiler.host import HostStep
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import HOST, Placement
from tilewright.errors import CompileError, DeviceError, KernelWarning
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Comparison, Session, open_device
from tilewright.runtime.device import Device
from tilewright.runtime.devices import GpuDevice
from tilewright.runtime.gpu import GpuSide, network
from tilewright.runtime.gpu.network import _key

from ...compiler.gpu.test_networks import (
    EXAMPLES,
    KEYWORDS,
    Network,
    commands,
    digits,
    layers,
    spotter,
    transformer,
)
from ...compiler.onnx_models import model, value
from .fake_cuda import FakeCuda

DIGITS = EXAMPLES / "digits/digits_int8_qdq.onnx"


named = operator.attrgetter("__name__")


def compiled(graph: Graph) -> Module:
    return compile_module(graph, DEFAULT, placement=Placement(HOST))


def mixed() -> tuple[Graph, dict[str, np.ndarray]]:
    """Kernels around a movement of two boxes, which is none; views, and outputs of each kind."""
    builder = Builder("mixed", (Value("x", TensorType("float32", (6, 8))),))
    half = builder.constant(np.array(0.5, np.float32), "half")
    table = builder.constant(np.arange(48, dtype=np.float32).reshape(8, 6), "table")
    scaled = builder.emit(Binary("Mul"), ["x", half], "scaled")
    bent = builder.emit(Unary("Tanh"), [scaled], "bent")
    turned = builder.emit(Transpose((1, 0)), [bent], "turned")
    joined = builder.emit(Concat(1), [bent, scaled], "joined")
    cut = builder.emit(Slice((0, 2), (6, 14), (1, 2)), [joined], "cut")
    added = builder.emit(Binary("Add"), [turned, table], "added")
    sums = builder.emit(Binary("Add"), [cut, cut], "sums")
    flat = builder.emit(Reshape((48,)), [added], "flat")
    last = builder.emit(Unary("Exp"), [flat], "last")
    again = builder.emit(Binary("Add"), [bent, bent], "again")
    given = builder.emit(Reshape((48,)), ["x"], "given")
    outputs = [Output(name, name) for name in (last, flat, again, given, turned, sums)]
    x = np.random.default_rng(5).uniform(-1, 1, (6, 8)).astype(np.float32)
    return builder.graph(outputs), {"x": x}


def compare(found: np.ndarray, expected: np.ndarray) -> None:
    """Integers equal; float32 sums may be in another order."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("network", [digits, spotter, transformer], ids=named)
def test_every_step_of_a_network_is_right(network: Network):
    check("gpu:interpreter", network)


@pytest.mark.opencl
@pytest.mark.parametrize(
    "network",
    [digits, spotter, layers, pytest.param(transformer, marks=pytest.mark.slow)],
    ids=named,
)
def test_whole_networks_run_as_opencl(network: Network):
    check("gpu:opencl", network)


@pytest.mark.opencl
@pytest.mark.skipif(not KEYWORDS.exists(), reason=f"no shared models: {KEYWORDS}")
def test_a_keyword_spotter_runs_as_opencl():
    check("gpu:opencl", commands)


def unsuited(session: Session) -> dict[str, str]:
    assert isinstance(session.host, GpuSide)
    assert not session.host.refused
    return session.host.unsuited


def check(name: str, network: Network) -> None:
    graph, inputs = network()
    module = compiled(graph)
    with open_device(name) as device:
        session = Session(module, device, keep_all=True)
        run = session.run(inputs)
    comparison = Comparison(module)
    comparison.add(inputs, run)
    assert comparison.equal, comparison.first_difference()
    assert {*run.host.targets.values()} == {"gpu"}
    assert not unsuited(session)
    if planned_for().level in host_levels():
        with open_device("host") as host:
            other = Session(module, host, least_work=0).run(inputs).outputs
        for name, expected in other.items():
            compare(run.outputs[name], expected)


def test_products_of_float32_round_to_tf32_on_request():
    graph, inputs = spotter()
    module = compiled(graph)
    with open_device("gpu:interpreter?tf32") as device:
        assert device.name == "gpu:interpreter?tf32"
        run = Session(module, device, keep_all=True).run(inputs)
    for tolerance, equal in ((device.tolerance, True), (Device.tolerance, False)):
        comparison = Comparison(module, tolerance)
        comparison.add(inputs, run)
        assert comparison.equal is equal


@pytest.mark.opencl
def test_without_tensor_cores_nothing_is_rounded():
    with pytest.raises(DeviceError, match=r"`gpu:opencl`: there are no tensor cores; leave"):
        open_device("gpu:opencl?tf32")


def test_int8_results_are_equal_on_every_device(device: Device):
    graph, inputs = digits()
    module = compiled(graph)
    with open_device("host") as host:
        expected = Session(module, host).run(inputs).outputs
    for name, found in Session(module, device).run(inputs).outputs.items():
        np.testing.assert_array_equal(found, expected[name])


@pytest.mark.parametrize("keep_all", [False, True])
def test_steps_that_are_no_kernels_run_between_copies(device: Device, keep_all: bool):
    graph, inputs = mixed()
    session = Session(compiled(graph), device, keep_all=keep_all)
    assert unsuited(session) == {"cut.slice": "Movement: no kernel for a GPU"}
    results = []
    for factor in (1, 0.5, 0.25, 0):  # the third run is captured, the fourth repeats it
        given = {"x": inputs["x"] * np.float32(factor)}
        run = session.run(given)
        results.append((run.outputs, evaluate(graph, given)))
    for outputs, expected in results:
        assert outputs.keys() == expected.keys()
        for name, array in outputs.items():
            compare(array, expected[name])
    targets = {layer.op: layer.target for layer in run.profile.layers}
    assert targets.pop("concat+slice") == "host"
    assert targets.pop("reshape") == "numpy"
    assert {*targets.values()} == {"gpu"}


def test_a_view_outlives_what_it_shows(device: Device):
    """A kernel reads the view after a step of the processor, when the viewed value is gone."""
    builder = Builder("late", (Value("x", TensorType("float32", (6, 8))),))
    table = builder.constant(np.arange(48, dtype=np.float32).reshape(6, 8), "table")
    values = []
    for name in ("first", "second"):
        joined = builder.emit(Concat(1), ["x", table], f"{name}.joined")
        cut = builder.emit(Slice((0, 2), (6, 14), (1, 2)), [joined], f"{name}.cut")
        values.append(builder.emit(Reshape((36,)), [cut], f"{name}.flat"))
    graph = builder.graph([Output("y", builder.emit(Binary("Add"), values, "y"))])
    inputs = {"x": np.random.default_rng(6).uniform(-1, 1, (6, 8)).astype(np.float32)}
    session = Session(compiled(graph), device)
    assert unsuited(session).keys() == {"first.cut.slice", "second.cut.slice"}
    compare(session.run(inputs).outputs["y"], evaluate(graph, inputs)["y"])


def test_a_network_is_one_graph_on_cuda(fake: FakeCuda):
    graph, inputs = digits()
    with open_device("gpu:cuda") as device:
        session = Session(compiled(graph), device)
        session.run(inputs)
        session.run(inputs)
        fake.calls.clear()
        first = session.run(inputs).outputs
        kernels = fake.names().count("cuLaunchKernel")
        assert kernels >= 7
        assert fake.names().count("cuStreamBeginCapture") == 1
        fake.calls.clear()
        second = session.run(inputs)
        assert fake.names() == ["cuGraphLaunch", "cuStreamSynchronize"]
        for name, array in second.outputs.items():
            np.testing.assert_array_equal(array, first[name])
        assert all(
            seconds > 0
            for name, seconds in second.host.seconds.items()
            if "reshape" not in name.lower()
        )


def test_constants_are_copied_once(fake: FakeCuda):
    graph, inputs = digits()
    with open_device("gpu:cuda") as device:
        session = Session(compiled(graph), device)
        fake.calls.clear()
        session.run(inputs)
        assert fake.names().count("cuMemcpyHtoDAsync") == len(graph.inputs)
        assert fake.names().count("cuMemcpyDtoHAsync") == len(graph.outputs)


def test_a_session_frees_its_memory(fake: FakeCuda):
    graph, inputs = digits()
    with open_device("gpu:cuda") as device:
        assert isinstance(device, GpuDevice)
        for _ in range(2):
            session = Session(compiled(graph), device)
            session.run(inputs)
            assert len(fake.memory) > 1
            del session
            gc.collect()
            device.driver.allocate(1)
            assert len(fake.memory) == 1


def test_outputs_are_the_callers_own(device: Device):
    graph, inputs = mixed()
    session = Session(compiled(graph), device)
    first = session.run(inputs).outputs
    kept = {name: array.copy() for name, array in first.items()}
    session.run({"x": -inputs["x"]})
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        assert not np.may_share_memory(array, inputs["x"])


@pytest.mark.parametrize("level", ["none", ""])
def test_a_kernel_that_does_not_compile_runs_on_the_processor(
    device: Device, level: str, monkeypatch: pytest.MonkeyPatch
):
    if level:
        monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", level)
    graph, inputs = mixed()
    compile_kernel = network.compile_kernel
    first = compiled(graph).graph.nodes[0]
    asked = []

    def fails(description, target):
        asked.append(description)
        if len(asked) == 1:
            raise CompileError("no such schedule")
        return compile_kernel(description, target)

    monkeypatch.setattr(network, "compile_kernel", fails)
    with pytest.warns(KernelWarning, match="no such schedule"):
        session = Session(compiled(graph), device)
    assert isinstance(session.host, GpuSide)
    (name,) = [n for n, reason in session.host.unsuited.items() if reason == "no such schedule"]
    kernels = {kernel.output: kernel for kernel in session.host.plan.kernels}
    assert first in kernels[name].nodes
    assert session.host.refused == (session.host.unsuited if level else {})
    run = session.run(inputs)
    assert run.host.targets.get(name, "host") == ("numpy" if level else "host")
    for name, array in run.outputs.items():
        compare(array, evaluate(graph, inputs)[name])


@pytest.fixture(scope="module")
def code() -> dict[str, Any]:
    """Kernels for the interpreter, which seeds and networks share."""
    return {}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("network", [mixed, digits, transformer], ids=named)
def test_kernels_of_the_gpu_and_of_the_processor_take_turns(
    network: Network, seed: int, code: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Whatever runs where, values are found where each side expects them."""
    graph, inputs = network()
    random, compile_ = np.random.default_rng(seed), GpuSide._compile

    def some(side: GpuSide, step: HostStep):
        if random.random() >= 0.5:
            return None
        key = _key(step)
        if key not in code:
            code[key] = compile_(side, step)
        return code[key]

    monkeypatch.setattr(GpuSide, "_compile", some)
    module = compiled(graph)
    with open_device("gpu:interpreter") as device:
        session = Session(module, device)
        runs = [session.run(inputs) for _ in range(2)]
    assert 0 < len(unsuited(session)) < len(session.host.plan.kernels)
    with open_device("host") as host:
        expected = Session(module, host, least_work=0).run(inputs).outputs
    for run in runs:
        for name, array in run.outputs.items():
            compare(array, expected[name])


def test_recurrent_layers_run_on_the_processor(device: Device):
    random = np.random.default_rng(3)
    constants = {
        name: random.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in {"w": (1, 24, 8), "r": (1, 24, 8), "out": (8, 8)}.items()
    }
    nodes = [
        helper.make_node("MatMul", ["x", "out"], ["before"]),
        helper.make_node("GRU", ["before", "w", "r"], ["states"], hidden_size=8),
        helper.make_node("Tanh", ["states"], ["y"]),
    ]
    proto = model(nodes, [value("x", np.float32, [5, 1, 8])], ["y"], constants, opset=20)
    graph = import_model(proto.SerializeToString())
    session = Session(compiled(graph), device)
    inputs = {"x": random.normal(0, 1, (5, 1, 8)).astype(np.float32)}
    assert [*unsuited(session).values()] == ["Recurrence: no kernel for a GPU"]
    compare(session.run(inputs).outputs["y"], evaluate(graph, inputs)["y"])


@pytest.mark.parametrize("name", ["sim", "reference"])
def test_a_gpu_runs_the_hosts_steps_beside_an_accelerator(name: str, fake: FakeCuda):
    graph, inputs = behind_layers()
    module = compile_module(graph, DEFAULT)
    with open_device(name, DEFAULT) as alone:
        expected = Session(module, alone).run(inputs)
    with open_device(f"{name}+gpu:cuda", DEFAULT) as device:
        assert device.name == f"{name}+gpu:cuda"
        session = Session(module, device, keep_all=True)
        run = session.run(inputs)
        run = session.run(inputs)
    assert module.segments
    assert {*run.host.targets.values()} == {"gpu"}
    assert [result.cycles for result in run.results] == [one.cycles for one in expected.results]
    for output, array in run.outputs.items():
        compare(array, expected.outputs[output])
    comparison = Comparison(module)
    comparison.add(inputs, run)
    assert comparison.equal, comparison.first_difference()


def behind_layers() -> tuple[Graph, dict[str, np.ndarray]]:
    """The digits, and float layers behind them."""
    proto, (_, inputs) = onnx.load(DIGITS), digits()
    (output,) = proto.graph.output
    proto.graph.node.append(helper.make_node("Tanh", [output.name], ["bent"]))
    proto.graph.node.append(helper.make_node("Mul", ["bent", output.name], ["last"]))
    output.name = "last"
    return import_model(proto.SerializeToString()), inputs


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("host+gpu:interpreter", "expected a device with an accelerator before `+`, got `host`"),
        ("gpu+gpu:interpreter", "open `gpu:interpreter` alone"),
        ("sim+gpu:none", "unknown"),
        ("sim+cpu", "unknown"),
    ],
)
def test_what_cannot_stand_beside_is_refused(name: str, message: str):
    with pytest.raises(DeviceError, match=re.escape(message)):
        open_device(name, DEFAULT)


def test_a_benchmark_runs_on_the_gpu(device: Device):
    graph, inputs = digits()
    session = Session(compiled(graph), device)
    found = session.benchmark(inputs, repeat=2, min_repeat_ms=0, warm_up_s=0)
    assert found.median > 0
    assert isinstance(session.host, GpuSide)


def test_accelerator_layers_are_refused(device: Device):
    graph, _ = digits()
    with pytest.raises(DeviceError, match=rf"device `{device.name}`: expected a network without"):
        Session(compile_module(graph, DEFAULT), device)
