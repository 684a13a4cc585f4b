"""Options for main memory: how it behaves, and the one that a program is made for."""

import argparse
import re
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY, memory_text, memory_with, read_memory, read_settings
from ...runtime.devices import has_accelerator, is_board, kind_of

if TYPE_CHECKING:
    from ...compiler.module import Module

SETTINGS = ("latency", "bandwidth", "outstanding", "shared-bus")
"""Options that are settings of a memory."""


def add_memory(parser: argparse.ArgumentParser, title: str = "main memory (sim, rtl, gate)"):
    """Add the group of options for main memory, and return it."""
    memory = parser.add_argument_group(title, "A model is compiled for this memory.")
    usual = DEFAULT_MEMORY
    memory.add_argument(
        "--board", metavar="NAME|FILE.toml", dest="modelled_board",
        help="machine, memory and clock of a board, one that `tilewright boards` lists or of your "
        "own, where other options do not choose them",
    )  # fmt: skip
    memory.add_argument(
        "--latency", metavar="CYCLES",
        help=f"cycles from a read's address to its first beat (default: {usual.latency_cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--bandwidth", metavar="BEATS/CYCLES",
        help=f"bandwidth, as BEATS/CYCLES (default: {usual.beats}/{usual.cycles})",
    )  # fmt: skip
    memory.add_argument(
        "--outstanding", metavar="BURSTS",
        help=f"open bursts per direction (default: {usual.outstanding_bursts})",
    )  # fmt: skip
    memory.add_argument(
        "--shared-bus", metavar="READ,WRITE,REFRESH,INTERVAL",
        help="reads and writes share one data bus, as of an SDRAM: cycles that a burst of reads "
        "and one of writes take beside their beats, cycles of a refresh and between two",
    )  # fmt: skip
    parser.set_defaults(stalls=None, seed=0)
    return memory


def add_stalls(memory) -> None:
    """Add `--stalls` to the group that `add_memory` returns."""
    memory.add_argument(
        "--stalls", type=float, metavar="P",
        help="probability that a cycle stalls a channel (default: 0)",
    )  # fmt: skip


def add_program_for(parser) -> None:
    """Add `--program-for` to a parser or to the group that `add_memory` returns."""
    parser.add_argument(
        "--program-for", metavar="MEMORY",
        help="compile for another memory than the one that is timed: `default`, or properties "
        "that differ from it, such as latency=200,bandwidth=1/4",
    )  # fmt: skip


def memory_model(arguments: argparse.Namespace, source: Path | None = None) -> MemoryModel:
    """Return the requested model of main memory.

    Parameters
    ----------
    source
        The network. An artifact's own memory is the default, so that it takes the cycles that
        `tilewright compile` printed.

    Raises
    ------
    UsageError
        For a value that no memory has.
    ArtifactError
        If `source` is an artifact that cannot be read.
    """
    memory = DEFAULT_MEMORY
    if source is not None:
        from ...runtime.artifact import is_artifact, memory_of

        memory = memory_of(source) if is_artifact(source) else memory
    for option in SETTINGS:
        name = option.replace("-", "_")
        if (text := getattr(arguments, name)) is not None:
            value = text.replace(",", "/") if option == "shared-bus" else text
            if option == "shared-bus" and not re.fullmatch(r"none|\d+(/\d+){3}", value):
                raise UsageError(
                    f"`--shared-bus {text}`: expected 4 numbers such as `6,7,7,781`; correct it"
                )
            chosen = read_settings([f"{name}={value}"], f"`--{option} {text}`", (name,))
            memory = memory_with(memory, chosen)
    return memory.with_stalls(arguments.stalls or 0.0, arguments.seed)


def program_memory(arguments: argparse.Namespace, timed: MemoryModel) -> MemoryModel:
    """Return the memory that a program is made for: the one that is timed, or `--program-for`.

    Raises
    ------
    UsageError
        For a memory that is none.
    """
    text = arguments.program_for
    found = timed if text is None else read_memory(text, f"`--program-for {text}`")
    return found.with_stalls(0.0)


def program_sentence(module: "Module", timed: MemoryModel) -> str:
    """Return a sentence if a program was made for another memory than the timed one, else ""."""
    timed = timed.with_stalls(0.0)
    if not module.segments or module.memory == timed:
        return ""
    return f"{memory_text(timed)}; the program was made for {memory_text(module.memory)}"


def given_memory(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the options that are given."""
    if arguments.modelled_board is not None:
        return ["board"]
    names = (*SETTINGS, "stalls")
    return [name for name in names if getattr(arguments, name.replace("-", "_")) is not None]


def refuse_memory(arguments: argparse.Namespace) -> None:
    """Reject these options where they have no effect.

    Raises
    ------
    UsageError
        If one is given for a device without a main memory of its own.
    """
    given = given_memory(arguments)
    device = arguments.device
    timed = has_accelerator(device) and kind_of(device) != "reference" and not is_board(device)
    if given and not timed:
        raise UsageError(
            f"`--{given[0]}`: expected `--device sim`, `rtl` or `gate`, got `{device}`; "
            "it has no effect there, leave it out"
        )


def refuse_program_for(arguments: argparse.Namespace, source: Path, device: str = "sim") -> None:
    """Reject `--program-for` where no program is made.

    Raises
    ------
    UsageError
        For an artifact, and for the processor.
    """
    from ...runtime.artifact import is_artifact

    option = f"`--program-for {arguments.program_for}`"
    if arguments.program_for is not None and is_artifact(source):
        raise UsageError(
            f"{option}: expected a model, got an artifact, whose program is made already; name the "
            "model, or leave the option out"
        )
    if arguments.program_for is not None and not has_accelerator(device):
        raise UsageError(
            f"{option}: expected a device with an accelerator, got `{kind_of(device)}`; leave one "
            "of them out"
        )


def memory_options(memory: MemoryModel) -> str:
    """Return the options that give a memory, for a command line."""
    text = f"--latency {memory.latency_cycles} --bandwidth {memory.beats}/{memory.cycles}"
    if memory.outstanding_bursts != DEFAULT_MEMORY.outstanding_bursts:
        text += f" --outstanding {memory.outstanding_bursts}"
    if memory.bus is None:
        return text
    return f"{text} --shared-bus {','.join(map(str, astuple(memory.bus)))}"
