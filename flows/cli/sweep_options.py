"""Options of `tilewright sweep`, read from the command line and the file that describes a space."""

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...hardware.technology import Technology
from ...isa.configuration import DEFAULT
from ...isa.settings import changed, load_configuration, read_memory
from ...quoting import printable
from ...sim.cache import kept_folder
from ..area.model import is_modelled
from ..sweep.agent_executor import OnAgents
from ..sweep.dimensions import Dimension, read_dimension
from ..sweep.executors import PATIENCE_S, InProcess, OnDask, SweepExecutor, WhenNeeded
from ..sweep.expressions import OF_NETWORK, Constraint, of_network, read_condition, whole_name
from ..sweep.figures import (
    ASIC_OBJECTIVES,
    ASIC_PRICE,
    DEFAULT_OBJECTIVES,
    FIGURES,
    PRICE,
    check_objectives,
)
from ..sweep.local_workers import LocalWorkers
from ..sweep.measured import Build
from ..sweep.outcome import SweepNetwork
from ..sweep.search import Search
from ..sweep.space import Space
from ..sweep.spaces import SpaceDescription, read_description
from ..synthesis.devices import DEVICES, FpgaDevice, find_device
from ..synthesis.flow import tool_versions

if TYPE_CHECKING:
    from ...compiler.graph import Graph

KIND = "sweeps"
"""Name of the cache folder of the default database."""

OWN = "own"
"""Value of `--clock` for the clock of each machine."""

BUDGET = ("multipliers", "ram", "lut", "ff")
"""Resources of a device that limit the machines."""


def chosen_space(arguments: argparse.Namespace, description: SpaceDescription) -> Space:
    """Return the space. Options override the file.

    Raises
    ------
    UsageError
        For an unknown name or an impossible value.
    ConfigurationError
        For an unknown configuration or parameter.
    """
    if not arguments.vary and not description.vary:
        description = read_description("quick")
    found: dict[str, Dimension] = {
        name: read_dimension(name, values, f"{description.source}, `{name}`")
        for name, values in description.vary.items()
    }
    given_before: set[str] = set()
    for text in arguments.vary:
        name, given, values = (part.strip() for part in text.partition("="))
        if not given or not values:
            raise UsageError(
                f"`--vary {text}`: expected NAME=VALUES, for example `--vary lanes=8x8,8x16`"
            )
        more = read_dimension(name, values, f"`--vary {text}`")
        if name in given_before:  # each `--vary` of a name adds values
            more = Dimension(name, tuple(dict.fromkeys((*found[name].values, *more.values))))
        found[name] = more
        given_before.add(name)
    name = arguments.config or description.base
    base = load_configuration(name) if name else DEFAULT
    base = changed(base, [f"{key}={value}" for key, value in description.changes.items()])
    made_for = arguments.program_for
    if made_for is not None:
        made_for = read_memory(made_for, f"`--program-for {made_for}`")
    return Space(tuple(found.values()), changed(base, arguments.changes), program_for=made_for)


def chosen_device(
    arguments: argparse.Namespace, description: SpaceDescription
) -> FpgaDevice | None:
    """Return the device whose resources are the budget, if there is one.

    Raises
    ------
    UsageError
        For an unknown device, or one whose resources only synthesis can tell.
    """
    name = arguments.chip or description.chip
    if not name:
        return None
    device = find_device(name)
    known = [each.name for each in DEVICES.values() if is_modelled(each.family.technology)]
    if device.name not in known:
        raise UsageError(
            f"`--chip {name}`: expected one of {', '.join(known)}, because the resources "
            "of others are known only after synthesis; choose one, or set limits with `--where`"
        )
    return device


