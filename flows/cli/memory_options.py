"""Options that say how main memory behaves, and what they mean."""

import argparse

from ...errors import UsageError
from ...sim.memory_model import MemoryModel

DEFAULTS = MemoryModel()

MEMORY_DEFAULTS = {
    "latency": DEFAULTS.latency_cycles,
    "bandwidth": f"{DEFAULTS.beats}/{DEFAULTS.cycles}",
    "outstanding": DEFAULTS.outstanding_bursts,
    "stalls": DEFAULTS.stall_probability,
}
"""Of the options that say how main memory behaves."""


def add_memory(parser: argparse.ArgumentParser):
    """Add the group of options that say how main memory behaves, and return it."""
    memory = parser.add_argument_group("main memory (sim, rtl)")
    memory.add_argument(
        "--latency", type=int, default=DEFAULTS.latency_cycles, metavar="CYCLES",
        help=f"from a read's address to its first beat (default: {DEFAULTS.latency_cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--bandwidth", default=f"{DEFAULTS.beats}/{DEFAULTS.cycles}", metavar="BEATS/CYCLES",
        help=f"most beats in so many cycles (default: {DEFAULTS.beats}/{DEFAULTS.cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--outstanding", type=int, default=DEFAULTS.outstanding_bursts, metavar="BURSTS",
        help=f"bursts under way per direction (default: {DEFAULTS.outstanding_bursts})",
    )  # fmt: skip
    return memory


def add_stalls(memory) -> None:
    """Add `--stalls` to the group that `add_memory` returns."""
    memory.add_argument(
        "--stalls", type=float, default=DEFAULTS.stall_probability, metavar="P",
        help=f"chance that a cycle stalls a channel (default: {DEFAULTS.stall_probability})",
    )  # fmt: skip


def refuse_memory(arguments: argparse.Namespace) -> None:
    """Refuse these options where nothing follows from them.

    Raises
    ------
    UsageError
        When one is given for a device without a main memory of its own.
    """
    memory = [name for name, usual in MEMORY_DEFAULTS.items() if getattr(arguments, name) != usual]
    if memory and arguments.device in ("cpu", "reference"):
        raise UsageError(
            f"`--{memory[0]}`: expected `--device sim` or `rtl`, got `{arguments.device}`; "
            "nothing follows from it there, leave it out"
        )


def memory_model(arguments: argparse.Namespace) -> MemoryModel:
    """Main memory as asked for.

    Raises
    ------
    UsageError
        When the bandwidth is not of the form.
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
    )
