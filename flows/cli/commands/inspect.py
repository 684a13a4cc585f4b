"""`tilewright inspect`: show the content of an artifact, down to its instructions."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ....compiler.graph import print_graph
from ....compiler.module import Layer, Module, Segment
from ....errors import UsageError
from ....isa.assembly import format_instruction, format_program
from ....runtime.artifact import load
from ....runtime.names import find_layers, layer_names, layer_nodes, similar_layers
from ....wording import counted
from ...reports import terminal as report
from ..json_output import add_json, check_json, write_json


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="ARTIFACT", help="file that `tilewright compile` wrote"
    )
    parser.add_argument(
        "--layer", metavar="NAME", help="show only this layer: its name or that of one of its nodes"
    )
    parser.add_argument("--graph", action="store_true", help="the integer graph instead")
    add_json(parser, "all of it")
    parser.set_defaults(function=inspect)


def inspect(arguments: argparse.Namespace) -> None:
    """Print an artifact as assembly text that `isa.assembly` reads back.

    Raises
    ------
    ArtifactError
        If the file is not a complete artifact.
    UsageError
        If there is no such layer.
    """
    check_json(arguments.json)
    module = load(arguments.source)
    wanted = select(module, arguments.layer)
    if arguments.json:
        write_json(arguments.json, describe(module, wanted))
    if arguments.json == "-":
        return
    if arguments.graph:
        report.say(print_graph(module.graph).rstrip())
        return
    if arguments.layer is None:
        for line in header(module):
            report.say(f"# {line}".rstrip())
    names, nodes = layer_names(module), layer_nodes(module)
    for index, segment in enumerate(module.segments):
        runs = sorted(
            (*run, layer) for where, layer in wanted if where == index for run in layer.runs
        )
        titled: set[str] = set()
        for first, last, layer in runs:
            report.say("")
            name = names[layer.output]
            if layer.output in titled:
                report.say(f"# layer {name}, continued")
            else:
                held = [node.name for node in nodes[layer.output]]
                report.say(title(segment, layer, name, held))
                titled.add(layer.output)
            report.say(disassemble(segment, layer, range(first, last)).rstrip())
        if arguments.layer is None:
            report.say("")
            report.say(format_program(segment.program[-1:]).rstrip())


def select(module: Module, name: str | None) -> list[tuple[int, Layer]]:
    """Find layers by their name or a node's, with their segments; all layers if `name` is None.

    Raises
    ------
    UsageError
        If there is none; the message lists the layers that exist.
    """
    everything = [
        (index, layer) for index, segment in enumerate(module.segments) for layer in segment.layers
    ]
    if name is None:
        return everything
    found = find_layers(module, name)
    if not found:
        raise UsageError(
            f"`--layer {name}`: expected the name of a layer on the accelerator"
            + similar_layers(module, name)
        )
    return found


def header(module: Module) -> Iterator[str]:
    """Yield sentences about the whole artifact."""
    yield f"network `{module.name}` for {report.configuration_sentence(module.configuration)}"
    names = layer_names(module)
    for step in module.steps:
        if isinstance(step, str):
            node = module.graph.producer(step)
            yield f"host: {node.op if node else '?'} gives `{step}`"
            continue
        segment = module.segments[step]
        yield (
            f"accelerator: segment {step}, {counted(len(segment.program), 'instruction')}, data "
            f"window of {segment.data_bytes:,} bytes, {len(segment.constants):,} of them "
            f"constants at {segment.constants_offset:#x}"
        )
        wide = max((len(layer.op) for layer in segment.layers), default=0)
        for layer in segment.layers:
            count = len(layer.places)
            yield f"    {count:5} instructions  {layer.op:{wide}} {names[layer.output]}"


def title(segment: Segment, layer: Layer, name: str, nodes: Sequence[str]) -> str:
    """Return the facts of a layer, as comments."""
    places = {binding.name: binding for binding in segment.activations}
    place = places.get(layer.output)
    shown = (
        f"gives int8{list(place.shape)} at {place.offset:#x}, stored as {list(place.stored_shape)}"
        if place
        else "its result stays on chip"
    )
    text = (
        f"# layer {name} ({layer.op}): {layer.macs:,} MACs\n"
        f"# {'nodes' if len(nodes) > 1 else 'node'} {', '.join(f'`{node}`' for node in nodes)}\n"
        f"# {shown}\n"
    )
    return text + "".join(f"# {line}\n" for line in layer.schedule.splitlines())


def disassemble(segment: Segment, layer: Layer, run: range) -> str:
    """Disassemble instructions of a layer; a note above one states its purpose, if that changes."""
    comments: dict[int, str] = {}
    before = ""
    for index in run:
        note = segment.notes[index].removeprefix(f"{layer.name}: ")
        if note != before:
            comments[index - run.start] = f"  {note}"
        before = note
    return format_program(segment.program[run.start : run.stop], comments)


def describe(module: Module, wanted: list[tuple[int, Layer]]) -> dict[str, Any]:
    """Return an artifact as JSON values."""
    names, nodes = layer_names(module), layer_nodes(module)
    configuration = module.configuration
    return {
        "network": module.name,
        "configuration": {"name": configuration.name, **configuration.parameters()},
        "hash": f"{configuration.hash:#010x}",
        "steps": list(module.steps),
        "segments": [
            {
                "instructions": len(segment.program),
                "data_bytes": segment.data_bytes,
                "constants_offset": segment.constants_offset,
                "constants_bytes": len(segment.constants),
                "layers": [
                    {
                        "name": layer.name,
                        "short": names[layer.output],
                        "nodes": [node.name for node in nodes[layer.output]],
                        "op": layer.op,
                        "output": layer.output,
                        "macs": layer.macs,
                        "schedule": layer.schedule,
                        "instructions": [
                            {
                                "place": at,
                                "text": format_instruction(segment.program[at]),
                                "note": segment.notes[at].removeprefix(f"{layer.name}: "),
                            }
                            for at in layer.places
                        ],
                    }
                    for where, layer in wanted
                    if where == index
                ],
            }
            for index, segment in enumerate(module.segments)
        ],
    }
