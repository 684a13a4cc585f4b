"""The host's part of a run: kernels that share one arena, and NumPy for all other nodes.

The module contains machine code. If it was made for another processor, or this user's key has not
signed it, loading compiles it again, or takes it from the cache.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from ..compiler.aligned import address_of, aligned_empty
from ..compiler.graph import Graph, Node, evaluate_node
from ..compiler.graph.types import DTYPES
from ..compiler.host import (
    LEAST_WORK,
    Alias,
    Evaluate,
    Event,
    HostKernel,
    RunKernel,
    RunRecurrence,
    host_nodes,
    host_target,
    may_have_kernels,
    plan_host,
)
from ..compiler.module import Module
from ..errors import CompileError, InputError
from .kernel_cache import keep_kernels, kept_kernel

if TYPE_CHECKING:
    from ..compiler.host.kernel_store import KernelStore
    from ..compiler.host.recurrence import Recurrence

Values = dict[str, np.ndarray]
"""Arrays, by the names of the graph's values."""

Step = Callable[[Values], None]
"""A function that computes values and adds them to the given ones."""


MARGIN = 1 << 16
"""Bytes before and after the arena, more than a row of most images."""


class HostSide:
    """The host's steps of a module, ready to run.

    Parameters
    ----------
    module : Module
        A module, compiled or loaded.
    threads : int or None
        Threads that share a kernel's loops; None for all processors available to this process.
    keep_all : bool
        Whether to keep every value that the host computes until the next run.
    least_work : int or None
        Fewest operations of the largest kernel, without which none is used; None to compute
        everything in NumPy, by its definition.

    Attributes
    ----------
    plan : HostPlan
        Kernels, order and memory.
    seconds : dict
        Seconds of each step in the last run, by the value that it computed.
    refused : dict
        Reasons why kernels could not be compiled, by the value that each computes; NumPy computes
        their nodes instead.
    distrusted : dict
        Reasons why machine code of the module was not used, by the kernel's key; a line on stderr
        has the first, unless the cache has all these kernels.
    """

    def __init__(
        self,
        module: Module,
        *,
        threads: int | None = None,
        keep_all: bool = False,
        least_work: int | None = LEAST_WORK,
    ) -> None:
        self._name, self._graph = module.name, module.graph
        nodes = host_nodes(module.graph, module.steps)
        kernels = least_work is not None and may_have_kernels(module.graph, nodes, least_work)
        self.plan = plan_host(
            module.graph,
            module.steps,
            module.segments,
            host_target() if kernels else None,
            keep_all=keep_all,
            least_work=least_work or 0,
        )
        self.threads = threads or len(os.sched_getaffinity(0))
        memory = self.plan.memory
        self._arena = _arena(memory.arena_bytes)
        self._places = {
            name: _placed(self._arena, offset, module.graph, name)
            for name, offset in memory.offsets.items()
        }
        self.seconds: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.distrusted: dict[str, str] = {}
        self._calls: dict[str, Step] = {}
        self._prepare(module.code, trust_code=module.trust_code)
        self._steps = [self._step(event) for event in self.plan.events]

    def run(self, position: int, values: Values) -> None:
        """Run one step of the plan, and add its results to the values."""
        began = time.perf_counter()
        name, step = self._steps[position]
        step(values)
        self.seconds[name] = time.perf_counter() - began

    def forget(self, position: int, values: Values) -> None:
        """Drop the values that no later step of the plan reads."""
        for name in self.plan.memory.dying[position]:
            values.pop(name, None)

    def _step(self, event: Event) -> tuple[str, Step]:
        """Return the first value that an event computes, and its step; none for a segment."""
        if isinstance(event, RunKernel):
            return event.kernel.output, self._calls[event.kernel.output]
        if isinstance(event, RunRecurrence):
            return event.recurrence.output, self._calls[event.recurrence.output]
        if isinstance(event, Alias):
            return event.node.output.name, partial(_view, event.node)
        if isinstance(event, Evaluate):
            return event.node.outputs[0].name, partial(self._evaluate, event.node)
        return "", lambda values: None

    def _evaluate(self, node: Node, values: Values) -> None:
        arrays = evaluate_node(node, [values[name] for name in node.inputs])
        for value, array in zip(node.outputs, arrays, strict=True):
            if array.base is not None and np.may_share_memory(array, self._arena):
                # Copied, as the arena is reused; in the same layout, as sums depend on it.
                array = array.copy(order="K")
            values[value.name] = array

    def _prepare(self, code: Mapping[str, bytes], *, trust_code: bool) -> None:
        """Load the machine code and bind constants; NumPy replaces a kernel without code."""
        if self.plan.target is None:
            return
        from ..compiler.host.kernel_store import KernelStore
        from .recurrence import RecurrenceCall

        store = KernelStore(self.plan.target, code, self.threads, trust_code, kept_kernel)
        for step in (*self.plan.kernels, *self.plan.recurrences):
            try:
                if isinstance(step, HostKernel):
                    call = self._call(step, store)
                else:
                    call = RecurrenceCall(step, store.get)
            except CompileError as problem:
                self.refused[step.output] = str(problem)
                call = partial(self._evaluate_all, step)
            self._calls[step.output] = call
        self.distrusted = store.distrusted
        keep_kernels(store.compiled)
        anew = [reason for key, reason in self.distrusted.items() if key in store.compiled]
        if anew:
            say_compiled_anew(self._name, len(anew), anew[0])

    def _evaluate_all(self, step: "HostKernel | Recurrence", values: Values) -> None:
        """Compute a kernel's nodes in NumPy, in place of the kernel."""
        inside = dict(values)
        for node in step.nodes:
            self._evaluate(node, inside)
        for name in step.outputs:
            place = self._places.get(name)
            if place is not None:  # where other kernels expect it
                place[...] = inside[name]
                inside[name] = place
            values[name] = inside[name]

    def _call(self, kernel: HostKernel, store: "KernelStore") -> Step:
        """Bind a kernel's constants and fill in all known addresses."""
        bound = store.get(kernel.description).bind(**kernel.constants)
        frame, positions = bound.frame()
        description = kernel.description
        given: list[tuple[int, str, int]] = []
        for operand, name in kernel.inputs.items():
            if name in self._places:
                frame[positions[operand]] = address_of(self._places[name])
            else:
                wanted = description.operands[operand]
                itemsize = np.dtype(DTYPES[wanted.dtype]).itemsize
                size = itemsize * int(np.prod(wanted.shape, dtype=np.int64))
                given.append((positions[operand], name, size))
        output, last = kernel.output, len(frame) - 1
        kind, place = self._graph.types[output], self._places.get(output)
        if place is not None:
            frame[last] = address_of(place)

        def call(values: Values) -> None:
            held = []
            for position, name, size in given:
                array = values[name]
                if not array.flags.c_contiguous:
                    array = np.ascontiguousarray(array)
                if array.nbytes != size:
                    raise InputError(
                        f"value `{name}`: expected {size} bytes, got {array.nbytes}; its producer "
                        "breaks the graph's types: report it with the model"
                    )
                held.append(array)
                frame[position] = address_of(array)
            result = place
            if result is None:
                result = aligned_empty(kind.shape, kind.dtype)
                frame[last] = address_of(result)
            bound.kernel.call(frame)  # called through `bound`, which keeps the constants alive
            values[output] = result

        return call


@cache
def say_compiled_anew(network: str, kernels: int, reason: str) -> None:
    """Print one line on stderr about machine code that was not used; once for a network."""
    print(
        f"host: compiled {kernels} kernel{'s'[: kernels > 1]} of `{network:.60}` anew: {reason}",
        file=sys.stderr,
    )


def _view(node: Node, values: Values) -> None:
    """Give a value a new shape."""
    values[node.output.name] = values[node.inputs[0]].reshape(node.output.type.shape)


def _arena(size: int) -> np.ndarray:
    """Allocate memory for values, with mapped pages before and after it.

    Kernels read the lanes at a border with masked loads. Masked loads from unmapped pages do not
    fault, but they are hundreds of times slower.
    """
    room = aligned_empty((MARGIN + size + MARGIN,), "uint8")
    room[:MARGIN] = room[MARGIN + size :] = 0
    return room[MARGIN : MARGIN + size]


def _placed(arena: np.ndarray, offset: int, graph: Graph, name: str) -> np.ndarray:
    """Return a value's array in the arena."""
    kind = graph.types[name]
    dtype = np.dtype(DTYPES[kind.dtype])
    room = arena[offset : offset + kind.elements * dtype.itemsize]
    return room.view(dtype).reshape(kind.shape)
