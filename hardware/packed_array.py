"""The array on chips whose multipliers take 18 bits or more: two products of int8 from each one.

Two output lanes with weights `a` and `b` share the operand `x`. One multiplier forms `P = V * x`
with `V = a * 2**n + (b + 128)`. Let `L` be the lowest n bits of `P`, unsigned, and `H` the bits
above them, signed. Then `H = a * x + c`, where `c` is what `(b + 128) * x` carries over, so that
exactly

    a * x = H - c,    b * x = L + 2**n * c - 128 * x.

With n = 10, `V` always fits 18 bits and `c` has 6; as many bits of `a * x`, computed from logic,
yield it. With n = 16, `V` takes 24 bits, and `c` is -1 or 0, the sign of the lower product.

`L`, `H` and `c` are summed over the rows before they are put together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .array_operands import ELEMENT_BITS, ArrayOperands, array_modes, array_ports
from .blocks import TapRows
from .cells import ecp5, xilinx
from .fan_out import copied
from .logic_adder import LogicAdder
from .technology import Technology


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout of two products in a technology's multiplier.

    Parameters
    ----------
    low_bits
        n, the position of the upper product.
    multiplier
        Makes the multiplier, with all of its registers.
    """

    low_bits: int
    multiplier: Callable[[], Any]


PACKINGS = {
    Technology.ECP5: Packing(10, lambda: ecp5.Multiplier18(True, True)),
    Technology.XILINX7: Packing(16, xilinx.Multiplier25),
    Technology.ULTRASCALE: Packing(16, xilinx.Multiplier25),
}

OFFSET_BITS = ELEMENT_BITS - 1
"""The packed operand holds the lower weight plus 2**OFFSET_BITS, which is never negative."""

OPERAND_TIME = 1
"""Cycle in which the operands are in their registers; the vector is there in cycle 0."""
PRODUCT_TIME = 4
"""Cycle in which the multipliers' products are in their registers."""


