"""Clock gating for simulation: a part at rest costs the simulator nothing.

On the platform SIMULATION the clock of a part at rest stops. Verilator schedules logic by clock
domain, so it evaluates none of that part. On other platforms the clock keeps running. Both behave
alike as long as a part that is not `awake` has no state to change that matters.
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
"""Cycles that a part may need to come to rest after it was last `awake`."""

FALLING = "falling"


class ClockGating:
    """Add parts to a module whose clocks stop while they are at rest.

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
        """Add submodules that stop and wake together.

        Parameters
        ----------
        name : str
            Name of their clock domain.
        parts : Mapping[str, wiring.Component]
            By submodule name, in the domain `sync`.
        awake : Value
            A part has work, or receives some in this cycle. Must come from registers, since it is
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
