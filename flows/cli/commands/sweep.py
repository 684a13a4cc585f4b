"""`tilewright sweep`: evaluate the machines of a space, and find those that no other one beats."""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path

from ....atomic_write import PAGE_SUFFIXES, check_output, write_output
from ....errors import HardwareError, UsageError
from ....isa.settings import memory_text, text_of
from ....sim.timing.native import build_in_background
from ....wording import counted, three_digits
from ...area.provenance import outdated_sentences, unmeasured_options
from ...sweep.agent_executor import check_addresses
from ...sweep.executors import PATIENCE_S
from ...sweep.export import check_export, export
from ...sweep.figures import ASIC_OBJECTIVES, DEFAULT_OBJECTIVES, heading_of
from ...sweep.ladder import sweep
from ...sweep.measured import Build, DesignFigures
from ...sweep.outcome import FAILED, STATES, PointResult, SweepOutcome
from ...sweep.outcome_json import outcome_json
from ...sweep.page import page_data, plotly_source, render
from ...sweep.records import Database
from ...sweep.spaces import SPACES, SpaceDescription, read_description
from ...sweep.time_limit import TIME_LIMIT_S
from ...sweep.verdict import exclusion_sentence, verdict
from ...synthesis.flow import tool_versions
from ..arguments import add_configuration, require_tools
from ..clock_options import DEFAULT_CLOCK_MHZ, chosen_clock
from ..console import configuration_sentence, note, say
from ..device_options import add_chip
from ..json_output import add_json, check_json, write_json
from ..live_page import LivePage, add_serve
from ..memory_options import add_program_for
from ..operator_options import add_operators
from ..sweep_options import (
    chosen_build,
    chosen_conditions,
    chosen_database,
    chosen_device,
    chosen_executor,
    chosen_objectives,
    chosen_own_clock,
    chosen_search,
    chosen_space,
    chosen_weights,
    clock_or_own,
    read_networks,
)
from ..sweep_progress import sweep_progress
from ..tables import GAP, stdout, table, tell, terminal_columns

