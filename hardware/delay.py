"""Delay lines: hold a value until slower ones catch up."""

from amaranth.hdl import Cat, Module, Signal, Value


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Return the bits of `value` as they were `cycles` clock cycles ago.

    The line is one shift register without reset; simulators update it in one operation.

    Parameters
    ----------
    m : Module
        Receives the register, in the domain `sync`.
    value : Value
        Value to delay.
    cycles : int
        At least 1.
    name : str
        Names the register.
    """
    width = len(value)
    line = Signal(width * cycles, name=name, reset_less=True)
    m.d.sync += line.eq(Cat(value, line))
    return Value.cast(line[-width:])
