"""Loop counters with running addresses: the address generator that all four units share.

There is no multiplier. Instruction words have jumps instead of strides, so the next address is
always the current one plus the jump of the level that steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from .logic_adder import Gate, LogicAdder


class AffineNest(wiring.Component):
    """Step through an affine loop nest, one iteration per cycle.

    The first iteration is at the outputs in the cycle after `load`, the next one in the cycle after
    `advance`. All registers follow `parameters` in every cycle without an iteration, so `load`
    reaches only `active`. Addresses wrap at their width.

    Parameters
    ----------
    extent_bits : int
        Width of an extent minus one.
    widths : Mapping[str, int]
        Address width of each operand in bits.
    levels : int
        Loop levels, each of which moves all operands.

    Members
    -------
    load : In(1)
        Take `parameters`; ignored while `active`.
    parameters : In(struct)
        `base.<operand>`, and `loops[level].extent_minus_one` and `loops[level].jumps.<operand>`,
        outermost level first. Jumps count modulo the width of the address.
    advance : In(1)
        Step to the next iteration; allowed while `active`.
    active : Out(1)
        An iteration is at the outputs.
    idle : Out(1)
        The opposite of `active`, as a register of its own, for a user that is far away on the chip.
    addresses : Out(struct)
        One register per operand.
    last : Out(1)
        This is the final iteration.
    ends : Out(levels)
        Bit `l`: level `l` and all levels inside it are at their last iterations.
    zeros : Out(levels)
        Bit `l`: level `l` is at its first iteration.
    """

    def __init__(self, extent_bits: int, widths: Mapping[str, int], levels: int):
        self.extent_bits = extent_bits
        self.widths = dict(widths)
        self.levels = levels
        addresses = data.StructLayout(self.widths)
        loop = data.StructLayout({"extent_minus_one": extent_bits, "jumps": addresses})
        self.parameters_layout = data.StructLayout(
            {"base": addresses, "loops": data.ArrayLayout(loop, levels)}
        )
        super().__init__(
            {
                "load": In(1),
                "parameters": In(self.parameters_layout),
                "advance": In(1),
                "active": Out(1),
                "idle": Out(1, init=1),
                "addresses": Out(addresses),
                "last": Out(1),
                "ends": Out(levels),
                "zeros": Out(levels),
            }
        )

    @staticmethod
    def for_family(
        family: type[Instruction], configuration: Configuration, guard_bits: int = 0
    ) -> "AffineNest":
        """Build the nest of an instruction family, all its loops in order.

        Parameters
        ----------
        family, configuration
            The family declares the loops, the configuration sizes them.
        guard_bits : int
            Bits added to every address. With one, an address that leaves its field's range, on
            either side, has its top bit set.
        """
        widths = {
            operand.name: family.base_bits(operand.name, configuration) + guard_bits
            for operand in family.operands
        }
        levels = sum(family.levels(nest, configuration) for nest in family.nests)
        return AffineNest(configuration.extent_bits, widths, levels)

    def assign(self, command, nests: Iterable[str]) -> list:
        """Return the assignments of a command's fields to `parameters`.

        Parameters
        ----------
        command : struct view
            Fields of a `command_layout`, as encoded, with dots replaced by `__`.
        nests : Iterable[str]
            Names of the command's nests, outermost first. Their levels are taken in order until
            this nest's levels are filled.
        """
        assignments = [
            self.parameters.base[operand].eq(getattr(command, operand)) for operand in self.widths
        ]
        fields = set(command.shape().members)
        loops = []
        for nest in nests:
            level = 0
            while f"{nest}__{level}__extent" in fields:
                loops.append(f"{nest}__{level}__")
                level += 1
        for prefix, target in zip(loops, self.parameters.loops, strict=True):
            assignments.append(target.extent_minus_one.eq(getattr(command, prefix + "extent")))
            assignments += [
                target.jumps[operand].eq(getattr(command, prefix + operand))
                for operand in self.widths
            ]
        return assignments

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = range(self.levels)
        at_start = [Signal(name=f"at_start_{n}") for n in depth]
        # Within a nest the outermost level never restarts, and the innermost one either steps or
        # restarts, so it never stays at its end.
        single = {n: Signal(name=f"single_{n}", reset_less=True) for n in depth[1:]}
        at_end = {n: Signal(name=f"at_end_{n}") for n in depth[:-1]}

        # The level that steps is the innermost one that is not at its end; after the last iteration
        # no level steps. These selects fan out to all address bits, so they are registers, computed
        # beside the state that they describe.
        ends = [Signal(name=f"ends_{n}") for n in depth]
        steps = [Signal(name=f"steps_{n}") for n in depth]
        # `advance` is late, so it reaches the enable that all registers share and nothing else.
        moves = Signal()
        m.d.comb += [
            moves.eq(~self.active | self.advance),
            self.ends.eq(Cat(ends)),
            self.zeros.eq(Cat(at_start)),
            self.last.eq(ends[0]),
        ]
        near = [self._count(m, level, moves, steps[level], ends[level]) for level in depth]

        def after_advance(level: int) -> Value:
            """Whether the level is at its end after an advance within the nest."""
            if level == 0:
                unless_it_steps = at_end.get(0, Const(0))
            elif level == depth[-1]:
                unless_it_steps = single[level]
            else:
                unless_it_steps = Mux(ends[level], single[level], at_end[level])
            return Mux(steps[level], near[level], unless_it_steps)

        alone = [self.parameters.loops[level].extent_minus_one == 0 for level in depth]
        flags = [Mux(self.active, after_advance(level), alone[level]) for level in depth]
        inner = [Cat(flags[level:]).all() for level in depth] + [Const(1)]
        with m.If(~self.active):
            m.d.sync += [register.eq(alone[level]) for level, register in single.items()]
            m.d.sync += [self.active.eq(self.load), self.idle.eq(~self.load)]
        with m.Elif(self.advance & self.last):
            m.d.sync += [self.active.eq(0), self.idle.eq(1)]
        with m.If(moves):
            m.d.sync += [register.eq(flags[level]) for level, register in at_end.items()]
            for level in depth:
                m.d.sync += [
                    ends[level].eq(inner[level]),
                    steps[level].eq(~flags[level] & inner[level + 1]),
                    at_start[level].eq(
                        ~self.active | ends[level] | (at_start[level] & ~steps[level])
                    ),
                ]

        for operand, width in self.widths.items():
            self._run_operand(m, operand, width, moves, steps)

        m.d.sync += [
            Assert(~self.advance | self.active, "nest advanced while idle"),
            Assert(self.idle ^ self.active, "a nest is idle or active"),
        ]
        return m

    def _count(self, m: Module, level: int, moves: Value, steps: Value, ends: Value) -> Signal:
        """Count a level's iterations; return whether its next step leads to its last iteration."""
        extent_minus_one = self.parameters.loops[level].extent_minus_one
        extent = Signal(self.extent_bits, name=f"extent_{level}", reset_less=True)
        # Two more than the index of the iteration, so the comparison is made a step ahead.
        ahead = Signal(self.extent_bits, name=f"ahead_{level}", reset_less=True)
        two = Signal(name=f"two_{level}", reset_less=True)
        near = Signal(name=f"near_{level}", reset_less=True)
        with m.If(~self.active):
            m.d.sync += [extent.eq(extent_minus_one), two.eq(extent_minus_one == 1)]
        restarts = Signal(name=f"restarts_{level}")
        m.submodules[f"counter_{level}"] = counter = LogicAdder(self.extent_bits)
        m.d.comb += [
            restarts.eq(~self.active | ends),
            counter.a.eq(ahead),
            counter.b.eq((~restarts).replicate(self.extent_bits)),
            # Only one of them is 1.
            counter.c.eq(Cat(steps & ~restarts, restarts)),
            counter.d.eq(0b11),
        ]
        with m.If(moves):
            m.d.sync += [
                ahead.eq(counter.sum),
                near.eq(
                    Mux(
                        self.active,
                        Mux(steps, ahead == extent, Mux(ends, two, near)),
                        extent_minus_one == 1,
                    )
                ),
            ]
        return near

    def _run_operand(
        self, m: Module, operand: str, width: int, moves: Value, steps: Sequence[Signal]
    ) -> None:
        """Add the jump of the level that steps to the operand's address."""
        address = Signal(width, name=f"{operand}_address", reset_less=True)
        jumps = []
        for level, selected in enumerate(steps):
            jump = Signal(width, name=f"{operand}_jump_{level}", reset_less=True)
            with m.If(~self.active):
                m.d.sync += jump.eq(self.parameters.loops[level].jumps[operand])
            jumps.append(Mux(selected, jump, 0))
        # While idle, the base is added to 0. At most one of the summands is not 0, so their OR has
        # the shortest delay, and the adder takes in part of it.
        m.submodules[f"{operand}_adder"] = adder = LogicAdder(width, Gate.AND, Gate.OR)
        m.d.comb += [
            adder.a.eq(address),
            adder.b.eq(self.active.replicate(width)),
            adder.c.eq(Mux(self.active, jumps[0], self.parameters.base[operand])),
            adder.d.eq(Mux(self.active, reduce(or_, jumps[1:], Const(0)), 0)),
            self.addresses[operand].eq(address),
        ]
        with m.If(moves):
            m.d.sync += address.eq(adder.sum)
