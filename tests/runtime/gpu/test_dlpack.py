"""Tensors in memory of a GPU go in and out by DLPack without copies."""

import ctypes
import gc
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import Binary, Concat, Reshape, Slice, Unary
from tilewright.errors import DeviceError, InputError
from tilewright.runtime import Session, open_device
from tilewright.runtime.devices import GpuDevice
from tilewright.runtime.gpu import dlpack
from tilewright.runtime.gpu.dlpack import GpuTensor
from tilewright.runtime.gpu.driver import GpuDriver

from .fake_cuda import FakeCuda
from .test_network import compiled, digits

SHAPE = 4, 6


def small() -> Graph:
    """Kernels, a view of an input, and outputs of each kind."""
    builder = Builder("small", (Value("x", TensorType("float32", SHAPE)),))
    half = builder.constant(np.array(0.5, np.float32), "half")
    flat = builder.emit(Reshape((24,)), ["x"], "flat")
    halved = builder.emit(Binary("Mul"), [flat, half], "halved")
    bent = builder.emit(Unary("Tanh"), [halved], "bent")
    shaped = builder.emit(Reshape(SHAPE), [bent], "shaped")
    return builder.graph([_named(one) for one in (halved, shaped, flat)])


def mixed() -> Graph:
    """Steps without a kernel for GPUs: one reads the input, another one a result."""
    builder = Builder("mixed", (Value("x", TensorType("float32", SHAPE)),))
    bent = builder.emit(Unary("Tanh"), ["x"], "bent")
    joined = builder.emit(Concat(1), [bent, "x"], "joined")
    cut = builder.emit(Slice((0, 2), (4, 8), (1, 1)), [joined], "cut")
    last = builder.emit(Unary("Exp"), [cut], "last")
    return builder.graph([_named(bent), _named(last)])


def _named(value: str) -> Output:
    return Output(value.partition(".")[0], value)


