"""Sleep: in a simulator, a part that is at rest costs nothing.

Elsewhere a part at rest simply stays as it is. For the platform SIMULATION its clock stops as
well, so that Verilator, which schedules logic by clock domain, evaluates none of it. Nothing else
differs, as long as a part that is not `awake` would not change any state that matters.
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

from .ram import SIMULATION

SETTLING_CYCLES = 4
"""A part may take so long to come to rest after the last cycle in which it was `awake`."""

FALLING = "falling"


class ClockGating:
    """The parts of a module that may sleep.

    Parameters
    ----------
    m : Module
        Receives the parts as submodules.
    platform
        Of the module's `elaborate`.
    clear : Value
        Resets every part; from a register.
    """

    def __init__(self, m: Module, platform, clear: Value):
        self.m, self.clear = m, clear
        self.stops_clocks = platform == SIMULATION
        if self.stops_clocks:
            m.domains += ClockDomain(FALLING, clk_edge="neg", reset_less=True)
            m.d.comb += ClockSignal(FALLING).eq(ClockSignal())

    def add(self, name: str, parts: Mapping[str, wiring.Component], awake: Value) -> None:
        """Add submodules that sleep and wake together.

        Parameters
        ----------
        name : str
            Of their clock domain.
        parts : Mapping[str, wiring.Component]
            By submodule name, in the domain `sync`.
        awake : Value
            One has something to do, or will be given something in this cycle. Must come from
            registers, since it is sampled in the middle of the cycle.
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
