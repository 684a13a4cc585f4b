"""All tests of this folder need kernels of the CPU target."""

import pytest

from tilewright.compiler.cpu import host


@pytest.fixture(autouse=True)
def cpu_kernels() -> None:
    """Refuse a machine without any level at once, not from inside of Hypothesis."""
    host()
