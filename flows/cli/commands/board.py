"""`tilewright board`: serve a virtual board, which drivers open like a real one."""

import argparse
import signal
from typing import NamedTuple

from ....errors import UsageError
from ....isa.configuration import DEFAULT, Configuration
from ....isa.configuration_rules import PAGE_BYTES
from ....isa.memory_model import MemoryModel
from ....isa.sdram import SDRAMS, Sdram
from ....quoting import shell_word
from ....runtime.known_machines import remember_machine
from ....sim.board import VirtualBoard
from ...board.faults import FaultRates
from ...board.server import Server, TcpPort, TerminalPort
from ..arguments import add_configuration, chosen_configuration, require_tools
from ..board_options import design_of, wired_board
from ..console import configuration_sentence, say
from ..memory_options import memory_options

USUAL_MEMORY_KIB = 16 * 1024
USUAL_CLOCK_MHZ = 25.0


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--virtual", nargs="?", const="", metavar="BOARD",
        help="simulate a board, one of those that `tilewright boards` lists, one of your own "
        "(FILE.toml), or one that exists in simulation alone; "
        "boards of silicon are opened by their address",
    )  # fmt: skip
    add_configuration(parser, f"{DEFAULT.name}, or BOARD's")
    parser.add_argument(
        "--memory-kib", type=int, metavar="KIB",
        help=f"main memory (default: BOARD's; otherwise {USUAL_MEMORY_KIB} or the whole SDRAM, or "
        "less if the configuration cannot address that much)",
    )  # fmt: skip
    parser.add_argument(
        "--sdram", choices=SDRAMS, metavar="NAME",
        help="main memory is an SDRAM, timed for the clock: "
        f"{' or '.join(SDRAMS)} (default: BOARD's, otherwise block RAM)",
    )  # fmt: skip
    parser.add_argument(
        "--clock", type=float, metavar="MHZ",
        help=f"clock that the board reports (default: BOARD's, or {USUAL_CLOCK_MHZ:g})",
    )  # fmt: skip
    link = parser.add_argument_group("link")
    link.add_argument(
        "--port", type=int, default=0, metavar="N", help="TCP port (default: any free one)"
    )
    link.add_argument(
        "--terminal", action="store_true",
        help="serve on a pseudo-terminal, which is opened as a serial port",
    )  # fmt: skip
    link.add_argument(
        "--uart", type=int, metavar="CYCLES",
        help="simulate the wires of a serial port, with CYCLES cycles per bit; without this "
        "option, a byte takes one cycle",
    )  # fmt: skip
    link.add_argument(
        "--fault", action="append", default=[], metavar="NAME=P", dest="faults",
        help="probability per byte of lose, flip, pause, reset or unplug; may be repeated",
    )  # fmt: skip
    link.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the faults (default: 0)"
    )
    parser.set_defaults(function=board)


def board(arguments: argparse.Namespace) -> None:
    """Build the board, print its address, and serve until interrupted or terminated.

    Raises
    ------
    UsageError
        For arguments out of range.
    TilewrightError
        For an illegal configuration, or a missing tool.
    """
    check_arguments(arguments)
    configuration, memory_kib, clock_hz, sdram = machine_of(arguments)
    rates = FaultRates.parse(arguments.faults)
    require_tools("rtl")
    port = TerminalPort() if arguments.terminal else TcpPort(arguments.port)
    remember_machine(configuration)
    virtual = VirtualBoard(configuration, memory_kib * 1024, clock_hz, arguments.uart, sdram)
    server = Server(virtual, port, rates, arguments.seed)
    say(f"configuration  {configuration_sentence(configuration)}")
    say(f"memory         {memory_kib:,} KiB{_as_options(sdram, configuration, clock_hz)}")
    if arguments.virtual and wired_board(arguments.virtual).ddr:
        say("               of block RAM, since the DDR of the board has no exact model")
    say(f"address        {port.address}")
    machine = ["--config", arguments.config or configuration.name.partition(",")[0]]
    machine += [word for change in arguments.changes for word in ("--set", change)]
    options = " ".join(map(shell_word, [*machine, "--device", port.address]))
    say(f"for example    tilewright run MODEL {options}")
    signals = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, lambda *_: server.stop()) for number in signals]
    try:
        server.serve()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    say(f"stopped        after {server.cycles:,} cycles; faults: {server.faults.tally.total()}")


class VirtualMachine(NamedTuple):
    """The machine of a virtual board; `sdram` is None if main memory is block RAM."""

    configuration: Configuration
    memory_kib: int
    clock_hz: int
    sdram: Sdram | None


def machine_of(arguments: argparse.Namespace) -> VirtualMachine:
    """Return the machine that the user chose.

    Raises
    ------
    UsageError
        For an unknown board.
    TilewrightError
        For an illegal configuration, or one that the board has no room for.
    """
    sdram = SDRAMS.get(arguments.sdram)
    if arguments.virtual:
        design = design_of(wired_board(arguments.virtual), arguments)
        configuration, usual_kib = design.configuration, design.memory_bytes // 1024
        usual_hz, sdram = design.clock_hz, sdram or design.sdram
        if design.board.ddr:
            usual_kib = min(usual_kib, USUAL_MEMORY_KIB)
    else:
        configuration, usual_kib = chosen_configuration(arguments) or DEFAULT, USUAL_MEMORY_KIB
        usual_hz = round(USUAL_CLOCK_MHZ * 1e6)
    if sdram:
        usual_kib = sdram.size_bytes // 1024
    usual_kib = min(usual_kib, (1 << configuration.address_bits) // 1024)
    clock_hz = round(arguments.clock * 1e6) if arguments.clock else usual_hz
    return VirtualMachine(configuration, arguments.memory_kib or usual_kib, clock_hz, sdram)


def _as_options(sdram: Sdram | None, configuration: Configuration, clock_hz: int) -> str:
    """Return how other commands are told of an SDRAM."""
    if sdram is None:
        return ""
    model = MemoryModel.of_sdram(sdram, configuration, clock_hz)
    return f" of SDRAM; its model: {memory_options(model)}"


def check_arguments(arguments: argparse.Namespace) -> None:
    """Reject arguments that are out of range or conflict.

    Raises
    ------
    UsageError
        For the first one.
    """
    if arguments.virtual is None:
        raise UsageError(
            "`board`: expected `--virtual`; a board of silicon needs no server, open it with "
            "`--device 'serial:///dev/ttyUSB0?baud=3000000'`"
        )
    page_kib = PAGE_BYTES // 1024
    for option, value, least, most in (
        ("port", arguments.port, 0, 65535),
        ("uart", arguments.uart, 4, 1 << 16),
        ("memory-kib", arguments.memory_kib, page_kib, 1 << 22),
        ("clock", arguments.clock, 0.001, 4000),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"`--{option} {value:g}`: expected {least} to {most}; correct it")
    if arguments.terminal and arguments.port:
        raise UsageError("`--terminal`, `--port`: expected one of them; leave one out")
