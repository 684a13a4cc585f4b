"""Code that gathers or scatters runs of bytes at indices that each call reads.

One routine serves all such operators. A nest of loops walks through index tuples; `IndexMap` says
how far the indices, and the array that they address, advance on each axis. The other array is
contiguous. An index out of range ends the routine with status 1.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import numpy as np
from llvmlite import ir

from ....aligned import address_of
from ..codegen.emitter import I8, I64, POINTER, LlvmType, LlvmValue
from ..codegen.lower_parallel import RUN, Callee
from ..codegen.machine_code import LoadedCode, assemble
from ..target import host
from .pool import pool_of
from .routine import Routine
from .schedule import KernelCall

AXES = 4
"""Axes of the nest."""

MIN_SHARED_BYTES = 1 << 16
"""Minimum bytes, those of indices included, that threads share."""

VECTOR_BYTES = 16
MAX_VECTOR_BYTES = 512
"""Maximum bytes of a run that is copied in vectors; longer ones are left to `memcpy`."""

_ELEMENTS = (1, 2, 4, 8)
_ADDRESSED, _INDICES = range(AXES, 3 * AXES, AXES)
_RUN_BYTES, _TUPLES, _DEPTH, _LIMITS = range(3 * AXES, 3 * AXES + 4)
"""Words of the table: extents, distances of the addressed array and of the indices on each axis,
bytes of a run, tuples for each step of the outermost axis, indices of a tuple, and for each of them
the extent and the distance of its axis."""


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A nest of loops over index tuples, and the runs of elements that they address.

    Parameters
    ----------
    axes
        Extent, distance of the addressed array and distance of the indices on each axis of the
        nest, in elements; at most `AXES`.
    limits
        Extent and distance, in elements, of the axis that each index of a tuple addresses.
    run
        Consecutive elements that move together.
    """

    axes: tuple[tuple[int, int, int], ...]
    limits: tuple[tuple[int, int], ...]
    run: int


def gather_call(
    found: IndexMap, itemsize: int, index_bytes: int, *, scatters: bool = False, threads: int = 1
) -> KernelCall:
    """Return a call that gathers `addressed[indices]` into `other`, or scatters `other` back.

    Parameters
    ----------
    itemsize, index_bytes
        Bytes of an element and of an index.
    scatters
        Whether runs go from `other` to `addressed`, in order: of equal indices, the last counts.
    threads
        Threads that share the outermost axis of a gather.
    """
    run = found.run * itemsize
    # The padding comes behind the outermost axis, which threads share.
    axes = [*found.axes[:1], *[(1, 0, 0)] * (AXES - len(found.axes)), *found.axes[1:]]
    extents, addressed, indices = zip(*axes, strict=True)
    limits = [word for extent, step in found.limits for word in (extent, step * itemsize)]
    inner = int(np.prod(extents[1:]))
    words = [*extents, *(step * itemsize for step in addressed)]
    words += [step * index_bytes for step in indices]
    table = np.array([*words, run, inner, len(found.limits), *limits], np.int64)
    runs = run if run in _ELEMENTS else 0
    if VECTOR_BYTES <= run <= MAX_VECTOR_BYTES:
        runs = VECTOR_BYTES
    code = _library(index_bytes, runs, len(found.limits) == 1, scatters)
    moved = extents[0] * inner * (run + index_bytes * len(found.limits))
    shared = not scatters and moved >= MIN_SHARED_BYTES
    places = {"other": 1, "indices": 2, "addressed": 3}
    pool = pool_of(threads) if shared else None
    return KernelCall(code.address("gather"), [address_of(table), 0, 0, 0], places, table, 0, pool)


