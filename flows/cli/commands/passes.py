"""`tilewright passes`: show what each pass and each later stage makes of a model."""

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ....compiler.frontend import RECIPE, recognise_layers
from ....compiler.graph import Graph, evaluate, is_accelerated
from ....compiler.importers import import_onnx
from ....compiler.pipeline import CompileRequest
from ....compiler.pipeline.describe import STAGES
from ....compiler.placement import DEFAULT_COSTS
from ....errors import UsageError
from ....isa.configuration import DEFAULT
from ...execution.quantise_model import quantise_model
from ...execution.samples import random_samples, read_samples
from ...execution.stages import (
    IMPORTED,
    STAGE_NAMES,
    PrintedStage,
    changes,
    stage_position,
    stages_of,
)
from ...reports import terminal as report
from ..arguments import USUAL_OR_BOARDS, add_configuration, chosen_configuration, compile_placed
from ..calibration_options import add_calibration, chosen_calibration
from ..input_options import add_fixes, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, memory_model
from ..operator_options import add_operators
from ..placement_options import add_placement, chosen_placing
from ..progress import progress_bar
from ..schedule_options import add_schedule, by_whole_name, chosen_schedules


@dataclass(frozen=True, slots=True)
class PassResult:
    """A graph after a pass.

    Parameters
    ----------
    position : int
        Position of the pass; 0 for the import.
    name : str
        Name of the pass's function.
    seconds : float
        Time of the pass, without the comparison.
    nodes, accelerated : int
        Number of nodes, and of those that the accelerator may run.
    difference : float or None
        Largest difference of an output from the imported graph's; None if not compared. Passes
        that recognise integer layers change the rounding. All others must give 0.
    """

    position: int
    name: str
    seconds: float
    nodes: int
    accelerated: int
    difference: float | None = None


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file")
    add_configuration(parser, USUAL_OR_BOARDS)
    add_operators(parser)
    add_fixes(parser)
    parser.add_argument(
        "--until", metavar="STAGE",
        help=f"print the network after a stage: `{IMPORTED}`, a pass by name or position, or one "
        f"of {', '.join(STAGES)}; `linked` is the program",
    )  # fmt: skip
    parser.add_argument(
        "--layer", metavar="NAME", help="show only this layer: its name or that of one of its nodes"
    )
    parser.add_argument(
        "--diff", action="store_true",
        help="print what the stage changed; without --until, what each stage changed",
    )  # fmt: skip
    parser.add_argument(
        "--compare", action="store_true", help="compute the graph after each pass and compare"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="for --compare: .npz or .npy")
    add_json(parser, "the table, or the lines of the stages")
    add_placement(parser, table=False)
    add_calibration(parser)
    add_memory(parser, "main memory")
    add_schedule(parser)
    parser.set_defaults(function=passes)


def passes(arguments: argparse.Namespace) -> None:
    """Print one row per pass, or the network after one stage.

    Raises
    ------
    TilewrightError
        For a problem with the model, the input, the stage or the layer.
    """
    check_json(arguments.json)
    for chosen in (chosen_configuration, memory_model):
        chosen(arguments)  # the table needs none, but a wrong value is told
    shown = arguments.until or arguments.layer or arguments.diff
    last = _last_stage(arguments) if shown else 0
    if not chosen_placing(arguments).is_default and last < stage_position(STAGES[0]):
        option = "--place" if arguments.place else "--placement"
        raise UsageError(
            f"`{option}`: expected a stage in which layers have a side, such as `--until "
            f"{STAGES[0]}`; add it, or leave `{option}` out"
        )
    if arguments.given and last < stage_position("scheduled"):
        raise UsageError(
            "`--schedule`: expected a stage in which layers have schedules, such as `--until "
            "scheduled`; add it, or leave `--schedule` out"
        )
    if shown:
        _show_stages(arguments)
    else:
        _show_table(arguments)


def _show_table(arguments: argparse.Namespace) -> None:
    graph = _imported(arguments)
    inputs: Mapping[str, np.ndarray] = {}
    if arguments.compare or arguments.input:
        given = arguments.input
        samples = read_samples(given, graph) if given else random_samples(graph, 1, seed=0)
        inputs = next(iter(samples))
    results = follow(graph, inputs)
    if arguments.json:
        write_json(arguments.json, [asdict(result) for result in results])
    else:
        report.stdout().print(_table(results))


