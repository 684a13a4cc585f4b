"""The critical path of a placed design, in the names of the core's registers and units."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...hardware.pins import CORE
from .netlist import split_name


@dataclass(slots=True)
class CriticalStep:
    """A part of the path in which signals of one name follow each other.

    Parameters
    ----------
    name
        Instances and signal; only the instances for logic without a name.
    logic_ns, routing_ns
        Delay of the cells, and of the wires that lead to them.
    """

    name: str
    logic_ns: float = 0.0
    routing_ns: float = 0.0


def critical_path(report: Mapping[str, Any]) -> list[CriticalStep]:
    """Compress the critical path in nextpnr's report to one step per name.

    The longest path from clock edge to clock edge counts; paths from or to pins do not.
    """
    paths = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"] == path["to"] and path["path"]
    ]
    return compress(max(paths, key=_total)) if paths else []


def _total(path: Iterable[Mapping[str, Any]]) -> float:
    return sum(part["delay"] for part in path)


def compress(path: Iterable[Mapping[str, Any]]) -> list[CriticalStep]:
    """Join neighbours of the same name."""
    steps: list[CriticalStep] = []
    for part in path:
        name = shown_name(part["to"]["cell"])
        if not steps or steps[-1].name != name:
            steps.append(CriticalStep(name))
        if part["type"] == "routing":
            steps[-1].routing_ns += part["delay"]
        else:
            steps[-1].logic_ns += part["delay"]
    return steps


def shown_name(cell: str) -> str:
    """Return the name of a cell as in the hardware's source, without the core's own name."""
    *path, signal = split_name(cell)
    if path[:1] == [CORE]:
        path = path[1:]
    return ".".join([*path, signal] if signal else path) or CORE
