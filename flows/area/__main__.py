"""Measure what has changed, and fit the area model: `python -m tilewright.flows.area`."""

import argparse
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from ...atomic_write import write_output
from ...hardware.technology import Technology
from ..cli.main import guarded
from .fit import errors_table, fit_or_scale
from .model import DATA
from .provenance import MODEL, note_sources
from .rows import AreaRow, measure, read_rows, write_rows
from .samples import first_samples

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "synthesis.md"
"""Shows the errors."""


def coefficients(rows: Sequence[AreaRow]) -> str:
    """Return the text of the model's file: for each technology date, rows, errors and factors."""
    model = {}
    for technology in Technology:
        own = [row for row in rows if row.technology is technology]
        if own:
            tools = {f"{name} {number}" for row in own for name, number in row.tools.items()}
            model[technology.value] = {
                "date": date.today().isoformat(),
                "rows": len(own),
                "rtl": sorted({row.rtl for row in own}),
                "tools": sorted(tools),
                **fit_or_scale(technology, own, model),
            }
    return json.dumps(model, indent=1) + "\n"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.flows.area", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=0, metavar="N",
        help="also measure the first N samples; without it, only rows that exist",
    )  # fmt: skip
    parser.add_argument(
        "--chip", metavar="NAME",
        help="measure rows of this device only; of the samples, those that fit it (default: all "
        "rows, and samples on ECP5s of several sizes)",
    )  # fmt: skip
    parser.add_argument(
        "--fit", action="store_true", help="fit the rows as they are, and measure nothing"
    )
    arguments = parser.parse_args()
    rows = read_rows()
    if not arguments.fit:
        samples = first_samples(arguments.rows, arguments.chip)
        names = {(configuration.name, chip) for configuration, chip in samples}
        samples += [
            (row.machine, row.device)
            for row in rows
            if row.key not in names and arguments.chip in (None, row.device)
        ]
        measure(samples, rows, write_rows, lambda line: print(line, flush=True))
        rows = read_rows()
        if arguments.chip is None:
            note_sources(MODEL)
    text = coefficients(rows)
    before, after = (errors_table(json.loads(each)) for each in (DATA.read_text("utf-8"), text))
    write_output(DATA, text, f"`{DATA}`")
    write_output(PAGE, PAGE.read_text("utf-8").replace(before, after), f"`{PAGE}`")
    print(f"errors on machines that the fit did not see:\n\n{after}", end="")


if __name__ == "__main__":
    raise SystemExit(guarded(main))
