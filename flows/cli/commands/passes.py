"""`tilewright passes`: show the effect of each pass of the front end on a model."""

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ....compiler.frontend import RECIPE, recognise_layers
from ....compiler.graph import Graph, evaluate, is_accelerated, print_graph
from ....compiler.importers import import_onnx
from ....errors import UsageError, did_you_mean
from ...execution.quantise_model import quantise_model
from ...execution.samples import random_samples, read_samples
from ...reports import terminal as report
from ..arguments import add_json, progress_bar
from ..calibration_options import add_calibration, chosen_calibration
from ..input_options import add_fixes, chosen_overrides
from ..json_output import check_json, write_json

IMPORTED = "import"
"""Name of the graph before the first pass."""


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
    """Add the arguments."""
    parser.add_argument("source", type=Path, metavar="MODEL", help="ONNX file")
    add_fixes(parser)
    parser.add_argument(
        "--print-after", metavar="PASS",
        help=f"print the graph after a pass, by name or position (`{IMPORTED}` or 0: before all)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", action="store_true", help="compute the graph after each pass and compare"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="for --compare: .npz or .npy")
    add_json(parser, "the table")
    add_calibration(parser)
    parser.set_defaults(function=passes)


def passes(arguments: argparse.Namespace) -> None:
    """Print a row for each pass, or the graph after one pass.

    Raises
    ------
    TilewrightError
        For a problem with the model, the input or the pass.
    """
    check_json(arguments.json)
    last, overrides = _position(arguments.print_after), chosen_overrides(arguments)
    if calibration := chosen_calibration(arguments):
        with progress_bar() as advance:
            made = quantise_model(
                arguments.source, calibration, lambda text: advance(text, 0, None), overrides
            )
        graph = made.result.graph
    else:
        graph = import_onnx(arguments.source, fixed=overrides.fixed, dims=overrides.dims)
    inputs: Mapping[str, np.ndarray] = {}
    if arguments.compare or arguments.input:
        given = arguments.input
        samples = read_samples(given, graph) if given else random_samples(graph, 1, seed=0)
        inputs = next(iter(samples))
    results, after = follow(graph, inputs, last)
    if arguments.json:
        write_json(arguments.json, [asdict(result) for result in results])
    elif arguments.print_after is not None:
        report.say(print_graph(after).rstrip())
    else:
        report.stdout().print(_table(results))


def follow(
    graph: Graph, inputs: Mapping[str, np.ndarray] | None = None, last: int = len(RECIPE)
) -> tuple[list[PassResult], Graph]:
    """Apply the first `last` passes; return the result of each, and the last graph.

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
    return results, recognise_layers(graph, last, tell)


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


def _position(name: str | None) -> int:
    """Return the number of passes to apply.

    Raises
    ------
    UsageError
        For an unknown pass; the message lists those that exist.
    """
    names = [IMPORTED, *(step.__name__ for step in RECIPE)]
    if name is None:
        return len(RECIPE)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    if name not in names:
        listed = ", ".join(f"`{one}`" for one in dict.fromkeys(names))
        raise UsageError(
            f"`--print-after {name}`: expected a position from 0 to {len(RECIPE)} or one of "
            f"{listed}" + did_you_mean(name, names, "; `tilewright passes MODEL` lists them")
        )
    return len(names) - 1 - names[::-1].index(name)


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
