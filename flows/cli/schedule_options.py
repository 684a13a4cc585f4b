"""`--schedules` and `--schedule`: write the schedule steps of every layer, and read edited ones."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...compiler.graph.short_names import (
    denotes,
    listed_names,
    short_name,
    short_names,
    similar_names,
)
from ...errors import UsageError
from ...file_access import MAX_TEXT_BYTES, read_part, reason
from ...isa.configuration import Configuration
from .console import note

if TYPE_CHECKING:
    from ...compiler.module import Module


def add_schedules(parser: argparse.ArgumentParser) -> None:
    """Add both options."""
    parser.add_argument(
        "--schedules", action="store_true",
        help="print every accelerator layer's schedule with its cycles, as steps that `--schedule` "
        "takes back",
    )  # fmt: skip
    add_schedule(parser)


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Add `--schedule`."""
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="[LAYER=]FILE", dest="given",
        help="take the schedule of a layer, or of all layers in the file, from there, and print "
        "the cycles before and after; may be repeated",
    )  # fmt: skip


def change_of(
    before: Mapping[str, Any], after: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """Return what given schedules changed in the report of a module, as JSON values.

    Parameters
    ----------
    before, after
        Reports of the compiler, without and with the given schedules.
    """
    rows = zip(before["layers"], after["layers"], strict=False)
    return {
        "schedules_given": list(given),
        "cycles_before": before["cycles"],
        "layers_changed": [
            {"name": new["name"], "before": old["cycles"], "after": new["cycles"]}
            for old, new in rows
            if old["cycles"] != new["cycles"]
        ],
    }


def change_sentences(report: Mapping[str, Any]) -> list[str]:
    """Say what given schedules changed; nothing without them."""
    if "schedules_given" not in report:
        return []
    before, after = report["cycles_before"], report["cycles"]
    given, changed = report["schedules_given"], report["layers_changed"]
    layers = ", ".join(f"`{name}`" for name in short_names(given))
    lines = [f"schedule of {layers} given: {before:,} cycles before, {after:,} now"]
    lines += [
        f"  {name}, without its neighbours: {row['before']:,} before, {row['after']:,} now"
        for name, row in zip(short_names([row["name"] for row in changed]), changed, strict=True)
    ]
    return lines


def chosen_schedules(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the steps of `--schedule`, by layer.

    Raises
    ------
    UsageError
        If a file cannot be read, or has no schedule for its layer.
    """
    from ...compiler.scheduling.given_schedules import read_schedules

    given: dict[str, str] = {}
    for text in arguments.given:
        layer, separator, path = text.rpartition("=")
        try:
            found = read_schedules(read_part(path, limit=MAX_TEXT_BYTES).decode())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"`--schedule {text}`: `{path}` cannot be read ({reason(error)}); correct the path"
            ) from None
        if separator:
            called = [name for name in found if name and denotes(layer, name)]
            name = called[0] if len(called) == 1 else layer
            given[name] = _steps_of(found, (name,), path)
        elif not found or "" in found:
            raise UsageError(
                f"`--schedule {text}`: steps in `{path}` stand under no line `# layer NAME`; name "
                "the layer as LAYER=FILE"
            )
        else:
            given |= found
    return given


def by_whole_name(module: "Module", given: Mapping[str, str]) -> dict[str, str]:
    """Return schedules by the names that the compiler knows; users may shorten them.

    Parameters
    ----------
    module
        The network without these schedules.

    Raises
    ------
    UsageError
        If several layers have a name.
    """
    from ...runtime.names import find_layers, layer_names

    tell_of_other_machines(given, module.configuration)
    layers = [layer for segment in module.segments for layer in segment.layers]
    known = Counter(name for layer in layers for name in {layer.name, layer.output})
    whole: dict[str, str] = {}
    for name, text in given.items():
        found = [] if name in known else [layer for _, layer in find_layers(module, name)]
        if len(found) > 1:
            names = layer_names(module)
            raise UsageError(
                f"`--schedule`: expected the name of one layer, got `{name}`, which means "
                f"{listed_names(names[layer.output] for layer in found)}; choose one of them"
            )
        for layer in found:
            name = layer.name if known[layer.name] == 1 else layer.output
        whole[name] = text
    return whole


def tell_of_other_machines(given: Mapping[str, str], configuration: Configuration) -> None:
    """Note, by layer or file, which schedules were printed for another machine."""
    from ...compiler.scheduling.given_schedules import machine_of

    found: dict[str, list[str]] = {}
    for name, text in given.items():
        found.setdefault(machine_of(text) or configuration.name, []).append(short_name(name))
    for machine in found.keys() - {configuration.name}:
        note(
            f"{'schedules' if found[machine][1:] else 'schedule'} of "
            f"{listed_names(found[machine])}: printed for configuration `{machine}`, not "
            f"`{configuration.name}`; steps may be illegal or slow here"
        )


def steps_of_layer(text: str, names: Sequence[str], path: str) -> str:
    """Return a layer's steps from the text of a file, which may have those of other layers too.

    Parameters
    ----------
    names
        Names of the layer.

    Raises
    ------
    UsageError
        If the text has no steps of the layer.
    """
    from ...compiler.scheduling.given_schedules import read_schedules

    return _steps_of(read_schedules(text), names, path)


def _steps_of(found: Mapping[str, str], names: Sequence[str], path: str) -> str:
    for name in (*names, ""):
        if name in found:
            return found[name]
    if not found:
        raise UsageError(f"`--schedule`: `{path}` has no steps; write one on each line")
    raise UsageError(
        f"`--schedule`: `{path}` has no schedule of layer `{names[-1]}`"
        + similar_names(names[-1], found)
    )
