"""Schedules: kernels that machine code calls one after another, at fixed addresses.

A step costs nanoseconds on top of its kernel; a call from Python costs microseconds.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ....aligned import address_of
from ..codegen.machine_code import LoadedCode, assemble
from ..target import host
from . import workspace
from .kernel import BoundKernel
from .pool import ThreadPool
from .schedule_code import (
    BOX_WORDS,
    DIMENSIONS,
    HEADER_WORDS,
    MAX_VECTORS,
    MEMCPY,
    SQUARE_BYTES,
    SQUARE_SIZES,
    SQUARES,
    STEP_WORDS,
    VECTOR,
    VECTOR_BYTES,
    VECTORS,
    schedule_code,
)


class KernelCall:
    """A step of a schedule: code, and the addresses of its arrays.

    Parameters
    ----------
    code
        Address of a function with the signature of kernels.
    addresses
        Addresses of the function's arrays; those that are not known yet are 0.
    places
        Positions of arrays among the addresses, by name.
    held
        Objects that own the code and the arrays.
    workspace_bytes
        Size of the memory that the code needs while it runs.
    pool
        Threads that share its loops; None for one thread.
    """

    def __init__(
        self,
        code: int,
        addresses: Sequence[int],
        places: Mapping[str, int],
        held: object,
        workspace_bytes: int = 0,
        pool: ThreadPool | None = None,
    ) -> None:
        self.code, self.places = code, places
        self.workspace_bytes, self.pool = workspace_bytes, pool
        self.frame = (ctypes.c_uint64 * len(addresses))(*addresses)
        self._held = [held]

    @classmethod
    def of(cls, bound: BoundKernel) -> "KernelCall":
        """Return the call of a kernel; its result is `out`."""
        frame, places = bound.frame()
        kernel = bound.kernel
        return cls(
            kernel.address,
            [address or 0 for address in frame],
            {**places, "out": len(frame) - 1},
            bound,
            kernel.workspace_bytes,
            kernel.pool,
        )

    def hold(self, owner: object) -> "KernelCall":
        """Keep the owner of code or arrays alive, and return the call."""
        self._held.append(owner)
        return self

    def place(self, **addresses: int) -> "KernelCall":
        """Set the addresses of arrays by name, and return the call."""
        for name, address in addresses.items():
            self.frame[self.places[name]] = address
        return self


class CallSequence:
    """Calls in order.

    Parameters
    ----------
    calls
        The steps; their frames may change between runs.
    """

    def __init__(self, calls: Sequence[KernelCall]) -> None:
        self.calls = tuple(calls)
        self.workspace_bytes = max((call.workspace_bytes for call in self.calls), default=0)
        self._words = np.zeros(HEADER_WORDS + STEP_WORDS * len(self.calls), np.uint64)
        self._words[0] = len(self.calls)
        for step, call in zip(self._steps(), self.calls, strict=True):
            step[:2] = call.code, ctypes.addressof(call.frame)
            if call.pool is not None:
                step[2:4] = call.pool.run, call.pool.state
        self._address = address_of(self._words)
        self._walk = _walk()

    def _steps(self) -> np.ndarray:
        return self._words[HEADER_WORDS:].reshape(-1, STEP_WORDS)

    def run(self) -> int | None:
        """Call every step; stop at one that fails, and return its position."""
        if not self.workspace_bytes:
            failed = self._walk(self._address, None, None, None)
        else:
            space = workspace.take(self.workspace_bytes)
            failed = self._walk(self._address, space.address, None, None)
            workspace.give_back(space)
        return failed - 1 if failed else None

    def ticks(self) -> np.ndarray:
        """Return when the last run began, and when each step ended, in ticks, uint64[1 + steps].

        It is a view of a copy.
        """
        return self._words.copy()[HEADER_WORDS - 1 :: STEP_WORDS]

    def call(self) -> KernelCall:
        """Return the schedule as a step of another one."""
        found = KernelCall(_library().address("walk"), [], {}, self, self.workspace_bytes)
        words: Any = self._words
        found.frame = (ctypes.c_uint64 * len(self._words)).from_buffer(words)
        return found


@dataclass(frozen=True, slots=True)
class Box:
    """Elements of an array, and their places in another one: a progression on each axis.

    Parameters
    ----------
    source
        Position of the array among the sources.
    first, place
        The first element, and its place in the output.
    extents
        Elements on each axis.
    strides, steps
        Distances of neighbours on each axis, in the source and in the output, in elements.
    """

    source: int
    first: int
    place: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]


def copy_call(boxes: Sequence[Box], itemsize: int, sources: int) -> KernelCall:
    """Return a call that copies boxes in order, from `in0`, `in1` and so on to `out`.

    Parameters
    ----------
    itemsize
        Bytes of an element.
    sources
        Number of arrays.
    """
    words = [word for box in boxes for word in _words_of(box, itemsize)]
    table = np.array([len(words) // BOX_WORDS, *words], np.int64)
    places = {"out": 1, **{f"in{index}": 2 + index for index in range(sources)}}
    addresses = [address_of(table), *[0] * (1 + sources)]
    return KernelCall(_library().address("copy"), addresses, places, table)


def _words_of(box: Box, itemsize: int) -> list[int]:
    """Return the words of a box; of several where it has too many axes."""
    axes = _merged(box)
    innermost, run = _squares(axes, itemsize)
    if not innermost:
        elements = axes.pop()[0] if axes and axes[-1][1:] == (1, 1) else 1
        run = elements * itemsize
        size = next(size for size in VECTOR_BYTES if size <= run)
        vectors = VECTOR if run == size else VECTORS
        innermost = vectors.format(size) if run <= MAX_VECTORS * size else MEMCPY
        if len(axes) > 1 and axes[-1][0] < min(4, axes[0][0]):
            axes.append(axes.pop(max(range(len(axes)), key=lambda index: axes[index][0])))
    split, kept = axes[:-DIMENSIONS], axes[-DIMENSIONS:]
    kept = [(1, 0, 0)] * (DIMENSIONS - len(kept)) + kept
    extents, *distances = zip(*kept, strict=True)
    strides, steps = ([itemsize * distance for distance in one] for one in distances)
    words: list[int] = []
    for index in np.ndindex(*(extent for extent, _, _ in split)):
        first, place = box.first, box.place
        for position, (_, stride, step) in zip(index, split, strict=True):
            first, place = first + position * stride, place + position * step
        head = [2 + box.source, first * itemsize, place * itemsize, run]
        words += [_library().address(f"copy.{innermost}"), *head, *extents, *strides, *steps]
    return words


def _squares(axes: list[tuple[int, int, int]], itemsize: int) -> tuple[str, int]:
    """Join the axes of neighbours in the source and in the output, if both fill squares.

    Returns
    -------
    The function for the joined axis, and the extent of the source's; "" and 0 without squares.
    """
    least = SQUARE_BYTES // itemsize
    near = [axis for axis in axes if axis[1] == 1 and axis[0] >= least]
    last = [axis for axis in axes if axis[2] == 1 and axis[0] >= least]
    if itemsize not in SQUARE_SIZES or not near or not last or near[0] is last[0]:
        return "", 0
    (run, _, step), (extent, stride, _) = near[0], last[0]
    axes.remove(near[0])
    axes.remove(last[0])
    axes.append((extent, stride, step))
    return SQUARES.format(itemsize), run


def _merged(box: Box) -> list[tuple[int, int, int]]:
    """Return extent, stride and step of each axis, neighbours joined where they are one."""
    axes: list[tuple[int, int, int]] = []
    for extent, stride, step in zip(box.extents, box.strides, box.steps, strict=True):
        if extent == 1:
            continue
        if axes and axes[-1][1:] == (stride * extent, step * extent):
            extent *= axes.pop()[0]
        axes.append((extent, stride, step))
    return axes


@cache
def _library() -> LoadedCode:
    module = schedule_code()
    called = [one.name for one in module.functions if not one.is_declaration]
    return LoadedCode(assemble(str(module), host(), "schedule"), *called)


@cache
def _walk():
    return _library().function("walk", *[ctypes.c_void_p] * 4, result=ctypes.c_int64)
