"""`tilewright synth`: synthesise a configuration for an FPGA or an ASIC, and report its figures."""

import argparse

from ....errors import HardwareError, UsageError
from ....isa.configuration import DEFAULT, Configuration
from ...area.provenance import LEDGER, note_sources
from ...synthesis.devices import DEVICES, FpgaDevice, find_device
from ...synthesis.flow import (
    Synthesis,
    core_rtlil,
    flow_hash,
    hash_of,
    require_capacity,
    synthesise,
    tool_versions,
)
from ...synthesis.ledger import (
    LedgerRow,
    is_current,
    read_rows,
    row_of,
    with_row,
    worse,
    write_rows,
)
from ...synthesis.report import (
    clock_sentence,
    introduction,
    path_sentence,
    path_table,
    units_table,
)
from ..arguments import add_configuration, chosen_configuration
from ..console import say
from ..device_options import add_chip
from ..json_output import add_json, check_json, write_json
from ..progress import progress_bar
from ..tables import stdout

LEDGER_SEEDS = 5
"""Seeds of a row of the ledger, unless the user asks for others."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    add_chip(parser, f"to build for: one of {', '.join(DEVICES)}")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="place N times, with seeds 1 to N (default: 1)"
    )
    parser.add_argument(
        "--clock", type=float, metavar="MHZ", help="clock to aim at (default: the device's)"
    )
    parser.add_argument(
        "--no-place", action="store_true", help="count resources only, which is much quicker"
    )
    parser.add_argument(
        "--depth", type=int, default=1, metavar="N", help="levels of units to tell (default: 1)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N",
        help="placements at a time; one may take several GB (default: 1)",
    )  # fmt: skip
    add_json(parser, "the figures")
    parser.add_argument(
        "--ledger", action="store_true",
        help=argparse.SUPPRESS,  # for developers: measure the changed rows of the ledger
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true",
        help=argparse.SUPPRESS,  # for developers: fail if a figure there is more than 3 % worse
    )  # fmt: skip
    parser.set_defaults(function=synth)


def synth(arguments: argparse.Namespace) -> None:
    """Synthesise, place and report, or measure rows of the ledger.

    Raises
    ------
    UsageError
        For arguments that conflict.
    ToolError
        If a tool is missing.
    HardwareError
        If the device is too small, or a kept figure has become worse.
    """
    check_json(arguments.json)
    for option in ("seeds", "depth", "jobs"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise UsageError(f"`--{option} {value}`: expected 1 or more; correct it")
    if arguments.clock is not None and not 1 <= arguments.clock <= 1000:
        raise UsageError(f"`--clock {arguments.clock:g}`: expected 1 to 1000 MHz; correct it")
    if arguments.ledger or arguments.check:
        refuse_beside_ledger(arguments)
        keep_ledger(arguments)
        return
    if arguments.chip is None:
        raise UsageError(f"`--chip`: expected one of {', '.join(DEVICES)}, got none; choose one")
    device, configuration = find_device(arguments.chip), chosen_configuration(arguments)
    found = measure(arguments, configuration or DEFAULT, device, arguments.seeds or 1)
    if arguments.json:
        write_json(arguments.json, found.to_json(arguments.depth))
    if arguments.json != "-":
        show(found, arguments.depth)
    if not arguments.no_place:
        require_capacity(found)


def measure(
    arguments: argparse.Namespace,
    configuration: Configuration,
    device: FpgaDevice,
    seeds: int,
    clock_mhz: float | None = None,
) -> Synthesis:
    """Synthesise with progress on stderr; place if the design fits."""
    target = arguments.clock or clock_mhz
    with progress_bar() as advance:
        found = synthesise(configuration, device, clock_mhz=target, place=False, advance=advance)
        if arguments.no_place or device.short(found.packed):
            return found
        return synthesise(
            configuration,
            device,
            seeds=range(1, seeds + 1),
            clock_mhz=target,
            jobs=arguments.jobs,
            advance=advance,
        )


def refuse_beside_ledger(arguments: argparse.Namespace) -> None:
    """Reject arguments that have no meaning for the ledger.

    Raises
    ------
    UsageError
        If arguments conflict; the message names one.
    """
    if arguments.json:
        raise UsageError(
            "`--json`: expected one configuration without `--ledger` and `--check`; leave one of "
            "them out"
        )
    if arguments.no_place and not arguments.check:
        raise UsageError(
            "`--no-place`: expected `--check` with it, since rows of the ledger have a clock; "
            "leave it out"
        )


def keep_ledger(arguments: argparse.Namespace) -> None:
    """Measure rows of the ledger and write each at once, or check them.

    Raises
    ------
    UsageError
        If only one of configuration and device is given, or no row is there to check.
    HardwareError
        If a design does not fit, or a figure is more than 3 % worse than the kept one.
    """
    rows = read_rows()
    chosen = chosen_rows(arguments, rows)
    problems = []
    for kept, configuration, device in chosen:
        about = f"{configuration.name} on {device.name}"
        seeds = arguments.seeds or (len(kept.clocks_mhz) if kept else 0) or LEDGER_SEEDS
        if kept and not arguments.check and not arguments.no_place:
            rtl = hash_of(core_rtlil(configuration, device))
            if is_current(kept, rtl, flow_hash(device), tool_versions(device), seeds):
                say(f"{about}: current")
                continue
        found = measure(arguments, configuration, device, seeds, kept and kept.target_mhz)
        row = row_of(found)
        worsened = worse(kept, row) if kept else []
        say(f"{about}: {'; '.join(worsened) or 'no figure is worse'}")
        if arguments.check:
            problems += [f"{about}: {problem}" for problem in worsened]
            continue
        require_capacity(found)
        rows = with_row(rows, row)
        write_rows(rows)
    if len(chosen) == len(rows) and not (arguments.check or arguments.no_place):
        note_sources(LEDGER)
    if problems:
        raise HardwareError(
            f"area: {'; '.join(problems)}; improve the change, or renew the rows with `make area` "
            "and say why in the commit"
        )


def chosen_rows(
    arguments: argparse.Namespace, rows: list[LedgerRow]
) -> list[tuple[LedgerRow | None, Configuration, FpgaDevice]]:
    """Return the rows to measure: one that the user chose, or all.

    Raises
    ------
    UsageError
        If only one of configuration and device is given, the device is no chip, or there is no such
        row to check.
    """
    configuration = chosen_configuration(arguments)
    if configuration is None and arguments.chip is None:
        return [(row, row.machine, find_device(row.device)) for row in rows]
    if configuration is None or arguments.chip is None:
        raise UsageError(
            "`--ledger`, `--check`: expected both `--config` and `--chip` for one row, or "
            "none of them for all rows; add or remove one"
        )
    device = find_device(arguments.chip)
    if not device.capacity:
        raise UsageError(
            f"`--chip {device.name}`: expected a chip with `--ledger` and `--check`; choose one"
        )
    kept = next((row for row in rows if row.key == (configuration.name, device.name)), None)
    if kept is None and arguments.check:
        raise UsageError(
            f"`--check`: expected a row of docs/reference/area.md, got {configuration.name} on "
            f"{device.name}; add it with `--ledger`"
        )
    return [(kept, configuration, device)]


def show(found: Synthesis, depth: int) -> None:
    """Print the figures."""
    for line in introduction(found):
        say(line)
    say("")
    stdout().print(units_table(found, depth))
    if found.placements:
        say("")
        say(clock_sentence(found))
        say(path_sentence(found))
        stdout().print(path_table(found.median.path))
