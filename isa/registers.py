"""The register file of the host interface: 32-bit registers over AXI4-Lite.

Program and data addresses are byte addresses of main memory; instructions address the data window
from `DATA_BASE`. Writing 1 to `CONTROL` starts the program; a second start is ignored while busy.
"""

from dataclasses import dataclass
from enum import IntEnum

from .instructions import Unit, peers

MAGIC = 0x54575254
"""`ID` reads "TWRT"."""


class Error(IntEnum):
    """Error code in `STATUS`: the reason why a run stopped."""

    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    OUT_OF_WINDOW = 2
    MEMORY_RESPONSE = 3
    NO_HALT = 4


@dataclass(frozen=True, slots=True)
class Register:
    """One register: byte offset, whether the host may write it, and its meaning."""

    name: str
    offset: int
    writable: bool
    text: str


UNIT_COUNTERS = (
    "instructions",
    "busy",
    "wait0",
    "wait1",
    "wait2",
    "wait_signal",
    "memory",
    "bytes",
)
"""Performance counters per unit; `wait0..2` count cycles waiting for the peers in their order."""

BASIC_COUNTERS = ("busy",)
"""Performance counters per unit with `counters` = basic."""

TRANSFER_COUNTERS = ("memory", "bytes")
"""Counters of LOAD and STORE only; in other units they are always zero."""

RUN_COUNTERS = ("FETCHED", "CYCLES_LOW", "CYCLES_HIGH")
"""Performance counters of the whole run."""

_CONTROL = (
    ("ID", False, f"`0x{MAGIC:08X}`"),
    ("VERSION", False, "contract version"),
    ("CONFIGURATION", False, "configuration hash"),
    ("CONTROL", True, "bit 0: start; bit 1: stop at once and clear all units, queues and tokens"),
    (
        "STATUS",
        False,
        "bit 0: busy; bit 1: done (HALT reached and all units idle); bit 2: error; "
        "bits 7..4: error code",
    ),
    ("PROGRAM_BASE", True, "byte address of the first instruction, a multiple of 32"),
    ("PROGRAM_BYTES", True, "size of the program"),
    ("DATA_BASE", True, "byte address of the data window, a multiple of 4096"),
    ("DATA_BYTES", True, "size of the data window; accesses beyond stop the machine"),
    ("FETCHED", False, "instructions dispatched since the start"),
    ("CYCLES_LOW", False, "cycles from start to done, low half"),
    ("CYCLES_HIGH", False, "cycles from start to done, high half"),
)

_UNIT_STATE_TEXT = (
    "{unit} now: bit 0 working; bits 3..1 waiting for a token of {peers}; bit 4 waiting to signal "
    "(counter full); bit 5 waiting for memory; bits 15..8 instructions queued"
)


def _register_map() -> tuple[Register, ...]:
    registers = [
        Register(name, 4 * index, writable, text)
        for index, (name, writable, text) in enumerate(_CONTROL)
    ]
    for unit in Unit:
        names = ", ".join(other.name for other in peers(unit))
        text = _UNIT_STATE_TEXT.format(unit=unit.name, peers=names)
        registers.append(Register(f"{unit.name}_STATE", 0x40 + 4 * unit, False, text))
        text = f"tokens for {unit.name}, 8 bits each, from {names}"
        registers.append(Register(f"{unit.name}_TOKENS", 0x50 + 4 * unit, False, text))
        for index, counter in enumerate(UNIT_COUNTERS):
            offset = 0x80 + 0x20 * unit + 4 * index
            text = f"{unit.name}: {counter_text(unit, counter)}"
            name = f"{unit.name}_{counter.upper()}"
            registers.append(Register(name, offset, False, text))
    return tuple(sorted(registers, key=lambda register: register.offset))


def unit_counters(counters: str) -> tuple[str, ...]:
    """Return the performance counters that each unit has, in the order of their registers.

    Parameters
    ----------
    counters
        The parameter of the configuration.
    """
    return {"all": UNIT_COUNTERS, "basic": BASIC_COUNTERS, "none": ()}[counters]


def counter_registers(counters: str) -> tuple[str, ...]:
    """Return the registers of all performance counters of a machine.

    Parameters
    ----------
    counters
        The parameter of the configuration.
    """
    units = (f"{unit.name}_{name.upper()}" for unit in Unit for name in unit_counters(counters))
    return (*units, *(RUN_COUNTERS if counters != "none" else ()))


def counter_text(unit: Unit, counter: str) -> str:
    """Meaning of a performance counter; it counts from the last start."""
    if counter in ("wait0", "wait1", "wait2"):
        return f"cycles waiting for a token of {peers(unit)[int(counter[-1])].name}"
    return {
        "instructions": "instructions completed",
        "busy": "cycles working on an instruction",
        "wait_signal": "cycles waiting to signal because a token counter was full",
        "memory": "cycles working but waiting for memory",
        "bytes": "bytes moved to or from memory",
    }[counter]


REGISTERS: tuple[Register, ...] = _register_map()
"""The whole map in ascending offset."""

OFFSETS: dict[str, int] = {register.name: register.offset for register in REGISTERS}

REGISTER_SPACE_BYTES = 0x100
"""Size of the register file; offsets beyond wrap."""
