"""Loop programs of blocks and threads: what threads share, what each keeps, and what is legal.

Every nest at the root is a kernel. Its block loops form the grid. Outside the loops over threads,
all threads of a block run together, so a program says what a block does. A *region* is a node
that each thread runs alone: a nest of thread loops, or a statement outside of them.

A buffer in registers outside the thread loops is spread: each thread keeps the elements that it
computes. So all regions that touch the buffer must deal its elements to the threads alike.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...isa.expressions import Affine, Expression, Read, reads_of
from ..te.affine import scaled, total, variable
from ..te.nodes import (
    LEAVES,
    Allocate,
    Assign,
    Barrier,
    Block,
    For,
    InstructionNest,
    Let,
    Nest,
    Node,
    Update,
    nodes,
)
from ..te.program import Program
from ..te.target import (
    BLOCKS,
    BOUND,
    DRAM,
    REGISTER,
    SHARED,
    Kind,
    ScheduleError,
    TensorInstruction,
)
from .instructions import WarpProduct

LINE_BYTES = 128
"""Bytes of shared memory that all banks together deliver at once."""

PATTERN_BYTES = 8 * LINE_BYTES
"""Bytes after which the exchange of pieces of lines repeats."""


class Owner(NamedTuple):
    """Element `stride * i` of a dimension, of `count`, is thread `i`'s: its number // divisor."""

    stride: int
    divisor: int
    count: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The threads that keep the elements of a buffer in registers.

    Parameters
    ----------
    owners
        Per dimension, the digits of an element's position that are digits of the thread's number,
        the highest first.
    threads
        Number of threads.
    """

    owners: tuple[tuple[Owner, ...], ...]
    threads: int


def is_region(node: Node) -> bool:
    """Whether each thread runs a node alone."""
    if isinstance(node, For) and node.kind is Kind.THREAD:
        return True
    return not any(
        isinstance(inner, Allocate) or (isinstance(inner, For) and inner.kind in BOUND)
        for inner in nodes((node,))
    )


def thread_loops(region: Node) -> tuple[For, ...]:
    """The thread loops of a region, outermost first.

    Raises
    ------
    ScheduleError
        When they are not inside each other.
    """
    found: list[For] = []
    block: Block = (region,)
    while inner := list(_outermost(block)):
        if len(inner) > 1:
            first, second = (loop.variable.replace(":", "`, loop `") for loop in inner[:2])
            raise ScheduleError(
                f"thread loops lie side by side inside another one: stage `{first}` and stage "
                f"`{second}`; move them outside of the reduction, or bind others"
            )
        found += inner
        block = inner[0].body
    return tuple(found)


def _outermost(block: Block) -> Iterator[For]:
    for node in block:
        if isinstance(node, For) and node.kind is Kind.THREAD:
            yield node
        elif not isinstance(node, LEAVES):
            yield from _outermost(node.body)


def threads_of(region: Node) -> int:
    """Number of threads that run a region."""
    return math.prod(loop.extent for loop in thread_loops(region))


def kernels(program: Program) -> tuple[Nest, ...]:
    """The nests at the root, each a kernel of its own, in order."""
    return tuple(node for node in program.body if isinstance(node, Nest))


def regions(block: Block) -> Iterator[Node]:
    """The regions inside a block, in order."""
    for node in block:
        if isinstance(node, (Let, Allocate, Barrier)):
            continue
        if is_region(node):
            yield node
        else:
            assert not isinstance(node, LEAVES)
            yield from regions(node.body)


def check_blocks(program: Program, max_threads: int, shared_bytes: int) -> None:
    """Refuse a program whose blocks do not run on a GPU.

    Raises
    ------
    ScheduleError
        When buffers or loops are not where blocks and threads need them, or exceed a limit.
    """
    for kernel in kernels(program):
        _check_loops(kernel, max_threads)
        _check_buffers(kernel)
        used = shared_of(kernel)
        if used > shared_bytes:
            raise ScheduleError(
                f"`{kernel.stage}`: the buffers in {SHARED} take {used} bytes, more than the "
                f"{shared_bytes} of a block; split the loops around them by smaller factors"
            )
        spreads(kernel)


def shared_of(kernel: Nest) -> int:
    """Bytes of a kernel's buffers that threads share."""
    return sum(map(bytes_of, _allocated(kernel, SHARED)))


