"""Recurrent layers on the host: a schedule with the kernels of every time step."""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..aligned import address_of, aligned_empty
from ..compiler.cpu import Box, CallSequence, CompiledKernel, Description, KernelCall, copy_call
from ..compiler.host.recurrence import Direction, Recurrence

Load = Callable[[Description], CompiledKernel]
"""A function that returns the machine code of a kernel."""

ITEM_BYTES = 4
"""Bytes of a float32."""


def recurrence_call(
    recurrence: Recurrence, load: Load, addresses: Mapping[str, int], owner: object
) -> KernelCall:
    """Return a recurrence with its constants bound, as one step of a schedule.

    Parameters
    ----------
    recurrence : Recurrence
        The layer.
    load : Load
        A function that returns the machine code of a kernel, for its description.
    addresses : mapping
        The address of each value that it reads or computes.
    owner : object
        What owns the memory there.
    """
    calls: list[KernelCall] = []
    held: list[np.ndarray] = []
    live = 0
    if recurrence.live:
        kernel, operands = recurrence.live.kernel, recurrence.live.operands
        held.append(aligned_empty(kernel.output.shape, kernel.output.dtype))
        live = address_of(held[0])
        places = {name: addresses[value] for name, value in operands.items()}
        call = KernelCall.of(load(kernel).bind(**recurrence.live.constants))
        calls.append(call.place(**places, out=live))
    for index, direction in enumerate(recurrence.directions):
        calls += _direction_calls(recurrence, index, direction, load, addresses, held, live)
    calls += _rest(recurrence, addresses, held)
    return CallSequence(calls).call().hold((held, owner))


def _direction_calls(
    recurrence: Recurrence,
    index: int,
    direction: Direction,
    load: Load,
    addresses: Mapping[str, int],
    held: list[np.ndarray],
    live: int,
) -> Iterator[KernelCall]:
    """Yield the calls of one direction; `held` takes the memory that they use.

    Without samples that end early, each new state is made in its place among all states. Else it
    replaces the one before, and a copy without ended samples is shown.
    """
    steps, elements = recurrence.steps, recurrence.samples * recurrence.hidden
    state_bytes = ITEM_BYTES * elements
    every, last, *cells = (addresses[name] for name in recurrence.outputs)
    firsts = [addresses[name] + index * state_bytes for name in recurrence.states]
    places = {"x": addresses[recurrence.x], "before": firsts[0]}
    for first, cell in zip(firsts[1:], cells, strict=True):
        places["cell"] = cell + index * state_bytes
        yield _copy(elements, first, places["cell"])
    if live:
        places["before"] = last + index * state_bytes
        yield _copy(elements, firsts[0], places["before"])
    for call in (direction.inputs, *direction.cell):
        if call.out not in (*places, "made", "shown"):
            held.append(aligned_empty(call.kernel.output.shape, call.kernel.output.dtype))
            places[call.out] = address_of(held[-1])
    inputs = load(direction.inputs.kernel).bind(**direction.inputs.constants)
    bound = [(call, load(call.kernel).bind(**call.constants)) for call in direction.cell]
    yield KernelCall.of(inputs).place(x=places["x"], out=places["parts"])
    parts_bytes = ITEM_BYTES * math.prod(direction.inputs.kernel.output.shape) // steps
    for step in range(steps)[:: -1 if direction.backwards else 1]:
        shown = every + (step * len(recurrence.directions) + index) * state_bytes
        places["given"] = places["parts"] + step * parts_bytes
        places["live"] = live + step * ITEM_BYTES * recurrence.samples
        places["made"], places["shown"] = places["before"] if live else shown, shown
        for call, kernel in bound:
            operands = {name: places[array] for name, array in call.operands.items()}
            yield KernelCall.of(kernel).place(**operands, out=places[call.out])
        places["before"] = places["made"]
    if not live:
        yield _copy(elements, places["before"], last + index * state_bytes)


def _rest(
    recurrence: Recurrence, addresses: Mapping[str, int], held: list[np.ndarray]
) -> Iterator[KernelCall]:
    """Yield the call that sets the states of all steps that are not computed to zero."""
    steps, *shape = recurrence.node.outputs[0].type.shape
    if steps > recurrence.steps:
        held.append(np.zeros((steps - recurrence.steps, *shape), np.float32))
        computed = ITEM_BYTES * recurrence.steps * math.prod(shape)
        every = addresses[recurrence.output] + computed
        yield _copy(held[-1].size, address_of(held[-1]), every)


def _copy(elements: int, source: int, target: int) -> KernelCall:
    """Return a call that copies float32 elements."""
    box = Box(0, 0, 0, (elements,), (1,), (1,))
    return copy_call([box], ITEM_BYTES, 1).place(in0=source, out=target)
