"""Selection of one of several values by a binary index."""

from collections.abc import Sequence

from amaranth.hdl import Mux, Value


def choose(values: Sequence[Value], index: Value) -> Value:
    """Return `values[index]`; an index that is out of range has no defined result.

    The hardware is a tree of two-way choices, because simulators turn an `Array` into a table.
    """
    values = [Value.cast(value) for value in values]
    for bit in Value.cast(index):
        if len(values) == 1:
            break
        pairs = [values[low : low + 2] for low in range(0, len(values), 2)]
        values = [Mux(bit, pair[1], pair[0]) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
