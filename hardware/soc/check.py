"""The check of a frame, CRC-32, one byte per cycle."""

from amaranth.hdl import Cat, Const, Value

from ...isa.link import CHECK_POLYNOMIAL

CHECK_BITS = 32


def next_check(check: Value, byte: Value) -> Value:
    """Return the register after one more byte: an exclusive or of some of its bits and the byte's.

    Parameters
    ----------
    check, byte
        32 and 8 bits.
    """
    effects = [_shifted(1 << bit) for bit in range(8)]
    mixed = [check[bit] ^ byte[bit] for bit in range(8)]
    bits = []
    for place in range(CHECK_BITS):
        bit = check[place + 8] if place + 8 < CHECK_BITS else Const(0)
        for source, effect in zip(mixed, effects, strict=True):
            if effect >> place & 1:
                bit = bit ^ source
        bits.append(bit)
    return Value.cast(Cat(bits))


def _shifted(check: int) -> int:
    """Return the register after eight zero bits."""
    for _ in range(8):
        check = check >> 1 ^ (CHECK_POLYNOMIAL if check & 1 else 0)
    return check
