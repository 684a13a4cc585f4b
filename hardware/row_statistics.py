"""Statistics over rows: the biases and scales that follow from their sums."""

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.instructions import Statistic
from ..isa.pipeline import VECTOR_ROW_CYCLES
from ..isa.row_statistics import SPREAD_BITS, SUM_BITS
from .delay import delayed
from .logic_adder import Gate, LogicAdder
from .multiplier import Multiplier
from .reciprocal import Reciprocal
from .row_sums import COUNT_BITS, VALUE_BITS, RowSums

CUT = 18
"""Sums are multiplied in two parts, of which the lower one has as many bits as a block takes."""

ROOM_BITS = SPREAD_BITS + 2
"""Signed width of a spread: E may bring it below 0, or to 2**40 and more."""


class RowStatistics(wiring.Component):
    """Turn the slices of rows into biases and scales, a slice a cycle; never stalls.

    The parameters of a row appear `LATENCY` cycles after its last slice.

    Parameters
    ----------
    lanes : int
    in_fabric : bool
        As in `Reciprocal`.

    Members
    -------
    statistic : In(3)
        Stable, like `centre`, `epsilon` and `factor`, while slices are in flight.
    centre, epsilon, factor : In
        The centre of `Statistic.POWER`, E, and the bits of F.
    valid, first, mask, values, entries : In
        As in `RowSums`.
    bias, scale : Out(int32), Out(32)
    """

    LATENCY = VECTOR_ROW_CYCLES

    def __init__(self, lanes: int, *, in_fabric: bool = False):
        self.sums = RowSums(lanes)
        self.reciprocal = Reciprocal(in_fabric=in_fabric)
        taken = "statistic", "centre", "valid", "first", "mask", "values", "entries"
        super().__init__(
            {
                **{name: self.sums.signature.members[name] for name in taken},
                "epsilon": In(signed(32)),
                "factor": In(31),
                "bias": Out(signed(32)),
                "scale": Out(32),
            }
        )
        self.taken = taken

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.sums, m.submodules.reciprocal = sums, reciprocal = self.sums, self.reciprocal
        for name in self.taken:
            m.d.comb += Cat(getattr(sums, name)).eq(Cat(getattr(self, name)))
        is_sum = self.statistic == Statistic.SUM
        spread, cycles = self._spread(m, sums, is_sum)
        is_negative, above = spread[-1], spread[SPREAD_BITS:-1]
        m.d.comb += [
            reciprocal.number.eq(spread),
            reciprocal.negative.eq(is_negative),
            reciprocal.large.eq(~is_negative & above.any()),
            reciprocal.is_root.eq(~is_sum),
            reciprocal.factor.eq(self.factor),
        ]
        age = sums.latency + cycles + reciprocal.LATENCY
        bias = delayed(m, sums.bias, self.LATENCY - sums.latency - 1, "bias_line")
        m.d.comb += [
            self.scale.eq(delayed(m, reciprocal.scale, self.LATENCY - age, "scale_line")),
            self.bias.eq(bias.as_signed()),
        ]
        return m

    def _spread(self, m: Module, sums: RowSums, is_sum: Value) -> tuple[Signal, int]:
        """Return C Q - S^2 + E, or what stands for it, and its latency.

        `Statistic.POWER` leaves out the square, and `Statistic.SUM` E too; its C is 1.
        """
        total, middle = sums.total, sums.middle
        low, top = middle[:CUT], middle[CUT:].as_signed()
        m.submodules.low_product = low_product = Multiplier(CUT, COUNT_BITS)
        m.submodules.high_product = high_product = Multiplier(SUM_BITS - CUT, COUNT_BITS)
        # With S = t 2^n + l: S^2 = l^2 + t (S + l) 2^n.
        m.submodules.low_square = low_square = Multiplier(CUT, CUT)
        both = signed(VALUE_BITS + 1)
        m.submodules.rest = rest = Multiplier(both, top.shape(), in_fabric=True)
        m.d.comb += [
            low_product.left.eq(total[:CUT]),
            low_product.right.eq(sums.count),
            high_product.left.eq(total[CUT:]),
            high_product.right.eq(sums.count),
            low_square.left.eq(low),
            low_square.right.eq(low),
            rest.left.eq(middle + low),
            rest.right.eq(top),
        ]

        def added(one: Value, other: Value, name: str, bits: int = ROOM_BITS - CUT) -> Signal:
            result = Signal(bits, name=name, reset_less=True)
            m.d.sync += result.eq(one + other)
            return result

        bits = low_product.product.shape().width + 2
        m.submodules.with_epsilon = with_epsilon = LogicAdder(bits)
        m.d.comb += [
            with_epsilon.a.eq(self.epsilon),
            with_epsilon.b.eq((~is_sum).replicate(bits)),
            with_epsilon.c.eq(low_product.product),
            with_epsilon.d.eq(-1),
        ]
        lower = Signal(signed(bits), reset_less=True)
        m.d.sync += lower.eq(with_epsilon.sum)
        high = delayed(m, high_product.product, 1, "high_product_line")
        upper = added(high, lower[CUT:].as_signed(), "upper")
        upper_square = added(low_square.product[CUT:], rest.product, "upper_square")
        square = Cat(delayed(m, low_square.product[:CUT], 1, "square_line"), upper_square)
        m.submodules.difference = difference = LogicAdder(ROOM_BITS, Gate.NAND)
        m.d.comb += [
            difference.a.eq(delayed(m, square, 1, "square")),
            difference.b.eq((self.statistic == Statistic.VARIANCE).replicate(ROOM_BITS)),
            difference.c.eq(Cat(delayed(m, lower[:CUT], 1, "lower_line"), upper)),
            difference.d.eq(-1),
            difference.carry.eq(1),
        ]
        spread = Signal(signed(ROOM_BITS), reset_less=True)
        m.d.sync += spread.eq(difference.sum)
        return spread, Multiplier.LATENCY + 3
