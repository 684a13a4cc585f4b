"""Clock gating for simulation: idle parts cost the simulator no time.

On the platform `Technology.SIMULATION` the clock of an idle part stops. Verilator schedules logic
by clock domain, so it does not evaluate that part at all. On other platforms the clock keeps
running. Both behave alike if a part that is not `awake` changes no state that matters.
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
    """

    def __init__(self, m: Module, platform, clear: Value):
        self.m, self.clear = m, clear
        self.stops_clocks = platform is Technology.SIMULATION
        if self.stops_clocks:
            m.domains += ClockDomain(FALLING, clk_edge="neg", reset_less=True)
            m.d.comb += ClockSignal(FALLING).eq(ClockSignal())

    def add(self, name: str, parts: Mapping[str, wiring.Component], awake: Value) -> None:
        """Add submodules that stop and wake together.

        Parameters
        ----------
        name : str
            Name of their clock domain.
        parts : Mapping[str, wiring.Component]
            The submodules by name, in the domain `sync`.
        awake : Value
            A part has work, or receives work in this cycle. Must come from registers, because it is
            sampled in the middle of the cycle.
        """
        m = self.m
        resettable = {key: ResetInserter(self.clear)(part) for key, part in parts.items()}
        if not self.stops_clocks:
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
