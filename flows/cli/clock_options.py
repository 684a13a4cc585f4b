"""`--clock`: the accelerator's clock, which turns cycles into milliseconds."""

import argparse

from ...errors import UsageError
from ...wording import three_digits

DEFAULT_CLOCK_MHZ = 100.0
"""A clock that the machine reaches on common FPGAs."""


def add_clock(parser: argparse.ArgumentParser, *, board: bool = True) -> None:
    """Add `--clock`; the help text names the board's where there may be one."""
    usual = f"{DEFAULT_CLOCK_MHZ:g}"
    default = f"that of the board, or {usual} without one" if board else usual
    parser.add_argument(
        "--clock", type=float, metavar="MHZ",
        help=f"clock of the accelerator, for all times (default: {default})",
    )  # fmt: skip


def chosen_clock(arguments: argparse.Namespace) -> float:
    """Return the clock in MHz, `DEFAULT_CLOCK_MHZ` if none was given.

    Raises
    ------
    UsageError
        If it is not a positive number.
    """
    clock_mhz: float = DEFAULT_CLOCK_MHZ if arguments.clock is None else arguments.clock
    if not 1e-9 <= clock_mhz < float("inf"):
        raise UsageError(f"`--clock {clock_mhz:g}`: expected a positive number; correct it")
    return clock_mhz


def milliseconds_text(milliseconds: float) -> str:
    """Return a time with three significant digits, or in whole milliseconds from 100 on."""
    return f"{three_digits(milliseconds)} ms"


def cycles_text(cycles: int, clock_mhz: float) -> str:
    """Return cycles, and their time at a clock, as text."""
    return f"{cycles:,} cycles, {milliseconds_text(cycles / clock_mhz / 1e3)} at {clock_mhz:g} MHz"
