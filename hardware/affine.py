"""Loop counters with running addresses: the address generator that all four units share.

There is no multiplier. Each level keeps the address at which its current iteration began, so the
next address is always one of these addresses plus a stride.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction


class AffineNest(wiring.Component):
    """Step through an affine loop nest, one iteration per cycle.

    The first iteration is at the outputs in the cycle after `load`, the next one in the cycle after
    `advance`. The wide registers follow `parameters` in every cycle without an iteration, so `load`
    reaches only a few flags. Addresses wrap at their width.

    Parameters
    ----------
    extent_bits : int
        Width of an extent minus one.
    widths : Mapping[str, int]
        Address width of each operand in bits.
    levels : Sequence[tuple[str, ...]]
        The operands that each loop level moves, outermost level first.

    Members
    -------
    load : In(1)
        Take `parameters`; allowed while not `active`.
    parameters : In(struct)
        `base.<operand>`, and `loops[level].extent_minus_one` and `loops[level].strides.<operand>`.
    advance : In(1)
        Step to the next iteration; allowed while `active`.
    active : Out(1)
        An iteration is at the outputs.
    addresses : Out(struct)
        One register per operand.
    last : Out(1)
        This is the final iteration.
    ends : Out(levels)
        Bit `l`: level `l` and all levels inside it are at their last iterations.
    zeros : Out(levels)
        Bit `l`: level `l` is at its first iteration.
    """

    def __init__(
        self, extent_bits: int, widths: Mapping[str, int], levels: Sequence[tuple[str, ...]]
    ):
        self.extent_bits = extent_bits
        self.widths = dict(widths)
        self.levels = tuple(levels)
        self.parameters_layout = data.StructLayout(
            {
                "base": data.StructLayout(self.widths),
                "loops": data.StructLayout(
                    {str(level): self._loop_layout(moved) for level, moved in enumerate(levels)}
                ),
            }
        )
        super().__init__(
            {
                "load": In(1),
                "parameters": In(self.parameters_layout),
                "advance": In(1),
                "active": Out(1),
                "addresses": Out(data.StructLayout(self.widths)),
                "last": Out(1),
                "ends": Out(len(levels)),
                "zeros": Out(len(levels)),
            }
        )

    def _loop_layout(self, moved: tuple[str, ...]) -> data.StructLayout:
        strides = {operand: signed(self.widths[operand] + 1) for operand in moved}
        return data.StructLayout(
            {"extent_minus_one": self.extent_bits, "strides": data.StructLayout(strides)}
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
        levels = [
            moved
            for nest, moved in family.nests.items()
            for _ in range(family.levels(nest, configuration))
        ]
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
        for level, (prefix, moved) in enumerate(zip(loops, self.levels, strict=True)):
            target = self.parameters.loops[str(level)]
            assignments.append(target.extent_minus_one.eq(getattr(command, prefix + "extent")))
            assignments += [
                target.strides[operand].eq(getattr(command, prefix + operand)) for operand in moved
            ]
        return assignments

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = range(len(self.levels))
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
        m.d.comb += [
            self.ends.eq(Cat(ends)),
            self.zeros.eq(Cat(at_start)),
            self.last.eq(ends[0]),
        ]

        def enter(flags: Sequence[Value]) -> list:
            """Enter a state in which the levels with a flag are at their ends."""
            inner = [Cat(flags[level:]).all() for level in depth] + [Const(1)]
            return [
                *(register.eq(flags[level]) for level, register in at_end.items()),
                *(ends[level].eq(inner[level]) for level in depth),
                *(steps[level].eq(~flags[level] & inner[level + 1]) for level in depth),
            ]

        near = [self._count(m, level, steps[level], ends[level]) for level in depth]

        def flag_after_advance(level: int) -> Value:
            """Whether the level is at its end after an advance within the nest."""
            if level == 0:
                unless_it_steps = at_end.get(0, Const(0))
            elif level == depth[-1]:
                unless_it_steps = single[level]
            else:
                unless_it_steps = Mux(ends[level], single[level], at_end[level])
            return Mux(steps[level], near[level], unless_it_steps)

        alone = [self.parameters.loops[str(level)].extent_minus_one == 0 for level in depth]
        with m.If(~self.active):
            m.d.sync += [register.eq(alone[level]) for level, register in single.items()]
        with m.If(self.load):
            m.d.sync += [self.active.eq(1), *enter(alone)]
            m.d.sync += [at_start[level].eq(1) for level in depth]
        with m.Elif(self.advance & self.last):
            m.d.sync += self.active.eq(0)
        with m.Elif(self.advance):
            m.d.sync += enter([flag_after_advance(level) for level in depth])
            for level in depth:
                with m.If(steps[level]):
                    m.d.sync += at_start[level].eq(0)
                with m.Elif(ends[level]):
                    m.d.sync += at_start[level].eq(1)

        for operand, width in self.widths.items():
            self._run_operand(m, operand, width, steps)

        m.d.sync += Assert(~self.advance | self.active, "nest advanced while idle")
        m.d.sync += Assert(~self.load | ~self.active, "nest loaded while busy")
        return m

    def _count(self, m: Module, level: int, steps: Value, ends: Value) -> Signal:
        """Count a level's iterations; return whether its next step leads to its last iteration."""
        extent_minus_one = self.parameters.loops[str(level)].extent_minus_one
        extent = Signal(self.extent_bits, name=f"extent_{level}", reset_less=True)
        # Two more than the index of the iteration, so the comparison is made a step ahead.
        ahead = Signal(self.extent_bits, name=f"ahead_{level}", reset_less=True)
        two = Signal(name=f"two_{level}", reset_less=True)
        near = Signal(name=f"near_{level}", reset_less=True)
        with m.If(~self.active):
            m.d.sync += [
                extent.eq(extent_minus_one),
                two.eq(extent_minus_one == 1),
                near.eq(extent_minus_one == 1),
            ]
        with m.Elif(self.advance):
            m.d.sync += near.eq(Mux(steps, ahead == extent, Mux(ends, two, near)))
        with m.If(~self.active | (self.advance & ends)):
            m.d.sync += ahead.eq(2)
        with m.Elif(self.advance & steps):
            m.d.sync += ahead.eq(ahead + 1)
        return near

    def _run_operand(self, m: Module, operand: str, width: int, steps: Sequence[Signal]) -> None:
        """Keep, for each level that moves the operand, the address where its iteration began."""
        moving = [level for level, moved in enumerate(self.levels) if operand in moved]
        base = Signal(width, name=f"{operand}_base", reset_less=True)
        starts = {
            level: Signal(width, name=f"{operand}_start_{level}", reset_less=True)
            for level in moving
        }
        strides = {
            level: Signal(width, name=f"{operand}_stride_{level}", reset_less=True)
            for level in moving
        }
        origin = Signal(width, name=f"{operand}_origin")
        stride = Signal(width, name=f"{operand}_stride")
        following = Signal(width, name=f"{operand}_following")

        # At most one select is set, so an OR of masked values has the shortest delay.
        origins = [Mux(self.active, 0, self.parameters.base[operand])]
        current = base
        for level, selected in enumerate(steps):
            current = starts.get(level, current)
            origins.append(Mux(selected, current, 0))
        m.d.comb += [
            origin.eq(reduce(or_, origins)),
            stride.eq(reduce(or_, (Mux(steps[level], strides[level], 0) for level in moving), 0)),
            following.eq(origin + stride),
        ]

        with m.If(~self.active):
            m.d.sync += base.eq(self.parameters.base[operand])
            m.d.sync += [
                strides[level].eq(self.parameters.loops[str(level)].strides[operand])
                for level in moving
            ]
        for level in moving:
            inside = Cat(steps[: level + 1]).any()
            with m.If(~self.active | (self.advance & inside)):
                m.d.sync += starts[level].eq(following)
        m.d.comb += self.addresses[operand].eq(starts[moving[-1]] if moving else base)