class PackedArray(wiring.Component):
    """An array with the ports of `MacArray`, made of multipliers that form two products each.

    The sums are in their registers six cycles after the vector arrived, and one more for each level
    of the adder trees: operands, the multiplier's three registers, the sums joined in two steps.
    Registers keep running when there is no vector.

    Parameters
    ----------
    lanes_in, lanes_out, taps, lines : int
        As in `MacArray`.

    Members
    -------
    As in `MacArray`.
    """

    def __init__(self, lanes_in: int, lanes_out: int, taps: int, lines: int):
        self.lanes_in, self.lanes_out = lanes_in, lanes_out
        self.taps, self.lines = taps, lines
        self.levels = (lanes_in - 1).bit_length()
        self.latency = 6 + self.levels
        self.rows = TapRows(lanes_in, taps * lines, spread=True)
        self.offset_time = _offset_time(lanes_in, self.rows)
        super().__init__(array_ports(lanes_in, lanes_out, taps, lines))

    def elaborate(self, platform) -> Module:
        m = Module()
        rows = self.rows
        m.submodules.operands = operands = ArrayOperands(
            self.lanes_in, self.lanes_out, self.taps, self.lines, rows
        )
        m.d.comb += [
            operands.valid.eq(self.valid),
            *(a.eq(b) for a, b in zip(operands.vector, self.vector, strict=True)),
        ]
        if self.taps:
            m.d.comb += [
                getattr(operands, name).eq(getattr(self, name))
                for name in array_modes(self.taps, self.lines)
            ]

        swaps = copied(m, platform, self.swap, self.lanes_out // 2, "swaps")
        writes = self._write_enables(m)
        offset = self._sum_of_shared_operands(m)
        for lane in range(0, self.lanes_out, 2):
            pair = _Pair(self.lanes_in, rows)
            m.submodules[f"pair_{lane // 2:02}"] = pair
            m.d.comb += [pair.swap.eq(swaps[lane // 2]), pair.writes.eq(writes)]
            for side in range(2):
                m.d.comb += [
                    pair.operands[side][row].eq(operands.operands[row][lane + side])
                    for row in range(self.lanes_in)
                ]
                m.d.comb += self.sums[lane + side].eq(pair.sums[side])
                weight = Signal(signed(ELEMENT_BITS), name=f"weight_{lane + side}", reset_less=True)
                m.d.sync += weight.eq(self.weights[lane + side])
                m.d.comb += pair.weights[side].eq(weight)
            if self.taps:
                spreads = Signal(name=f"spreads_{lane}", reset_less=True)
                m.d.sync += spreads.eq(self.for_depthwise)
                m.d.comb += pair.spreads.eq(spreads)
            m.d.comb += pair.offset.eq(offset)
        return m

    def _write_enables(self, m: Module) -> Value:
        """Decode the row, one cycle before the shadow is written."""
        enables = Signal(self.lanes_in, name="writes")
        for row in range(self.lanes_in):
            place: Value = self.row == row
            if self.taps and row < self.rows.last:
                place = Mux(self.for_depthwise, self.row == self.rows.tap(row), place)
            m.d.sync += enables[row].eq(self.write & place)
        return enables

    def _sum_of_shared_operands(self, m: Module) -> Value:
        """Sum the operands of the packed products' rows, negated; 0 in a depthwise step.

        Then each of these rows holds one weight, without the 128 that the sum removes.
        """
        terms: list[tuple[int, Value]] = []
        for row in range(self.rows.separate, self.lanes_in):
            element = Signal(signed(ELEMENT_BITS), name=f"shared_{row:02}", reset_less=True)
            taken = self.vector[row]
            m.d.sync += element.eq(Mux(self.depthwise, 0, taken) if self.taps else taken)
            terms.append((OPERAND_TIME, element))
        offset = Signal(signed(ELEMENT_BITS + self.levels + 1), reset_less=True)
        if terms:
            m.d.sync += offset.eq(-_tree(m, terms, self.offset_time - 1, "shared"))
        return offset


def _offset_time(lanes_in: int, rows: TapRows) -> int:
    """Return the cycle in which the sum of the shared operands is there for all pairs."""
    levels = (lanes_in - 1).bit_length()
    if not rows.separate:
        return PRODUCT_TIME + levels
    # The sum joins the tree of the separate products.
    return OPERAND_TIME + (max(1, lanes_in - rows.separate) - 1).bit_length() + 1


class _Pair(wiring.Component):
    """Two output lanes: their weights, products and sums."""

    def __init__(self, lanes_in: int, rows: TapRows):
        self.lanes_in, self.rows = lanes_in, rows
        self.levels = (lanes_in - 1).bit_length()
        self.offset_time = _offset_time(lanes_in, rows)
        element = signed(ELEMENT_BITS)
        super().__init__(
            {
                "weights": In(element).array(2),
                "writes": In(lanes_in),
                "spreads": In(1),
                "swap": In(1),
                "operands": In(element).array(2, lanes_in),
                "offset": In(signed(ELEMENT_BITS + self.levels + 1)),
                "sums": Out(signed(2 * ELEMENT_BITS + self.levels)).array(2),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        packing = PACKINGS[platform]
        low_bits = packing.low_bits
        end = PRODUCT_TIME + self.levels
        fields: list[tuple[int, Value]] = []
        carries: list[tuple[int, Value]] = []
        others: list[list[tuple[int, Value]]] = [[], []]
        for row in range(self.lanes_in):
            if row < self.rows.separate:
                for side in range(2):
                    others[side].append((PRODUCT_TIME, self._product(m, packing, row, side)))
            else:
                product, carry = self._packed_product(m, packing, row)
                fields.append((low_bits, product))
                carries.append((PRODUCT_TIME + 1, carry))
        joined: list[Value] = [Const(0), Const(0)]
        carry: Value = Const(0)
        if fields:
            others[1].append((self.offset_time, self.offset << OFFSET_BITS))
            joined = list(_tree_of_fields(m, fields, self.levels)[::-1])
            carry = _tree(m, carries, end + 1, "carry")
        for side, terms in enumerate(others):
            value = joined[side]
            if terms:
                value = value + _tree(m, terms, end, f"other_{side}")
            join = Signal(self.sums[side].shape(), name=f"join_{side}", reset_less=True)
            total = Signal.like(join, name=f"sum_{side}")
            m.d.sync += [
                join.eq(value),
                total.eq(join + (carry << low_bits) if side else join - carry),
            ]
            m.d.comb += self.sums[side].eq(total)
        return m

    def _product(self, m: Module, packing: Packing, row: int, side: int) -> Value:
        """Multiply the weight of one lane alone."""
        shadow = self._shadow(m, row, self.weights[side], f"shadow_{row:02}_{side}")
        operand = self.operands[side][row]
        product = self._multiply(m, packing, row, shadow, operand, f"{row:02}_{side}")
        return product[: 2 * ELEMENT_BITS].as_signed()

    def _packed_product(self, m: Module, packing: Packing, row: int) -> tuple[Value, Value]:
        """Multiply the weights of both lanes; return the product and what its low part carried."""
        first, second = self.weights
        offset_weight = Cat(second[:-1], ~second[-1])
        top: Value = first
        middle: Value | None = None
        carry_bits = 2 * ELEMENT_BITS - packing.low_bits
        low: Value = first[:carry_bits]
        bottom: Value = offset_weight
        spread = row < self.rows.last
        odd = bool((row - self.rows.separate) % 2)
        if spread and odd:
            # The second weight alone fills the multiplier's operand, with its sign and no offset.
            sign = second[-1]
            top = Mux(self.spreads, sign.replicate(ELEMENT_BITS), first)
            middle = self._shadow(m, row, self.spreads & sign, f"middle_{row:02}")
            low = Mux(self.spreads, 0, low)
            bottom = Mux(self.spreads, second, offset_weight)
        elif spread:
            bottom = Mux(self.spreads, 0, offset_weight)
        upper = self._shadow(m, row, top[:ELEMENT_BITS], f"upper_{row:02}")
        lower = self._shadow(m, row, bottom[:ELEMENT_BITS], f"lower_{row:02}")
        gap = packing.low_bits - ELEMENT_BITS
        weights = Cat(lower, middle.replicate(gap) if middle is not None else Const(0, gap), upper)
        operand = self.operands[0][row]
        product = self._multiply(m, packing, row, weights, operand, f"{row:02}")

        carry = Signal(signed(max(1, carry_bits)), name=f"carry_{row:02}", reset_less=True)
        if carry_bits:
            factor = upper[:carry_bits]
            if spread and odd:
                factor = self._shadow(m, row, low[:carry_bits], f"factor_{row:02}")
            low_product = self._low_product(m, row, factor, operand[:carry_bits])
            m.d.sync += carry.eq(product[packing.low_bits :] - low_product)
        else:
            m.d.sync += carry.eq(product[packing.low_bits - 1])
        return Value.cast(product[: packing.low_bits + 2 * ELEMENT_BITS]), carry

    def _low_product(self, m: Module, row: int, shadow: Value, operand: Value) -> Value:
        """Return the lowest bits of a product, in the cycle of the multiplier's product."""
        bits = len(shadow)
        factor, element = (
            Signal(bits, name=f"{name}_{row:02}", reset_less=True)
            for name in ("low_weight", "low_operand")
        )
        with m.If(self.swap):
            m.d.sync += factor.eq(shadow)
        m.d.sync += element.eq(operand)
        # The two lowest digits of the weight take a carry chain each, the highest none.
        chains = []
        for index in (0, 2):
            width = bits - index
            m.submodules[f"low_{row:02}_{index}"] = part = LogicAdder(width)
            first, second = factor[index : index + 2]
            m.d.comb += [
                part.a.eq(element),
                part.b.eq(first.replicate(width)),
                part.c.eq(element << 1),
                # Where the shifted element has no bit, this one need not be read.
                part.d.eq(second.replicate(width - 1) << 1),
                part.carry.eq(0),
            ]
            chain = Signal(width, name=f"partial_{row:02}_{index}", reset_less=True)
            m.d.sync += chain.eq(part.sum)
            chains.append(chain)
        top = Signal(2, name=f"partial_{row:02}_4", reset_less=True)
        m.d.sync += top.eq(
            Cat(element[0] & factor[4], (element[1] & factor[4]) ^ (element[0] & factor[5]))
        )
        m.submodules[f"low_{row:02}"] = total = ecp5.TopSum()
        low = Signal(bits, name=f"low_product_{row:02}", reset_less=True)
        m.d.comb += [
            total.first.eq(chains[0][2:]),
            total.second.eq(chains[1]),
            total.third.eq(top),
        ]
        m.d.sync += low.eq(Cat(chains[0][:2], total.total))
        return low

    def _shadow(self, m: Module, row: int, value: Value, name: str) -> Signal:
        """Return a register that takes a value when the row is written."""
        register = Signal(len(value), name=name, reset_less=True)
        with m.If(self.writes[row]):
            m.d.sync += register.eq(value)
        return register

    def _multiply(
        self, m: Module, packing: Packing, row: int, left: Value, right: Value, name: str
    ) -> Value:
        m.submodules[f"product_{name}"] = cell = packing.multiplier()
        m.d.comb += [
            cell.left.eq(left.as_signed()),
            cell.right.eq(right.as_signed()),
            cell.load_left.eq(self.swap),
        ]
        return cell.product


def _tree(m: Module, terms: Sequence[tuple[int, Value]], end: int, name: str) -> Value:
    """Add terms in pairs, one level per cycle.

    Parameters
    ----------
    terms : Sequence[tuple[int, Value]]
        The cycle in which each term is there, and the term.
    end : int
        The cycle in which the sum is due.
    """
    ready: list[Value] = []
    for time in range(min(time for time, _ in terms), end):
        ready += [value for arrival, value in terms if arrival == time]
        sums = []
        for index in range(0, len(ready), 2):
            value = ready[index] if index + 1 == len(ready) else ready[index] + ready[index + 1]
            register = Signal(value.shape(), name=f"{name}_{time}_{index // 2:02}", reset_less=True)
            m.d.sync += register.eq(value)
            sums.append(register)
        ready = sums
    ready += [value for arrival, value in terms if arrival == end]
    assert len(ready) == 1, f"{len(ready)} terms are left of `{name}`"
    return ready[0]


def _tree_of_fields(
    m: Module, terms: Sequence[tuple[int, Value]], levels: int
) -> tuple[Value, Value]:
    """Add values that consist of an unsigned and, above it, a signed field; return both sums.

    One carry chain serves both fields: the lower one grows into a bit of its own, so that nothing
    passes to the upper one.

    Parameters
    ----------
    terms : Sequence[tuple[int, Value]]
        The width of the lower field, and the value.
    levels : int
        Registers that the sums pass.
    """
    for level in range(levels):
        sums = []
        for index in range(0, len(terms), 2):
            pair = terms[index : index + 2]
            low_bits = pair[0][0]
            value: Value = pair[0][1].as_signed()
            if len(pair) == 2:
                low_bits = max(bits for bits, _ in pair) + 1
                value = sum(
                    (
                        Cat(term[:bits], Const(0, low_bits - bits), term[bits:]).as_signed()
                        for bits, term in pair
                    ),
                    start=Const(0, signed(1)),
                )
            register = Signal(
                signed(max(len(term) - bits for bits, term in pair) + len(pair) - 1 + low_bits),
                name=f"product_{level}_{index // 2:02}",
                reset_less=True,
            )
            m.d.sync += register.eq(value)
            sums.append((low_bits, register))
        terms = sums
    ((low_bits, total),) = terms
    return Value.cast(total[:low_bits]), total[low_bits:].as_signed()
