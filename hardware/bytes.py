"""Rotation and masks of the bytes in a beat."""

from amaranth.hdl import Cat, Const, Mux, Value


def rotate_bytes(value: Value, amount: Value, step_bits: int = 8) -> Value:
    """Move the bit at place `i` to place `i + amount * step_bits`, modulo the width of `value`."""
    for bit in range(len(amount)):
        value = Mux(amount[bit], value.rotate_left(step_bits << bit), value)
    return value


def mask_between(first: Value, last: Value) -> Value:
    """Set the bits `first` to `last`, both included, of a mask of 2**len(first) bits.

    The function shifts constants to the right, so no intermediate value is wider than the mask.
    """
    size = 1 << len(first)
    ones = Const((1 << size) - 1, size)
    return (ones >> ~last) & ~((ones >> ~first) >> 1)


def expand(mask: Value) -> Value:
    """Repeat every bit eight times: a mask of bits from a mask of bytes."""
    return Value.cast(Cat(bit.replicate(8) for bit in mask))
