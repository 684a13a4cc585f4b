"""Run kernels of the GPU target in the interpreter of PTX, or on a device with OpenCL."""

from collections.abc import Callable, Mapping

import numpy as np

from tilewright import te
from tilewright.compiler.gpu.kernel import GpuKernel
from tilewright.compiler.gpu.lower import GpuModule, compile_program
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.graph import TensorType
from tilewright.compiler.tensor import Kernel, Tensor, holds_reals
from tilewright.runtime.gpu.opencl import OpenClDriver
from tilewright.sim.ptx import TensorArgument, parse_ptx, run

Runner = Callable[
    [GpuModule, Mapping[str, tuple[str, tuple[int, ...]]], Mapping[str, np.ndarray]], np.ndarray
]
"""Runs a module whose tensors have types and shapes, on some arrays."""

ORDERS = ("together", "descending", 7)
"""Orders of warps, which must not matter."""


def run_module(
    module: GpuModule,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    given: Mapping[str, np.ndarray],
    order: str | int = "together",
) -> np.ndarray:
    """Launch all kernels of a module and return the last one's output."""
    arrays = {name: np.ascontiguousarray(array) for name, array in module.constants.items()}
    arrays |= given
    output = module.kernels[-1].tensors[-1]
    kernels = parse_ptx(module.code)
    for launch in module.kernels:
        name = launch.tensors[-1]
        dtype, shape = tensors[name]
        arrays[name] = np.zeros(shape, dtype)
        run(
            kernels[launch.name],
            launch.grid,
            launch.threads,
            [
                *(arrays[tensor] for tensor in launch.tensors),
                *(TensorArgument(one, arrays[tensor]) for tensor, one in launch.maps),
            ],
            shared_bytes=launch.shared_bytes,
            order=order,
        )
    return arrays[output]


def run_schedule(
    schedule: te.Schedule, given: Mapping[str, np.ndarray], run: Runner = run_module
) -> np.ndarray:
    target = schedule.target
    assert isinstance(target, GpuTarget)
    module = compile_program(schedule.program(), target)
    between = {tensor.name: tensor for tensor in module.buffers}
    return run(module, _shapes({**schedule.kernel.tensors, **between}), given)


def run_opencl(
    driver: OpenClDriver,
    module: GpuModule,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    given: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Launch all kernels of a module on a device and return the last one's output."""
    arrays = {**module.constants, **given}
    buffers = {}
    functions = driver.load(module)
    for function in functions:
        kernel = function.kernel
        for name in kernel.tensors:
            if name not in buffers:
                dtype, shape = tensors[name]
                array = np.ascontiguousarray(arrays.get(name, np.zeros(shape, dtype)))
                assert (array.dtype, array.shape) == (dtype, shape)
                buffers[name] = driver.allocate(array.nbytes)
                driver.copy_in(buffers[name], array)
                driver.synchronise()
        driver.launch(function, kernel.grid, kernel.threads, [buffers[n] for n in kernel.tensors])
    output = module.kernels[-1].tensors[-1]
    dtype, shape = tensors[output]
    found = np.zeros(shape, dtype)
    driver.copy_out(buffers[output], found)
    driver.synchronise()
    return found


def run_kernel(
    kernel: GpuKernel,
    given: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    order: str | int = "together",
) -> np.ndarray:
    arrays = {name: array.reshape(kernel.tensors[name][1]) for name, array in given.items()}
    arrays |= kernel.prepare(constants)
    found = run_module(kernel.module, kernel.tensors, arrays, order)
    return found.reshape(kernel.description.output.shape)


def drawn(kernel: Kernel, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs."""
    random = np.random.default_rng(seed)
    return {name: draw(kernel.tensors[name], random) for name in kernel.inputs}


def draw(tensor: Tensor | TensorType, random: np.random.Generator) -> np.ndarray:
    dtype = np.dtype(tensor.dtype)
    if holds_reals(dtype):
        return random.standard_normal(tensor.shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, tensor.shape).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -1000), min(limits.max, 1000)
    return random.integers(low, high, tensor.shape, dtype, endpoint=True)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
