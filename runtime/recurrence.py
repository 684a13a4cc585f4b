"""Recurrent layers on the host: a schedule with the kernels of every time step."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..compiler.aligned import address_of, aligned_empty
from ..compiler.cpu import Box, Call, CompiledKernel, Description, Schedule, copy_call
from ..compiler.host.recurrence import Direction, Recurrence

Load = Callable[[Description], CompiledKernel]
"""A function that returns the machine code of a kernel."""

ITEM_BYTES = 4
"""Bytes of a float32."""


def recurrence_call(
    recurrence: Recurrence, load: Load, addresses: Mapping[str, int], owner: object
) -> Call:
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
    calls: list[Call] = []
    held: list[np.ndarray] = []
    for index, direction in enumerate(recurrence.directions):
        calls += _direction_calls(recurrence, index, direction, load, addresses, held)
    return Schedule(calls).call().hold((held, owner))


def _direction_calls(
    recurrence: Recurrence,
    index: int,
    direction: Direction,
    load: Load,
    addresses: Mapping[str, int],
    held: list[np.ndarray],
) -> Iterator[Call]:
    """Yield the calls of one direction; `held` takes the memory that they use."""
    kind = recurrence.operator.kind
    elements = recurrence.samples * recurrence.hidden
    state_bytes = ITEM_BYTES * elements
    x, *states = (addresses[name] for name in recurrence.reads)
    every, last, *cells = (addresses[name] for name in recurrence.outputs)
    parts = aligned_empty(direction.inputs.output.shape, "float32")
    gates = aligned_empty(direction.product.output.shape, "float32")
    held += [parts, gates]
    inputs = load(direction.inputs).bind(**direction.constants["inputs"])
    product = load(direction.product).bind(**direction.constants["product"])
    updates = [load(description).bind() for description in recurrence.updates()]
    yield Call.of(inputs).place(x=x, out=address_of(parts))
    steps = recurrence.steps
    cell = cells[0] + index * state_bytes if cells else 0
    if cells:
        yield _copy(elements, states[1] + index * state_bytes, cell)
    before = states[0] + index * state_bytes
    for step in range(steps)[:: -1 if direction.backwards else 1]:
        given = address_of(parts) + step * (parts.nbytes // steps)
        made = every + (step * len(recurrence.directions) + index) * state_bytes
        if kind == "LSTM":
            update, finish = map(Call.of, updates)
            yield Call.of(product).place(x=before, residual=given, out=address_of(gates))
            yield update.place(gates=address_of(gates), cell=cell, out=cell)
            yield finish.place(gates=address_of(gates), cell=cell, out=made)
        elif kind == "GRU":
            (finish,) = map(Call.of, updates)
            yield Call.of(product).place(x=before, out=address_of(gates))
            yield finish.place(x=given, r=address_of(gates), state=before, out=made)
        else:
            yield Call.of(product).place(x=before, residual=given, out=made)
        before = made
    yield _copy(elements, before, last + index * state_bytes)


def _copy(elements: int, source: int, target: int) -> Call:
    """Return a call that copies float32 elements."""
    box = Box(0, 0, 0, (elements,), (1,), (1,))
    return copy_call([box], ITEM_BYTES, 1).place(in0=source, out=target)
