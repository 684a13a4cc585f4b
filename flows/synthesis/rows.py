"""Rows of syntheses, kept in files with one JSON object per line.

A row names the RTL and the tools that it was measured with, so it is measured again only if one of
them changed. Files are written after each measurement; an interrupted run continues where it was.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...atomic_write import write_output
from ...isa.configuration import Configuration

if TYPE_CHECKING:
    from .flow import Synthesis


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisRow:
    """One configuration on one device.

    Parameters
    ----------
    configuration, device
        Names; together they identify the row.
    parameters
        The parameters of the configuration.
    resources
        Resources of the core by name.
    rtl
        Hash of the RTL.
    tools
        Versions by name.
    """

    configuration: str
    device: str
    parameters: dict
    resources: dict[str, int]
    rtl: str
    tools: dict[str, str]

    @classmethod
    def of(cls, found: "Synthesis", **figures: Any) -> Self:
        """Return the row of a synthesis, including the fields of this subclass."""
        return cls(
            configuration=found.configuration.name,
            device=found.device.name,
            parameters=found.configuration.parameters(),
            resources=found.resources,
            rtl=found.rtl,
            tools=found.tools,
            **figures,
        )

    @property
    def key(self) -> tuple[str, str]:
        return self.configuration, self.device

    @property
    def machine(self) -> Configuration:
        return Configuration.from_dict({"name": self.configuration, **self.parameters})

    def is_of(self, rtl: str, tools: Mapping[str, str]) -> bool:
        """Whether the row was measured with this RTL and these tools."""
        return self.rtl == rtl and self.tools == dict(tools)


_Row = TypeVar("_Row", bound=SynthesisRow)


def read_lines(kind: type[_Row], path: Path) -> list[_Row]:
    """Return the rows of a file in its order."""
    return [kind(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def write_lines(rows: Sequence[SynthesisRow], path: Path) -> None:
    """Write rows to a file.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    write_output(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows), f"`{path}`")
