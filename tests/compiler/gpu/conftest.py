"""The device with OpenCL on which kernels run."""

import pytest

from tilewright.runtime.gpu.opencl import OpenClDriver


@pytest.fixture(scope="session")
def driver() -> OpenClDriver:
    return OpenClDriver()
