"""`tilewright conformance`: run ONNX's own operator tests, and count the results by cause."""

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from ....atomic_write import write_output
from ....errors import TilewrightError, UsageError
from ....wording import counted
from ...conformance.cases import (
    CRASHED,
    OUTCOMES,
    PASSED,
    WRONG,
    CaseResult,
    by_cause,
    count_outcomes,
    load_cases,
    render,
    run_cases,
)
from ...conformance.kernel_cases import KernelRunner
from ...reports import terminal as report
from ..json_output import add_json, check_json, write_json
from ..progress import progress_bar

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "conformance.md"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--match", default="", metavar="TEXT",
        help="cases whose names contain it, such as `conv` or `LayerNormalization`",
    )  # fmt: skip
    add_json(parser, "every case's outcome")
    parser.add_argument(
        "--kernels", action="store_true",
        help="behind the front end, by kernels of this processor where there are some",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(function=conformance)


def conformance(arguments: argparse.Namespace) -> None:
    """Run the cases and print counts and causes.

    Raises
    ------
    UsageError
        For arguments that conflict, or a text that occurs in no case's name.
    TilewrightError
        If a case crashes or gives a wrong result.
    """
    check_json(arguments.json)
    if arguments.write and arguments.match:
        raise UsageError(
            f"`--match {arguments.match}`: expected all cases with `--write`, got some; leave one "
            "of them out"
        )
    with progress_bar() as advance:
        advance("making ONNX's test cases", 0, None)
        cases = load_cases(arguments.match)
        if not cases:
            raise UsageError(f"`--match {arguments.match}`: no case has that in its name")
        results = []
        kernels = KernelRunner() if arguments.kernels else None
        for index, result in enumerate(run_cases(cases, kernels=kernels)):
            advance(result.name, index, len(cases))
            results.append(result)
    if arguments.write:
        write_output(PAGE, render(results), f"`{PAGE}`")
        report.say(f"wrote {PAGE}")
    if arguments.json:
        write_json(arguments.json, to_json(results))
    if arguments.json != "-":
        show(results)
        if arguments.kernels:
            report.say(kernels_sentence(results))
    faults = [result for result in results if result.outcome in (WRONG, CRASHED)]
    if faults:
        raise TilewrightError(
            f"{len(faults)} of {len(results)} cases: expected a right result or a refusal, got a "
            f"wrong one or a crash (the first: `{faults[0].name}`); this is a fault of Tilewright: "
            "report it"
        )


def kernels_sentence(results: list[CaseResult]) -> str:
    """Return a sentence about the number of cases that used kernels, and of kernels."""
    cases = sum(result.kernels > 0 for result in results)
    passed = sum(result.outcome == PASSED for result in results)
    right = sum(result.kernels > 0 and result.outcome == PASSED for result in results)
    total = sum(result.kernels for result in results)
    return (
        f"{counted(total, 'kernel')} took part in {counted(cases, 'case')}; {right:,} of the "
        f"{passed:,} that passed used them"
    )


def to_json(results: list[CaseResult]) -> dict[str, object]:
    """Return the results as JSON values."""
    return {**count_outcomes(results), "cases": [asdict(result) for result in results]}


def show(results: list[CaseResult]) -> None:
    """Print the counts and a table by cause."""
    counts, causes = count_outcomes(results), by_cause(results)
    table = Table("cause", "cases", "one of them")
    for cause, found in causes.items():
        table.add_row(cause, str(len(found)), f"{found[0].name}: {found[0].message}")
    if causes:
        report.stdout().print(table)
    shares = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES)
    report.say(f"{len(results):,} cases: {shares} ({counts[PASSED] / len(results):.1%} pass)")
