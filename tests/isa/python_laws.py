"""Laws computed by Python itself, on whole numbers that wrap: what all others must equal."""

from collections.abc import Mapping


class Word(int):
    """A 32-bit integer; what Python's operators make of it wraps."""

    def __new__(cls, value: int) -> "Word":
        return super().__new__(cls, (int(value) + (1 << 31)) % (1 << 32) - (1 << 31))

    def __add__(self, other):
        return Word(int(self) + int(other))

    def __sub__(self, other):
        return Word(int(self) - int(other))

    def __mul__(self, other):
        return Word(int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return Word(int(other) - int(self))

    def __neg__(self):
        return Word(-int(self))

    def __abs__(self):
        return Word(abs(int(self)))

    def __lshift__(self, other):
        return Word(int(self) << int(other))


def law_by_python(law: str, values: Mapping[str, int]) -> int:
    """The law's text run by Python."""
    names = {name: Word(value) for name, value in values.items()}
    return int(Word(eval(law, {"wrap": wrap, **names})))


def wrap(value: int, bits: int) -> Word:
    """The low bits of a number, the highest of them as its sign."""
    half = 1 << (bits - 1)
    return Word((int(value) + half) % (2 * half) - half)
