"""Selection of one of several values by a binary index."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells import ecp5
from .technology import Technology


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


class Choice(wiring.Component):
    """One of `count` values: `choose`, from the cells that a technology has for it.

    Parameters
    ----------
    count : int
        Number of values.
    width : int
        Bits of a value.

    Members
    -------
    values : In(width)[count]
    index : In(range(count))
    chosen : Out(width)
        `values[index]`, in the same cycle.
    """

    def __init__(self, count: int, width: int):
        self.count, self.width = count, width
        super().__init__(
            {
                "values": In(width).array(count),
                "index": In(range(count)),
                "chosen": Out(width),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        values, index = list(self.values), self.index
        while platform is Technology.ECP5 and len(values) >= 4:
            fours = []
            for low in range(0, len(values) - 3, 4):
                m.submodules += (cell := ecp5.Choice4(self.width))
                pairs = zip(cell.values, values[low : low + 4], strict=True)
                m.d.comb += [cell.index.eq(index[:2]), *(a.eq(b) for a, b in pairs)]
                fours.append(cell.chosen)
            rest = values[4 * len(fours) :]
            values, index = fours + ([choose(rest, index[:2])] if rest else []), index[2:]
        m.d.comb += self.chosen.eq(choose(values, index))
        return m
