"""`tilewright ablation`: measure the gain of pipelining, fusion, gathering and depthwise mode."""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ....atomic_write import check_output
from ....compiler.frontend import import_model
from ....compiler.graph import Graph
from ....errors import ToolError, UsageError, install_command
from ....isa.configuration import DEFAULT, Configuration
from ....isa.memory_model import MemoryModel
from ....runtime.artifact import is_artifact, load
from ...ablation.tables import (
    introduction,
    layers_json,
    layers_means,
    layers_table,
    variants_json,
    variants_table,
)
from ...ablation.traffic import bytes_per_cycle
from ...ablation.variants import Progress, measure_layer, measure_variant, variants
from ...bench.resnet18_layers import RESNET18, ConvolutionShape
from ...execution.quantise_model import integer_graph
from ...reports import terminal as report
from ..arguments import USUAL_OR_BOARDS, add_configuration, chosen_configuration
from ..calibration_options import (
    CalibrationOptions,
    add_calibration,
    chosen_calibration,
    refuse_calibration,
)
from ..input_options import (
    NO_OVERRIDES,
    InputOverrides,
    add_fixes,
    chosen_overrides,
    refuse_overrides,
)
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators
from ..progress import Advance, progress_bar

NETWORK = "ResNet-18's convolutions"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="MODEL",
        help="ONNX file or artifact (default: ResNet-18's convolutions by pipeline depth)",
    )  # fmt: skip
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    parser.add_argument(
        "--layers", metavar="NAME,...", help="without MODEL: which of C2 to C11 (default: all)"
    )
    add_json(parser, "the table")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE.svg", help="also draw the table (needs Matplotlib)"
    )
    add_memory(parser)
    add_calibration(parser)
    parser.set_defaults(function=ablation)


def ablation(arguments: argparse.Namespace) -> None:
    """Measure the variants of a network, or single layers, and print them.

    Raises
    ------
    UsageError
        For arguments that conflict.
    ToolError
        If a figure is requested and Matplotlib is missing.
    TilewrightError
        For a problem with the model, the machine or the memory.
    """
    check_json(arguments.json)
    check_figure(arguments.figure)
    memory = memory_model(arguments)
    configuration, calibration = chosen_configuration(arguments), chosen_calibration(arguments)
    if arguments.source is None:
        if calibration is not None:
            raise UsageError("`--calibrate`: expected a float ONNX model too, got none; give MODEL")
        shapes = chosen_layers(arguments.layers)
        ablate_layers(shapes, configuration or DEFAULT, memory, arguments)
        return
    if arguments.layers:
        raise UsageError(
            f"`--layers {arguments.layers}`: expected no MODEL beside it, got "
            f"`{arguments.source}`; leave one of them out"
        )
    overrides = chosen_overrides(arguments)
    graph, configuration = read_graph(arguments.source, configuration, overrides, calibration)
    ablate_network(graph, configuration, memory, arguments)


def check_figure(figure: Path | None) -> None:
    """Reject a figure that cannot be drawn.

    Raises
    ------
    UsageError, ToolError
        Before any long computation.
    """
    if figure is None:
        return
    check_output(figure, f"`--figure {figure}`", suffixes=(".svg",))
    if importlib.util.find_spec("matplotlib") is None:
        raise ToolError(
            "`--figure`: the Python package `matplotlib` is not installed; run "
            f"`{install_command('figures')}`, or leave `--figure` out"
        )


def chosen_layers(names: str | None) -> list[ConvolutionShape]:
    """Return layers of ResNet-18 by name, in its order.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    known = {shape.name: shape for shape in RESNET18}
    if names is None:
        return list(RESNET18)
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"`--layers {names}`: expected some of {', '.join(known)}, got `{name}`; correct it"
            )
    return [shape for shape in RESNET18 if shape.name in wanted]


def read_graph(
    source: Path,
    configuration: Configuration | None,
    overrides: InputOverrides = NO_OVERRIDES,
    calibration: CalibrationOptions | None = None,
) -> tuple[Graph, Configuration]:
    """Return the integer graph of a model or an artifact, and the machine to compile it for.

    Raises
    ------
    TilewrightError
        As raised by the importer or the artifact's reader.
    """
    if is_artifact(source):
        refuse_overrides(source, overrides)
        refuse_calibration(source, calibration)
        module = load(source)
        return module.graph, configuration or module.configuration
    if calibration is not None:
        with progress_bar() as advance:
            graph = integer_graph(
                source, calibration, lambda text: advance(text, 0, None), overrides
            )
    else:
        graph = import_model(source, **overrides.of_import)
    return graph, configuration or DEFAULT


def ablate_network(
    graph: Graph, configuration: Configuration, memory: MemoryModel, arguments: argparse.Namespace
) -> None:
    """Measure a network's variants, and write the results in every requested form."""
    found = variants(graph, configuration)
    layers = len(graph.nodes)
    results = []
    with progress_bar() as advance:
        for number, variant in enumerate(found):
            text = f"compiling {graph.name}, {variant.name}"
            places = range(number * layers, (number + 1) * layers)
            tell = _teller(advance, text, places, len(found) * layers)
            results.append(measure_variant(variant, graph, memory, tell))
    if arguments.figure:
        from ...ablation.figure import draw_variants

        title = f"{graph.name} on {configuration.name}"
        draw_variants(arguments.figure, title, results)
    deliver(
        arguments.json,
        variants_json(graph.name, configuration, memory, results),
        variants_table(results),
        introduction(graph.name, configuration, memory),
    )


def ablate_layers(
    shapes: Sequence[ConvolutionShape],
    configuration: Configuration,
    memory: MemoryModel,
    arguments: argparse.Namespace,
) -> None:
    """Measure layers at every depth, and write the results in every requested form."""
    layers = []
    with progress_bar() as advance:
        for number, shape in enumerate(shapes):
            advance(f"compiling {shape.name}", number, len(shapes))
            layers.append(measure_layer(shape, configuration, memory))
    if arguments.figure:
        from ...ablation.figure import draw_layers

        title = f"{NETWORK} on {configuration.name}"
        rate = bytes_per_cycle(configuration, memory)
        peak = configuration.lanes_in * configuration.lanes_out
        draw_layers(arguments.figure, title, layers, peak, rate)
    deliver(
        arguments.json,
        layers_json(NETWORK, configuration, memory, layers),
        layers_table(layers),
        introduction(NETWORK, configuration, memory),
        layers_means(layers),
    )


def _teller(advance: Advance, text: str, places: range, steps: int) -> Progress:
    """Return a function that advances the bar by one place per layer."""
    left = iter(places)
    advance(text, places.start, steps)
    return lambda line: advance(text, next(left, places.stop), steps)


def deliver(
    target: str | None,
    values: Any,
    table: Table,
    above: Sequence[str],
    below: Sequence[str] = (),
) -> None:
    """Write JSON if requested; print the table and its lines unless JSON goes to stdout."""
    if target:
        write_json(target, values)
    if target != "-":
        for line in above:
            report.say(line)
        report.stdout().print(table)
        for line in below:
            report.say(line)
