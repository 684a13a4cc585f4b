"""Delay lines: how a value waits for others that take longer."""

from amaranth.hdl import Cat, Module, Signal, Value


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Return the bits of `value` as they were `cycles` clock cycles ago.

    The line is one register that shifts, which simulators update in one operation, and has no
    reset.

    Parameters
    ----------
    m : Module
        Receives the register, in the domain `sync`.
    value : Value
        What to delay.
    cycles : int
        At least 1.
    name : str
        Names the register.
    """
    width = len(value)
    line = Signal(width * cycles, name=name, reset_less=True)
    m.d.sync += line.eq(Cat(value, line))
    return Value.cast(line[-width:])
