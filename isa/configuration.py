"""The configuration: every size of one accelerator, from which the rest is derived.

A `Configuration` cannot exist in an illegal state: the constructor checks every rule and reports
the broken ones. Derived sizes are properties, so nothing is stored twice.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigurationError, did_you_mean
from ..file_access import read_json, reason
from ..html_tables import html_table
from ..quoting import MAX_NAME, is_name
from .configuration_rules import coupled_defaults, fitted, rules
from .parameters import Parameter, choice, parameter
from .vector_operations import OPERATIONS, Operation, operations_with

CONTRACT_VERSION = 3
"""Counts incompatible changes of instruction layouts, semantics and register map."""


class Memory(IntEnum):
    """The scratchpads, in the order of the LOAD destination code, then ACC, and main memory."""

    ACT = 0
    WGT = 1
    PARAM = 2
    LUT = 3
    ACC = 4
    DRAM = 5

    @property
    def scratchpad(self) -> "ScratchpadKind":
        """The facts of a scratchpad that do not depend on the machine."""
        return SCRATCHPADS[self]


class ScratchpadKind(NamedTuple):
    """A scratchpad of every machine.

    Parameters
    ----------
    elements
        Types of its elements.
    element_bytes
        Bytes of an element; an element of PARAM is a pair of bias and scale.
    lanes
        The parameter with the number of elements of a row; empty if that number is always 4.
    depth
        The parameter with the size of a bank: its rows, or its tables.
    banks
        The parameter with the number of banks; empty if there is only one.
    unit, unit_rows
        Name of the addressed units, in the plural, and the rows of a unit if that number is fixed.
    """

    elements: tuple[str, ...]
    element_bytes: int
    lanes: str
    depth: str
    banks: str = ""
    unit: str = "rows"
    unit_rows: int = 1


SCRATCHPADS = {
    Memory.ACT: ScratchpadKind(("int8",), 1, "lanes_in", "act_depth", "act_banks", "bytes"),
    Memory.WGT: ScratchpadKind(("int8",), 1, "lanes_out", "wgt_depth", "wgt_banks", "weight tiles"),
    Memory.PARAM: ScratchpadKind(("int32", "float32"), 8, "vector_lanes", "param_depth"),
    Memory.LUT: ScratchpadKind(("int8",), 1, "", "lut_tables", "", "tables", 64),
    Memory.ACC: ScratchpadKind(("int32",), 4, "lanes_out", "acc_depth", "acc_banks"),
}
"""Contents of each scratchpad, and the parameters that determine its size."""

LUT_ROW_BYTES = 4
"""Bytes of a row of LUT."""


def _shown(value: object) -> str:
    """Format a parameter value for a message."""
    return ("; ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


class _Hashed:
    """The place of a configuration's hash, which is no parameter."""

    __slots__ = ("_hash",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(_Hashed):
    """Parameters of one accelerator; each field declares its meaning and legal values.

    If `vector_lanes` or `depthwise_taps` is omitted, it takes its default, or the largest value
    that the lanes allow if that is less. `name` appears in messages and is not part of the hash.
    `extra_operations` adds VECTOR operations to the standard ones; each is a string such as
    `absolute_difference = abs(a - b)`.

    Raises
    ------
    ConfigurationError
        When a rule is broken; all broken rules are listed.
    """

    name: str
    lanes_in: int = parameter(
        16, "channels that a GEMM step reduces over", 2, 64, power_of_two=True
    )
    lanes_out: int = parameter(16, "channels that a GEMM step produces", 2, 64, power_of_two=True)
    vector_lanes: int = parameter(
        16,
        "channels that a VECTOR step works on",
        2,
        64,
        power_of_two=True,
        follows="at most lanes_in and lanes_out",
        coupled=True,
    )
    act_banks: int = parameter(4, "banks of ACT, the activations", 2, 16, power_of_two=True)
    act_depth: int = parameter(
        2048, "rows of a bank of ACT; a row is lanes_in bytes", 8, 65536, power_of_two=True
    )
    wgt_banks: int = parameter(2, "banks of WGT, the weights", 1, 16, power_of_two=True)
    wgt_depth: int = parameter(
        2048,
        "rows of a bank of WGT; a row is lanes_out bytes, a tile is lanes_in rows",
        8,
        65536,
        power_of_two=True,
        follows="at least lanes_in",
    )
    acc_banks: int = parameter(2, "banks of ACC, the accumulators", 2, 16, power_of_two=True)
    acc_depth: int = parameter(
        1024,
        "rows of a bank of ACC; a row is lanes_out 32-bit integers",
        8,
        65536,
        power_of_two=True,
    )
    param_depth: int = parameter(
        128,
        "rows of PARAM; a row is vector_lanes pairs of a bias and a scale",
        2,
        16384,
        power_of_two=True,
    )
    lut_tables: int = parameter(2, "tables of LUT, 256 bytes each", 1, 16, power_of_two=True)
    bus_bits: int = parameter(
        64, "width of the memory port", 32, 256, power_of_two=True, follows="at most 32 x lanes_in"
    )
    burst_beats: int = parameter(
        16,
        "beats of the longest burst",
        1,
        256,
        power_of_two=True,
        follows="bursts of at most 4096 bytes",
    )
    outstanding_bursts: int = parameter(
        32, "maximum bursts in flight, for LOAD and for STORE separately", 1, 64, power_of_two=True
    )
    queue_depth: int = parameter(
        8, "instructions that the queue of each unit holds", 1, 64, power_of_two=True
    )
    token_bits: int = parameter(4, "width of a token counter", 2, 8)
    extent_bits: int = parameter(12, "width of a loop extent", 4, 16)
    tile_loops: int = parameter(4, "outer loop levels of GEMM, over weight tiles", 1, 6)
    row_loops: int = parameter(2, "inner loop levels of GEMM, over rows of ACT", 1, 4)
    map_loops: int = parameter(4, "outer loop levels of VECTOR, over outputs", 1, 6)
    reduce_loops: int = parameter(2, "inner loop levels of VECTOR, over reduced elements", 1, 4)
    dma_loops: int = parameter(4, "loop levels of LOAD and of STORE", 1, 6)
    address_bits: int = parameter(
        32, "width of a memory address and of offsets in instructions", 20, 32
    )
    depthwise_taps: int = parameter(
        3,
        "ACT rows that a depthwise GEMM combines in a step; 0 for no depthwise mode",
        0,
        64,
        follows="at most lanes_in",
        coupled=True,
    )
    counters: str = choice(
        "all",
        "performance counters: all; cycles, dispatches and busy units only; or none",
        ("all", "basic", "none"),
    )
    packed_weights: str = choice(
        "none",
        "weights that LOAD unpacks: none, or int4 with a factor per tile column",
        ("none", "int4"),
        optional=True,
    )
    depthwise_lines: str = choice(
        "none",
        "earlier lines that a depthwise GEMM combines with each: none or two",
        ("none", "two"),
        optional=True,
    )
    transposed_weights: str = choice(
        "none",
        "activations that LOAD transposes into WGT, such as keys: none or int8",
        ("none", "int8"),
        optional=True,
    )
    row_statistics: str = choice(
        "none",
        "statistics over rows in VECTOR, for softmax and norms: none or all",
        ("none", "all"),
        optional=True,
    )
    extra_operations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ConfigurationError(
                f"configuration: expected a `name` of 1 to {MAX_NAME:,} printable characters on "
                f"one line, got {self.name!a:.80}; rename it"
            )
        for name, value in coupled_defaults(self).items():
            object.__setattr__(self, name, value)
        problems = [sentence for holds, sentence in rules(self) if not holds]
        if problems:
            raise ConfigurationError(f"configuration `{self.name}`: " + "; ".join(problems))
        extra = self.operations[len(OPERATIONS) :]
        object.__setattr__(self, "extra_operations", tuple(map(str, extra)))

    def __hash__(self) -> int:
        """Hash the few fields in which machines mostly differ, once; caches ask very often."""
        try:
            return self._hash
        except AttributeError:
            sizes = self.lanes_in, self.lanes_out, self.act_depth, self.wgt_depth, self.acc_depth
            object.__setattr__(self, "_hash", hash((self.name, *sizes, self.bus_bits)))
            return self._hash

    # Derived sizes -------------------------------------------------------------------------

    @property
    def bus_bytes(self) -> int:
        """Bytes of a beat on the memory port."""
        return self.bus_bits // 8

    @property
    def burst_bytes(self) -> int:
        """Bytes of the longest burst; bursts never cross a multiple of it."""
        return self.burst_beats * self.bus_bytes

    @property
    def token_limit(self) -> int:
        """Largest number of tokens that a counter holds."""
        return (1 << self.token_bits) - 1

    def row_bytes(self, memory: Memory) -> int:
        """Bytes of one row of a scratchpad."""
        held = SCRATCHPADS[memory]
        return held.element_bytes * getattr(self, held.lanes) if held.lanes else LUT_ROW_BYTES

    def banks(self, memory: Memory) -> int:
        """Number of banks of a scratchpad."""
        banks = SCRATCHPADS[memory].banks
        return getattr(self, banks) if banks else 1

    def depth(self, memory: Memory) -> int:
        """Rows of one bank of a scratchpad."""
        held = SCRATCHPADS[memory]
        return getattr(self, held.depth) * held.unit_rows

    def rows(self, memory: Memory) -> int:
        """Rows of a scratchpad, all banks together."""
        return self.banks(memory) * self.depth(memory)

    def bank_bytes(self, memory: Memory) -> int:
        """Bytes of one bank of a scratchpad."""
        return self.depth(memory) * self.row_bytes(memory)

    def size_bytes(self, memory: Memory) -> int:
        """Bytes of a scratchpad; for main memory, the bytes that an instruction can address."""
        if memory is Memory.DRAM:
            return 1 << self.address_bits
        return self.rows(memory) * self.row_bytes(memory)

    @property
    def tile_bytes(self) -> int:
        """Bytes of a weight tile: one weight per product of a cycle."""
        return self.lanes_in * self.lanes_out

    @property
    def packed_tile_bytes(self) -> int:
        """Bytes of a weight tile of 4 bits with its factors, as LOAD unpacks it."""
        return (self.lanes_in + 1) * self.packed_row_bytes

    @property
    def packed_row_bytes(self) -> int:
        """Bytes of a row of a packed weight tile."""
        return self.lanes_out // 2

    @property
    def weight_tiles(self) -> int:
        """Number of weight tiles that WGT holds."""
        return self.rows(Memory.WGT) // self.lanes_in

    @property
    def window_lines(self) -> int:
        """Lines of a window that a depthwise GEMM combines in a step."""
        return 1 if self.depthwise_lines == "none" else 3

    @property
    def window_rows(self) -> int:
        """ACT rows that a depthwise GEMM combines in a step, each with a row of the weight tile."""
        return self.depthwise_taps * self.window_lines

    @property
    def depthwise_parts(self) -> int:
        """Groups of `lanes_out` channels in an ACT row; a depthwise GEMM reads one of them."""
        return max(1, self.lanes_in // self.lanes_out)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Operations of VECTOR, by code."""
        return operations_with(tuple(self.extra_operations))

    def operation(self, name: str) -> Operation:
        """An operation of VECTOR by its name.

        Raises
        ------
        ConfigurationError
            When the machine has no operation of this name.
        """
        for operation in self.operations:
            if operation.name == name:
                return operation
        known = ", ".join(operation.name for operation in self.operations)
        raise ConfigurationError(
            f"configuration `{self.name}` has no operation `{name}`; it has {known}; declare it in "
            "`extra_operations`"
        )

    # Identity ----------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        rows = ((name, str(value)) for name, value in self.parameters().items())
        return html_table(f"Configuration `{self.name}`", ("parameter", "value"), rows)

    def parameters(self) -> dict[str, Any]:
        """All parameters except the name and the options that are not used.

        Without its options a machine is what it was before they existed, its hash included.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        values["extra_operations"] = list(self.extra_operations)
        for name in (*OPTIONS, "extra_operations"):
            if getattr(self, name) in ("none", ()):
                del values[name]
        return values

    @property
    def hash(self) -> int:
        """32 bits that identify the machine: its parameters and the contract's version."""
        text = json.dumps([CONTRACT_VERSION, self.parameters()], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def differences(self, other: "Configuration") -> str:
        """The differences between two configurations, as text for a message."""
        pairs = (
            (field.name, getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
            if field.name != "name"
        )
        return ", ".join(
            f"`{name}` {_shown(ours)} against {_shown(theirs)}"
            for name, ours, theirs in pairs
            if ours != theirs
        )

    def replace(self, **changes) -> "Configuration":
        """Copy with changes; coupled parameters are adjusted if they no longer fit.

        For example, fewer lanes lower `vector_lanes`. `dataclasses.replace` adjusts nothing.

        Raises
        ------
        ConfigurationError
            For an unknown parameter or a broken rule.
        """
        known = {field.name for field in fields(self)}
        for key in changes:
            if key not in known:
                raise ConfigurationError(
                    f"configuration `{self.name}`: unknown parameter `{key}`; "
                    f"known are {', '.join(sorted(known))}" + did_you_mean(key, known)
                )
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Configuration(**fitted({**values, **changes}, fixed=changes))

    def to_json(self) -> str:
        """Name and parameters as JSON text that `settings.load_configuration` reads."""
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, object]:
        """Name and parameters, which `from_dict` reads."""
        return {"name": self.name, **self.parameters()}

    @staticmethod
    def from_dict(values: object, source: str = "configuration") -> "Configuration":
        """Build from parsed JSON.

        Raises
        ------
        ConfigurationError
            When `values` is not an object of known parameters.
        """
        if not isinstance(values, dict):
            raise ConfigurationError(f"{source}: expected a JSON object of parameters")
        known = {field.name for field in fields(Configuration)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigurationError(
                f"{source}: unknown parameter `{unknown[0]}`; known are {', '.join(sorted(known))}"
                + did_you_mean(unknown[0], known)
            )
        return Configuration(**{"name": "unnamed", **values})


PARAMETERS: dict[str, Parameter] = {
    field.name: field.metadata["parameter"] for field in fields(Configuration) if field.metadata
}
"""Meaning, default and legal range of every parameter, by name."""

OPTIONS = tuple(name for name, about in PARAMETERS.items() if about.optional)
"""Parameters that have no part in a machine which does not use them."""

_PRESETS = (
    Configuration(
        name="tiny", lanes_in=2, lanes_out=2, act_depth=16, wgt_depth=16, acc_depth=8,
        param_depth=4, lut_tables=1, bus_bits=32, burst_beats=4, outstanding_bursts=2,
        queue_depth=2, token_bits=2, extent_bits=5, address_bits=20,
    ),
    Configuration(
        name="4x4",
        lanes_in=4,
        lanes_out=4,
        act_depth=1024,
        wgt_depth=512,
        acc_depth=256,
        bus_bits=32,
    ),
    Configuration(
        name="8x8",
        lanes_in=8,
        lanes_out=8,
        act_depth=2048,
        wgt_depth=1024,
        acc_depth=512,
    ),
    Configuration(name="8x16", lanes_in=8, lanes_out=16, wgt_depth=1024),
    Configuration(name="16x8", lanes_in=16, lanes_out=8, vector_lanes=4, bus_bits=128),
    Configuration(name="16x16"),
    Configuration(
        name="32x32",
        lanes_in=32,
        lanes_out=32,
        vector_lanes=32,
        wgt_depth=4096,
        bus_bits=128,
    ),
    # Named for the FPGA whose multipliers they fill; docs/reference/area.md has the figures.
    Configuration(
        name="ecp5-25",
        lanes_in=4,
        lanes_out=4,
        act_depth=1024,
        wgt_depth=512,
        acc_depth=256,
        bus_bits=32,
        queue_depth=2,
    ),
    # The same for transformers, which run whole.
    Configuration(
        name="transformer-25",
        lanes_in=4,
        lanes_out=4,
        act_depth=1024,
        wgt_depth=512,
        acc_depth=256,
        bus_bits=32,
        queue_depth=2,
        transposed_weights="int8",
        row_statistics="all",
    ),
    Configuration(
        name="ecp5-45",
        lanes_in=8,
        lanes_out=16,
        vector_lanes=4,
        wgt_depth=1024,
        acc_depth=512,
        queue_depth=2,
    ),
    Configuration(name="ecp5-85", vector_lanes=8, acc_depth=512, queue_depth=2),
    Configuration(
        name="transformer-85",
        vector_lanes=8,
        acc_depth=512,
        queue_depth=2,
        transposed_weights="int8",
        row_statistics="all",
    ),
    Configuration(
        name="gowin20",
        lanes_in=4,
        lanes_out=4,
        vector_lanes=2,
        act_banks=2,
        act_depth=1024,
        wgt_depth=512,
        acc_depth=256,
        param_depth=64,
        bus_bits=32,
        burst_beats=8,
        outstanding_bursts=2,
        queue_depth=2,
        extent_bits=8,
        tile_loops=3,
        map_loops=3,
        reduce_loops=1,
        dma_loops=2,
        address_bits=23,
        counters="basic",
    ),
    Configuration(
        name="gatemate",
        lanes_in=4,
        lanes_out=4,
        vector_lanes=2,
        act_banks=2,
        act_depth=1024,
        wgt_depth=512,
        acc_depth=256,
        param_depth=64,
        lut_tables=1,
        bus_bits=32,
        burst_beats=8,
        outstanding_bursts=2,
        queue_depth=2,
        token_bits=2,
        extent_bits=6,
        tile_loops=3,
        row_loops=1,
        map_loops=2,
        reduce_loops=1,
        dma_loops=2,
        address_bits=20,
        depthwise_taps=0,
        counters="basic",
    ),
    Configuration(name="zynq7020", queue_depth=2),
    Configuration(name="ultra96", lanes_out=32, wgt_depth=1024, bus_bits=128, queue_depth=2),
)  # fmt: skip

PRESETS: dict[str, Configuration] = {preset.name: preset for preset in _PRESETS}
"""Presets: from one small enough for formal tools to a large one, then those for FPGAs."""

DEFAULT = PRESETS["16x16"]


def read_base(name_or_path: str) -> Configuration:
    """Find a preset by its name in any case, or read a JSON file of parameters.

    Raises
    ------
    ConfigurationError
        When neither exists, or the file breaks a rule.
    """
    if name_or_path.lower() in PRESETS:
        return PRESETS[name_or_path.lower()]
    if not os.path.isfile(path := Path(name_or_path)):
        usual = "; `tilewright config list` shows the presets"
        if size := re.fullmatch(r"(\d{1,4})x(\d{1,4})", name_or_path):
            try:
                DEFAULT.replace(lanes_in=int(size[1]), lanes_out=int(size[2]))
            except ConfigurationError:
                usual += "; lanes are powers of two"
            else:
                usual += f"; `lanes={name_or_path}` is `{DEFAULT.name}` in that size"
        raise ConfigurationError(
            f"configuration `{name_or_path}`: neither a preset ({', '.join(PRESETS)}) nor a file"
            + did_you_mean(name_or_path, PRESETS, usual)
        )
    try:
        values = read_json(path)
    except (OSError, ValueError) as problem:
        raise ConfigurationError(
            f"configuration `{path}`: not readable as JSON: {reason(problem)}"
        ) from None
    if isinstance(values, dict):
        values = {"name": path.stem, **values}
    return Configuration.from_dict(values, f"configuration `{path}`")
