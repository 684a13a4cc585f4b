"""Simulation of blocks in Amaranth; each block is elaborated once, which is the slowest step."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Generic, TypeVar

from amaranth.hdl import Elaboratable, Fragment
from amaranth.sim import Simulator

from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import Configuration

Top = TypeVar("Top", bound=Elaboratable)
Bench = Callable[..., Awaitable[None]]


class Simulated(Generic[Top]):
    """A top level that is simulated any number of times, each time from reset.

    Parameters
    ----------
    top
        The design; its clock domain is `sync`.
    platform
        The technology whose cells the design is built from.
    """

    def __init__(self, top: Top, platform: Technology | None = None) -> None:
        self.top, self.platform = top, platform
        self._simulator: Simulator | None = None
        self._benches: tuple[Bench, ...] = ()

    def run(self, bench: Bench, other: Bench | None = None) -> None:
        """Reset, and run until the benches return."""
        self._benches = (bench, other) if other else (bench,)
        simulator, self._simulator = self._simulator, None
        if simulator:
            simulator.reset()
        else:
            simulator = self._elaborate()
        simulator.run()
        self._simulator = simulator  # one whose bench fails is not used again

    def _elaborate(self) -> Simulator:
        simulator = Simulator(Fragment.get(self.top, self.platform))
        simulator.add_clock(1e-6)

        async def first(ctx) -> None:
            await self._benches[0](ctx)

        async def second(ctx) -> None:
            for bench in self._benches[1:]:
                await bench(ctx)

        simulator.add_testbench(first)
        simulator.add_testbench(second)
        return simulator


@cache
def simulated(
    kind: Callable[[Configuration], Top],
    configuration: Configuration,
    platform: Technology | None = None,
) -> Simulated[Top]:
    """Return the block of a configuration; all tests share it."""
    return Simulated(kind(configuration), platform)
