"""Result lines on stdout and notes on stderr, for commands that avoid slow imports."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...quoting import printable
from ...wording import counted

if TYPE_CHECKING:
    from ...isa.configuration import Configuration


def idle_line(report: Mapping[str, Any]) -> str:
    """Say that a network runs entirely on the host, why, and what to do; see `compile_request`."""
    why = report.get("idle", "")
    return "nothing runs on the accelerator" + (f": {why}" if why else "")


def say(text: str) -> None:
    """Print result on stdout, without wrapping; names in it cannot control the terminal."""
    print(printable(text, keep="\n"), flush=True)


def note(text: str) -> None:
    """Print on stderr what belongs to no result, as `say` does."""
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def configuration_sentence(configuration: "Configuration") -> str:
    """Describe a configuration in one line."""
    return (
        f"{configuration.name} ({configuration.lanes_in}x{configuration.lanes_out} MACs a cycle, "
        f"{configuration.bus_bits}-bit bus, {scratchpad_bytes(configuration) / 1024:g} KiB of "
        f"scratchpads, hash {configuration.hash:#010x})"
    )


def search_sentence(search: Mapping[str, Any]) -> str:
    """Say in one line how schedules were chosen; see `execution.compile_graph`."""
    return (
        f"schedules chosen by exact cycles ({search['measure']}), normally from "
        f"{counted(search['candidates'], 'candidate')} a kernel"
    )


def scratchpad_bytes(configuration: "Configuration") -> int:
    """Return the total bytes of all scratchpads."""
    from ...isa.configuration import Memory

    return sum(configuration.size_bytes(memory) for memory in Memory if memory is not Memory.DRAM)
