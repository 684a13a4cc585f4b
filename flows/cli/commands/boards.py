"""`tilewright boards`: list boards, and how fast each one runs a model."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....compiler.module import Module
from ....errors import CompileError, UsageError
from ....isa.configuration import PRESETS
from ....isa.memory_model import MemoryModel
from ...area.clock import ClockEstimate, clock_of
from ...area.provenance import OTHER_SOURCES
from ...board.design import Design
from ...board.known_boards import FOLDER, UNFIT, find_board, known_boards
from ...board.speed import Expected, expected
from ...board.vivado import ZynqDesign
from ...execution.timed import require_segments
from ...synthesis.devices import DEVICES
from ..arguments import load_module
from ..board_options import BOARD_HELP, usual_design
from ..console import say
from ..json_output import add_json, check_json, write_json
from ..operator_options import add_operators
from ..placement_options import STRICT_PLACING
from ..progress import progress_about
from ..serial_ports import serial_ports
from ..tables import stdout, table

AnyDesign = Design | ZynqDesign

Speed = Expected | CompileError
"""The expected speed on a board, or why the board's machine cannot run the model."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="MODEL",
        help="ONNX file, to tell how fast each board runs it",
    )  # fmt: skip
    add_operators(parser)
    parser.add_argument(
        "--board", metavar="NAME|FILE.toml",
        help=f"only this one, with its sources and what was checked: {BOARD_HELP}",
    )  # fmt: skip
    parser.add_argument(
        "--template", action="store_true",
        help="print a board file with comments, to begin your own with",
    )  # fmt: skip
    add_json(parser, "the boards")
    parser.set_defaults(function=boards)


def boards(arguments: argparse.Namespace) -> None:
    """List all boards.

    Raises
    ------
    UsageError
        For arguments that do not fit together, or an unknown board.
    TilewrightError
        For a problem with the model or a board file.
    """
    if arguments.template:
        if arguments.source or arguments.board or arguments.json:
            raise UsageError("`--template`: expected no other argument; leave the others out")
        say((FOLDER.parent / "template.toml").read_text("utf-8").rstrip())
        return
    check_json(arguments.json)
    chosen = [find_board(arguments.board)] if arguments.board else known_boards().values()
    designs = {board.name: usual_design(board) for board in chosen}
    speeds = expected_speeds(arguments.source, designs) if arguments.source else {}
    if arguments.json:
        rows = [to_json(design, speeds.get(name)) for name, design in designs.items()]
        if not arguments.board:
            unfit = {**dict.fromkeys(rows[0]), "fits": False}
            rows += [{**unfit, "board": name, "reason": why} for name, why in UNFIT.items()]
        write_json(arguments.json, rows)
    if arguments.json == "-":
        return
    show(designs, speeds if arguments.source else None)
    if arguments.board:
        show_sources(*designs.values())
    else:
        show_others()


def expected_speeds(source: Path, designs: Mapping[str, AnyDesign]) -> dict[str, Speed]:
    """Compile a model once for each configuration and memory, and time it on every board.

    A machine that a layer does not fit is too small: its cycles would lack those of the layer.
    Boards whose memory has no model are left out.
    """
    modules: dict[tuple[str, MemoryModel], Module | CompileError] = {}
    speeds: dict[str, Speed] = {}
    for name, design in designs.items():
        if isinstance(design, ZynqDesign):
            continue
        key = design.configuration.name, design.memory
        if key not in modules:
            with progress_about(name):
                try:
                    modules[key] = load_module(
                        source, design.configuration, placing=STRICT_PLACING, memory=design.memory
                    )
                except CompileError as error:
                    modules[key] = error
        module = modules[key]
        if isinstance(module, CompileError):
            speeds[name] = module
        else:
            require_segments(module)
            speeds[name] = expected(module, design)
    return speeds


def core_clock(design: AnyDesign) -> ClockEstimate | None:
    """Return the clock of the core alone, as the ledger has it, or its estimate."""
    return clock_of(design.configuration, DEVICES[design.board.device])


