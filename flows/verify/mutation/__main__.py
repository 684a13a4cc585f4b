"""The command `python -m tilewright.flows.verify.mutation`, which prints a mutation score."""

import argparse
import os
import sys

from ....errors import TilewrightError, UsageError
from ....isa.settings import load_configuration
from ...cli.json_output import write_json
from .hardware import score_hardware
from .outcome import Score, print_score
from .software import score_checker, score_timing

COMMAND = "python -m tilewright.flows.verify.mutation"


def main(arguments: list[str] | None = None) -> int:
    """Draw faults, try them, print the score and the survivors."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.mutation", description=__doc__
    )
    parser.add_argument(
        "--target", default="hardware", choices=("hardware", "checker", "timing"),
        help="target of the faults (default hardware)",
    )  # fmt: skip
    parser.add_argument("--configuration", default="tiny", help="preset or JSON file (tiny)")
    parser.add_argument("--faults", type=int, default=320, help="how many (320)")
    parser.add_argument("--seed", type=int, default=1, help="which faults (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="SECONDS",
        help="seconds after which no new fault starts",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all outcomes here, `-` for stdout")
    options = parser.parse_args(arguments)
    try:
        if options.faults < 1 or options.jobs < 1:
            raise UsageError("`--faults` and `--jobs` must be at least 1")
        score = _score(options)
        if options.json != "-":
            print_score(score)
        if options.json:
            write_json(options.json, score.to_dict())
    except TilewrightError as problem:
        print(f"mutation: {problem}", file=sys.stderr)
        return 1
    return 0


def _score(options: argparse.Namespace) -> Score:
    limits = {"jobs": options.jobs, "budget_s": options.budget}
    if options.target == "checker":
        return score_checker(options.faults, options.seed, **limits)
    if options.target == "timing":
        return score_timing(options.faults, options.seed, **limits)
    configuration = load_configuration(options.configuration)
    return score_hardware(configuration, options.faults, options.seed, **limits)


if __name__ == "__main__":
    sys.exit(main())
