"""Clock gating for simulation: idle parts cost the simulator no time.

On the platform `Technology.SIMULATION` the clock of an idle part stops. Verilator schedules logic
by clock domain, so it does not evaluate that part at all. On other platforms the clock keeps
running. Both behave alike if a part that is not `awake` changes no observable state.
"""

from collections.abc import Mapping

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    ResetInserter,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells import ecp5
from .fan_out import add_in_domain
from .technology import Technology

SETTLING_CYCLES = 4
"""Cycles that a part may need to become idle after it was last `awake`."""

FALLING = "falling"


class ClockGating:
    """Add parts to a module, with clocks that stop while the parts are idle.

    Parameters
    ----------
    m : Module
        Receives the parts as submodules.
    platform
        Argument of the module's `elaborate`.
    clear : Value
        Resets every part; must come from a register.
    clears : Value
        Announces `clear` one cycle ahead. On chips, each group of parts has its own reset register.
        It is set together with `clear`, and in the cycle after a reset of the machine.
    """

    def __init__(self, m: Module, platform, clear: Value, clears: Value):
        self.m, self.clear, self.clears = m, clear, clears
        self.platform = platform
        self.stops_clocks = platform is Technology.SIMULATION
        if self.stops_clocks:
            # Amaranth's simulator updates stoppable clocks after the registers of `sync`. So the
            # parts' reset, like all their inputs, is a signal that follows the register.
            self.clear = Signal(name="clears_parts")
            m.d.comb += self.clear.eq(clear)
            m.domains += ClockDomain(FALLING, clk_edge="neg", reset_less=True)
            m.d.comb += ClockSignal(FALLING).eq(ClockSignal())

    def add(self, name: str, parts: Mapping[str, wiring.Component], awake: Value | None) -> None:
        """Add submodules that stop and wake together.

        Parameters
        ----------
        name : str
            Name of their clock domain.
        parts : Mapping[str, wiring.Component]
            The submodules by name, in the domain `sync`.
        awake : Value
            Set while a part has work, or receives work in this cycle. It must come from registers,
            because it is sampled in the middle of the cycle. None for parts that never stop.
        """
        m = self.m
        if not self.stops_clocks:
            m.submodules[f"{name}_reset"] = reset = Copy()
            m.d.comb += reset.value.eq(self.clears)
            add_in_domain(m, name, parts, reset.copy)
            return
        resettable = {key: ResetInserter(self.clear)(part) for key, part in parts.items()}
        if awake is None:
            for key, part in resettable.items():
                m.submodules[key] = part
            return
        m.domains += ClockDomain(name)
        recently = Signal(SETTLING_CYCLES, name=f"{name}_recently_awake")
        runs = Signal(name=f"{name}_runs", init=1)
        m.d.sync += recently.eq(recently << 1 | awake)
        m.d[FALLING] += runs.eq(awake | recently.any() | self.clear | ResetSignal())
        m.d.comb += [
            ClockSignal(name).eq(ClockSignal() & runs),
            ResetSignal(name).eq(ResetSignal()),
        ]
        for key, part in resettable.items():
            m.submodules[key] = DomainRenamer(name)(part)


class Copy(wiring.Component):
    """A register that a reset sets; on the ECP5, no tool merges it with equal ones.

    Members
    -------
    value : In(1)
    copy : Out(1)
        The value of the cycle before, or 1 after a reset.
    """

    value: In(1)
    copy: Out(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        if platform is Technology.ECP5:
            m.submodules.cell = cell = ecp5.Copies(1, set_by_reset=True)
            m.d.comb += [cell.value.eq(self.value), self.copy.eq(cell.copies)]
        else:
            copy = Signal(init=1)
            m.d.sync += copy.eq(self.value)
            m.d.comb += self.copy.eq(copy)
        return m
