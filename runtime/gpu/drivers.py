"""All drivers of GPUs by name, and the one that `--device gpu` takes."""

from collections.abc import Callable, Mapping

from ...errors import DeviceError, ToolError
from .cuda import CudaDriver
from .driver import GpuDriver
from .interpreter import InterpreterDriver
from .opencl import OpenClDriver

HARDWARE: Mapping[str, Callable[[], GpuDriver]] = {
    CudaDriver.name: CudaDriver,
    OpenClDriver.name: OpenClDriver,
}
"""Drivers of GPUs, the preferred one first."""

DRIVERS: Mapping[str, Callable[[], GpuDriver]] = {
    **HARDWARE,
    InterpreterDriver.name: InterpreterDriver,
}
"""All drivers by name."""


def open_driver(name: str | None = None) -> GpuDriver:
    """Open a driver by name; by default the first that finds a GPU.

    Raises
    ------
    DeviceError
        There is no such driver, or no GPU.
    ToolError
        A driver's software is not installed.
    """
    if name is not None:
        if name not in DRIVERS:
            raise DeviceError(
                f"device `gpu:{name}`: unknown driver; expected one of "
                f"{', '.join(f'gpu:{each}' for each in DRIVERS)}"
            )
        return DRIVERS[name]()
    problems: list[DeviceError | ToolError] = []
    for driver in HARDWARE.values():
        try:
            return driver()
        except (DeviceError, ToolError) as problem:
            problems.append(problem)
    raise type(problems[0])("; ".join(dict.fromkeys(map(str, problems)))) from problems[0]
