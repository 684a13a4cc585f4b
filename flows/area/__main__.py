"""Measure what has changed, and fit the area model: `python -m tilewright.flows.area`."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from datetime import date

from ...atomic_write import write_output
from ..cli.main import guarded
from .fit import error_sentence, fit
from .model import DATA, ESTIMATED
from .rows import Row, measure, read_rows, write_rows
from .samples import first_samples


def coefficients(rows: Sequence[Row]) -> str:
    """Return the text of the model's file: date, rows, tools, errors and factors."""
    found = fit(rows)
    rtl = Counter(row.rtl for row in rows)
    tools = sorted({f"{name} {number}" for row in rows for name, number in row.tools.items()})
    about = {"date": date.today().isoformat(), "family": "ecp5", "rows": len(rows)}
    return json.dumps({**about, "rtl": sorted(rtl), "tools": tools, **found}, indent=1) + "\n"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.flows.area", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=0, metavar="N",
        help="also measure the first N samples; without it, only rows that exist",
    )  # fmt: skip
    parser.add_argument(
        "--fit", action="store_true", help="fit the rows as they are, and measure nothing"
    )
    arguments = parser.parse_args()
    rows = read_rows()
    if not arguments.fit:
        samples = first_samples(arguments.rows)
        names = {(configuration.name, chip) for configuration, chip in samples}
        samples += [
            (row.machine, row.device)
            for row in rows
            if (row.configuration, row.device) not in names
        ]
        rows = measure(samples, rows, write_rows, lambda line: print(line, flush=True))
        write_rows(rows)
    text = coefficients(rows)
    write_output(DATA, text, f"`{DATA}`")
    for resource in ESTIMATED:
        print(error_sentence(json.loads(text)["errors"], resource))


if __name__ == "__main__":
    raise SystemExit(guarded(main))
