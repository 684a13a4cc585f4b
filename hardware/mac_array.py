"""The weight-stationary array: one activation vector times a tile of weights per cycle.

A row of multipliers shares an activation. Weights that share it are packed into one word with
room for the whole sum, so one multiplication serves several outputs: by distributivity the packed
sum is the sum of the packed words, and its fields are the outputs but for the borrows of their
lower neighbours. A simulator profits (three outputs per 64-bit product); an FPGA takes one output
per multiplier with `outputs_per_word` = 1. Results do not depend on it.
"""

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .registers import delayed

WEIGHT_BITS = 8
WORD_BITS = 64
"""Longest packed word."""


def sum_bits(lanes: int) -> int:
    """Bits of a sum of `lanes` int8 products, the most negative factors included."""
    return 2 * WEIGHT_BITS + (lanes - 1).bit_length()


class MacArray(wiring.Component):
    """Multiply int8[lanes_in] by int8[lanes_in, lanes_out], weights held in registers.

    One vector per cycle; latency `latency` cycles from `vector` to `sums`, never stalls. A second
    set of weights, the shadow, is written row by row beside the work; `swap` takes it over for the
    vector of the next cycle on. A row may be written in the cycle of the swap: that still takes
    the old one.

    Parameters
    ----------
    lanes_in, lanes_out : int
        Inputs and outputs.
    outputs_per_word : int or None
        Outputs that share one multiplication; None for as many as fit `WORD_BITS`.

    Members
    -------
    weights : In(int8)[lanes_out]
        A row of the tile: the weights of input lane `row`.
    row : In(range(lanes_in))
    write : In(1)
        Write `weights` to the shadow.
    swap : In(1)
    vector : In(int8)[lanes_in]
    valid : In(1)
        Work on `vector`; without it the array holds still.
    sums : Out(signed)[lanes_out]
        Products summed over the inputs, exact.
    """

    def __init__(self, lanes_in: int, lanes_out: int, outputs_per_word: int | None = None):
        self.lanes_in, self.lanes_out = lanes_in, lanes_out
        self.field_bits = sum_bits(lanes_in)
        self.outputs_per_word = outputs_per_word or max(1, WORD_BITS // self.field_bits)
        self.levels = (lanes_in - 1).bit_length()
        self.latency = 2 + self.levels
        super().__init__(
            {
                "weights": In(signed(WEIGHT_BITS)).array(lanes_out),
                "row": In(range(lanes_in)),
                "write": In(1),
                "swap": In(1),
                "vector": In(signed(WEIGHT_BITS)).array(lanes_in),
                "valid": In(1),
                "sums": Out(signed(self.field_bits)).array(lanes_out),
            }
        )

    def _groups(self) -> list[range]:
        """Output lanes of each packed word."""
        step = self.outputs_per_word
        return [range(low, min(low + step, self.lanes_out)) for low in range(0, self.lanes_out, step)]

    def _word_bits(self, group: range) -> int:
        """Bits of packed weights: the borrows take one more than the highest weight."""
        return self.field_bits * (len(group) - 1) + WEIGHT_BITS + (len(group) > 1)

    def product_bits(self, group: range) -> int:
        """Bits of a product and of its sums; they wrap where the packed fields end."""
        return self.field_bits * len(group)

    def elaborate(self, platform) -> Module:
        m = Module()
        vector = [Signal.like(lane, reset_less=True) for lane in self.vector]
        valids = [self.valid]
        for stage in range(1, self.latency):
            valids.append(delayed(m, valids[-1], 1, f"valid_{stage}", reset_less=False))
        with m.If(self.valid):
            m.d.sync += [held.eq(lane) for held, lane in zip(vector, self.vector, strict=True)]

        for index, group in enumerate(self._groups()):
            bits = self._word_bits(group)
            packed = Signal(signed(bits), name=f"packed_{index}")
            m.d.comb += packed.eq(pack([self.weights[lane] for lane in group], self.field_bits))
            terms = []
            for row in range(self.lanes_in):
                shadow = Signal(signed(bits), name=f"shadow_{index}_{row}", reset_less=True)
                weight = Signal(signed(bits), name=f"weight_{index}_{row}", reset_less=True)
                with m.If(self.write & (self.row == row)):
                    m.d.sync += shadow.eq(packed)
                with m.If(self.swap):
                    m.d.sync += weight.eq(shadow)
                product = Signal(
                    signed(self.product_bits(group)), name=f"product_{index}_{row}", reset_less=True
                )
                with m.If(valids[1]):
                    m.d.sync += product.eq((vector[row] * weight))
                terms.append(product)
            for level in range(self.levels):
                with m.If(valids[2 + level]):
                    sums = []
                    for pair in range(len(terms) // 2):
                        total = Signal.like(
                            terms[0], name=f"total_{index}_{level}_{pair}", reset_less=True
                        )
                        m.d.sync += total.eq(terms[2 * pair].as_unsigned() + terms[2 * pair + 1].as_unsigned())
                        sums.append(total)
                terms = sums
            for lane, field in zip(group, unpack(terms[0], len(group), self.field_bits), strict=True):
                m.d.comb += self.sums[lane].eq(field)
        return m


def pack(values: list[Value], field_bits: int) -> Value:
    """Sum of signed values, each `field_bits` higher than the one before."""
    word = values[0]
    for position, value in enumerate(values[1:], start=1):
        word = word + Cat(Const(0, position * field_bits), value).as_signed()
    return word


def unpack(word: Value, count: int, field_bits: int) -> list[Value]:
    """Inverse of `pack`: a field below zero has borrowed one from its upper neighbour."""
    fields = []
    for position in range(count):
        low = position * field_bits
        field = word[low : low + field_bits].as_signed()
        fields.append(field + word[low - 1] if position else field)
    return fields
