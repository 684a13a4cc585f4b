"""Options for the behaviour of main memory."""

import argparse
from dataclasses import astuple

from ...errors import UsageError
from ...isa.memory_model import MemoryModel, SharedBus
from ...runtime.devices import is_board

DEFAULTS = MemoryModel()

MEMORY_DEFAULTS = {
    "latency": DEFAULTS.latency_cycles,
    "bandwidth": f"{DEFAULTS.beats}/{DEFAULTS.cycles}",
    "outstanding": DEFAULTS.outstanding_bursts,
    "shared-bus": None,
    "stalls": DEFAULTS.stall_probability,
}
"""Defaults of these options."""


def add_memory(parser: argparse.ArgumentParser, title: str = "main memory (sim, rtl, gate)"):
    """Add the group of options for main memory, and return it."""
    memory = parser.add_argument_group(title)
    memory.add_argument(
        "--latency", type=int, default=DEFAULTS.latency_cycles, metavar="CYCLES",
        help=f"cycles from a read's address to its first beat (default: {DEFAULTS.latency_cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--bandwidth", default=f"{DEFAULTS.beats}/{DEFAULTS.cycles}", metavar="BEATS/CYCLES",
        help=f"bandwidth, as BEATS/CYCLES (default: {DEFAULTS.beats}/{DEFAULTS.cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--outstanding", type=int, default=DEFAULTS.outstanding_bursts, metavar="BURSTS",
        help=f"open bursts per direction (default: {DEFAULTS.outstanding_bursts})",
    )  # fmt: skip
    memory.add_argument(
        "--shared-bus", metavar="READ,WRITE,REFRESH,INTERVAL",
        help="reads and writes share one data bus, as of an SDRAM: cycles that a burst of reads "
        "and one of writes take beside their beats, cycles of a refresh and between two",
    )  # fmt: skip
    return memory


def add_stalls(memory) -> None:
    """Add `--stalls` to the group that `add_memory` returns."""
    memory.add_argument(
        "--stalls", type=float, default=DEFAULTS.stall_probability, metavar="P",
        help=f"probability that a cycle stalls a channel (default: {DEFAULTS.stall_probability})",
    )  # fmt: skip


def refuse_memory(arguments: argparse.Namespace) -> None:
    """Reject these options if they have no effect.

    Raises
    ------
    UsageError
        If one is given for a device without a main memory of its own.
    """
    memory = [name for name, usual in MEMORY_DEFAULTS.items() if _value(arguments, name) != usual]
    if memory and (arguments.device in ("cpu", "reference") or is_board(arguments.device)):
        raise UsageError(
            f"`--{memory[0]}`: expected `--device sim`, `rtl` or `gate`, got `{arguments.device}`; "
            "it has no effect there, leave it out"
        )


def _value(arguments: argparse.Namespace, name: str):
    return getattr(arguments, name.replace("-", "_"))


def memory_options(memory: MemoryModel) -> str:
    """Return the options that give a memory, for a command line."""
    text = f"--latency {memory.latency_cycles} --bandwidth {memory.beats}/{memory.cycles}"
    if memory.bus is None:
        return text
    return f"{text} --shared-bus {','.join(map(str, astuple(memory.bus)))}"


def _shared_bus(text: str | None) -> SharedBus | None:
    if text is None:
        return None
    try:
        read, write, refresh, interval = map(int, text.split(","))
    except ValueError:
        raise UsageError(
            f"`--shared-bus {text}`: expected four numbers of cycles, for example "
            "`--shared-bus 6,7,7,781`"
        ) from None
    return SharedBus(
        read_gap_cycles=read,
        write_gap_cycles=write,
        refresh_cycles=refresh,
        refresh_interval_cycles=interval,
    )


def memory_model(arguments: argparse.Namespace) -> MemoryModel:
    """Return the requested model of main memory.

    Raises
    ------
    UsageError
        If the bandwidth does not have the form BEATS/CYCLES, or the bus not four numbers.
    """
    beats, _, cycles = arguments.bandwidth.partition("/")
    try:
        rate = int(beats), int(cycles or 1)
    except ValueError:
        raise UsageError(
            f"`--bandwidth {arguments.bandwidth}`: expected BEATS/CYCLES, for example "
            "`--bandwidth 1/4`"
        ) from None
    return MemoryModel(
        latency_cycles=arguments.latency,
        beats=rate[0],
        cycles=rate[1],
        outstanding_bursts=arguments.outstanding,
        stall_probability=arguments.stalls,
        seed=arguments.seed,
        bus=_shared_bus(arguments.shared_bus),
    )
