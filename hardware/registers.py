"""Delay lines: how a value waits for others that take longer."""

from amaranth.hdl import Module, Signal, Value


def delayed(
    m: Module, value: Value, cycles: int, name: str, *, reset_less: bool = True
) -> Signal | Value:
    """Return `value` as it was `cycles` clock cycles ago.

    Parameters
    ----------
    m : Module
        Receives the registers, in the domain `sync`.
    value : Value
        What to delay; `cycles` = 0 returns it unchanged.
    cycles : int
        Registers in a row.
    name : str
        Names the registers `name_1`, `name_2` and so on.
    reset_less : bool
        False for valids, which must be low after reset.
    """
    for cycle in range(1, cycles + 1):
        stage = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=reset_less)
        m.d.sync += stage.eq(value)
        value = stage
    return value
