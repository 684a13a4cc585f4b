"""Arguments that several commands share, and the modules and configurations that they select.

Functions that compile, load or show progress have their own imports, so a command that finds its
network in the cache does not wait for them.
"""

import argparse
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.registered import registered_key
from ...errors import UsageError
from ...isa.configuration import DEFAULT, Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY, changed, load_configuration, memory_text
from ...sim.gate.tools import YOSYS, find_tool
from ...sim.toolchain import find_compiler, find_verilator
from ..execution.compile_cache import CompileCache
from ..execution.recorded_choices import records_key
from .calibration_options import CalibrationOptions, refuse_calibration
from .input_options import NO_OVERRIDES, InputOverrides, refuse_overrides
from .placement_options import DEFAULT_PLACING, Placing
from .progress import progress_bar
from .schedule_options import by_whole_name, change_of

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...compiler.module import Module
    from ...runtime.device import Device

Check = Callable[["Graph"], object]
"""Raises for options that do not fit a network, before long work."""

USUAL_OR_BOARDS = f"{DEFAULT.name}, or that of the board"
"""The default configuration of commands that run on boards, which say what they hold."""


def add_configuration(parser: argparse.ArgumentParser, default: str = DEFAULT.name) -> None:
    """Add `--config` and `--set`; the help text calls `default` the default."""
    parser.add_argument(
        "--config",
        metavar="NAME|FILE",
        help=f"preset or JSON file, perhaps with changes such as {DEFAULT.name},act_depth=512 "
        f"(default: {default})",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PARAM=VALUE", dest="changes",
        help="change one parameter of the configuration, or lanes=8x16; may be repeated",
    )  # fmt: skip


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust-code`."""
    parser.add_argument(
        "--trust-code", action="store_true",
        help="run the machine code in an artifact even if your key has not signed it; by default "
        "it is compiled anew",
    )  # fmt: skip


def chosen_configuration(arguments: argparse.Namespace) -> Configuration | None:
    """Return the configuration that the user chose; None if there is no choice.

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


def load_module(
    source: Path,
    configuration: Configuration | None,
    *,
    keep_all: bool = False,
    calibration: "CalibrationOptions | None" = None,
    overrides: InputOverrides = NO_OVERRIDES,
    placing: Placing = DEFAULT_PLACING,
    trust_code: bool = False,
    memory: MemoryModel = DEFAULT_MEMORY,
    schedules: Mapping[str, str] | None = None,
    expected: Collection[str] = (),
    check: Check = lambda graph: None,
) -> "Module":
    """Load an artifact, or compile a model or take its module from the cache.

    Parameters
    ----------
    configuration : Configuration or None
        None for the default, or an artifact's own.
    keep_all : bool
        Whether to compile so that every layer's output can be read.
    calibration : CalibrationOptions or None
        How to quantise a float model; None for a quantised one.
    overrides : InputOverrides
        Inputs and dimensions that the user fixed.
    placing : Placing
        Side of each layer; if the user chose one, an artifact's network is compiled again.
    trust_code : bool
        Whether an artifact's machine code runs even if this user's key has not signed it.
    memory : MemoryModel
        Main memory for which a model is compiled; an artifact is compiled already, unless its
        layers are placed anew.
    schedules : mapping or None
        Steps for some layers of a model; the module's report then says what they changed.
    expected : collection of str
        Names of layers that the user gave, which are looked for before the long search.
    check : callable
        Called with a model's graph before quantising and compiling; raises to reject options.

    Raises
    ------
    UsageError
        If options ask to quantise an artifact, to fix its inputs or to schedule its layers.
    TilewrightError
        As raised by the importer, the quantiser, the compiler or `load`.
    """
    from ...runtime.artifact import is_artifact, load

    if is_artifact(source):
        refuse_calibration(source, calibration)
        refuse_overrides(source, overrides)
        if schedules:
            raise UsageError(
                f"`--schedule`: expected a model, got the artifact `{source}`, whose layers are "
                "scheduled; name the model instead"
            )
        if os.path.isfile(source) and (placing.stated or not placing.is_default):
            return placed_module(source, configuration, placing, memory, keep_all=keep_all)
        return load(source, configuration, trust_code=trust_code)
    return compile_model(
        source,
        configuration or DEFAULT,
        keep_all=keep_all,
        calibration=calibration,
        overrides=overrides,
        placing=placing,
        memory=memory,
        schedules=schedules,
        expected=expected,
        check=check,
    )


def connected_board(
    device: str, source: Path, configuration: Configuration | None
) -> "Device | None":
    """Connect to a board, whose machine, memory and clock a model is compiled for.

    Returns
    -------
    Device or None
        Closed again. None for other devices, and for an artifact, which is compiled already.
    """
    from ...runtime.artifact import is_artifact
    from ...runtime.devices import is_board

    if not is_board(device) or is_artifact(source):
        return None
    with open_board(device, configuration) as board:
        return board


def open_board(address: str, configuration: Configuration | None) -> "Device":
    """Open a board as the machine that the user chose, or else as the one that it says it is.

    Raises
    ------
    DeviceError
        If there is no board, or it has another machine than the chosen one, or an unknown one.
    """
    from ...runtime.device import OtherConfigurationError
    from ...runtime.devices import REMOTE, open_device
    from ...runtime.known_machines import machine_of

    if configuration is None and address.startswith(REMOTE):
        from ...runtime.remote import lent_machine

        configuration = lent_machine(address)
    try:
        return open_device(address, configuration or DEFAULT)
    except OtherConfigurationError as other:
        found = machine_of(other.found)
        if configuration is not None or found is None:
            raise
    return open_device(address, found)


def placed_module(
    artifact: Path,
    configuration: Configuration | None,
    placing: Placing,
    memory: MemoryModel = DEFAULT_MEMORY,
    *,
    keep_all: bool,
) -> "Module":
    """Compile an artifact's network with the user's placement, or take it from the cache.

    The cache key consists of the artifact's bytes, the options and this processor. Parameters and
    errors are those of `load_module`.
    """
    from ...compiler.host import host_target
    from ...runtime.artifact import load

    more = (
        "artifact", repr(host_target()), *placing.key(), memory_text(memory),
        *records_key(),
    )  # fmt: skip
    kept = CompileCache.of_model(
        artifact, configuration, DEFAULT_OPTIONS, keep_all=keep_all, more=more
    )
    module = kept.load()
    if module is None:
        given = load(artifact, configuration)
        module = compile_placed(
            given.graph, given.configuration, placing, keep_all=keep_all, memory=memory
        )
        kept.save(module)
    return module


def compile_model(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool = False,
    calibration: "CalibrationOptions | None" = None,
    overrides: InputOverrides = NO_OVERRIDES,
    placing: Placing = DEFAULT_PLACING,
    memory: MemoryModel = DEFAULT_MEMORY,
    schedules: Mapping[str, str] | None = None,
    expected: Collection[str] = (),
    check: Check = lambda graph: None,
) -> "Module":
    """Import, quantise and compile with progress on stderr, or take the module from the cache.

    With given schedules, nothing is cached but the module without them, and the report says what
    they changed.
    """
    asked = {"keep_all": keep_all, "placing": placing, "memory": memory}
    kept = kept_module(source, configuration, calibration=calibration, overrides=overrides, **asked)
    module = kept.load() if kept is not None else None
    if module is not None and not schedules:
        return module
    graph = imported(source, calibration, overrides, check)
    if module is None:
        named = (*(schedules or ()), *expected)
        module = compile_placed(graph, configuration, expected=named, **asked)
        if kept is not None:
            kept.save(module)
    if not schedules:
        return module
    whole = by_whole_name(module, schedules)
    after = compile_placed(graph, configuration, schedules=whole, **asked)
    changes = change_of(module.report, after.report, schedules)
    return replace(after, report={**after.report, **changes})


def kept_module(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool,
    calibration: "CalibrationOptions | None" = None,
    overrides: InputOverrides = NO_OVERRIDES,
    placing: Placing = DEFAULT_PLACING,
    memory: MemoryModel = DEFAULT_MEMORY,
) -> CompileCache | None:
    """Return the place of a model's module in the cache.

    None if the model is not a file, or if its meaning depends on code of the user's own; then the
    module is cached by its graph.
    """
    operators = registered_key()
    if not os.path.isfile(source) or operators is None:
        return None
    quantised = calibration.key() if calibration else ()
    more = (
        *quantised, *overrides.key(), *placing.key(), memory_text(memory), *operators,
        *records_key(),
    )  # fmt: skip
    return CompileCache.of_model(
        source, configuration, DEFAULT_OPTIONS, keep_all=keep_all, more=more
    )


def compile_anew(
    source: Path,
    configuration: Configuration,
    *,
    keep_all: bool,
    calibration: "CalibrationOptions | None" = None,
    overrides: InputOverrides = NO_OVERRIDES,
    placing: Placing = DEFAULT_PLACING,
    memory: MemoryModel = DEFAULT_MEMORY,
) -> "Module":
    """Import, quantise and compile with progress on stderr."""
    graph = imported(source, calibration, overrides)
    return compile_placed(graph, configuration, placing, keep_all=keep_all, memory=memory)


def imported(
    source: Path,
    calibration: "CalibrationOptions | None",
    overrides: InputOverrides,
    check: Check = lambda graph: None,
) -> "Graph":
    """Import, check, and quantise, with progress on stderr."""
    from ...compiler.frontend import import_model
    from ...runtime.session import first_states
    from ..execution.quantise_model import integer_graph

    def checked(graph: "Graph") -> "Graph":
        first_states(graph, overrides.states)
        check(graph)
        return graph

    with progress_bar() as advance:
        advance(f"reading {source.name}", 0, None)
        if calibration is None:
            return checked(import_model(source, **overrides.of_import))
        return integer_graph(
            source, calibration, lambda text: advance(text, 0, None), overrides, checked
        )


def compile_placed(
    graph: "Graph",
    configuration: Configuration,
    placing: Placing,
    *,
    keep_all: bool,
    schedules: Mapping[str, str] | None = None,
    expected: Collection[str] = (),
    memory: MemoryModel = DEFAULT_MEMORY,
) -> "Module":
    """Compile a graph, some layers with given schedules, with progress on stderr.

    Names of layers that are `expected` are looked for before the long search.
    """
    from ...compiler.pipeline import CompileRequest
    from ...compiler.pipeline.place import place
    from ...compiler.placement.costs import DEFAULT_COSTS
    from ...compiler.scheduling.given_schedules import refuse_unknown_nodes
    from ..execution.compile_graph import compile_graph

    costs = placing.costs() if placing.policy == "cost" else DEFAULT_COSTS
    placement = placing.placement()
    with progress_bar() as advance:
        advance(f"compiling {graph.name}", 0, None)
        if expected:
            request = CompileRequest(
                graph=graph, configuration=configuration, placement=placement, costs=costs
            )
            refuse_unknown_nodes(expected, place(request).accelerated)
        return compile_graph(
            graph,
            configuration,
            lambda step: advance(f"compiling {graph.name}: {step}", 0, None),
            keep_all=keep_all,
            placement=placement,
            costs=costs,
            schedules=schedules or {},
            cache=registered_key() is None,  # otherwise the callers cache the module by its file
            memory=memory,
        )


def require_tools(device: str) -> None:
    """Check for the tools or the agent of a device before a long computation.

    Raises
    ------
    ToolError
        If Verilator or a C++ compiler is missing, for `rtl` and `gate`; or Yosys, for `gate`.
    DeviceError
        If the agent of a device elsewhere cannot be reached, or refuses this user.
    UsageError
        If the user has no keys for agents, or the address is none.
    """
    from ...runtime.devices import REMOTE, kind_of

    if device.startswith(REMOTE):
        from ...runtime.agents import RemoteAddress, connect

        connect(RemoteAddress.parse(device).agent).close()
        return
    kind = kind_of(device)
    if kind in ("rtl", "gate"):
        find_verilator()
        find_compiler()
    if kind == "gate":
        find_tool(YOSYS)