def bytes_of(node: Allocate) -> int:
    """Bytes of a buffer in shared memory; each slot begins at a line."""
    size = math.prod(node.shape) * np.dtype(node.tensor.dtype).itemsize
    return max(1, node.slots) * -(-size // LINE_BYTES) * LINE_BYTES


def places_of(kernel: Nest) -> dict[str, int]:
    """Offsets of a kernel's buffers in shared memory, those of the widest alignment first.

    So each slot of a buffer begins at a multiple of the largest power of 2 that divides its size,
    up to the 1024 bytes at which patterns of instructions repeat.
    """

    def unaligned(node: Allocate) -> int:
        size = bytes_of(node) // max(1, node.slots)
        return -min(size & -size, PATTERN_BYTES)

    found, place = dict[str, int](), 0
    for node in sorted(_allocated(kernel, SHARED), key=unaligned):
        found[node.tensor.name] = place
        place += bytes_of(node)
    return found


def _allocated(kernel: Nest, scope: str) -> Iterator[Allocate]:
    for node in nodes((kernel,)):
        if isinstance(node, Allocate) and node.scope == scope:
            yield node


def _check_loops(kernel: Nest, max_threads: int) -> None:
    units: list[Kind] = []

    def walk(block: Block, outside: bool) -> None:
        for node in block:
            if isinstance(node, For) and node.kind in BLOCKS:
                if not outside:
                    raise ScheduleError(
                        f"the loop `{node.variable}` is bound to {node.kind.value}, so no loop "
                        "over threads, and no serial loop, may be around it; reorder it outward"
                    )
                if node.kind in units:
                    raise ScheduleError(
                        f"`{node.variable}` is bound to {node.kind.value}, as another loop of "
                        f"`{kernel.stage}` is; bind each unit once"
                    )
                units.append(node.kind)
            if not isinstance(node, LEAVES):
                blocks_only = not isinstance(node, For) or node.kind in BLOCKS
                walk(node.body, outside and blocks_only)

    walk((kernel,), True)
    for region in regions((kernel,)):
        count = threads_of(region)
        if count > max_threads:
            raise ScheduleError(
                f"`{kernel.stage}` has {count} threads in a block, more than the {max_threads} "
                "that there may be; split the loops by smaller factors"
            )


def _check_buffers(kernel: Nest) -> None:
    def walk(block: Block, inside: bool) -> None:
        for node in block:
            if isinstance(node, Allocate):
                name = node.tensor.name
                if node.scope == DRAM:
                    raise ScheduleError(
                        f"`{name}` is computed inside `{kernel.stage}`, so it must lie in "
                        f"{SHARED} or {REGISTER}; set_scope it, or compute_root it"
                    )
                if node.scope == SHARED and inside:
                    raise ScheduleError(
                        f"`{name}` lies in {SHARED}, but is computed inside a loop over threads; "
                        "compute it further out"
                    )
            elif not isinstance(node, LEAVES):
                thread = isinstance(node, For) and node.kind is Kind.THREAD
                walk(node.body, inside or thread)

    walk((kernel,), False)


# Buffers that are spread over the threads --------------------------------------------------------


def spreads(kernel: Nest) -> dict[str, Spread]:
    """How the buffers in registers are spread over the threads, by tensor.

    Raises
    ------
    ScheduleError
        When a thread would read an element that another thread keeps.
    """
    walker = _Walker(kernel.stage)
    walker.block((kernel,), {})
    return walker.found


class _Walker:
    """Follows every index to the numbers of threads behind it."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.found: dict[str, Spread] = {}
        self.origins: dict[str, tuple[Affine, ...]] = {}
        self.units: dict[str, tuple[int, int]] = {}
        """Divisor and count of the digit of the thread's number that a symbol is."""
        self.threads = 0

    def block(self, block: Block, values: dict[str, Affine]) -> None:
        values = dict(values)
        for node in block:
            if isinstance(node, Let):
                values[node.variable] = self.let(node, values)
            elif isinstance(node, Allocate):
                if node.scope == REGISTER and not self.threads:
                    origin = tuple(_resolved(part, values) for part in node.origin)
                    self.origins[node.tensor.name] = origin
            elif isinstance(node, Barrier):
                continue
            elif not self.threads and is_region(node):
                self.region(node, values)
            elif isinstance(node, (Assign, Update)):
                for read in (node.target, *reads_of(node.value)):
                    self.touch(read, values)
            else:
                if isinstance(node, For):
                    values[node.variable] = total(
                        _resolved(node.start, values), variable(node.variable)
                    )
                self.block(node.body, values)

    def region(self, region: Node, values: dict[str, Affine]) -> None:
        loops = thread_loops(region)
        self.threads, self.units = threads_of(region), {}
        rest = self.threads
        for loop in loops:
            rest //= loop.extent
            self.units[loop.variable] = (rest, loop.extent)
        self.block((region,), values)
        self.threads = 0

    def let(self, node: Let, values: dict[str, Affine]) -> Affine:
        value = _resolved(node.value, values)
        if node.digit is None:
            return value
        fused, digit = values[node.digit.variable], node.digit
        if len(fused.terms) == 1 and not fused.constant and fused.terms[0][1] == 1:
            unit = self.units.get(fused.terms[0][0])
            if unit is not None:
                divisor, count = unit
                own = min(digit.modulus, -(-count // digit.divisor))
                self.units[node.variable] = (divisor * digit.divisor, own)
        return total(value, variable(node.variable))

    def touch(self, read: Read, values: dict[str, Affine]) -> None:
        known = self.origins.get(read.tensor)
        if known is None:
            return
        owners = []
        for part, start in zip(read.index, known, strict=True):
            inside = total(_resolved(part, values), scaled(start, -1))
            digits = [
                Owner(factor, *self.units[name])
                for name, factor in inside.terms
                if name in self.units
            ]
            owners.append(tuple(sorted(digits, reverse=True)))
        spread = Spread(tuple(owners), self.threads)
        if self.found.setdefault(read.tensor, spread) != spread:
            raise ScheduleError(
                f"`{self.kernel}`: `{read.tensor}` lies in {REGISTER}, but its elements are not "
                "dealt to the threads alike where it is written and where it is read; split and "
                f"bind both alike, or set its scope to {SHARED}"
            )
        self.check_room(read.tensor, spread)

    def check_room(self, name: str, spread: Spread) -> None:
        for owners in spread.owners:
            size = None
            for owner in owners:
                span = owner.stride * owner.count
                if owner.stride < 1 or (size is not None and span > size):
                    raise ScheduleError(
                        f"`{self.kernel}`: several threads would keep one element of `{name}` in "
                        f"{REGISTER}; bind other loops, or set its scope to {SHARED}"
                    )
                size = owner.stride


def _resolved(affine: Affine, values: dict[str, Affine]) -> Affine:
    parts = [scaled(values.get(name, variable(name)), factor) for name, factor in affine.terms]
    return total(*parts, affine.constant)


def is_copy(body: Expression) -> bool:
    """Whether a stage only moves elements."""
    return isinstance(body, Read)


def moves(nest: Nest) -> bool:
    """Whether a nest only moves elements."""
    return nest.compute is None or is_copy(nest.compute.body)


def copies_ahead(loop: For) -> Block:
    """The shared buffers that copies at the head of a pipelined loop fill, with the copies.

    Each iteration has a slot of its own, so the copies of later ones may run ahead.
    """
    found: list[Node] = []
    if loop.kind is Kind.SERIAL and loop.depth > 1 and loop.extent > 1:
        for node in loop.body:
            copies = isinstance(node, Nest) and moves(node)
            is_slot = isinstance(node, Allocate) and node.scope == SHARED
            if not (copies or is_slot or isinstance(node, Let)):
                break
            found.append(node)
    return tuple(found) if any(isinstance(node, Allocate) for node in found) else ()


def operands_of(kernel: Nest) -> dict[str, int]:
    """The buffers that copies alone fill and instructions alone read.

    Returns
    -------
    For each the bytes in which its pieces are exchanged: a line, or a row as instructions that
    read shared memory by themselves demand.
    """
    copied, read, others, rows = set[str](), set[str](), set[str](), set[str]()

    def walk(block: Block, copies: bool, law: TensorInstruction | None) -> None:
        for node in block:
            if isinstance(node, (Assign, Update)):
                (copied if copies else others).add(node.target.tensor)
                for one in reads_of(node.value):
                    (read if law else others).add(one.tensor)
                    if isinstance(law, WarpProduct) and law.reads_shared:
                        rows.add(one.tensor)
            elif not isinstance(node, LEAVES):
                inside = moves(node) if isinstance(node, Nest) else copies
                walk(
                    node.body,
                    inside,
                    node.instruction if isinstance(node, InstructionNest) else law,
                )

    walk((kernel,), False, None)
    found = dict.fromkeys(copied & read - others, LINE_BYTES)
    for node in _allocated(kernel, SHARED):
        if node.tensor.name in rows & found.keys():
            found[node.tensor.name] = node.shape[-1] * np.dtype(node.tensor.dtype).itemsize
    return found
