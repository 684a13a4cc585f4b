"""The names that a sweep varies, with their values; `isa.settings` has the syntax."""

from dataclasses import dataclass

from ...isa.settings import MEMORY, Value, read_values


@dataclass(frozen=True, slots=True)
class Dimension:
    """A name with the values that it takes.

    Parameters
    ----------
    name
        A parameter of the configuration, `lanes`, or a property of main memory.
    values
        Without duplicates, in the order given.
    """

    name: str
    values: tuple[Value, ...]

    @property
    def in_memory(self) -> bool:
        """Whether it is a property of main memory."""
        return self.name in MEMORY


def read_dimension(name: str, values: object, source: str) -> Dimension:
    """Read a dimension; parameters and errors are those of `read_values`."""
    return Dimension(name, read_values(name, values, source))