def to_json(design: AnyDesign, speed: Speed | None) -> dict[str, Any]:
    """Return a board as JSON values."""
    board, clock = design.board, core_clock(design)
    values: dict[str, Any] = {
        "board": board.name,
        "part": board.part,
        "configuration": board.configuration,
        "result": design.result,
        "memory_bytes": None,
        "memory": "processors",
        "clock_mhz": design.clock_hz / 1e6,
        "core_clock_mhz": clock and clock.median_mhz,
        "core_clock_measured": bool(clock and clock.measured),
        "core_clock_current": bool(clock and clock.is_current),
        "url": board.url,
        "sources": list(board.sources),
        "checked": list(board.checked),
    }
    if isinstance(design, Design):
        values |= {
            "memory_bytes": design.memory_bytes,
            "memory": "DDR" if design.board.ddr else "SDRAM" if design.sdram else "block RAM",
            "baud": design.board.baud,
            "programmer": design.board.programmer,
        }
    if isinstance(speed, CompileError):
        values |= {"cycles": None, "needed_bytes": None, "fits": False, "per_s": None}
        values["reason"] = str(speed)
    elif speed is not None:
        values |= {
            "cycles": speed.cycles,
            "needed_bytes": speed.needed_bytes,
            "fits": speed.fits,
            "per_s": speed.per_s if speed.fits else None,
        }
    return values


def show(designs: Mapping[str, AnyDesign], speeds: Mapping[str, Speed] | None) -> None:
    """Print the table of boards and the notes below it; `speeds` is None without a model."""
    headings = ["board", "chip", "preset", "MACs", "memory", "clock", "core alone", "build makes"]
    rows = []
    for name, design in designs.items():
        board, machine, clock = design.board, design.configuration, core_clock(design)
        row = [name, board.part, machine.name, f"{machine.lanes_in}x{machine.lanes_out}"]
        row += [design.memory_sentence]
        row += [f"{design.clock_hz / 1e6:g} MHz", core_clock_text(clock), design.result]
        row += [] if speeds is None else [speed_text(speeds.get(name))]
        rows.append(row)
    headings += [] if speeds is None else ["samples/s"]
    stdout().print(table(headings, rows, left=3))
    say("")
    say("core alone: its clock without the rest of the system; -: not measured")
    clocks = [clock for clock in map(core_clock, designs.values()) if clock]
    if not all(clock.measured for clock in clocks):
        say("~: estimated from other machines")
    if not all(clock.is_current for clock in clocks):
        say(f"*: {OTHER_SOURCES}")
    if speeds is not None:
        say("samples/s: on the accelerator alone; the serial port and the host add to it")
        if unknown := [name for name in designs if name not in speeds]:
            say(f"{', '.join(unknown)}: the processors' memory has no timing model")
    reasons = {designs[name].configuration.name: speed for name, speed in (speeds or {}).items()}
    for machine, speed in reasons.items():
        if isinstance(speed, CompileError):
            say(f"too small: `{machine}`: {speed}")


def show_sources(design: AnyDesign) -> None:
    """Print where the facts of a board come from, and what was checked."""
    board = design.board
    for heading, lines in (
        ("described at", [board.url]), ("facts from", board.sources), ("checked", board.checked)
    ):  # fmt: skip
        for line in lines or ["nothing"]:
            say(f"{heading}: {line}")


def show_others() -> None:
    """Print which boards cannot be built for, how to add one, and the serial ports."""
    for device in PRESETS:
        if smaller := [
            each.name for each in known_boards().values()
            if each.device == device != each.configuration
        ]:  # fmt: skip
            say(f"{', '.join(smaller)}: `{device}` fits the chip as well, but no whole system with "
                f"it was placed there yet; `tilewright build --config {device}` tries")  # fmt: skip
    for name, reason in UNFIT.items():
        say(f"{name}: {reason}")
    say("your own: `tilewright boards --template > my-board.toml`; sources and checks of a board: "
        "`tilewright boards --board NAME`")  # fmt: skip
    for port in serial_ports(known_boards()):
        say(port.sentence)


def core_clock_text(clock: ClockEstimate | None) -> str:
    """Return a clock as the table shows it; estimates have a tilde."""
    if clock is None:
        return "-"
    before, after = "~" * (not clock.measured), "*" * (not clock.is_current)
    return f"{before}{clock.median_mhz:.0f} MHz{after}"


def speed_text(speed: Speed | None) -> str:
    """Return samples a second, or the memory that they would need."""
    if speed is None:
        return "-"
    if isinstance(speed, CompileError):
        return "too small"
    if not speed.fits:
        return f"needs {-(-speed.needed_bytes // 1024):,} KiB"
    return f"{speed.per_s:,.0f}" if speed.per_s >= 100 else f"{speed.per_s:.3g}"