def chosen_build(arguments: argparse.Namespace, device: FpgaDevice | None) -> Build | None:
    """Return what to synthesise and place, if anything.

    Raises
    ------
    UsageError
        Without a device, for a device that nothing places, or for an impossible number of seeds.
    ToolError
        When a tool is missing.
    """
    seeds = arguments.seeds
    if seeds is None and not arguments.synthesise:
        return None
    option = "--synthesise" if seeds is None else f"--seeds {seeds}"
    if seeds is not None and seeds < 1:
        raise UsageError(f"`{option}`: expected 1 or more; correct it")
    if device is None:
        raise UsageError(f"`{option}`: expected also `--chip NAME`, the chip to build for; add it")
    if seeds is not None and device.family.placer is None:
        raise UsageError(
            f"`{option}`: expected a chip with an open placer, such as ecp5-45, got "
            f"`{device.name}`; choose another one, or `--synthesise`"
        )
    tool_versions(device)
    return Build(device, tuple(range(1, (seeds or 0) + 1)), arguments.time_limit)


def chosen_conditions(
    arguments: argparse.Namespace, description: SpaceDescription, device: FpgaDevice | None
) -> tuple[Constraint, ...]:
    """Return all conditions, including those of the device.

    Raises
    ------
    UsageError
        For a text that is not a condition.
    """
    networks = [source.stem for source in arguments.sources]
    known = [*FIGURES, *(of_network(name, each) for name in OF_NETWORK for each in networks)]
    found = [
        read_condition(text, known, f"{description.source}, `where`") for text in description.where
    ]
    found += [read_condition(text, known, f"`--where {text}`") for text in arguments.where]
    rates = chosen_rates(arguments, networks)
    for each in networks if None in rates else ():
        limit = read_condition(f"ms('{each}') <= {1e3 / rates[None]!r}", known, "`--rate`")
        found.append(replace(limit, text=f"{each} at {rates[None]:.10g} a second"))
    if together := {name: rate for name, rate in rates.items() if name is not None}:
        busy = " + ".join(f"{rate!r} * ms('{name}')" for name, rate in together.items())
        limit = read_condition(f"{busy} <= 1000", known, "`--rate`")
        text = " and ".join(f"{name} at {rate:.10g}" for name, rate in together.items())
        found.append(replace(limit, text=f"{text} a second{' together' * (len(together) > 1)}"))
    if device:
        found += [
            read_condition(f"{resource} <= {device.capacity[resource]}", FIGURES, "`--chip`")
            for resource in BUDGET
            if resource in device.capacity
        ]
    return tuple(found)


def chosen_rates(arguments: argparse.Namespace, networks: Sequence[str]) -> dict[str | None, float]:
    """Return the runs a second that are asked for, by network; None stands for each network alone.

    Raises
    ------
    UsageError
        For a rate that is not a positive number, or an unknown network.
    """
    found: dict[str | None, float] = {}
    for text in arguments.rates:
        name, named, number = text.rpartition("=")
        name = whole_name(name, networks)
        try:
            rate = float(number)
        except ValueError:
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise UsageError(
                f"`--rate {text}`: expected a positive number, or one for each network, for "
                f"example `--rate {networks[0] if networks else 'MODEL'}=200`; correct it"
            )
        if named and name not in networks:
            raise UsageError(
                f"`--rate {text}`: expected one of the networks {', '.join(networks)}; correct it"
            )
        found[name if named else None] = rate
    return found


def chosen_objectives(
    arguments: argparse.Namespace, description: SpaceDescription, device: FpgaDevice | None
) -> tuple[str, ...]:
    """Return the objectives.

    Raises
    ------
    UsageError
        For an unknown one.
    """
    if arguments.minimise is not None:
        names = [name.strip() for name in arguments.minimise.split(",")]
        return check_objectives(names, f"`--minimise {arguments.minimise}`")
    if description.minimise:
        return check_objectives(description.minimise, f"{description.source}, `minimise`")
    asic = device is not None and device.family.technology is Technology.ASIC
    if arguments.rates:
        return ASIC_PRICE if asic else PRICE
    names = ASIC_OBJECTIVES if asic else DEFAULT_OBJECTIVES
    return ("ms", *names[1:]) if arguments.clock == OWN else names


def clock_or_own(text: str) -> float | str:
    """Read the value of `--clock`."""
    return OWN if text == OWN else float(text)


