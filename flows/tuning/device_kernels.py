"""A kernel on a GPU with its arrays, and the time of its runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...compiler.gpu import GpuModule
from ...runtime.gpu import GpuBuffer, GpuDriver


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel on a GPU with its arrays.

    Parameters
    ----------
    dtype, shape
        Of the output.
    """

    driver: GpuDriver
    run: Callable[[], None]
    buffers: Mapping[str, GpuBuffer]
    output: str
    dtype: str
    shape: tuple[int, ...]

    def result(self) -> np.ndarray:
        """The output of the last run."""
        found = np.empty(self.shape, self.dtype)
        self.driver.copy_out(self.buffers[self.output], found)
        self.driver.synchronise()
        return found

    def seconds_of(self, count: int) -> float:
        """Seconds of the GPU for a number of runs."""
        return seconds_of(self.driver, self.run, count)


def load_module(
    driver: GpuDriver,
    module: GpuModule,
    given: Mapping[str, np.ndarray],
    dtype: str,
    shape: tuple[int, ...],
) -> LoadedKernel:
    """Load a module's kernels, copy its inputs, and allocate an output of this type and shape."""
    buffers: dict[str, GpuBuffer] = {}
    arrays = {
        name: np.ascontiguousarray(array) for name, array in {**module.constants, **given}.items()
    }
    for name, array in arrays.items():
        buffers[name] = driver.allocate(array.nbytes)
        driver.copy_in(buffers[name], array)
    driver.synchronise()
    output = module.kernels[-1].tensors[-1]
    made = {tensor.name: (tensor.dtype, tensor.shape) for tensor in module.buffers}
    for name, (kind, extents) in {**made, output: (dtype, shape)}.items():
        buffers[name] = driver.allocate(int(np.prod(extents)) * np.dtype(kind).itemsize)
    launches = [
        (function, [buffers[name] for name in function.kernel.tensors])
        for function in driver.load(module)
    ]

    def run() -> None:
        for function, arguments in launches:
            driver.launch(function, function.kernel.grid, function.kernel.threads, arguments)

    return LoadedKernel(driver, run, buffers, output, dtype, shape)


def seconds_of(driver: GpuDriver, run: Callable[[], None], count: int) -> float:
    """Seconds of the GPU for a number of runs."""
    start, end = driver.event(), driver.event()
    driver.record(start)
    for _ in range(count):
        run()
    driver.record(end)
    driver.synchronise()
    return driver.elapsed_s(start, end)
