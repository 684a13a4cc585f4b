"""Boards of `amaranth-boards` that have a serial port: a platform as the keys of a board file."""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...errors import HardwareError, ToolError, UsageError, did_you_mean, install_command

PREFIX = "amaranth:"

PRESETS_OF: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "LFE5U-12F": ("ecp5-25", 100),
        "LFE5U-25F": ("ecp5-25", 100),
        "LFE5U-45F": ("ecp5-25", 100),
        "LFE5UM-45F": ("ecp5-25", 100),
        "LFE5UM5G-45F": ("ecp5-25", 100),
        "LFE5U-85F": ("ecp5-85", 80),
        "LFE5UM5G-85F": ("ecp5-85", 80),
        "GW2A-LV18PG256C8/I7": ("gowin20", 54),
    }
)
"""The preset and the clock in MHz that are usual for a chip."""


def platform_keys(name: str) -> dict[str, Any]:
    """Return the keys of a board file for `MODULE` or `MODULE.CLASS` of `amaranth-boards`.

    Main memory is block RAM.

    Raises
    ------
    ToolError
        Without `amaranth-boards`.
    UsageError
        For an unknown platform.
    HardwareError
        For a platform without a serial port, or with a chip that no preset is usual for.
    """
    where = f"board `{PREFIX}{name}`"
    platform = _platform(name, where)
    chip = getattr(platform, "part", None) or platform.device
    if chip not in PRESETS_OF:
        raise HardwareError(
            f"{where}: expected a chip of {', '.join(PRESETS_OF)}, got `{chip}`; describe the "
            "board in a file: `tilewright boards --template`"
        )
    preset, clock_mhz = PRESETS_OF[chip]
    resources = {(each.name, each.number): each for each in platform.resources}
    uart = resources.get(("uart", 0))
    if uart is None:
        raise HardwareError(
            f"{where}: expected a serial port (resource `uart`), got none; describe the board with "
            "pins for one in a file: `tilewright boards --template`"
        )
    clock = resources[platform.default_clk, 0]
    signals = {each.name: each.ios[0] for each in uart.ios if hasattr(each, "ios")}
    pins = [getattr(each, "names", None) for each in (clock.ios[0], *signals.values())]
    if not all(pins):
        raise HardwareError(
            f"{where}: expected single pins for the oscillator and the serial port, got a "
            "differential pair; describe the board in a file: `tilewright boards --template`"
        )
    found = [each.attrs.get("IO_TYPE", "LVCMOS33") for each in (clock, uart)]
    # The value is a function where a jumper of the board decides.
    standards = {each if isinstance(each, str) else "that of a jumper" for each in found}
    if len(standards) > 1:
        raise HardwareError(
            f"{where}: expected one electrical standard for the oscillator and the serial port, "
            f"got {', '.join(sorted(standards))}; choose another board"
        )
    part = chip if "LV" in chip else f"{chip}-{platform.speed}{platform.package}"
    return {
        "name": re.sub(r"\W+", "-", name),
        "part": part,
        "preset": preset,
        "clock_mhz": clock_mhz,
        "url": "https://github.com/amaranth-lang/amaranth-boards",
        "sources": [f"amaranth-boards: {name}"],
        "oscillator": {"mhz": clock.clock.frequency / 1e6, "pin": clock.ios[0].names[0]},
        "serial": {
            "rx": signals["rx"].names[0],
            "tx": signals["tx"].names[0],
            "baud": 115_200,
            "adapter": "as the board has it",
        },
        "pins": {"standard": standards.pop()},
    }


def _platform(name: str, where: str) -> Any:
    try:
        import amaranth_boards
    except ImportError:
        raise ToolError(
            f"{where}: `amaranth-boards` is missing; install it: {install_command('synth')}"
        ) from None
    module, _, chosen = name.partition(".")
    modules = [each.name for each in pkgutil.iter_modules(amaranth_boards.__path__)]
    if module not in modules:
        raise UsageError(
            f"{where}: expected a module of `amaranth-boards`"
            + did_you_mean(module, modules, " such as `icepi_zero`; correct it")
        )
    found = importlib.import_module(f"amaranth_boards.{module}")
    platforms = [each for each in getattr(found, "__all__", ()) if each.endswith("Platform")]
    if not chosen and len(platforms) == 1:
        (chosen,) = platforms
    if chosen not in platforms:
        choices = ", ".join(f"`{PREFIX}{module}.{each}`" for each in platforms) or "another module"
        raise UsageError(f"{where}: expected one of {choices}; choose one")
    return getattr(found, chosen)