MAX_S = 1_000_000
"""Maximum time limit in seconds."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", type=Path, nargs="*", metavar="MODEL", help="quantised ONNX file, or artifact"
    )
    add_operators(parser)
    add_configuration(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME=VALUES",
        help="vary lanes (8x8,8x16), a parameter of the configuration (512,1024 or 512..4096), "
        "latency, bandwidth (1/4,1/2), outstanding or shared_bus (none,6/7/7/781); may be "
        "repeated, also for one name",
    )  # fmt: skip
    add_program_for(parser)
    parser.add_argument(
        "--space", metavar="NAME|FILE.toml",
        help=f"one of {', '.join(SPACES)}, or a file (default without --vary: quick)",
    )  # fmt: skip
    parser.add_argument(
        "--where", action="append", default=[], metavar="CONDITION",
        help="exclude points that do not satisfy it, such as `act_depth <= 4096 and ms < 2`; may "
        "be repeated",
    )  # fmt: skip
    add_chip(parser, "whose resources are the budget")
    parser.add_argument(
        "--minimise", metavar="NAME,...",
        help=f"figures to minimise (default: {','.join(DEFAULT_OBJECTIVES)}; for an ASIC "
        f"{','.join(ASIC_OBJECTIVES)})",
    )  # fmt: skip
    parser.add_argument(
        "--weight", action="append", default=[], metavar="MODEL=NUMBER", dest="weights",
        help="relative frequency of a network (default: 1); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--clock", type=clock_or_own, metavar="MHZ|own",
        help="clock for times, of all machines that `--seeds` has not placed; own: that of each "
        "machine on `--chip`, measured earlier or estimated (default: own with `--rate` and "
        f"`--chip`, else {DEFAULT_CLOCK_MHZ:g})",
    )  # fmt: skip
    parser.add_argument(
        "--rate", action="append", default=[], metavar="[MODEL=]N", dest="rates",
        help="find the cheapest machine that runs each network N times a second; with MODEL= and "
        "repeated, one that runs all of them in turns, each at its own rate",
    )  # fmt: skip
    parser.add_argument(
        "--exhaustive", action="store_true",
        help="compile every machine, even if its bound already decides",
    )  # fmt: skip
    parser.add_argument(
        "--search", metavar="METHOD",
        help="compile only some machines of a large space: chosen at "
        "random, by NSGA-II (nsga2), or by a model of the results so far (model)",
    )  # fmt: skip
    parser.add_argument(
        "--evaluations", type=int, metavar="N", help="with --search: machines to compile"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N",
        help="with --search: seed of the search (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--rtl", action="store_true",
        help="also run the points on the front on the simulated hardware; the first run builds a "
        "simulator for each machine, which takes minutes",
    )  # fmt: skip
    parser.add_argument(
        "--device", action="append", default=[], metavar="ADDRESS", dest="devices",
        help="what runs the programs of `--rtl`; several share them: remote://AGENT/rtl (default: "
        "this computer)",
    )  # fmt: skip
    parser.add_argument(
        "--synthesise", action="store_true",
        help="also synthesise the machines on the front for `--chip`, about a minute each; "
        "measured look-up tables and flip-flops then decide instead of estimates",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, metavar="N",
        help="also synthesise these machines and place each N times, with seeds 1 to N, minutes to "
        "hours each; their milliseconds are then those at the median clock",
    )  # fmt: skip
    parser.add_argument(
        "--database", type=Path, metavar="FILE",
        help="file that keeps every result (default: one in the cache folder)",
    )  # fmt: skip
    parser.add_argument(
        "--merge", action="append", default=[], type=Path, metavar="FILE",
        help="copy the results of another database before the sweep; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--export", action="append", default=[], type=Path, metavar="FILE",
        help="write all results of the database as .csv, .jsonl or .parquet; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--retry", action="store_true", help="retry machines that failed in an earlier sweep"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N",
        help="processes of this computer; 0 for none (default: one per core after "
        f"{PATIENCE_S:g} s of work)",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler of a cluster of yours, such as tls://host:8786",
    )
    parser.add_argument(
        "--time-limit", type=float, default=TIME_LIMIT_S, metavar="SECONDS",
        help="a machine has failed that takes longer on a network, in synthesis or in one "
        f"placement (default: {TIME_LIMIT_S:g})",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html",
        help="write a page that works offline: scatter, parallel coordinates, table",
    )  # fmt: skip
    add_serve(parser)
    add_json(parser, "the front and all points")
    parser.set_defaults(function=sweep_)


def sweep_(arguments: argparse.Namespace) -> None:
    """Sweep, and print the front; or only merge and export databases.

    Raises
    ------
    TilewrightError
        For a problem with the arguments, a model or the database.
    """
    check_json(arguments.json)
    for path in arguments.export:
        check_export(path)
    page = arguments.output
    check_output(page, f"`--output {page}`", arguments.sources, PAGE_SUFFIXES)
    if arguments.output or arguments.serve:
        plotly_source()
    check_addresses(arguments.devices, rtl=arguments.rtl)
    if arguments.rtl and not arguments.devices:
        require_tools("rtl")
    if arguments.workers is not None and arguments.workers < 0:
        raise UsageError(f"`--workers {arguments.workers}`: expected 0 or more; correct it")
    if not 0 < arguments.time_limit <= MAX_S:
        raise UsageError(
            f"`--time-limit {arguments.time_limit:g}`: expected more than 0 and at most "
            f"{MAX_S:,} seconds; correct it"
        )
    if not arguments.sources and not (arguments.merge or arguments.export):
        raise UsageError("MODEL: expected a quantised ONNX file; name one")
    description = read_description(arguments.space) if arguments.space else SpaceDescription()
    space = chosen_space(arguments, description)
    device = chosen_device(arguments, description)
    build = chosen_build(arguments, device)
    where = chosen_conditions(arguments, description, device)
    objectives = chosen_objectives(arguments, description, device)
    search = chosen_search(arguments)
    own_clock = chosen_own_clock(arguments, device)
    if arguments.clock is None:
        arguments.clock = description.clock_mhz
    clock_mhz = chosen_clock(arguments)
    weights = chosen_weights(arguments, description)
    with Database(chosen_database(arguments)) as database:
        for path in arguments.merge:
            say(f"{path}: {counted(database.merge(path), 'new result')}")
        if arguments.retry:
            database.forget()
        outcome = None
        if arguments.sources:
            if arguments.scheduler is None:
                build_in_background()  # the first workers need it
            networks = read_networks(arguments.sources, weights)
            executor = chosen_executor(arguments, [network.graph for network in networks])
            live = LivePage(render) if arguments.serve else None
            if live:
                note(f"{live.address}: watch the sweep in a browser")
            try:
                with sweep_progress() as progress:
                    outcome = sweep(
                        networks,
                        space,
                        database,
                        objectives=objectives,
                        where=where,
                        clock_mhz=clock_mhz,
                        device=device,
                        executor=executor,
                        progress=progress,
                        exhaustive=arguments.exhaustive,
                        search=search,
                        rtl=arguments.rtl,
                        build=build,
                        own_clock=own_clock,
                        watch=live and (lambda found: live.show(page_data(found))),
                    )
            finally:
                executor.close()
            if live:
                live.show(page_data(outcome), done=True)
            if arguments.output:
                text = render(page_data(outcome))
                write_output(arguments.output, text, f"`--output {arguments.output}`")
            if arguments.json:
                write_json(arguments.json, outcome_json(outcome))
            if arguments.json != "-":
                show(outcome)
                say(f"\n{database.path}: {counted(len(database), 'result')}")
                if arguments.output:
                    tell(f"{arguments.output}: open the page in a browser")
            if live and not outcome.interrupted:
                live.keep("the sweep")
        for path in arguments.export:
            say(f"{path}: {counted(export(database, path), 'result')}")
    if outcome is not None and outcome.interrupted:
        raise KeyboardInterrupt
    if outcome is not None and arguments.rtl:
        compare_with_rtl(outcome, quiet=arguments.json == "-")


def show(outcome: SweepOutcome) -> None:
    """Print the points and the front."""
    counts = outcome.counts
    names = ", ".join(network.name for network in outcome.networks)
    tell(f"networks       {names}")
    tell(f"base           {configuration_sentence(outcome.space.base)}")
    for dimension in outcome.space.dimensions:
        values = ", ".join(text_of(dimension.name, value) for value in dimension.values)
        tell(f"varied         {dimension.name}: {values}")
    if outcome.space.program_for is not None:
        tell(f"programs for   {memory_text(outcome.space.program_for)}, whatever they run with")
    for condition in outcome.where:
        tell(f"condition      {condition}")
    if outcome.search is not None:
        tell(
            f"search         {outcome.search.method}, seed {outcome.search.seed}: "
            f"{outcome.evaluated:,} of at most {counted(outcome.search.evaluations, 'machine')} "
            f"evaluated, in a space of {counted(outcome.space.combinations, 'combination')}"
        )
    tell(f"points         {len(outcome.results):,}: {states_text(counts)}")
    if outcome.rejected.count:
        tell(f"rejected       {outcome.rejected.sentence}")
    tell(
        f"programs       {outcome.compiled:,} compiled, {outcome.reused:,} known from earlier, in "
        f"{outcome.seconds:.1f} s"
    )
    failures = [result for result in outcome.results if result.state == FAILED]
    if failures:
        tell(f"first failure  {failures[0].error}")
    if excluded := exclusion_sentence(outcome):
        tell(f"excluded       {excluded}")
    tell("")
    if not outcome.front:
        for line in verdict(outcome):
            tell(line)
        return
    whose = "the front" if outcome.search is None else "the front of the evaluated machines"
    tell(f"{whose}, smallest {', '.join(outcome.objectives)}:")
    varied = list(outcome.front[0].point.chosen)
    figures = [name for name in outcome.shown if name not in varied]
    equals = equal_points(outcome)
    several = any(count > 1 for _, count in equals)
    columns = {name: [str(result.point.chosen[name]) for result, _ in equals] for name in varied}
    columns |= {
        heading_of(name): [figure_text(name, result.figures[name]) for result, _ in equals]
        for name in figures
    }
    if several:
        columns["equal"] = [str(count) for _, count in equals]
    kept = {*varied, "equal", "cycles", "ms", *map(heading_of, outcome.objectives)}
    sentences = fit(columns, kept)
    stdout().print(table(list(columns), zip(*columns.values(), strict=True), left=0))
    for sentence in sentences:
        tell(sentence)
    estimated_names = {"lut", "ff", "gates"} & {*outcome.shown, *outcome.objectives}
    machines = (result.point.machine.configuration for result in outcome.front)
    if estimated_names and (left_out := unmeasured_options(machines)):
        tell(f"estimates leave out {' and '.join(left_out)}, which no measured machine has")
    for line in outdated_sentences(outcome.unmeasured):
        tell(line)
    if outcome.build is not None:
        show_measured(outcome, outcome.build)
    for line in verdict(outcome):
        tell(line)


def fit(columns: dict[str, list[str]], kept: Collection[str]) -> list[str]:
    """Take columns out until a table is as narrow as the terminal; say which, and their values."""
    said = []

    def take_out(wanted: Callable[[list[str]], bool], text: Callable[[str, list[str]], str]) -> str:
        out: list[str] = []
        for name in reversed([name for name in columns if name not in kept]):
            widths = (max(map(len, (each, *cells))) + GAP for each, cells in columns.items())
            if sum(widths) - GAP > terminal_columns() and wanted(columns[name]):
                out.insert(0, text(name, columns.pop(name)))
        return ", ".join(out)

    if equal := take_out(
        lambda cells: len({*cells}) == 1, lambda name, cells: f"{name} {cells[0]}"
    ):
        said.append(f"in all rows: {equal}")
    if others := take_out(lambda cells: True, lambda name, cells: name):
        said.append(f"left out for lack of width: {others}; `--json FILE` has all")
    return said


def show_measured(outcome: SweepOutcome, build: Build) -> None:
    """Print what synthesis and placement measured of the front, and how far estimates were off."""
    found = {
        id(result.measured): (result.point.machine.chosen, result.measured)
        for result in outcome.front
        if result.measured is not None
    }
    missing = sum(
        result.measured is None or bool(build.seeds and not result.measured.clocks_mhz)
        for result in outcome.front
    )
    tools = " and ".join(f"{name} {number}" for name, number in tool_versions(build.device).items())
    tell(f"\nmeasured on {build.device.name} by {tools}, with the errors of the estimates:")
    names = [dimension.name for dimension in outcome.space.machine_dimensions]
    rows = [
        [
            *(chosen[name] for name in names),
            *(count_text(measured, name) for name in build.counted),
            *(clock_texts(measured, build) if build.seeds else ()),
        ]
        for chosen, measured in found.values()
    ]
    headings = [*names, *build.counted, *(("clock", "range", "seeds") if build.seeds else ())]
    stdout().print(table(headings, rows, left=0))
    if missing:
        tell(f"not measured yet: {counted(missing, 'point')} on the front")


def clock_texts(measured: DesignFigures, build: Build) -> tuple[str, str, str]:
    """Return the median clock, its range, and the number of seeds that have one."""
    clocks = measured.clocks_mhz.values()
    seeds = f"{len(clocks)} of {len(build.seeds)}"
    if not clocks:
        return "", "", seeds
    return f"{measured.clock_mhz:.1f} MHz", f"{min(clocks):.1f} to {max(clocks):.1f}", seeds


def count_text(measured: DesignFigures, name: str) -> str:
    """Return a measured resource with the error of what was expected."""
    off = measured.off.get(name, 0.0)
    return f"{measured.counts[name]:,} ({f'{off:+.1%}' if off else 'exact'})"


def equal_points(outcome: SweepOutcome) -> list[tuple[PointResult, int]]:
    """Group the front by equal objectives; return the first point and the size of each group."""
    groups: dict[tuple[object, ...], list[PointResult]] = {}
    for result in outcome.front:
        values = (result.figures[name] for name in outcome.objectives)
        groups.setdefault((id(result.point.setting), *values), []).append(result)
    return [(found[0], len(found)) for found in groups.values()]


def compare_with_rtl(outcome: SweepOutcome, *, quiet: bool) -> None:
    """Compare the cycles of the front with those of the RTL.

    Raises
    ------
    HardwareError
        If they differ, or the RTL did not run.
    """
    for result in outcome.front:
        if result.error or result.rtl != result.cycles:
            raise HardwareError(
                f"machine `{result.point.machine.configuration.name}`: expected {result.cycles} "
                f"cycles on the RTL, got {result.error or result.rtl}; this is a fault of "
                "Tilewright: report it"
            )
    if not quiet:
        tell(f"RTL: the same cycles there for {counted(len(outcome.front), 'point')} on the front")


def states_text(counts: dict[str, int]) -> str:
    """Return the numbers of points in each state as text."""
    return ", ".join(f"{counts[state]:,} {STATE_TEXTS[state]}" for state in STATES if counts[state])


STATE_TEXTS = {
    "front": "on the front",
    "beaten": "beaten",
    "ruled out": "ruled out by their lower bound",
    "excluded": "excluded by a condition",
    "failed": "failed",
    "open": "not reached",
}
"""Names of the states in the summary."""


def figure_text(name: str, value: float) -> str:
    """Return a figure as text for a table."""
    if name == "of_peak":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value == int(value) else three_digits(value)
