"""The manifest of an artifact: a module without its programs and data, as JSON values.

No value that is read is trusted. The reader checks the type of every value, and compares every
placement and name with the graph and the data window, before a device uses it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

from ..compiler.graph import Graph
from ..compiler.module import Binding, Layer, Module, Segment
from ..errors import ArtifactError
from ..isa.instructions import Instruction
from ..quoting import is_name

MAX_WINDOW_BYTES = 1 << 32
"""Maximum data window in bytes, because addresses inside it have 32 bits."""


def describe_segment(segment: Segment) -> dict[str, Any]:
    """Describe a segment, without its program and constants, as JSON values."""
    return {
        "notes": list(segment.notes),
        "layers": [dataclasses.asdict(layer) for layer in segment.layers],
        "activations": [dataclasses.asdict(binding) for binding in segment.activations],
        "inputs": [binding.name for binding in segment.inputs],
        "outputs": [binding.name for binding in segment.outputs],
        "constants_offset": segment.constants_offset,
        "data_bytes": segment.data_bytes,
    }


def read_segment(
    described: Mapping[str, Any], program: tuple[Instruction, ...], constants: bytes
) -> Segment:
    """Make a segment from the description that `describe_segment` returned.

    Raises
    ------
    ArtifactError
        If a value is missing, has another type or is out of range.
    """
    places = {}
    for entry in take(described, "activations", list):
        corner = numbers(entry, "corner")
        if len(corner) != 2:
            raise ArtifactError(f"manifest: `corner`: expected a row and a column, got {corner}")
        binding = Binding(
            name=take(entry, "name", str),
            offset=take(entry, "offset", int),
            stored_shape=tuple(numbers(entry, "stored_shape")),
            shape=tuple(numbers(entry, "shape")),
            corner=(corner[0], corner[1]),
            fill=take(entry, "fill", int),
            whole=take(entry, "whole", str),
            strides=tuple(numbers(entry, "strides")),
        )
        if binding.strides and (
            len(binding.strides) != len(binding.stored_shape)
            or max(map(abs, binding.strides)) > MAX_WINDOW_BYTES
        ):
            raise ArtifactError(
                f"activation `{binding.name}`: expected a stride for each of "
                f"{len(binding.stored_shape)} dimensions, at most {MAX_WINDOW_BYTES:,}, got "
                f"{list(binding.strides)}"
            )
        places[binding.name] = binding
    layers = tuple(
        Layer(
            name=take(entry, "name", str),
            op=take(entry, "op", str),
            output=take(entry, "output", str),
            macs=take(entry, "macs", int),
            schedule=take(entry, "schedule", str),
            runs=tuple(_run(run) for run in take(entry, "runs", list)),
        )
        for entry in take(described, "layers", list)
    )
    segment = Segment(
        program=program,
        notes=tuple(str(note) for note in take(described, "notes", list)),
        layers=layers,
        inputs=_named(described, "inputs", places),
        outputs=_named(described, "outputs", places),
        activations=tuple(places.values()),
        constants=constants,
        constants_offset=take(described, "constants_offset", int),
        data_bytes=take(described, "data_bytes", int),
    )
    _check_segment(segment)
    return segment


def take(values: object, key: str, kind: type | UnionType) -> Any:
    """Return a value of a JSON object, with its type checked.

    Raises
    ------
    ArtifactError
        If it is missing or has another type.
    """
    if not isinstance(values, Mapping) or key not in values:
        raise ArtifactError(f"manifest: expected `{key}`, got none")
    value = values[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        name = getattr(kind, "__name__", str(kind))
        raise ArtifactError(f"manifest: `{key}`: expected {name}, got {type(value).__name__}")
    return value


def numbers(values: object, key: str) -> list[int]:
    """Return a list of integers; see `take`."""
    found = take(values, key, list)
    for value in found:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ArtifactError(f"manifest: `{key}`: expected whole numbers, got {value!r}")
    return found


def _run(values: object) -> tuple[int, int]:
    """Return a range of instructions."""
    if (
        not isinstance(values, list)
        or len(values) != 2
        or not all(type(value) is int for value in values)
    ):
        raise ArtifactError(f"manifest: `runs`: expected pairs of whole numbers, got {values!r}")
    return values[0], values[1]


def _named(described: Mapping, key: str, places: Mapping[str, Binding]) -> tuple[Binding, ...]:
    names = take(described, key, list)
    for name in names:
        if not isinstance(name, str) or name not in places:
            raise ArtifactError(f"manifest: `{key}`: expected an activation, got {name!r}")
    return tuple(places[name] for name in names)


def _check_segment(segment: Segment) -> None:
    window = segment.data_bytes
    if window > MAX_WINDOW_BYTES:
        raise ArtifactError(
            f"manifest: `data_bytes`: expected at most {MAX_WINDOW_BYTES:,}, got {window:,}"
        )
    for binding in segment.activations:
        if min(binding.stored_shape, default=0) < 0:
            raise ArtifactError(
                f"activation `{binding.name}`: expected extents of 0 or more, got "
                f"{list(binding.stored_shape)}"
            )
    blocks = [(binding.name, binding.start, binding.size) for binding in segment.activations]
    blocks.append(("constants", segment.constants_offset, len(segment.constants)))
    for name, offset, size in blocks:
        if offset < 0 or size < 0 or offset + size > window:
            raise ArtifactError(
                f"`{name}`: expected a place inside the data window of {window} bytes, got "
                f"{size} bytes at {offset}"
            )
    for binding in segment.activations:
        stored, shape, corner = binding.stored_shape, binding.shape, binding.corner
        fits = len(shape) == len(stored) == 4 and shape[0] == stored[0]
        inside = fits and all(
            first >= 0 and size >= min(room, 1) and first + size <= room
            for first, size, room in zip((0, *corner, 0), shape, stored, strict=True)
        )
        if not inside or not -128 <= binding.fill <= 127:
            raise ArtifactError(
                f"activation `{binding.name}`: expected it inside its place, got shape "
                f"{list(shape)} at {list(corner)} of {list(stored)}, border {binding.fill}"
            )
    length, end = len(segment.program), 0
    runs = sorted((*run, layer.name) for layer in segment.layers for run in layer.runs)
    for first, last, name in runs:
        if not end <= first < last < length:
            raise ArtifactError(
                f"layer `{name}`: expected instructions among {end} to {length - 1}, got {first} "
                f"to {last}"
            )
        end = last
    if len(segment.notes) != length:
        raise ArtifactError(f"expected {length} notes, got {len(segment.notes)}")


def check_steps(steps: Sequence[object], segments: Sequence[Segment], graph: Graph) -> None:
    """Reject steps that do not compute the graph.

    Raises
    ------
    ArtifactError
        If a step is unknown, or a value is read before it is produced; the message names it.
    """
    ready = {value.name for value in graph.inputs} | {c.name for c in graph.constants}
    for step in steps:
        if isinstance(step, str) and (node := graph.producer(step)) is not None:
            reads, gives = node.inputs, [value.name for value in node.outputs]
        elif isinstance(step, int) and 0 <= step < len(segments):
            segment = segments[step]
            _check_types(segment, graph)
            reads = tuple(binding.name for binding in segment.inputs)
            gives = [binding.name for binding in segment.outputs]
        else:
            raise ArtifactError(f"step {step!r}: expected a value of the graph or a segment")
        for name in reads:
            if name not in ready:
                raise ArtifactError(f"step {step!r}: expected `{name}` to be computed before it")
        ready.update(gives)
    for output in graph.outputs:
        if output.value not in ready:
            raise ArtifactError(f"output `{output.name}`: expected a step to compute it, got none")


def _check_types(segment: Segment, graph: Graph) -> None:
    outputs = [layer.output for layer in segment.layers]
    for name in [*outputs, *(binding.name for binding in segment.activations)]:
        if name not in graph.types:
            raise ArtifactError(f"activation `{name}`: expected a value of the graph")
    for binding in segment.activations:
        kind = graph.types[binding.name]
        if kind.dtype != "int8" or kind.shape != binding.shape:
            raise ArtifactError(
                f"activation `{binding.name}`: expected int8{list(binding.shape)}, got "
                f"{kind.dtype}{list(kind.shape)} in the graph"
            )


def module_of(
    graph: Graph, configuration: Any, manifest: Mapping, segments: Sequence[Segment]
) -> Module:
    """Make a module from the graph, the manifest and the segments.

    Raises
    ------
    ArtifactError
        If the steps do not compute the graph.
    """
    steps = take(manifest, "steps", list)
    check_steps(steps, segments, graph)
    name = take(manifest, "name", str)
    if not is_name(name):
        raise ArtifactError(f"manifest: `name`: expected a printable name, got {name!a:.80}")
    return Module(name, configuration, graph, tuple(steps), tuple(segments), {})
