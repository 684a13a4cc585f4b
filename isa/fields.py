"""Fields of an instruction word: named bit ranges whose widths follow from the configuration.

`pack` rejects a value that does not fit and names the field with its range; it never truncates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import IsaError


@dataclass(frozen=True, slots=True)
class Field:
    """One bit range.

    Parameters
    ----------
    name
        Dotted path inside the instruction, `row_loops.0.extent`.
    bits
        Width.
    signed
        Two's complement.
    offset
        Subtracted before encoding: extents and lengths are stored minus one.
    """

    name: str
    bits: int
    signed: bool = False
    offset: int = 0

    @property
    def low(self) -> int:
        """Least value."""
        return self.offset + (-(1 << (self.bits - 1)) if self.signed else 0)

    @property
    def high(self) -> int:
        """Greatest value."""
        return self.low + (1 << self.bits) - 1

    def encode(self, value: int) -> int:
        """Bits of a value.

        Raises
        ------
        IsaError
            When the value is out of range.
        """
        size, bits = 1 << self.bits, value - self.offset
        low = -(size >> 1) if self.signed else 0
        if not low <= bits < low + size:
            raise IsaError(
                f"field `{self.name}`: {value} does not fit {self.bits} bits; "
                f"expected {self.low} to {self.high}"
            )
        return bits & (size - 1)

    def decode(self, bits: int) -> int:
        """Value of bits already masked to the width."""
        if self.signed and bits >> (self.bits - 1):
            bits -= 1 << self.bits
        return bits + self.offset


def pack(layout: Sequence[Field], values: Mapping[str, int]) -> int:
    """Place every field of `layout` from bit 0 upwards."""
    word, position = 0, 0
    for field in layout:
        value = values[field.name]
        if value != field.offset:  # else all its bits are 0
            word |= field.encode(value) << position
        position += field.bits
    return word


def unpack(layout: Sequence[Field], word: int) -> dict[str, int]:
    """Read every field of `layout` back."""
    values, position = {}, 0
    for field in layout:
        values[field.name] = field.decode((word >> position) & ((1 << field.bits) - 1))
        position += field.bits
    return values


def width(layout: Sequence[Field]) -> int:
    """Total bits of a layout."""
    return sum(field.bits for field in layout)


def address_width(count: int) -> int:
    """Bits of an unsigned address below `count`."""
    return max(1, (count - 1).bit_length())
