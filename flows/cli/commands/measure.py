"""`tilewright measure`: the memory of a board by measurement, beside what the board says of it."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....errors import UsageError
from ....isa.memory_model import MemoryModel
from ....runtime.devices import is_board
from ....runtime.names import layer_names
from ...board.memory_fit import Fit, LayerError, fit, layer_errors, measure, probes
from ...execution.timed import require_segments
from ..arguments import (
    USUAL_OR_BOARDS,
    add_configuration,
    chosen_configuration,
    load_module,
    open_board,
)
from ..console import configuration_sentence, say
from ..device_options import address_hint
from ..json_output import add_json, check_json, write_json
from ..memory_options import memory_options
from ..operator_options import add_operators
from ..progress import progress_bar
from ..tables import stdout, table


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="a board: serial://... or tcp://...")
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="MODEL",
        help="ONNX file, whose layers are timed on the board and by the exact model",
    )  # fmt: skip
    add_operators(parser)
    add_configuration(parser, USUAL_OR_BOARDS)
    add_json(parser, "the result")
    parser.set_defaults(function=measure_memory)


def measure_memory(arguments: argparse.Namespace) -> None:
    """Measure the memory, compare it with the description, and time the layers of a model.

    Raises
    ------
    UsageError
        For an address that is none.
    TilewrightError
        If the board fails, or does not count cycles; or for a problem with the model.
    """
    check_json(arguments.json)
    if not is_board(arguments.address):
        raise UsageError(
            f"`measure {arguments.address}`: expected the address of a board: `serial://...`, "
            "`tcp://...` or `remote://AGENT/BOARD`"
            + (
                address_hint(arguments.address)
                or "; start a virtual one with `tilewright board --virtual`"
            )
        )
    with open_board(arguments.address, chosen_configuration(arguments)) as board:
        configuration = board.configuration
        programs = probes(configuration)
        described = board.memory
        with progress_bar() as advance:
            cycles = measure(board, programs, advance)
            found = fit(programs, cycles, described, lambda text: advance(text, 0, None))
        layers: list[LayerError] = []
        if arguments.source:
            module = load_module(arguments.source, configuration, memory=found.memory)
            require_segments(module)
            names = layer_names(module)
            for segment in module.segments:
                short = [names[layer.output] for layer in segment.layers]
                with progress_bar() as advance:
                    layers += layer_errors(board, segment, short, found.memory, advance)
    if arguments.json:
        named = {"configuration": configuration.name}
        write_json(arguments.json, {**named, **to_json(described, found, layers)})
    if arguments.json != "-":
        say(f"configuration  {configuration_sentence(configuration)}")
        show(described, found, layers)


def to_json(described: MemoryModel, found: Fit, layers: list[LayerError]) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "described": asdict(described),
        "measured": asdict(found.memory),
        "agrees": found.memory == described,
        "error_cycles": found.error_cycles,
        "measured_cycles": found.measured_cycles,
        "layers": [asdict(layer) for layer in layers],
    }


def show(described: MemoryModel, found: Fit, layers: list[LayerError]) -> None:
    """Print the result."""
    say(f"described      {memory_options(described)}")
    same = found.memory == described
    say(f"measured       {'the same' if same else memory_options(found.memory)}")
    say(
        f"error          {found.error_cycles:,} of {found.measured_cycles:,} cycles that short "
        "programs took"
    )
    if layers:
        rows = [
            [each.name, f"{each.measured:,}", f"{each.modelled:,}", error_text(each)]
            for each in [*layers, total(layers)]
        ]
        stdout().print(table(["layer", "board", "exact model", "error"], rows, left=1))


def total(layers: list[LayerError]) -> LayerError:
    """Return the sum of layers."""
    return LayerError(
        "all", sum(each.measured for each in layers), sum(each.modelled for each in layers)
    )


def error_text(layer: LayerError) -> str:
    """Return the difference as a share of the measured cycles."""
    share = (layer.modelled - layer.measured) / max(1, layer.measured)
    return f"{share:+.2%}" if layer.modelled != layer.measured else "0"
