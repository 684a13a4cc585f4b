"""One lane of VECTOR before the look-up: combine, reduce, add the bias, requantise."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.instructions import ReduceMode
from ..isa.pipeline import VECTOR_BIAS_CYCLES, VECTOR_REDUCE_CYCLES
from ..isa.vector_operations import FACTOR_BITS, FIRST_BITS, SECOND_BITS, Operation
from .blocks import USUAL_LANE_BLOCKS
from .delay import delayed
from .fan_out import copied
from .logic_adder import Gate, LogicAdder
from .multiplier import Multiplier
from .requantizer import WIDE_BITS, Requantizer
from .vector_factors import VectorFactors


class VectorLane(wiring.Component):
    """Compute VECTOR's law for one lane, one step per cycle; all integers wrap at 32 bits.

    Never stalls. A step reaches the reduction after `REDUCE_DELAY` cycles, one cycle after its
    `reduces` and `restarts`. `total` is the sum with its bias `TOTAL_LATENCY` cycles after the
    step, `result` the int8 value `RESULT_LATENCY` cycles after it.

    Parameters
    ----------
    constants_layout : data.StructLayout
        The immediate fields of the instruction.
    operations : Sequence[Operation]
        Operations that a step can compute, by code.
    blocks : int
        Multiplier blocks of the FPGA that the lane may take, from `MIN_LANE_BLOCKS` to
        `MAX_LANE_BLOCKS`.
        The other products are built from logic, with the same latency.

    Members
    -------
    constants : In(constants_layout)
        Stable while steps are in flight.
    a_acc : In(int32)
        Operand a of a step, if it comes from ACC.
    a_act, b : In(int8)
        Operands of a step from ACT.
    reduces : In(1)
        A step is at the reduction in the next cycle.
    restarts : In(1)
        That step is the first one of its reduction.
    bias : In(int32)
    scale : In(32)
        Parameters of a step, `PARAM_DELAY` cycles after it.
    total : Out(int32)
    result : Out(int8)
    wide : Out(int18)
        Wide result `Requantizer.WIDE_LEAD` cycles before `result`, with `row_statistics`.
    """

    REDUCE_DELAY = VECTOR_REDUCE_CYCLES
    PARAM_DELAY = REDUCE_DELAY + 1
    TOTAL_LATENCY = REDUCE_DELAY + VECTOR_BIAS_CYCLES
    RESULT_LATENCY = TOTAL_LATENCY + Requantizer.LATENCY

    def __init__(
        self,
        constants_layout: data.StructLayout,
        operations: Sequence[Operation],
        blocks: int = USUAL_LANE_BLOCKS,
    ):
        self.operations, self.blocks = operations, blocks
        self.gives_wide = "statistic" in constants_layout.members
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
                **({"wide": Out(signed(WIDE_BITS))} if self.gives_wide else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        constants = self.constants
        wide, factor, byte = signed(FIRST_BITS), signed(FACTOR_BITS), signed(SECOND_BITS)
        first_in_fabric, second_in_fabric = self.blocks < 3, self.blocks < 4
        first_product = Multiplier(wide, factor, in_fabric=first_in_fabric)
        second_product = Multiplier(factor, byte, in_fabric=second_in_fabric)
        m.submodules.first_product, m.submodules.second_product = first_product, second_product
        m.submodules.combined = combined_adder = LogicAdder(32, Gate.OR)
        m.submodules.reduced = reduced_adder = LogicAdder(33, Gate.OR, Gate.XOR)
        m.submodules.total = total_adder = LogicAdder(32, Gate.OR)
        m.submodules.requantizer = requantizer = Requantizer(self.gives_wide)

        # Every operation is one sum of two products, so all take the same time.
        factors = VectorFactors(m, self.operations, constants, self.a_acc, self.a_act, self.b)
        m.d.comb += [
            Cat(first_product.left, first_product.right).eq(Cat(*factors.first)),
            Cat(second_product.right, second_product.left).eq(Cat(*factors.second)),
            combined_adder.a.eq(first_product.product),
            combined_adder.b.eq(factors.passed),
            combined_adder.c.eq(second_product.product),
            combined_adder.d.eq(-1),
        ]

        # A reduction's value is in one of two registers, the other one is 0. The first step enters
        # `chosen`, and so does each one that exceeds the maximum; a sum continues in `summed`. One
        # chain adds a step to the value, or compares it as the sign of the difference.
        combined = Signal(signed(32), reset_less=True)
        summed = Signal(signed(32), reset_less=True)
        chosen = Signal(signed(32), reset_less=True)
        total = Signal(signed(32), reset_less=True)
        continues, takes_maximum = Signal(), Signal()
        m.d.comb += [
            continues.eq(self.reduces & ~self.restarts),
            takes_maximum.eq(constants.reduce == ReduceMode.MAX),
        ]
        flags = Cat(
            takes_maximum,
            continues & ~takes_maximum,
            continues & takes_maximum,
            self.reduces & self.restarts,
        )
        # Each lane has its own registers for the flags, since the chain begins with them.
        maximum, adds, compares, restarts = copied(m, platform, flags, 1, "flags")[0]
        chooses = Signal()
        m.d.comb += [
            chooses.eq(restarts | (compares & reduced_adder.sum[32])),
            reduced_adder.a.eq(summed),
            reduced_adder.b.eq(chosen),
            reduced_adder.c.eq(combined),
            reduced_adder.d.eq(maximum.replicate(33)),
            reduced_adder.carry.eq(maximum),
            total_adder.a.eq(summed),
            total_adder.b.eq(chosen),
            total_adder.c.eq(self.bias),
            total_adder.d.eq(constants.bias.replicate(32)),
        ]
        m.d.sync += [
            combined.eq(combined_adder.sum),
            total.eq(total_adder.sum),
        ]
        # `chooses` is late, so it is only a clock enable: `adds` alone selects what `chosen` takes.
        with m.If(chooses):
            m.d.sync += chosen.eq(combined)
        with m.If(adds):
            m.d.sync += [summed.eq(reduced_adder.sum), chosen.eq(0)]
        with m.If(restarts | compares):
            m.d.sync += summed.eq(0)

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
        if self.gives_wide:
            m.d.comb += self.wide.eq(requantizer.wide)
        return m