def chosen_own_clock(arguments: argparse.Namespace, device: FpgaDevice | None) -> bool:
    """Return whether each machine has its own clock; `arguments.clock` is then None.

    Raises
    ------
    UsageError
        Without a device.
    """
    by_default = bool(arguments.rates) and device is not None and arguments.clock is None
    if arguments.clock != OWN:
        return by_default
    if device is None:
        raise UsageError(
            "`--clock own`: expected also `--chip NAME`, the chip on which machines have a clock;"
            " add it"
        )
    arguments.clock = None
    return True


def chosen_search(arguments: argparse.Namespace) -> Search | None:
    """Return the search; None to sweep the whole space.

    Raises
    ------
    UsageError
        For an unknown method or an impossible number, or options that exclude one another.
    ToolError
        When a library that the method needs is not installed.
    """
    if arguments.search is None:
        for name in ("evaluations", "seed"):
            if getattr(arguments, name) is not None:
                raise UsageError(
                    f"`--{name}`: expected together with `--search`; add it, or leave both out"
                )
        return None
    if arguments.evaluations is None:
        raise UsageError(
            f"`--search {arguments.search}`: expected also `--evaluations N`, the number of "
            "machines to compile; add it"
        )
    if arguments.exhaustive:
        raise UsageError(
            "`--search` and `--exhaustive`: expected one of the two; leave one of them out"
        )
    search = Search(arguments.search, arguments.evaluations, arguments.seed or 0)
    search.require_library()
    return search


def chosen_weights(
    arguments: argparse.Namespace, description: SpaceDescription
) -> dict[str, float]:
    """Return the weights of networks by name.

    Raises
    ------
    UsageError
        For a weight that is not a positive number.
    """
    found = dict(description.weights)
    for text in arguments.weights:
        name, _, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise UsageError(
                f"`--weight {text}`: expected MODEL=NUMBER, for example `--weight resnet18=3`"
            ) from None
    for name, weight in found.items():
        if not 0 < weight < float("inf"):
            raise UsageError(f"weight of `{name}`: expected a positive number, got {weight:g}")
    return found


def chosen_database(arguments: argparse.Namespace) -> Path:
    """Return the path of the database."""
    if arguments.database is not None:
        return arguments.database
    return kept_folder(KIND, "sweep") / "records.db"


def chosen_executor(arguments: argparse.Namespace, graphs: Sequence["Graph"]) -> SweepExecutor:
    """Return the executor: processes of this computer, a cluster, this process, or agents."""
    others = _local_executor(arguments, graphs)
    return OnAgents(graphs, arguments.devices, others) if arguments.devices else others


def _local_executor(arguments: argparse.Namespace, graphs: Sequence["Graph"]) -> SweepExecutor:
    limit_s, workers = arguments.time_limit, arguments.workers
    if arguments.scheduler is not None:
        return WhenNeeded(graphs, lambda: OnDask(graphs, arguments.scheduler, limit_s), 0, limit_s)
    if workers == 0:
        return InProcess(graphs, limit_s)
    patience_s = PATIENCE_S if workers is None else 0
    count = workers or len(os.sched_getaffinity(0))
    return WhenNeeded(graphs, lambda: LocalWorkers(graphs, count, limit_s), patience_s, limit_s)


def read_networks(sources: Iterable[Path], weights: dict[str, float]) -> list[SweepNetwork]:
    """Read the networks.

    Raises
    ------
    UsageError
        If two networks have the same name, or a weight names none of them.
    TilewrightError
        If one cannot be read.
    """
    from ...compiler.frontend import import_model
    from ...runtime.artifact import is_artifact, load

    names = [printable(source.stem) for source in sources]
    weights = {whole_name(name, names): weight for name, weight in weights.items()}
    found: dict[str, SweepNetwork] = {}
    for source in sources:
        name = printable(source.stem)
        if name in found:
            raise UsageError(f"MODEL: expected models of different names, got two `{name}`")
        graph = load(source).graph if is_artifact(source) else import_model(source)
        found[name] = SweepNetwork(name, graph, weights.get(name, 1.0))
    for name in weights:
        if name not in found:
            raise UsageError(
                f"weight of `{name}`: expected one of the networks {', '.join(found)}; correct it"
            )
    return list(found.values())
