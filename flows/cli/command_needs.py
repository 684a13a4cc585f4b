"""Tools that single commands need beyond those of all: what is there, and how to get the rest.

The tools of a family of FPGAs come from its description, and the packages of an extra from
`pyproject.toml`, so that nothing is listed twice.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from ...errors import ToolError, install_command
from ...sim.gate.tools import YOSYS, find_tool
from ..synthesis.devices import DEVICES
from .commands.flash import find_loader

EXTRAS: Mapping[str, str] = {
    "sweep": "sweep -o, --workers, --search",
    "agent": "agent, devices elsewhere",
    "gpu": "--device gpu, NVIDIA's",
    "opencl": "--device gpu, others",
    "figures": "ablation --figure",
    "torch": "tilewright.from_torch",
    "firmware": "export --c for a soft CPU",
}
"""Optional parts -> what they are needed for. Those of synthesis are programs."""

REQUIREMENT = re.compile(r"""^([\w.-]+)[^;]*;.*extra == ["']([\w-]+)["']""")
"""Name and extra of an optional requirement."""


@dataclass(frozen=True, slots=True)
class Need:
    """Tools that a command needs and that are missing.

    Parameters
    ----------
    commands : str
        The commands, as they are typed.
    missing : tuple of str
        Names of the tools that are missing.
    remedy : str
        How to get them; empty if none is.
    """

    commands: str
    missing: tuple[str, ...] = ()
    remedy: str = ""


def command_needs() -> list[Need]:
    """Return what single commands need; nothing is started, since the first run takes a minute."""
    needs = [_synthesis("synth --chip asic, run --device gate", [YOSYS])]
    families = {device.family.name: device.family for device in DEVICES.values()}
    for family in families.values():
        if family.placer is None:
            continue
        tools = [YOSYS, family.placer, *([family.packer] if family.packer else [])]
        commands = f"{'build, ' if family.packer else ''}synth for {family.name}"
        needs.append(_synthesis(commands, tools))
    needs.append(_program("flash", find_loader, "openFPGALoader"))
    needs += [_extra(extra, commands) for extra, commands in EXTRAS.items()]
    return needs


def _synthesis(commands: str, tools: list) -> Need:
    missing = []
    for tool in tools:
        try:
            find_tool(tool)
        except ToolError:
            missing.append(tool.name)
    remedy = f"run `{install_command('synth')}`" if missing else ""
    return Need(commands, tuple(missing), remedy)


def _program(commands: str, find: Callable[[], str], name: str) -> Need:
    try:
        find()
        return Need(commands)
    except ToolError as problem:
        return Need(commands, (name,), str(problem).partition("; ")[2])


def _extra(extra: str, commands: str) -> Need:
    missing = tuple(name for name in packages_of(extra) if not _is_installed(name))
    return Need(commands, missing, f"run `{install_command(extra)}`" if missing else "")


def packages_of(extra: str) -> Iterator[str]:
    """Yield the packages of an optional part."""
    for requirement in metadata.requires("tilewright") or ():
        found = REQUIREMENT.match(requirement)
        if found and found[2] == extra:
            yield found[1]


def _is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
