"""Common parts of instruction families: units, tokens, loops, operands, encoding.

A family declares its operands, the loops that move them and its immediate fields. Word layout,
assembly, address streams and footprints follow from the declaration. The constructor drops loops of
extent 1, so instructions with equal meaning compare equal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ...errors import IsaError
from ..configuration import Configuration, Memory
from ..fields import Field, address_width
from .loop_fields import LoopFields
from .loops import nest_addresses


class Unit(IntEnum):
    """The units that run concurrently; FETCH feeds them."""

    LOAD = 0
    GEMM = 1
    VECTOR = 2
    STORE = 3


@cache
def peers(unit: Unit) -> tuple[Unit, ...]:
    """The other three units, in the order of the bits of a `wait` or `signal` mask."""
    return tuple(other for other in Unit if other is not unit)


class Role(Enum):
    """Role of an operand; the compiler identifies operands only by their roles."""

    SOURCE = "source"
    """Bytes to copy."""
    DESTINATION = "destination"
    """Destination of copied bytes."""
    STREAM = "stream"
    """Activations, another element or row at each step."""
    WEIGHTS = "weights"
    """Factors that stay while a stream passes."""
    ACCUMULATOR = "accumulator"
    """Sums, which a later instruction may continue."""
    RESULT = "result"
    """Finished activations."""
    BIAS = "bias"
    """Added per channel."""
    SCALE = "scale"
    """Factor of the requantisation, per channel."""
    TABLE = "table"
    """Values to look up."""
    EPSILON = "epsilon"
    """Constant that the statistic of a row adds."""
    FACTOR = "factor"
    """Constant that the statistic of a row divides."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One affine access of an instruction.

    Parameters
    ----------
    name
        The base address is a field of this name; each loop level has a jump of this name.
    reads, writes
        Whether the instruction reads or writes the operand.
    """

    name: str
    reads: bool = False
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of one memory that an instruction touches: a run, repeated over affine loops.

    Parameters
    ----------
    operand
        Name of the operand.
    memory
        The memory.
    writes
        Whether the access writes; otherwise it reads.
    base, length
        First byte of the first run, and bytes per run.
    loops
        `(extent, stride in bytes)` per level, outermost first.
    """

    operand: str
    memory: Memory
    writes: bool
    base: int
    length: int
    loops: tuple[tuple[int, int], ...]

    @property
    def low(self) -> int:
        """First byte touched."""
        return self.base + sum(min(0, (n - 1) * s) for n, s in self.loops)

    @property
    def high(self) -> int:
        """Last byte touched."""
        return self.base + sum(max(0, (n - 1) * s) for n, s in self.loops) + self.length - 1

    def starts(self) -> np.ndarray:
        """Byte address of every run, int64[runs], in execution order."""
        return nest_addresses(self.base, self.loops)


