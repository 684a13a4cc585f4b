"""RTLIL of a design for a technology, kept in the cache.

A change of the hardware that leaves the RTL alone therefore costs nothing further on.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...collector import paused_collector
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ..cache import digest, keep_file, kept_folder
from ..hardware_sources import hardware_sources
from ..rtl import TOP
from .kept import KIND, TASK, read_kept, write_kept

if TYPE_CHECKING:
    from amaranth.hdl import Elaboratable


def bare_rtlil(
    configuration: Configuration, technology: Technology, multipliers: int | None
) -> str:
    """Return the RTLIL of the core with its own ports, top module `core`.

    Parameters
    ----------
    multipliers
        As `Core` takes them.
    """

    def describe() -> "Elaboratable":
        from ...hardware.core import Core

        return Core(configuration, multipliers)

    parts = [str(configuration.parameters()), str(multipliers)]
    return keep_rtlil(parts, technology, describe, TOP)


def keep_rtlil(
    parts: Sequence[str],
    technology: Technology,
    describe: Callable[[], "Elaboratable"],
    top: str,
) -> str:
    """Return the RTLIL of a design without source lines, from the cache if it is there.

    Parameters
    ----------
    parts
        All that the design depends on, besides the sources, the technology and `top`.
    describe
        Makes the design.
    top
        The name of its top module.
    """
    parts = [version("amaranth"), str(technology), top, *parts]
    parts += [path.read_text("utf-8") for path in hardware_sources()]

    def make(folder: Path) -> Path:
        # Imported here: a kept design needs no hardware description language.
        from amaranth.back import rtlil

        with paused_collector():
            text = rtlil.convert(describe(), name=top, platform=technology, emit_src=False)
        return write_kept(folder / "rtl.gz", text)

    return read_kept(keep_file(kept_folder(KIND, TASK) / f"{digest(parts)}-rtl.gz", make))
