"""Arguments that several commands share, and what they mean.

What only compiling, loading or a progress bar needs is imported there: a command that finds its
network compiled waits for none of it.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.options import DEFAULT_OPTIONS
from ...errors import UsageError
from ...isa.configuration import DEFAULT, Configuration, load_configuration
from ...sim.toolchain import find_compiler, find_verilator
from ..execution.compile_cache import CompileCache
from .calibration_options import CalibrationOptions, refuse_calibration
from .input_options import NO_WISHES, Wishes, refuse_wishes
from .placement_options import DEFAULT_PLACING, Placing

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...compiler.module import Module


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and `--set`."""
    parser.add_argument(
        "--config", metavar="NAME|FILE", help=f"preset or JSON file (default: {DEFAULT.name})"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PARAM=VALUE", dest="changes",
        help="change one parameter of the configuration; may be repeated",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json [FILE.json]`; `what` is said of its content."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE.json",
        help=f"{what} for machines, to stdout or to a file",
    )  # fmt: skip


def chosen_configuration(arguments: argparse.Namespace) -> Configuration | None:
    """The configuration asked for; None where nothing was said of it.

    Raises
    ------
    ConfigurationError
        For an unknown name or parameter, or a broken rule.
    UsageError
        For a change that is not `PARAM=VALUE`.
    """
    if arguments.config is None and not arguments.changes:
        return None
    base = load_configuration(arguments.config) if arguments.config else DEFAULT
    return changed(base, arguments.changes)


def changed(configuration: Configuration, changes: list[str]) -> Configuration:
    """A configuration with `PARAM=VALUE` changes; its name tells them.

    Raises
    ------
    ConfigurationError
        For an unknown parameter or a broken rule.
    UsageError
        For a change that is not of that form.
    """
    if not changes:
        return configuration
    values: dict[str, int] = {}
    for change in changes:
        name, _, text = change.partition("=")
        try:
            values[name.strip()] = int(text, 0)
        except ValueError:
            raise UsageError(
                f"`--set {change}`: expected PARAM=VALUE with a whole number, for example "
                "`--set act_depth=4096`"
            ) from None
    if "name" in values:
        raise UsageError("`--set name=...`: expected a parameter of the machine; leave it out")
    return configuration.replace(name=",".join([configuration.name, *changes]), **values)


def load_module(
    source: Path,
    configuration: Configuration | None,
    *,
    keep_all: bool = False,
    calibration: "CalibrationOptions | None" = None,
    wishes: Wishes = NO_WISHES,
    placing: Placing = DEFAULT_PLACING,
) -> "Module":
    """A compiled module from a model, which is compiled now, or from an artifact.

    Parameters
    ----------
    configuration
        None for the default, or an artifact's own.
    keep_all
        Compile so that every layer's output can be read.
    calibration
        How to quantise a float model; None for one that is quantised.
    wishes
        Inputs and dimensions that are given beforehand.
    placing
        Who shall run what; an artifact's network is placed anew where that is said.

    Raises
    ------
    UsageError
        For an artifact that is to be quantised, or whose inputs are to be fixed.
    TilewrightError
        As the importer, the quantiser, the compiler or the artifact's reader says.
    """
    from ...runtime.artifact import is_artifact, load

    if is_artifact(source):
        refuse_calibration(source, calibration)
        refuse_wishes(source, wishes)
        if source.is_file() and (placing.stated or not placing.is_default):
            return placed_module(source, configuration, placing, keep_all=keep_all)
        return load(source, configuration)
    return compile_model(
        source,
        configuration or DEFAULT,
        keep_all=keep_all,
        calibration=calibration,
        wishes=wishes,
        placing=placing,
    )


def placed_module(
    artifact: Path, configuration: Configuration | None, placing: Placing, *, keep_all: bool
) -> "Module":
    """An artifact's network, compiled with a placement of the user's or taken from the cache.

    It is kept like a model's, under the artifact's bytes, what was asked for and this processor.
    Parameters and errors are those of `load_module`.
    """
    from ...compiler.host import host_target
    from ...runtime.artifact import load

    more = ("artifact", repr(host_target()), *placing.key())
    kept = CompileCache.of_model(
        artifact, configuration, DEFAULT_OPTIONS, keep_all=keep_all, more=more
    )
    module = kept.load()
    if module is None:
        given = load(artifact, configuration)
        module = compile_placed(given.graph, given.configuration, placing, keep_all=keep_all)
        kept.save(module)
    return module


def compile_model(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool = False,
    calibration: "CalibrationOptions | None" = None,
    wishes: Wishes = NO_WISHES,
    placing: Placing = DEFAULT_PLACING,
) -> "Module":
    """Import, quantise and compile with progress on stderr, or take what was compiled before."""
    asked = {
        "keep_all": keep_all,
        "calibration": calibration,
        "wishes": wishes,
        "placing": placing,
    }
    kept = kept_module(source, configuration, **asked)
    module = kept.load() if kept is not None else None
    if module is None:
        module = compile_anew(source, configuration, **asked)
        if kept is not None:
            kept.save(module)
    return module


def kept_module(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool,
    calibration: "CalibrationOptions | None" = None,
    wishes: Wishes = NO_WISHES,
    placing: Placing = DEFAULT_PLACING,
) -> CompileCache | None:
    """Where the module of a model is kept; None where there is no model."""
    if not source.is_file():
        return None
    more = (*(calibration.key() if calibration else ()), *wishes.key(), *placing.key())
    return CompileCache.of_model(
        source, configuration, DEFAULT_OPTIONS, keep_all=keep_all, more=more
    )


def compile_anew(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool,
    calibration: "CalibrationOptions | None" = None,
    wishes: Wishes = NO_WISHES,
    placing: Placing = DEFAULT_PLACING,
    schedules: Mapping[str, str] | None = None,
) -> "Module":
    """Import, quantise and compile with progress on stderr."""
    from ...compiler.frontend import import_model
    from ..execution.quantise_model import integer_graph

    with progress_bar() as advance:
        advance(f"reading {source.name}", 0, None)
        if calibration is None:
            graph = import_model(source, fixed=wishes.fixed, dims=wishes.dims)
        else:
            graph = integer_graph(source, calibration, lambda text: advance(text, 0, None), wishes)
    return compile_placed(graph, configuration, placing, keep_all=keep_all, schedules=schedules)


def compile_placed(
    graph: "Graph",
    configuration: Configuration,
    placing: Placing,
    *,
    keep_all: bool,
    schedules: Mapping[str, str] | None = None,
) -> "Module":
    """Compile a graph, some layers with given schedules, with progress on stderr."""
    from ...compiler.placement.costs import DEFAULT_COSTS
    from ..execution.compile_graph import compile_graph

    costs = placing.costs() if placing.policy == "cost" else DEFAULT_COSTS
    with progress_bar() as advance:
        layers = len(graph.nodes)
        done = 0

        def tell(_: str) -> None:
            nonlocal done
            done += 1
            advance(f"compiling {graph.name}", min(done, layers), layers)

        advance(f"compiling {graph.name}", 0, layers)
        return compile_graph(
            graph,
            configuration,
            tell,
            keep_all=keep_all,
            placement=placing.placement(),
            costs=costs,
            schedules=schedules or {},
            cache=False,  # the callers keep it under the file that it is from
        )


def require_tools(device: str) -> None:
    """Look for the tools of a device before anything long begins.

    Raises
    ------
    ToolError
        When `rtl` misses Verilator or a compiler.
    """
    if device == "rtl":
        find_verilator()
        find_compiler()


Advance = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is, and how much there is in all."""


@contextlib.contextmanager
def progress_bar() -> Iterator[Advance]:
    """A bar on stderr while something long runs; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=None)

        def advance(text: str, done: int, total: int | None) -> None:
            progress.update(task, description=text, completed=done, total=total)

        yield advance