class _Copied:
    """The place of `Instruction.shared`, which is no field of an instruction."""

    __slots__ = ("_shared",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction(_Copied):
    """An instruction of some unit; `wait` and `signal` name other units.

    Attributes
    ----------
    unit, opcode, mnemonic, law, time
        Unit that runs it, code, name, the law it computes, and its duration.
    operands
        Its affine accesses.
    roles
        Role of each operand. If an operand holds two things, or a field selects a whole table, each
        has its own entry: `param.bias`, `table`.
    places
        Memories that each operand may use, with the fields that select them.
    forgotten
        Fields that the constructor resets to their defaults when they have no effect.
    nests
        Loop nests, outermost first, with the operands that their loops move.
    reduction_nest
        The nest whose loops may reduce; loops of the other one never do.
    reduced_operand
        Loops of the reduction nest reduce if their stride of this operand is 0. If it is empty,
        they all do.
    continue_field
        The flag for adding to the sums of an earlier instruction; empty if there is none.
    lane_group_field
        The field that selects a group of `lanes_out` channels of a wider row; empty if there is
        none.
    unscaled_fields
        Factor that counts as 1 when the operand is in ACC, by operand.
    """

    unit: ClassVar[Unit | None]
    opcode: ClassVar[int]
    mnemonic: ClassVar[str]
    law: ClassVar[str]
    time: ClassVar[str]
    operands: ClassVar[tuple[Operand, ...]] = ()
    roles: ClassVar[dict[str, Role]] = {}
    places: ClassVar[dict[str, dict[Memory, dict[str, Any]]]] = {}
    forgotten: ClassVar[tuple[str, ...]] = ()
    nests: ClassVar[dict[str, tuple[str, ...]]] = {}
    reduction_nest: ClassVar[str] = ""
    reduced_operand: ClassVar[str] = ""
    continue_field: ClassVar[str] = ""
    lane_group_field: ClassVar[str] = ""
    unscaled_fields: ClassVar[dict[str, str]] = {}

    wait: frozenset[Unit] = frozenset()
    signal: frozenset[Unit] = frozenset()

    def __post_init__(self) -> None:
        for mask in ("wait", "signal"):
            named = getattr(self, mask)
            if not named and isinstance(named, frozenset):
                continue
            units = frozenset(Unit(u) for u in named)
            if self.home in units:
                raise IsaError(f"{self.mnemonic}: `{mask}` names the instruction's own unit")
            if self.home is None and units:
                raise IsaError(f"{self.mnemonic} cannot wait or signal")
            object.__setattr__(self, mask, units)
        for flag in _flags(type(self)):
            object.__setattr__(self, flag, bool(getattr(self, flag)))
        for name in self.forgotten:
            if not self.takes_effect(name):
                object.__setattr__(self, name, _defaults(type(self))[name])
        for nest, moved in self.nests.items():
            loops = tuple([loop for loop in getattr(self, nest) if loop.extent != 1])
            for loop in loops:
                if len(loop.strides) != len(moved):
                    raise IsaError(
                        f"{self.mnemonic}: a loop of `{nest}` needs {len(moved)} strides "
                        f"({', '.join(moved)}), got {len(loop.strides)}"
                    )
            object.__setattr__(self, nest, loops)

    def with_tokens(self, wait: frozenset[Unit], signal: frozenset[Unit]) -> "Instruction":
        """The instruction with other tokens; its own unit is in neither set."""
        return self._copy({"wait": wait, "signal": signal})

    def moved(self, bases: Mapping[str, int]) -> "Instruction":
        """The instruction with other addresses, by operand."""
        return self._copy(bases)

    def _copy(self, changes: Mapping[str, Any]) -> "Instruction":
        """A copy with other addresses or tokens; it has the same `shared`."""
        copy, places = _slots(type(self))
        found = copy(self)
        for name, value in changes.items():
            places[name](found, value)
        _share(found, self.shared)
        return found

    @property
    def shared(self) -> dict[str, tuple[Configuration, Any]]:
        """Facts that depend neither on addresses nor on tokens, by name, each with its machine.

        Tiles of a layer differ only in these, so the facts are found once for all tiles.
        """
        try:
            return self._shared
        except AttributeError:
            object.__setattr__(self, "_shared", {})
            return self._shared

    @property
    def home(self) -> Unit | None:
        """The unit that runs this instruction; None if FETCH executes it."""
        return self.unit

    # Declared by each family -------------------------------------------------------------------

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """Fields that are neither addresses nor part of a loop."""
        return ()

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Width of an operand's base address."""
        raise IsaError(f"{cls.mnemonic} has no operand `{operand}`")

    @classmethod
    def finishes(cls, found: Mapping[str, Any]) -> bool:
        """Whether fields that a law was matched with take no part in a result for ACC."""
        return False

    @classmethod
    def operand_of(cls, role: Role) -> str:
        """The only operand with a role.

        Raises
        ------
        IsaError
            When there is none, or more than one.
        """
        names = [name for name, found in cls.roles.items() if found is role]
        if len(names) != 1:
            raise IsaError(f"{cls.mnemonic}: {len(names)} operands are {role.value}, not one")
        return names[0]

    @classmethod
    def levels(cls, nest: str, configuration: Configuration) -> int:
        """Loop levels of a nest."""
        return getattr(configuration, nest)

    @classmethod
    def granule(cls, operand: str, memory: Memory, configuration: Configuration) -> int:
        """Bytes per address step of an operand in a memory; 1 unless the family overrides it."""
        return 1

    @classmethod
    def legal_values(cls, name: str, configuration: Configuration) -> Sequence[Any]:
        """Legal values of an immediate field on a machine, in ascending order.

        They follow from the field's type and width; a family adds limits of its own.
        """
        field = next(field for field in cls.own_fields(configuration) if field.name == name)
        kind = next(each.type for each in fields(cls) if each.name == name)
        if kind is Memory:
            given = [
                told[name] for at in cls.places.values() for told in at.values() if name in told
            ]
            return tuple(given)
        if isinstance(kind, type) and issubclass(kind, IntEnum):
            return tuple(kind)
        if kind is bool:
            return (False, True)[: 1 << field.bits]
        return range(field.low, field.high + 1)

    def takes_effect(self, name: str) -> bool:
        """Whether the value of an immediate field matters to this instruction."""
        return True

    def memory_of(self, operand: str) -> Memory:
        """Memory of an operand."""
        for memory, told in self.places[operand].items():
            if all(getattr(self, name) == value for name, value in told.items()):
                return memory
        raise AssertionError(f"{self.mnemonic}: `{operand}` is in no memory")

    def granule_bytes(self, operand: str, configuration: Configuration) -> int:
        """Bytes per address step of an operand."""
        return self.granule(operand, self.memory_of(operand), configuration)

    def run_bytes(self, operand: str, configuration: Configuration) -> int:
        """Bytes touched at each address; one granule unless the family overrides it."""
        return self.granule_bytes(operand, configuration)

    def active(self, operand: Operand) -> bool:
        """Whether this instruction touches the operand at all."""
        return True

    def code_of(self, field: str, configuration: Configuration) -> int:
        """Number that encodes an immediate field in a word."""
        return int(getattr(self, field))

    @property
    def only_tokens(self) -> bool:
        """Whether it touches no memory, but orders other instructions or ends the program."""
        return not self.operands

    # Derived -----------------------------------------------------------------------------------

    @classmethod
    @cache
    def own_fields(cls, configuration: Configuration) -> tuple[Field, ...]:
        """`immediates`, computed once per configuration."""
        return cls.immediates(configuration)

    @classmethod
    @cache
    def layout(cls, configuration: Configuration) -> tuple[Field, ...]:
        """All fields in encoding order, the common header first."""
        layout = [Field("opcode", 4), Field("wait", 3), Field("signal", 3)]
        layout += cls.own_fields(configuration)
        layout += [Field(o.name, cls.base_bits(o.name, configuration)) for o in cls.operands]
        for levels in cls.loop_fields(configuration).nests.values():
            layout += [field for level in levels for field in level]
        return tuple(layout)

    @classmethod
    @cache
    def loop_fields(cls, configuration: Configuration) -> LoopFields:
        """Fields of the loop levels, computed once per configuration."""
        return LoopFields(cls, configuration)

    @classmethod
    @cache
    def _idle_values(cls, configuration: Configuration) -> dict[str, int]:
        """Values of all fields in a word that holds the opcode alone."""
        values = {field.name: field.offset for field in cls.layout(configuration)}
        return {**values, "opcode": cls.opcode}

    def values(self, configuration: Configuration) -> dict[str, int]:
        """Value of every field of the layout.

        Raises
        ------
        IsaError
            When there are too many loops, a stride does not fit, or the machine lacks a feature
            that a field selects.
        """
        values = self._idle_values(configuration).copy()
        values["wait"], values["signal"] = self.token_masks
        for field in self.own_fields(configuration):
            values[field.name] = self.code_of(field.name, configuration)
        for operand in self.operands:
            values[operand.name] = getattr(self, operand.name)
        values.update(self.loop_fields(configuration).values(self))
        return values

    @classmethod
    def from_values(cls, values: Mapping[str, Any], configuration: Configuration) -> "Instruction":
        """Inverse of `values`.

        Raises
        ------
        IsaError
            For an unknown code, or loops that contradict themselves.
        """
        arguments: dict[str, Any] = {**cls.loop_fields(configuration).loops(values)}
        for field in cls.own_fields(configuration):
            arguments[field.name] = values[field.name]
        for operand in cls.operands:
            arguments[operand.name] = values[operand.name]
        home = cls.unit if cls.unit is not None else arguments.get("target")
        if home is not None:
            others = peers(Unit(home))
            for mask in ("wait", "signal"):
                arguments[mask] = frozenset(
                    other for bit, other in enumerate(others) if values[mask] >> bit & 1
                )
        elif values["wait"] or values["signal"]:
            raise IsaError(f"{cls.mnemonic} cannot wait or signal")
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in arguments.items() if key in known})

    @property
    def token_masks(self) -> tuple[int, int]:
        """Values of the fields `wait` and `signal`."""
        home = self.home
        if home is None:
            return 0, 0
        return _mask(home, self.wait), _mask(home, self.signal)

    def nest_of(self, operand: str) -> tuple[tuple[int, int], ...]:
        """`(extent, stride)` of an operand over all loops, outermost first, in its own granules."""
        return tuple(
            (loop.extent, loop.strides[moved.index(operand)] if operand in moved else 0)
            for nest, moved in self.nests.items()
            for loop in getattr(self, nest)
        )

    def addresses(self, operand: str) -> np.ndarray:
        """Address of an operand at every step, int64[steps], in its own granules."""
        return nest_addresses(getattr(self, operand), self.nest_of(operand))

    def accesses(self, configuration: Configuration) -> Iterator[Access]:
        """Everything this instruction reads or writes, in bytes; loops of stride 0 are dropped."""
        for operand in self.operands:
            if not self.active(operand):
                continue
            memory = self.memory_of(operand.name)
            granule = self.granule(operand.name, memory, configuration)
            loops = tuple((n, s * granule) for n, s in self.nest_of(operand.name) if s)
            for writes in (False, True):
                if operand.writes if writes else operand.reads:
                    yield Access(
                        operand.name,
                        memory,
                        writes,
                        getattr(self, operand.name) * granule,
                        self.run_bytes(operand.name, configuration),
                        loops,
                    )

    def steps(self) -> int:
        """Total iterations of all loops."""
        total = 1
        for nest in self.nests:
            for loop in getattr(self, nest):
                total *= loop.extent
        return total


