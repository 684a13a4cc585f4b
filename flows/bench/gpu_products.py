"""Speed of single kernels on a GPU: products of matrices, beside cuBLAS, and copies of memory."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ...compiler import te
from ...compiler.gpu import GpuTarget, compile_program, default_schedule
from ...compiler.tensor import Kernel
from ...runtime.gpu import GpuDriver
from ..tuning.device_kernels import LoadedKernel, load_module
from ..tuning.device_kernels import seconds_of as seconds_of_runs

DTYPES = "int8", "float16", "float32"
ROUNDS = 5
"""Rounds of measurements; ours and the peer's take turns in each."""

MIN_SECONDS = 2e-3
"""Least time of one measurement."""

CHECKED_ROWS = 8
"""Rows of a product that are compared; every block column of the GPU has a part in them."""

TOLERANCE = 1e-3
"""Largest difference of a float result, relative to the largest magnitude."""


def load(driver: GpuDriver, kernel: Kernel, given: Mapping[str, np.ndarray]) -> LoadedKernel:
    """Compile a kernel by its default schedule, and copy its inputs."""
    target: GpuTarget = driver.target
    module = compile_program(default_schedule(kernel, target).program(), target)
    return load_module(driver, module, given, kernel.output.dtype, kernel.output.shape)


def seconds_of(driver: GpuDriver, run: Callable[[], None]) -> float:
    """Seconds of one run on the GPU, of as many as take `MIN_SECONDS`."""
    count = 1
    while True:
        taken = seconds_of_runs(driver, run, count)
        if taken >= MIN_SECONDS:
            return taken / count
        count *= 2


def product(size: int, dtype: str) -> Kernel:
    """A product of a square matrix and a transposed one; integers are summed in int32."""
    y, x = te.axes(y=size, x=size)
    (r,) = te.reduce_axes(r=size)
    a, b = te.tensor("a", dtype, (size, size)), te.tensor("b", dtype, (size, size))
    out = "int32" if dtype == "int8" else "float32"
    sums = te.sum(a[y, r] * b[x, r], over=r)
    return te.kernel("product", te.compute("c", out, (y, x), sums))


def measure_products(
    driver: GpuDriver, sizes: Sequence[int], seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the speed of products of random numbers, and whether rows of them are right."""
    random = np.random.default_rng(seed)
    torch = peer()
    for size in sizes:
        for dtype in DTYPES:
            given = {name: _drawn(random, dtype, size) for name in "ab"}
            kernel = load(driver, product(size, dtype), given)
            theirs = None if torch is None else _torch_product(torch, given, dtype)
            times: dict[str, list[float]] = {"ours": [], "cublas": []}
            for _ in range(ROUNDS):
                times["ours"].append(seconds_of(driver, kernel.run))
                if theirs is not None:
                    times["cublas"].append(_torch_seconds(torch, theirs))
            yield {
                "size": size,
                "dtype": dtype,
                "right": _rows_are_right(kernel.result(), given, dtype),
                **{f"{who}_s": statistics.median(found) for who, found in times.items() if found},
                "tflops": 2 * size**3 / statistics.median(times["ours"]) / 1e12,
            }


def _drawn(random: np.random.Generator, dtype: str, size: int) -> np.ndarray:
    if dtype == "int8":
        return random.integers(-128, 128, (size, size), np.int8)
    return random.standard_normal((size, size), np.float32).astype(dtype)


def _rows_are_right(found: np.ndarray, given: Mapping[str, np.ndarray], dtype: str) -> bool:
    """Compare rows at equal distances, the last one among them."""
    rows = np.unique(np.linspace(0, len(found) - 1, CHECKED_ROWS).astype(int))
    expected = given["a"][rows].astype(np.float64) @ given["b"].astype(np.float64).T
    if dtype == "int8":  # sums of products of bytes are exact in float64
        return bool((found[rows] == expected).all())
    return bool(np.abs(found[rows] - expected).max() <= TOLERANCE * np.abs(expected).max())


def measure_memory(driver: GpuDriver, elements: int) -> Iterator[dict[str, Any]]:
    """Yield the bandwidth of a copy and of a chain of operators on float32, and torch's copy."""
    (i,) = te.axes(i=elements)
    x = te.tensor("x", "float32", (elements,))
    array = np.random.default_rng(1).standard_normal(elements, np.float32)
    bodies = {"copy": x[i] + 0.0, "chain": te.maximum(x[i] * 0.5 + 1.0, 0.0)}
    meant = {"copy": array, "chain": np.maximum(array * np.float32(0.5) + np.float32(1), 0)}
    for name, body in bodies.items():
        kernel = load(driver, te.kernel(name, te.compute("y", "float32", (i,), body)), {"x": array})
        seconds = statistics.median(seconds_of(driver, kernel.run) for _ in range(ROUNDS))
        right = bool(np.allclose(kernel.result(), meant[name], rtol=1e-6, atol=1e-6))
        yield {"kernel": name, "gbps": 8 * elements / seconds / 1e9, "right": right}
    if (torch := peer()) is not None:
        there = torch.from_numpy(array).cuda()
        room = torch.empty_like(there)
        seconds = statistics.median(
            _torch_seconds(torch, lambda: room.copy_(there)) for _ in range(ROUNDS)
        )
        yield {"kernel": "torch copy", "gbps": 8 * elements / seconds / 1e9, "right": True}


def peer() -> Any:
    """PyTorch, if it is installed and sees a GPU; otherwise None."""
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _torch_product(torch: Any, given: Mapping[str, np.ndarray], dtype: str) -> Callable[[], Any]:
    a, b = (torch.from_numpy(given[name]).cuda() for name in "ab")
    if dtype == "int8":
        return lambda: torch._int_mm(a, b.t())
    return lambda: torch.mm(a, b.t())


def _torch_seconds(torch: Any, run: Callable[[], Any]) -> float:
    """Seconds of one run, as `seconds_of` measures it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    count = 1
    while True:
        start.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize()
        taken = start.elapsed_time(end) / 1e3
        if taken >= MIN_SECONDS:
            return taken / count
        count *= 2
