"""`tilewright asm`: assemble a program, check it, run it, and show its times and what it wrote."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ....atomic_write import check_output, write_output
from ....errors import ProgramError, UsageError
from ....file_access import read_part, reason
from ....isa.assembly import format_instruction, instruction_lines, parse_program
from ....isa.checker import check
from ....isa.configuration import DEFAULT
from ....isa.encoding import encode_program
from ....isa.instructions import Instruction
from ....runtime import open_device
from ....runtime.device import Result
from ....wording import counted
from ...execution.timed import time_alone
from ...reports.trace import trace_sentence, write_trace
from ..arguments import (
    USUAL_OR_BOARDS,
    add_configuration,
    chosen_configuration,
    connected_board,
    require_tools,
)
from ..console import configuration_sentence, say
from ..device_options import add_device
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model, refuse_memory
from ..recording_options import (
    add_recordings,
    check_recording_files,
    check_recordings,
    waveform_options,
    waveform_sentence,
)

DATA_BYTES, MAX_DATA_BYTES = 4096, 1 << 28
MAX_INSTRUCTIONS = 1 << 18
"""Limit for a program; longer ones take minutes to read and check."""

LINE_BYTES, MAX_LINES = 16, 32
"""Of the dump, which `--output` has in full."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="FILE.asm", help="see docs/reference/isa.md")
    add_configuration(parser, USUAL_OR_BOARDS)
    add_device(parser, ("reference", "sim", "rtl", "gate"))
    parser.add_argument(
        "--data", type=Path, metavar="FILE",
        help=f"bytes of the data window before the run (default: {DATA_BYTES:,} zeros)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the data window after the run"
    )
    add_memory(parser)
    add_recordings(parser, "the program")
    add_json(parser, "cycles, and each instruction with its start and end,")
    parser.set_defaults(function=assemble)


def assemble(arguments: argparse.Namespace) -> None:
    """Assemble, check, run and dump.

    Raises
    ------
    TilewrightError
        If a line is wrong, the checker refuses the program, or the device fails.
    """
    check_json(arguments.json)
    check_recordings(arguments)
    refuse_memory(arguments)
    check_recording_files(arguments, [arguments.source, arguments.data])
    configuration = chosen_configuration(arguments)
    if board := connected_board(arguments.device, arguments.source, configuration):
        configuration = board.configuration
    configuration = configuration or DEFAULT
    text = _text(arguments.source)
    count = sum(1 for _ in instruction_lines(text))
    if count > MAX_INSTRUCTIONS:
        raise UsageError(
            f"FILE.asm `{arguments.source}`: expected at most {MAX_INSTRUCTIONS:,} instructions, "
            f"got {count:,}; repeat with loops"
        )
    program = parse_program(text, str(arguments.source), configuration)
    before = np.zeros(DATA_BYTES, np.uint8)
    if arguments.data is not None:
        before = np.frombuffer(_read(arguments.data, "`--data`", MAX_DATA_BYTES), np.uint8)
    try:
        report = check(program, configuration, before.size)
    except ProgramError as problem:
        raise ProgramError(_with_lines(str(problem), text)) from None
    shows = arguments.json != "-"
    if shows:
        say(configuration_sentence(configuration))
        counts = counted(report.instructions, "instruction"), counted(report.tokens, "token")
        say(f"checked: {', '.join(counts)}, no conflict")
    require_tools(arguments.device)
    output = arguments.output
    check_output(output, f"`--output {output}`", [arguments.source, arguments.data])
    memory = memory_model(arguments)
    options = waveform_options(arguments)
    with open_device(arguments.device, configuration, memory, **options) as device:
        memory = device.memory
        result = device.run(encode_program(program, configuration), before.copy())
    if arguments.trace:
        timed = time_alone(program, configuration, memory, result)
        write_trace(arguments.trace, [timed], arguments.source.stem, arguments.device)
    if output is not None:
        write_output(output, result.dram.tobytes(), f"`--output {output}`")
    if arguments.json:
        write_json(
            arguments.json,
            {
                "configuration": configuration.name,
                "device": arguments.device,
                "cycles": result.cycles,
                "instructions": [
                    {"text": format_instruction(each), **times}
                    for each, times in zip(program, _times(program, result), strict=True)
                ],
                "changed_bytes": int(np.count_nonzero(before != result.dram)),
            },
        )
    if shows:
        show(arguments.device, program, before, result)
        if arguments.trace:
            say(trace_sentence(arguments.trace))
        if arguments.waveform:
            say(waveform_sentence(arguments.waveform))


def _with_lines(message: str, text: str) -> str:
    """Return a checker message that also gives the source line of each instruction."""
    lines = [number for number, _ in instruction_lines(text)]
    return re.sub(
        r"\binstruction (\d+)\b",
        lambda found: f"{found[0]} on line {lines[int(found[1])]}",
        message,
    )


def _times(program: Sequence[Instruction], result: Result) -> Iterator[dict[str, int | None]]:
    """Yield the cycles of each instruction; None where the device does not time it."""
    untimed = [(-1, -1)] * len(program)
    for pair in untimed if result.spans is None else result.spans.tolist():
        start, retired = (None if cycle < 0 else cycle for cycle in pair)
        yield {"start": start, "retired": retired}


def show(device: str, program: Sequence[Instruction], before: np.ndarray, result: Result) -> None:
    """Print what a run did."""
    cycles = "cycles not measured" if result.cycles is None else f"{result.cycles:,} cycles"
    say(f"{device}: {cycles}")
    if result.spans is not None:
        say("\n   start  retired  instruction")
        for (start, retired), each in zip(result.spans.tolist(), program, strict=True):
            times = f"{start:8,} {retired:8,}" if start >= 0 else " " * 17
            say(f"{times}  {format_instruction(each)}")
    say("")
    for line in _written(before, result):
        say(line)


def _text(path: Path) -> str:
    content = _read(path, "FILE.asm", MAX_DATA_BYTES)
    if b"\0" in content:
        raise UsageError(
            f"FILE.asm `{path}`: expected a program as text, got bytes; `--data` takes those"
        )
    return content.decode("utf-8", "replace")


def _read(path: Path, option: str, limit: int) -> bytes:
    try:
        return read_part(path, limit=limit)
    except OSError as problem:
        raise UsageError(
            f"{option} `{path}`: cannot be read, got `{reason(problem)}`; check the path"
        ) from None


def _written(before: np.ndarray, result: Result) -> Iterator[str]:
    """Yield the lines of the data window that the run changed."""
    lines = sorted({int(at) // LINE_BYTES for at in np.flatnonzero(before != result.dram)})
    if not lines:
        yield "main memory: unchanged"
        return
    yield "main memory, lines that the run changed:"
    for line in lines[:MAX_LINES]:
        begin = line * LINE_BYTES
        yield f"{begin:#08x}  {result.dram[begin : begin + LINE_BYTES].tobytes().hex(' ')}"
    if len(lines) > MAX_LINES:
        yield f"{len(lines) - MAX_LINES:,} more; `--output FILE` writes all bytes"
