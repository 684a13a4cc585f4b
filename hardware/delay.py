"""Delay lines, which align a value with slower ones."""

from amaranth.hdl import Cat, Module, Signal, Value


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Return the bits of `value` from `cycles` clock cycles ago.

    The line is one shift register without reset; simulators update it in one operation.

    Parameters
    ----------
    m : Module
        Receives the register, in the domain `sync`.
    value : Value
        The value to delay.
    cycles : int
        At least 1.
    name : str
        Name of the register.
    """
    width = len(value)
    line = Signal(width * cycles, name=name, reset_less=True)
    m.d.sync += line.eq(Cat(value, line))
    return Value.cast(line[-width:])