@cache
def _mask(home: Unit, units: frozenset[Unit]) -> int:
    return sum(1 << bit for bit, other in enumerate(peers(home)) if other in units)


@cache
def _flags(family: type[Instruction]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(family) if field.type is bool)


_share: Callable[[_Copied, Any], None] = vars(_Copied)["_shared"].__set__


@cache
def _slots(
    family: type[Instruction],
) -> tuple[Callable[[Instruction], Instruction], dict[str, Callable[[Instruction, Any], None]]]:
    """A function that copies all fields, and a setter of each, which avoid the constructor.

    Compilation spends much of its time in copies. So the function has a statement for each field,
    as a constructor that `dataclasses` generates.
    """
    setters = {name: getattr(family, name).__set__ for name in _defaults(family)}
    given = {f"set_{name}": setter for name, setter in setters.items()}
    lines = [
        f"def copy(one, family=family, new=new, {', '.join(f'{name}={name}' for name in given)}):",
        "found = new(family)",
        *(f"set_{name}(found, one.{name})" for name in setters),
        "return found",
    ]
    space: dict[str, Any] = {"family": family, "new": object.__new__, **given}
    exec("\n ".join(lines), space)
    return space["copy"], setters


@cache
def _defaults(family: type[Instruction]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(family)}


@cache
def slice_count(configuration: Configuration) -> int:
    """Slices of `vector_lanes` values in the larger of ACT and ACC: VECTOR's address space."""
    act = configuration.size_bytes(Memory.ACT) // configuration.vector_lanes
    acc = configuration.size_bytes(Memory.ACC) // (4 * configuration.vector_lanes)
    return max(act, acc)


@cache
def local_bits(configuration: Configuration) -> int:
    """Width of a byte address inside any scratchpad that LOAD or STORE reaches."""
    return address_width(
        max(
            configuration.size_bytes(memory)
            for memory in (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT, Memory.ACC)
        )
    )
