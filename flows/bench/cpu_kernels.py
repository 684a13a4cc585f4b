"""Kernels of the CPU target compared with onnxruntime's, in one run on the same threads.

Both run in turns, and their minimum times are compared, because other processes disturb the minimum
least. On one thread, the time is processor time. On several threads it is wall-clock time, which is
meaningful only on an idle machine. The fastest of onnxruntime's layouts counts
(`onnxruntime_peer`). Both use addresses that are bound in advance, and arrays are placed as in a
network's memory. The share of the peak (`cpu_peak`) shows how much faster a kernel could be;
Winograd kernels exceed it, because they do fewer multiplications than are counted.

At the level `avx2`, products of int8 are measured against onnxruntime's exact mode, whose results
equal ours, and against its default mode, whose sums saturate on a processor without VNNI. Products
whose weights have small pairs are a third case.
"""

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from ...compiler.cpu import (
    Array,
    CompiledKernel,
    Convolution,
    CpuTarget,
    Description,
    Elementwise,
    Epilogue,
    HeadProduct,
    LayerNormalisation,
    MatrixProduct,
    Requantisation,
    RowSoftmax,
    compile_kernel,
    host,
    real_epilogue,
)
from ...errors import UsageError
from ...runtime.host import MARGIN
from ...wording import counted
from ..cli.json_output import check_json, write_json
from ..cli.main import guarded
from .cpu_peak import peak_rates
from .onnxruntime_peer import Run, peer_runs
from .resnet18_layers import RESNET18, ConvolutionShape

FIRST = ConvolutionShape("C1", 224, 3, 64, 7, 2, 1)
DEPTHWISE = (
    (112, 32, 1),
    (112, 96, 2),
    (56, 144, 1),
    (56, 144, 2),
    (28, 192, 1),
    (28, 192, 2),
    (14, 384, 1),
    (14, 576, 1),
    (14, 576, 2),
    (7, 960, 1),
)
"""Layers of MobileNetV2: extent, channels, stride (Sandler et al., CVPR 2018, table 2)."""

PRODUCTS = {"qkv": (128, 768, 2304), "output": (128, 768, 768), "up": (128, 768, 3072)}
PRODUCTS["down"] = (128, 3072, 768)
"""Products of a transformer block, 768 channels, 128 tokens: rows, inner extent, columns."""

HEADS = 12
"""Shapes of the block's attention, with 64 channels per head."""

PAGE_BYTES = 4096

LARGE_BYTES = 1 << 23
"""Bytes from which NumPy asks for large pages, as for a network's memory."""

BYTES = {"dtype": "uint8", "epilogue": Requantisation("uint8", 4).epilogue()}

MEASURED_S = 0.25
"""Seconds per kernel and contender."""

TURN_S = 0.02
"""Seconds per turn: long enough that sleeping threads are awake most of the time."""


class KernelCase(NamedTuple):
    """A kernel to measure; `exact` asks for onnxruntime's exact mode (`peer_session`)."""

    group: str
    name: str
    description: Description
    macs: int
    exact: bool = False


def cases(target: CpuTarget) -> Iterator[KernelCase]:
    """The kernels of the bench on a target."""
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (("float32", {}), ("int8", BYTES))
    for kind, bytes_ in kinds:
        window = {**bytes_, "zero_point": 3} if bytes_ else {}
        for shape in (FIRST, *RESNET18):
            pads = (shape.padding, shape.padding, shape.padding, shape.padding)
            layer = Convolution(
                1,
                shape.size,
                shape.size,
                shape.channels_in,
                shape.channels_out,
                (shape.kernel, shape.kernel),
                (shape.stride, shape.stride),
                pads,
                narrow=bool(bytes_),
                **(window or {"epilogue": real_epilogue("relu")}),
            )
            yield KernelCase(f"convolution {kind}", shape.name, layer, layer.macs)
        for name, extents in PRODUCTS.items():
            layer = MatrixProduct(*extents, **bytes_)
            case = KernelCase(f"matrix product {kind}", name, layer, layer.macs)
            if bytes_ and target.saturating:
                small = replace(layer, small_pairs=True)
                yield case._replace(exact=True)
                yield case._replace(group=f"{case.group}, onnxruntime's default mode")
                group = f"{case.group}, small pairs of weights"
                yield case._replace(group=group, description=small)
            else:
                yield case
        for size, channels, stride in DEPTHWISE:
            layer = Convolution(
                *(1, size, size, channels, channels, (3, 3), (stride, stride), (1, 1, 1, 1)),
                groups=channels,
                **window,
            )
            yield KernelCase(f"depthwise {kind}", f"{size}x{channels}/{stride}", layer, layer.macs)
    scaled = Epilogue(("mul", "sum", 0.125), "float32")
    scores = HeadProduct(1, HEADS, 128, 64, 128, transposed=True, epilogue=scaled)
    yield KernelCase("transformer products", "scores", scores, scores.macs)
    values = HeadProduct(1, HEADS, 128, 128, 64)
    yield KernelCase("transformer products", "values", values, values.macs)
    yield KernelCase("rows", "softmax 1536x128", RowSoftmax(1536, 128), 0)
    yield KernelCase("rows", "softmax 1x1000", RowSoftmax(1, 1000), 0)
    yield KernelCase("rows", "layer norm 128x768", LayerNormalisation(128, 768), 0)
    for name in ("gelu", "tanh", "sigmoid", "exp"):
        chain = Elementwise((128, 3072), (("x", "float32"),), (name, "x"))
        yield KernelCase("elementwise", f"{name} 128x3072", chain, 0)