def drawn(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def on_gpu(driver: GpuDriver, array: np.ndarray) -> GpuTensor:
    """Memory of another library."""
    buffer = driver.allocate(array.nbytes)
    driver.copy_in(buffer, np.ascontiguousarray(array))
    driver.synchronise()
    return GpuTensor(driver, buffer, array.dtype, array.shape)


def fill(tensor: GpuTensor, array: np.ndarray) -> None:
    tensor.driver.copy_in(tensor.buffer, np.ascontiguousarray(array))
    tensor.driver.synchronise()


def check(outputs: dict[str, Any], graph: Graph, x: np.ndarray) -> None:
    for name, expected in evaluate(graph, {"x": x}).items():
        found = outputs[name]
        found = found.numpy() if isinstance(found, GpuTensor) else found
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_inputs_are_read_where_they_are(device: GpuDevice, monkeypatch: pytest.MonkeyPatch):
    graph = small()
    session = Session(compiled(graph), device)
    given = on_gpu(device.driver, drawn())
    copied = []
    copy_in = type(device.driver).copy_in
    monkeypatch.setattr(type(device.driver), "copy_in", lambda *a: copied.append(a) or copy_in(*a))
    for seed in range(4):  # the third run is captured, the fourth repeats it
        fill(given, drawn(seed))
        copied.clear()
        check(session.run({"x": given}).outputs, graph, drawn(seed))
        assert not copied


def test_outputs_are_the_sessions_own_memory(device: GpuDevice):
    graph = small()
    session = Session(compiled(graph), device)
    run = session.run({"x": drawn()}, on_device=True)
    check(run.outputs, graph, drawn())
    halved, shaped = run.outputs["halved"], run.outputs["shaped"]
    assert isinstance(halved, GpuTensor)
    assert (shaped.shape, shaped.dtype) == (SHAPE, np.float32)
    assert isinstance(run.outputs["flat"], np.ndarray), "what the caller gave is not shown"
    taken = dlpack.adopt("y", halved, device.driver)
    assert taken is not None
    assert device.driver.address_of(taken.buffer) == device.driver.address_of(halved.buffer)
    fill(taken, np.full(24, 7, np.float32))
    np.testing.assert_array_equal(halved.numpy(), np.full(24, 7, np.float32))
    session.run({"x": drawn(1)}, on_device=True)
    np.testing.assert_allclose(taken.numpy(), drawn(1).reshape(-1) * 0.5, rtol=1e-6)


def test_outputs_feed_the_next_session_without_the_host(
    device: GpuDevice, monkeypatch: pytest.MonkeyPatch
):
    graph = small()
    first, second = (Session(compiled(graph), device) for _ in range(2))
    middle = first.run({"x": drawn()}, on_device=True).outputs["shaped"]
    crossed = []
    for name in ("copy_in", "copy_out"):
        monkeypatch.setattr(type(device.driver), name, lambda *a: crossed.append(a))
    found = second.run({"x": middle}, on_device=True)
    assert len(crossed) == 1, "only the output that shows the input"
    monkeypatch.undo()
    check({"halved": found.outputs["halved"]}, _only(graph, "halved"), np.tanh(drawn() * 0.5))


def _only(graph: Graph, name: str) -> Graph:
    return replace(graph, outputs=tuple(one for one in graph.outputs if one.name == name))


def test_steps_of_the_processor_see_tensors_too(device: GpuDevice):
    graph = mixed()
    session = Session(compiled(graph), device)
    for seed in range(4):
        run = session.run({"x": on_gpu(device.driver, drawn(seed))}, on_device=seed % 2 == 0)
        check(run.outputs, graph, drawn(seed))
        assert isinstance(run.outputs["last"], GpuTensor) is (seed % 2 == 0)


def test_arrays_and_tensors_take_turns(device: GpuDevice):
    graph = small()
    session = Session(compiled(graph), device)
    tensors = [on_gpu(device.driver, drawn(seed)) for seed in range(2)]
    for seed in (0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1):
        given = drawn(seed) if seed == 2 else tensors[seed]
        check(session.run({"x": given}).outputs, graph, drawn(seed))


def test_the_same_memory_may_be_another_input(device: GpuDevice):
    kind = TensorType("float32", SHAPE)
    builder = Builder("two", (Value("x", kind), Value("y", kind)))
    bent = builder.emit(Unary("Tanh"), ["x"], "bent")
    graph = builder.graph([Output("z", builder.emit(Binary("Add"), [bent, "y"], "z"))])
    session, given = Session(compiled(graph), device), on_gpu(device.driver, drawn())
    for names in ("xy", "yx"):
        for _ in range(4):
            arrays = dict(zip(names, (drawn(), drawn(1)), strict=True))
            tensors = dict(zip(names, (given, drawn(1)), strict=True))
            found = session.run(tensors).outputs["z"]
            np.testing.assert_allclose(found, evaluate(graph, arrays)["z"], rtol=1e-5, atol=1e-6)


def test_memory_lives_as_long_as_its_consumers(device: GpuDevice):
    session = Session(compiled(small()), device)
    halved = session.run({"x": drawn()}, on_device=True).outputs["halved"]
    before = len(dlpack._exported)
    capsule = halved.__dlpack__()
    assert len(dlpack._exported) == before + 1
    del capsule  # nobody took it over
    assert len(dlpack._exported) == before
    taken = dlpack.adopt("y", halved, device.driver)
    del session, halved
    gc.collect()
    device.driver.allocate(64)
    assert len(dlpack._exported) == before + 1
    assert taken is not None
    np.testing.assert_allclose(taken.numpy(), drawn().reshape(-1) * 0.5, rtol=1e-6)
    del taken
    gc.collect()
    assert len(dlpack._exported) == before


def test_streams_wait_for_each_other(fake: FakeCuda):
    with open_device("gpu:cuda") as device:
        assert isinstance(device, GpuDevice)
        session = Session(compiled(small()), device)
        halved = session.run({"x": drawn()}, on_device=True).outputs["halved"]
        for stream, waiting in ((None, 1), (2, 2), (1 << 33, 1 << 33)):
            fake.waits.clear()
            halved.__dlpack__(stream=stream)
            assert fake.waits == [waiting]
        fake.waits.clear()
        halved.__dlpack__(stream=-1)
        assert fake.waits == []
        session.run({"x": on_gpu(device.driver, drawn())})
        assert fake.waits == [device.driver.dlpack_stream]
        assert halved.__dlpack_device__() == (2, 0)


def test_numpy_takes_what_lies_in_memory_of_the_host():
    with open_device("gpu:interpreter") as device:
        session = Session(compiled(small()), device)
        halved = session.run({"x": drawn()}, on_device=True).outputs["halved"]
        array = np.from_dlpack(halved)
        session.run({"x": drawn(1)}, on_device=True)
        np.testing.assert_allclose(array, drawn(1).reshape(-1) * 0.5, rtol=1e-6)


class Strange:
    """A tensor that is not as sessions take them."""

    def __init__(
        self, tensor: GpuTensor, *, device: Sequence[int] = (), offset: int = 0,
        strides: Sequence[int] = (), kind: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        self.tensor, self.device, self.offset = tensor, device, offset
        self.kind, self.strides = kind, (ctypes.c_int64 * len(strides))(*strides)

    def __dlpack_device__(self) -> tuple[int, ...]:
        return tuple(self.device) or self.tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.tensor.__dlpack__(**options)
        managed = dlpack._Managed.from_address(dlpack._pointer(capsule, dlpack.NAME))
        managed.tensor.byte_offset += self.offset
        if self.kind:
            managed.tensor.type = dlpack._Type(*self.kind)
        if self.strides:
            managed.tensor.strides = self.strides
        return capsule


REFUSED = {
    "another device": ({"device": (2, 7)}, "device (2, 7); move it"),
    "gaps": ({"strides": (12, 2)}, "expected a contiguous tensor, got [4, 6] with strides [12, 2]"),
    "transposed": ({"strides": (1, 4)}, "strides [1, 4]; call `contiguous()`"),
    "bfloat16": ({"kind": (4, 16, 1)}, "got type 4 of DLPack with 16 bits; convert it"),
    "lanes": ({"kind": (2, 32, 4)}, "expected integers, floats or bools"),
    "another type": ({"kind": (0, 32, 1)}, "expected float32[4, 6], got int32[4, 6]"),
    "unaligned": ({"offset": 4}, "begins at a multiple of 16 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kernels_cannot_read_is_refused(device: GpuDevice, name: str):
    strange, message = REFUSED[name]
    session = Session(compiled(small()), device)
    given = Strange(on_gpu(device.driver, np.zeros((8, 6), np.float32)[:4]), **strange)
    with pytest.raises(InputError, match=re.escape(message)):
        session.run({"x": given})
    gc.collect()
    assert not dlpack._exported


def test_contiguous_strides_are_taken(device: GpuDevice):
    session = Session(compiled(small()), device)
    given = Strange(on_gpu(device.driver, drawn()), strides=(6, 1))
    check(session.run({"x": given}).outputs, small(), drawn())


def test_a_copy_or_another_device_is_not_handed_over(device: GpuDevice):
    tensor = on_gpu(device.driver, drawn())
    with pytest.raises(BufferError, match="in place only"):
        tensor.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="in place only"):
        tensor.__dlpack__(dl_device=(2, 7))


@pytest.mark.opencl
def test_memory_of_another_context_is_refused():
    with open_device("gpu:opencl") as device, open_device("gpu:opencl") as other:
        assert isinstance(other, GpuDevice)
        session = Session(compiled(small()), device)
        with pytest.raises(InputError, match="of the device's own context"):
            session.run({"x": on_gpu(other.driver, drawn())})


def test_outputs_stay_only_on_a_gpu():
    graph, inputs = digits()
    with open_device("host") as host:
        session = Session(compiled(graph), host)
        with pytest.raises(DeviceError, match="no GPU computes this network"):
            session.run(inputs, on_device=True)
