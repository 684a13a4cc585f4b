"""Integer meanings of softmax, norms, activations and cells compared with ONNX Runtime.

Each row is a QDQ graph, run without graph optimisation, and the integer meaning on the same bytes.
`--model` adds the values that reach the softmax and the norms of a float network. Recurrent cells
are compared with float ones, since ONNX has no quantised form of them.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ....errors import TilewrightError, UsageError
from .cases import Agreement, draw_all
from .cells import CellQuality, draw_cells
from .networks import compare_network


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a meaning agrees less than it must."""
    options = _parser().parse_args(arguments)
    try:
        if options.rows < 1 or options.steps < 1 or options.count < 1:
            raise UsageError("`--rows`, `--steps` and `--count` must be at least 1")
        if len(options.model) != len(options.samples):
            raise UsageError("expected one `--samples` for each `--model`")
        found = list(draw_all(options.seed, options.rows))
        for model, samples in zip(options.model, options.samples, strict=True):
            found += compare_network(model, samples, options.count)
        cells = draw_cells(options.seed, options.steps)
    except TilewrightError as problem:
        print(f"meanings: {problem}", file=sys.stderr)
        return problem.exit_code
    console = Console(width=100)
    console.print(agreement_table(found))
    console.print(cell_table(cells))
    if low := [each.name for each in (*found, *cells) if not each.holds]:
        print(f"meanings: too far from ONNX Runtime: {'; '.join(low)}", file=sys.stderr)
        return 1
    print("meanings: all agree with ONNX Runtime as far as they must")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.meanings", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=2000, help="drawn rows (default 2000)")
    parser.add_argument("--steps", type=int, default=400, help="of a sequence (default 400)")
    parser.add_argument("--seed", type=int, default=0, help="of the drawn values (default 0)")
    for name, text in (("model", "a float network"), ("samples", "its inputs, .npz or .npy")):
        parser.add_argument(f"--{name}", type=Path, action="append", default=[], help=text)
    parser.add_argument("--count", type=int, default=8, help="samples to use (default 8)")
    return parser


def agreement_table(found: Iterable[Agreement]) -> Table:
    """Table of the comparisons with QDQ graphs."""
    out = Table(title="Integer meanings and ONNX Runtime's QDQ graphs")
    out.add_column("meaning")
    for name in ("values", "equal", "required", "largest difference"):
        out.add_column(name, justify="right")
    for one in found:
        shares = f"{one.equal:.3%}", f"{one.required:.1%}"
        out.add_row(one.name, f"{one.values:,}", *shares, str(one.largest))
    return out


def cell_table(cells: Iterable[CellQuality]) -> Table:
    """Table of the recurrent cells."""
    out = Table(title="Recurrent cells in int8 and ONNX Runtime's in float")
    out.add_column("cell")
    for name in ("values", "SNR dB", "equal", "within 1"):
        out.add_column(name, justify="right")
    for one in cells:
        shares = f"{one.equal:.1%}", f"{one.near:.1%}"
        out.add_row(one.name, f"{one.values:,}", f"{one.snr_db:.1f}", *shares)
    return out


if __name__ == "__main__":
    sys.exit(main())
