"""One lane of VECTOR before the look-up: combine, reduce, add the bias, requantise."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.instructions import ReduceMode
from ..isa.pipeline import VECTOR_BIAS_CYCLES, VECTOR_REDUCE_CYCLES
from ..isa.vector_operations import FACTOR_BITS, FIRST_BITS, SECOND_BITS, Operation
from .delay import delayed
from .logic_adder import Gate, LogicAdder, less
from .multiplier import Multiplier
from .requantizer import Requantizer
from .vector_factors import VectorFactors


class VectorLane(wiring.Component):
    """Compute VECTOR's law for one lane, one step per cycle; all integers wrap at 32 bits.

    Never stalls. A step reaches the reduction after `REDUCE_DELAY` cycles, together with its
    `reduces` and `restarts`. `total` is the sum with its bias `TOTAL_LATENCY` cycles after the
    step, `result` the int8 value `RESULT_LATENCY` cycles after it.

    Parameters
    ----------
    constants_layout : data.StructLayout
        The immediate fields of the instruction.
    operations : Sequence[Operation]
        Operations that a step can compute, by code.

    Members
    -------
    constants : In(constants_layout)
        Stable while steps are in flight.
    a_acc : In(int32)
        Operand a of a step, if it comes from ACC.
    a_act, b : In(int8)
        Operands of a step from ACT.
    reduces : In(1)
        A step is at the reduction.
    restarts : In(1)
        It is the first of its reduction.
    bias : In(int32)
    scale : In(32)
        Parameters of a step, `PARAM_DELAY` cycles after it.
    total : Out(int32)
    result : Out(int8)
    """

    REDUCE_DELAY = VECTOR_REDUCE_CYCLES
    PARAM_DELAY = REDUCE_DELAY + 1
    TOTAL_LATENCY = REDUCE_DELAY + VECTOR_BIAS_CYCLES
    RESULT_LATENCY = TOTAL_LATENCY + Requantizer.LATENCY

    def __init__(self, constants_layout: data.StructLayout, operations: Sequence[Operation]):
        self.operations = operations
        super().__init__(
            {
                "constants": In(constants_layout),
                "a_acc": In(signed(32)),
                "a_act": In(signed(8)),
                "b": In(signed(8)),
                "reduces": In(1),
                "restarts": In(1),
                "bias": In(signed(32)),
                "scale": In(32),
                "total": Out(signed(32)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        constants = self.constants
        wide, factor, byte = signed(FIRST_BITS), signed(FACTOR_BITS), signed(SECOND_BITS)
        m.submodules.first_product = first_product = Multiplier(wide, factor)
        m.submodules.second_product = second_product = Multiplier(factor, byte, in_fabric=True)
        m.submodules.combined = combined_adder = LogicAdder(32, Gate.OR)
        m.submodules.reduced = reduced_adder = LogicAdder(32)
        m.submodules.total = total_adder = LogicAdder(32)
        m.submodules.requantizer = requantizer = Requantizer()

        # Every operation is one sum of two products, so all take the same time.
        a = Mux(constants.a_from_acc, self.a_acc, self.a_act)
        factors = VectorFactors(m, self.operations, constants, a, self.b)
        passed = delayed(m, factors.passed, Multiplier.LATENCY, "passed")
        m.d.comb += [
            Cat(first_product.left, first_product.right).eq(Cat(*factors.first)),
            Cat(second_product.right, second_product.left).eq(Cat(*factors.second)),
            combined_adder.a.eq(first_product.product),
            combined_adder.b.eq(passed),
            combined_adder.c.eq(second_product.product),
            combined_adder.d.eq(-1),
        ]

        # The sum of a reduction begins with 0; its maximum replaces what is smaller.
        combined = Signal(signed(32), reset_less=True)
        reduced = Signal(signed(32), reset_less=True)
        total = Signal(signed(32), reset_less=True)
        adds = ~self.restarts & (constants.reduce == ReduceMode.SUM)
        keeps = (constants.reduce == ReduceMode.MAX) & less(combined, reduced)
        m.d.comb += [
            reduced_adder.a.eq(reduced),
            reduced_adder.b.eq(adds.replicate(32)),
            reduced_adder.c.eq(combined),
            reduced_adder.d.eq(-1),
            total_adder.a.eq(self.bias),
            total_adder.b.eq(constants.bias.replicate(32)),
            total_adder.c.eq(reduced),
            total_adder.d.eq(-1),
        ]
        m.d.sync += [combined.eq(combined_adder.sum), total.eq(total_adder.sum)]
        with m.If(self.reduces & (self.restarts | ~keeps)):
            m.d.sync += reduced.eq(reduced_adder.sum)

        m.d.comb += [
            self.total.eq(total),
            requantizer.total.eq(total),
            requantizer.scale.eq(delayed(m, self.scale, 1, "scale")),
            requantizer.scaled.eq(constants.scale),
            requantizer.zero_point.eq(constants.zero_point),
            requantizer.low.eq(constants.low),
            requantizer.high.eq(constants.high),
            self.result.eq(requantizer.result),
        ]
        return m