@cache
def _library(index_bytes: int, runs: int, single: bool, scatters: bool) -> LoadedCode:
    """Load the routine for an index size and a run size: an element's, a vector's, or 0 for any."""
    module = ir.Module("gather")
    body = _body(module, ir.IntType(8 * index_bytes), runs, single, scatters)
    r = Routine(module, "gather", [POINTER] * 4, I64)
    arrays, _, run, pool = r.arguments
    extent = r.word(r.word(arrays, 0, POINTER), 0)
    context: LlvmValue = r.alloca(I64, 2)
    r.store(r.ptrtoint(arrays, I64), r.at(context, 0))
    r.store(I64(0), r.at(context, 8))
    alone = r.icmp_unsigned("==", r.ptrtoint(run, I64), I64(0))
    with r.if_else(alone) as (one, several):
        with one:
            r.call(body, [context, I64(0), extent])
        with several:
            r.call(Callee(run, RUN), [pool, body, context, extent])
    r.ret(r.word(context, 1))
    return LoadedCode(assemble(str(module), host(), "gather"), "gather")


def _body(module: ir.Module, index: LlvmType, runs: int, single: bool, scatters: bool) -> LlvmValue:
    """Emit `void body(context, begin, end)`, on a part of the outermost axis."""
    r = Routine(module, "body", [POINTER, I64, I64], internal=True)
    context, begin, end = r.arguments
    arrays = r.word(context, 0, POINTER)
    table, other, indices, addressed = (r.word(arrays, place, POINTER) for place in range(4))
    extents, steps, strides = (
        [r.word(table, part * AXES + axis) for axis in range(AXES)] for part in range(3)
    )
    size = r.word(table, _RUN_BYTES)
    extents[0] = r.sub(end, begin)
    skipped = r.mul(r.mul(begin, r.word(table, _TUPLES)), size)
    place = r.variable(r.at(other, skipped))
    indices = r.at(indices, r.mul(begin, strides[0]))
    addressed = r.at(addressed, r.mul(begin, steps[0]))
    failed = r.append_basic_block("failed")
    with ExitStack() as stack:
        for extent, step, stride in zip(extents, steps, strides, strict=True):
            loop = r.moving(extent, (addressed, step), (indices, stride))
            addressed, indices = stack.enter_context(loop)
        found = r.variable(addressed)
        depth = I64(1) if single else r.word(table, _DEPTH)
        width = I64(index.width // 8)
        limits = (r.at(table, 8 * _LIMITS), I64(16))
        with r.moving(depth, (indices, width), limits) as (at, limit):
            number = r.load(at, typ=index, align=1)
            number = r.sext(number, I64) if index.width < I64.width else number
            extent = r.word(limit, 0)
            negative = r.icmp_signed("<", number, I64(0))
            number = r.select(negative, r.add(number, extent), number)
            valid = r.append_basic_block()
            r.cbranch(r.icmp_unsigned("<", number, extent), valid, failed)
            r.position_at_end(valid)
            offset = r.mul(number, r.word(limit, 1))
            r.store(r.at(r.load(found, typ=POINTER), offset), found)
        now, beside = r.load(found, typ=POINTER), r.load(place, typ=POINTER)
        source, target = (beside, now) if scatters else (now, beside)
        _copy_run(r, source, target, size, runs)
        r.store(r.at(beside, I64(runs) if runs in _ELEMENTS else size), place)
    r.ret_void()
    r.position_at_end(failed)
    r.write(I64(1), r.at(context, 8))
    r.ret_void()
    return r.function


def _copy_run(r: Routine, source: LlvmValue, target: LlvmValue, size: LlvmValue, runs: int) -> None:
    if runs in _ELEMENTS:
        r.store(r.load(source, typ=ir.IntType(8 * runs), align=1), target, align=1)
    elif runs:
        with r.blocks(size, VECTOR_BYTES) as start:
            kind = ir.VectorType(I8, VECTOR_BYTES)
            r.store(r.load(r.at(source, start), typ=kind, align=1), r.at(target, start), align=1)
    else:
        kind = ir.FunctionType(POINTER, [POINTER, POINTER, I64])
        memcpy = r.module.globals.get("memcpy") or ir.Function(r.module, kind, "memcpy")
        r.call(memcpy, [target, source, size])