def main(arguments: list[str] | None = None) -> int:
    """Time kernels against onnxruntime's."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.cpu_kernels", description=__doc__
    )
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--only", default="", help="groups and names that contain this")
    parser.add_argument("--level", help="feature set; the machine's by default")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="stdout without FILE")
    options = parser.parse_args(arguments)

    def call() -> None:
        check_json(options.json)
        target, rows = host(options.level), []
        peaks = peak_rates(target)
        for case in cases(target):
            title = f"{case.group} {case.name}"
            if options.only in title:
                for threads in options.threads:
                    row = {name: getattr(case, name) for name in ("group", "name", "macs")}
                    found = measure(case.description, threads, target, case.exact)
                    kind = "int8" if "int8" in case.group else "float32"
                    peak = peaks.get(kind, 0) * threads
                    share = 2 * case.macs / (found["ours_s"] * peak) if peak else 0
                    rows.append({**row, "threads": threads, **found, "share_of_peak": share})
                    print(f"{title}, {threads}: {found['ratio']:.2f}", file=sys.stderr)
        if not rows:
            raise UsageError(f"`--only {options.only}`: no group or name contains it")
        if options.json:
            write_json(options.json, {"peak_operations_per_s": peaks, "rows": rows})
        if options.json != "-":
            Console(width=112).print(table(rows))
            for line in summary(rows):
                print(line)

    return guarded(call)


def measure(description: Description, threads: int, target: CpuTarget, exact: bool = False) -> dict:
    """Return the shortest time of each contender in seconds, and the speedup of the CPU target."""
    started = time.thread_time()
    kernel = compile_kernel(description, target, threads)
    compiled = time.thread_time() - started
    ours = runner(kernel)
    clock = time.thread_time if threads == 1 else time.perf_counter
    peers = sorted(peer_runs(description, threads, exact), key=lambda run: duration(run, clock))
    contenders = [ours, peers[0]]
    times: list[list[float]] = [[], []]
    once = max(duration(run, clock) for run in contenders)
    repeats = max(1, math.ceil(0.0005 / once))
    turn = max(1, math.ceil(TURN_S / (once * repeats)))
    for _ in range(max(3, math.ceil(MEASURED_S / TURN_S))):
        for run, found in zip(contenders, times, strict=True):
            for _ in range(turn):
                before = clock()
                for _ in range(repeats):
                    run()
                found.append((clock() - before) / repeats)
    mine, theirs = map(min, times)
    return {"ours_s": mine, "peer_s": theirs, "ratio": theirs / mine, "compile_s": compiled}


def runner(kernel: CompiledKernel) -> Run:
    """Return a kernel with its own arrays, bound once as in a session, ready to run."""
    generator = np.random.default_rng(0)
    description = kernel.description
    *operands, out = in_one_block([*description.operands.values(), description.output])
    for array in operands:
        if array.dtype == np.float32:
            array[...] = generator.standard_normal(array.shape)
        else:
            array[...] = generator.integers(0 if array.dtype == np.uint8 else -50, 50, array.shape)
    arrays = dict(zip(description.operands, operands, strict=True))
    bound = kernel.bind(**{name: arrays.pop(name) for name in description.constants})
    frame, places = bound.frame()
    for name, array in arrays.items():
        frame[places[name]] = array.ctypes.data
    frame[len(frame) - 1] = out.ctypes.data

    def run(held: object = (bound, arrays, out)) -> None:
        kernel.call(frame)

    return run


def in_one_block(arrays: Sequence[Array]) -> list[np.ndarray]:
    """Arrays in memory of large pages, one after the other, each page-aligned with a margin."""
    sizes = [math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays]
    starts = [0, *itertools.accumulate(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)]
    room = np.empty(max(starts[-1], LARGE_BYTES) + PAGE_BYTES + 2 * MARGIN, np.uint8)
    room[:MARGIN] = room[-MARGIN:] = 0
    room = room[MARGIN + -(room.ctypes.data + MARGIN) % PAGE_BYTES :]
    return [
        room[start : start + size].view(array.dtype).reshape(array.shape)
        for array, start, size in zip(arrays, starts, sizes, strict=False)
    ]


def duration(run: Run, clock: Callable[[], float]) -> float:
    """Return the seconds of the fastest of five runs, after two that do not count."""
    found = []
    for _ in range(7):
        before = clock()
        run()
        found.append(clock() - before)
    return max(min(found[2:]), 1e-7)


def table(rows: list[dict]) -> Table:
    """All kernels; rates count multiplications and additions."""
    out = Table(title="CPU target and onnxruntime", caption="* slower than onnxruntime")
    for name in ("group", "kernel", "threads", "us", "onnxruntime us", "Gop/s", "peak", "ratio"):
        out.add_column(name, justify="left" if name in ("group", "kernel") else "right")
    for row in rows:
        rate = f"{2e-9 * row['macs'] / row['ours_s']:,.0f}" if row["macs"] else ""
        out.add_row(
            row["group"],
            row["name"],
            str(row["threads"]),
            f"{row['ours_s'] * 1e6:,.1f}",
            f"{row['peer_s'] * 1e6:,.1f}",
            rate,
            f"{row['share_of_peak']:.0%}" if row["share_of_peak"] else "",
            f"{'* ' if row['ratio'] < 1 else ''}{row['ratio']:.2f}",
        )
    return out


def summary(rows: list[dict]) -> Iterator[str]:
    """Geometric means of the ratios by group and threads."""
    for group in dict.fromkeys(row["group"] for row in rows):
        parts = []
        for threads in dict.fromkeys(row["threads"] for row in rows):
            found = [r["ratio"] for r in rows if (r["group"], r["threads"]) == (group, threads)]
            mean = math.exp(sum(map(math.log, found)) / len(found))
            parts.append(f"{mean:.2f}x on {counted(threads, 'thread')}")
        yield f"{group}: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