def _show_stages(arguments: argparse.Namespace) -> None:
    if arguments.compare or arguments.input:
        option = "--compare" if arguments.compare else "--input"
        raise UsageError(f"`{option}`: expected no --until, --layer or --diff; leave it out")
    last, placing = _last_stage(arguments), chosen_placing(arguments)
    configuration, memory = chosen_configuration(arguments) or DEFAULT, memory_model(arguments)
    given, graph = chosen_schedules(arguments), _imported(arguments)
    if given:
        module = compile_placed(
            recognise_layers(graph),
            configuration,
            placing,
            keep_all=False,
            memory=memory,
            expected=tuple(given),
        )
        given = by_whole_name(module, given)

    def request(graph: Graph) -> CompileRequest:
        costs = placing.costs() if placing.policy == "cost" else DEFAULT_COSTS
        return CompileRequest(
            graph=graph, configuration=configuration, memory=memory,
            placement=placing.placement(), costs=costs, schedules=given,
        )  # fmt: skip

    with progress_bar() as advance:
        stages = stages_of(
            graph, last, request, arguments.layer, lambda step: advance(step, 0, None)
        )
    if not arguments.diff:
        shown = {_heading(stages[last]): stages[last].lines}
    else:
        pairs = list(pairwise(stages))[last - 1 if arguments.until else 0 :]
        shown = {_heading(after): list(changes(before, after)) for before, after in pairs}
    if arguments.json:
        found = [{"stage": name, "lines": lines} for name, lines in shown.items()]
        write_json(arguments.json, found)
        return
    for name, lines in shown.items():
        if lines and len(shown) > 1:
            report.say(f"== {name}")
        for line in lines:
            report.say(line)


def _last_stage(arguments: argparse.Namespace) -> int:
    return stage_position(arguments.until) if arguments.until else len(STAGE_NAMES) - 1


def _heading(stage: PrintedStage) -> str:
    return f"{stage.position} {stage.name}"


def _imported(arguments: argparse.Namespace) -> Graph:
    overrides = chosen_overrides(arguments)
    calibration = chosen_calibration(arguments)
    if calibration is None:
        return import_onnx(arguments.source, **overrides.of_import)
    with progress_bar() as advance:
        made = quantise_model(
            arguments.source, calibration, lambda text: advance(text, 0, None), overrides
        )
    return made.result.graph


def follow(
    graph: Graph, inputs: Mapping[str, np.ndarray] | None = None, last: int = len(RECIPE)
) -> list[PassResult]:
    """Apply the first `last` passes; return the result of each.

    Parameters
    ----------
    graph : Graph
        The graph as imported.
    inputs : mapping or None
        One sample with which every graph is computed; None for no comparison.
    """
    expected = evaluate(graph, inputs) if inputs else {}
    results = []
    before = time.perf_counter()

    def tell(position: int, name: str, now: Graph) -> None:
        nonlocal before
        seconds = time.perf_counter() - before
        difference = _difference(expected, evaluate(now, inputs)) if inputs else None
        accelerated = sum(map(is_accelerated, now.nodes))
        results.append(PassResult(position, name, seconds, len(now.nodes), accelerated, difference))
        before = time.perf_counter()

    tell(0, IMPORTED, graph)
    recognise_layers(graph, last, tell)
    return results


def _difference(expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference of any output; equal infinities and NaNs do not differ."""
    largest = 0.0
    for name, array in expected.items():
        one, other = array.astype(np.float64), got[name].astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(one - other))
        largest = max(largest, float(apart.max(initial=0.0)))
    return largest


def _table(results: list[PassResult]):
    rows = [
        (
            str(result.position),
            result.name,
            str(result.nodes),
            str(result.accelerated),
            f"{1000 * result.seconds:.1f}",
            "-" if result.difference is None else f"{result.difference:.3g}",
        )
        for result in results
    ]
    headings = ["", "pass", "nodes", "integer layers", "ms", "largest difference"]
    return report.table(headings, rows, left=2)
