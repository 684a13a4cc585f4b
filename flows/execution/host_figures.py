"""The speed of this machine as a host, measured once in half a second, and kept.

Figures are rounded to two digits, because other work on the machine makes further digits random. If
other work takes much of the machine, they are not kept, and `measured_while_busy` tells it.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_write import write_atomically
from ...compiler.cpu import Convolution, CpuTarget, Requantisation, aligned_empty, compile_kernel
from ...compiler.cpu.execution.kernel import code_generator_digest
from ...compiler.graph import Graph, Node, Output, QAdd, TensorType, Value, evaluate_node
from ...compiler.host import host_target
from ...compiler.placement.costs import NS_PER_US, HostSpeed, passes_of
from ...errors import TilewrightError
from ...runtime.benchmark import Watch
from ...sim.cache import kept_folder
from ..bench.resnet18_layers import ConvolutionShape, layer_graph

CACHE_FOLDER = "host"
SHAPE = ConvolutionShape("C", 28, 64, 64, 3, 1, 1)
"""A convolution of a common size, whose operands fit the second-level cache."""
SMALL = ConvolutionShape("S", 4, 16, 16, 1, 1, 1)
"""A convolution so small that its time is that of a call."""
BYTES = {"dtype": "int8", "epilogue": Requantisation("int8").epilogue()}
COPIED_BYTES = 1 << 24
"""Bytes of a copy, more than the caches hold."""
MIN_CALLS, WARM_UP_S, MEASURED_S = 5, 0.02, 0.04
"""Fewest calls, of which the fastest counts, and least durations of warm-up and measurement."""


@cache
def measured_host() -> HostSpeed:
    """Return this machine's figures, measured now or earlier; a process always gets the same ones.

    Without kernels for this processor, the figures are NumPy's.
    """
    target = host_target()
    known = (platform.node(), np.__version__, target, code_generator_digest())
    name = hashlib.sha256(repr(known).encode()).hexdigest()
    with contextlib.suppress(TilewrightError):
        path = kept_folder(CACHE_FOLDER, "keeping the host's figures") / f"{name[:16]}.json"
        host = _kept(path)
        if host is None:
            watch = Watch()
            host = measure_host(target)
            load = watch.load()
            if load.busy:
                _busy.add(host)
                return host
            with contextlib.suppress(OSError):
                write_atomically(path, json.dumps(asdict(host)).encode())
        return host
    return measure_host(target)


def measured_while_busy(host: HostSpeed) -> bool:
    """Whether other work on this machine made the figures of `measured_host` worse."""
    return host in _busy


_busy: set[HostSpeed] = set()


def _kept(path: Path) -> HostSpeed | None:
    """Kept figures; None if one is missing or impossible."""
    try:
        figures = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    names = {field.name for field in fields(HostSpeed)}
    if not isinstance(figures, dict) or set(figures) != names:
        return None
    whole = all(isinstance(value, float) and 0 < value < math.inf for value in figures.values())
    return HostSpeed(**figures) if whole else None


def measure_host(target: CpuTarget | None) -> HostSpeed:
    """Measure now.

    Parameters
    ----------
    target : Target or None
        The processor for which kernels are compiled; None without kernels.
    """
    graph = layer_graph(SHAPE)
    (node,) = graph.nodes
    generator = np.random.default_rng(0)
    x = generator.integers(-128, 128, graph.types["x"].shape).astype(np.int8)
    arrays = [x, *(graph.data(name) for name in node.inputs[1:])]
    operations = 2 * SHAPE.macs
    numpy_gops = _per_ns(operations, lambda: evaluate_node(node, arrays))
    add = _addition(node.output.type)
    numpy_ns = 1 / _per_ns(
        passes_of(add, add.nodes[0]), lambda: evaluate_node(add.nodes[0], [x, x])
    )
    copy = np.zeros(COPIED_BYTES, np.uint8)
    into = np.empty_like(copy)
    gbps = _per_ns(2 * COPIED_BYTES, lambda: np.copyto(into, copy))
    small = np.zeros((1, 1, 1, 1), np.int8)
    call_us = 1 / _per_ns(NS_PER_US, lambda: evaluate_node(add.nodes[0], [small, small]))
    gops, kernel_us = [numpy_gops, numpy_gops], call_us
    if target is not None:
        gops = [2 * SHAPE.macs * _kernel_rate(target, SHAPE, kind) for kind in (BYTES, {})]
        kernel_us = 1 / _kernel_rate(target, SMALL, {}) / NS_PER_US
    figures = (*gops, gbps, numpy_gops, numpy_ns, call_us, kernel_us)
    return HostSpeed(*(float(f"{figure:.2g}") for figure in figures))


def _kernel_rate(target: CpuTarget, shape: ConvolutionShape, numbers: Mapping[str, Any]) -> float:
    """Convolutions per nanosecond, with all threads that a session uses."""
    pad = shape.padding
    description = Convolution(
        1,
        shape.size,
        shape.size,
        shape.channels_in,
        shape.channels_out,
        (shape.kernel, shape.kernel),
        pads=(pad, pad, pad, pad),
        winograd=False,
        **numbers,
    )
    kernel = compile_kernel(description, target, len(os.sched_getaffinity(0)))
    given = {
        name: np.ones(array.shape, array.dtype) for name, array in description.operands.items()
    }
    layer = kernel.bind(**{name: given[name] for name in description.constants})
    result = aligned_empty(description.output.shape, description.output.dtype)
    return _per_ns(1, lambda: layer(given["x"], out=result))


def _addition(kind: TensorType) -> Graph:
    x, out = Value("x", kind), Value("out", kind)
    node = Node("add", QAdd((1, 1), 0, 0.5, 0), ("x", "x"), (out,))
    return Graph("add", (x,), (Output("out", "out"),), (node,))


def _per_ns(count: int, call: Callable[[], object]) -> float:
    """Operations per nanosecond of the fastest call, which does `count` of them."""
    began = time.perf_counter()
    call()
    while time.perf_counter() - began < WARM_UP_S:
        call()
    times: list[int] = []
    began = time.perf_counter()
    while len(times) < MIN_CALLS or time.perf_counter() - began < MEASURED_S:
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return count / max(min(times), 1)
