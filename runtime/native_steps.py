"""The host's steps in machine code as calls, with constants and known addresses bound."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..aligned import address_of, aligned_empty
from ..compiler.cpu import Box, CompiledKernel, Description, KernelCall, copy_call, gather_call
from ..compiler.graph import Graph
from ..compiler.graph.types import DTYPES
from ..compiler.host import HostKernel, HostStep
from ..compiler.host.gathers import IndexedStep
from ..compiler.host.movements import Movement
from ..compiler.host.recurrence import Recurrence
from .batch import NativeStep
from .recurrence import recurrence_call

Load = Callable[[Description], CompiledKernel]
"""A function that returns the machine code of a kernel."""


def native_steps(
    graph: Graph, step: HostStep, places: Mapping[str, np.ndarray], load: Load, threads: int
) -> Iterator[NativeStep]:
    """Yield the calls of one step of the host, in order.

    Parameters
    ----------
    graph : Graph
        The module's graph.
    step : HostStep
        The step.
    places : mapping
        Arrays of values that have a fixed place.
    load : Load
        A function that returns the machine code of a kernel, for its description.
    threads : int
        Threads that share a gather.

    Raises
    ------
    CompileError
        If a kernel cannot be compiled.
    """
    if isinstance(step, HostKernel):
        call = KernelCall.of(load(step.description).bind(**step.constants))
        yield NativeStep(step.output, call, step.inputs, {"out": step.output})
    elif isinstance(step, Movement):
        sources = len(step.reads)
        call = copy_call(step.boxes, step.itemsize, sources + 1)
        if step.fill is not None:
            call.hold(step.fill).place(**{f"in{sources}": address_of(step.fill)})
        reads = {f"in{place}": name for place, name in enumerate(step.reads)}
        yield NativeStep(step.output, call, reads, {"out": step.output})
    elif isinstance(step, IndexedStep):
        yield from _indexed(graph, step, threads)
    else:
        assert isinstance(step, Recurrence)
        yield from _recurrence(graph, step, places, load)


def _indexed(graph: Graph, step: IndexedStep, threads: int) -> Iterator[NativeStep]:
    """Yield a gather; or a copy of the first input, and a scatter into it."""
    x, indices, *updates = step.nodes[0].inputs
    item, index = (np.dtype(DTYPES[graph.types[name].dtype]).itemsize for name in (x, indices))
    call = gather_call(step.index_map, item, index, scatters=step.scatters, threads=threads)
    if step.scatters:
        whole = Box(0, 0, 0, (graph.types[x].elements,), (1,), (1,))
        yield NativeStep(step.output, copy_call([whole], item, 1), {"in0": x}, {"out": step.output})
        reads = {"indices": indices, "other": updates[0], "addressed": step.output}
        yield NativeStep(step.output, call, reads, {})
    else:
        reads = {"indices": indices, "addressed": x}
        yield NativeStep(step.output, call, reads, {"other": step.output})


def _recurrence(
    graph: Graph, step: Recurrence, places: Mapping[str, np.ndarray], load: Load
) -> Iterator[NativeStep]:
    """Yield a recurrence, between copies of what has no fixed place."""
    fixed = {name: places[name] for name in (*step.reads, *step.outputs) if name in places}
    for name in step.reads:
        if graph.is_constant(name):
            fixed[name] = np.ascontiguousarray(graph.data(name))
        elif name not in fixed:
            fixed[name] = aligned_empty(graph.types[name].shape, graph.types[name].dtype)
            call = _copy(fixed[name]).place(out=address_of(fixed[name]))
            yield NativeStep(step.output, call, {"in0": name}, {})
    copied = [name for name in step.outputs if name not in fixed]
    fixed |= {name: aligned_empty(graph.types[name].shape, "float32") for name in copied}
    addresses = {name: address_of(array) for name, array in fixed.items()}
    yield NativeStep(step.output, recurrence_call(step, load, addresses, fixed), {}, {})
    for name in copied:
        call = _copy(fixed[name]).place(in0=addresses[name])
        yield NativeStep(step.output, call, {}, {"out": name})


def _copy(array: np.ndarray) -> KernelCall:
    """Return a call that copies an array."""
    return copy_call([Box(0, 0, 0, (array.size,), (1,), (1,))], array.itemsize, 1)
