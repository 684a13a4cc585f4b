"""The GPUs on which sessions and drivers run: a stand-in for CUDA, the interpreter, and OpenCL."""

from collections.abc import Iterator

import pytest

from tilewright.runtime import open_device
from tilewright.runtime.devices import GpuDevice
from tilewright.runtime.gpu.driver import GpuDriver
from tilewright.runtime.gpu.drivers import open_driver

from .fake_cuda import FakeCuda, install

DRIVERS = "cuda", "interpreter", pytest.param("opencl", marks=pytest.mark.opencl)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(FakeCuda(), monkeypatch)


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, fake: FakeCuda) -> GpuDriver:
    return open_driver(request.param)


@pytest.fixture(params=DRIVERS)
def device(request: pytest.FixtureRequest, fake: FakeCuda) -> Iterator[GpuDevice]:
    with open_device(f"gpu:{request.param}") as device:
        assert isinstance(device, GpuDevice)
        yield device
