"""Copied registers, for signals with a high fan-out."""

from collections.abc import Mapping

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import wiring

from .cells import ecp5, xilinx
from .technology import Technology

COPIES = {
    Technology.ECP5: ecp5.Copies,
    Technology.XILINX7: xilinx.Copies,
    Technology.ULTRASCALE: xilinx.Copies,
}
"""Register cells, which synthesis tools do not merge."""


def copied(m: Module, platform, value: Value, count: int, name: str) -> list[Value]:
    """Return `count` copies of `value`, one cycle later.

    If the technology has cells for it, each copy has its own registers, which can be placed near
    their loads. Otherwise all copies are one register. The registers have no reset.

    Parameters
    ----------
    m : Module
        Receives the registers, in the domain `sync`.
    platform
        Argument of the module's `elaborate`.
    value : Value
        The value to copy.
    count : int
        Number of copies.
    name : str
        Name of the registers.
    """
    if platform not in COPIES:
        register = Signal(len(value), name=name, reset_less=True)
        m.d.sync += register.eq(value)
        return [register] * count
    bits = []
    for index, bit in enumerate(value):
        m.submodules[f"{name}_{index}"] = cell = COPIES[platform](count)
        m.d.comb += cell.value.eq(bit)
        bits.append(cell.copies)
    return [Value.cast(Cat(copies[index] for copies in bits)) for index in range(count)]


def add_with_resets(m: Module, platform, parts: Mapping[str, wiring.Component]) -> None:
    """Add submodules, each with a copy of the reset, one cycle later.

    The wire of one reset for everything would be the longest path of a large chip. If the
    technology has no cells for copies, the submodules share the reset of `sync`.

    Parameters
    ----------
    m : Module
        Receives the submodules, and a domain with the name of each.
    platform
        Argument of the module's `elaborate`.
    parts : Mapping[str, wiring.Component]
        The submodules by name, in the domain `sync`.
    """
    if platform not in COPIES:
        for name, part in parts.items():
            m.submodules[name] = part
        return
    resets = copied(m, platform, ResetSignal(), len(parts), "reset")
    for (name, part), reset in zip(parts.items(), resets, strict=True):
        add_in_domain(m, name, {name: part}, reset)


def add_in_domain(
    m: Module, domain: str, parts: Mapping[str, wiring.Component], reset: Value
) -> None:
    """Add submodules in a domain of their own, with the clock of `sync` and another reset.

    Parameters
    ----------
    m : Module
        Receives the submodules and the domain.
    domain : str
        The domain's name.
    parts : Mapping[str, wiring.Component]
        The submodules by name, in the domain `sync`.
    reset : Value
        The domain's reset.
    """
    m.domains += ClockDomain(domain)
    m.d.comb += [ClockSignal(domain).eq(ClockSignal()), ResetSignal(domain).eq(reset)]
    for name, part in parts.items():
        m.submodules[name] = DomainRenamer(domain)(part)
