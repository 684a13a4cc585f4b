"""What a run looks like in the terminal: tables and sentences, on stdout."""

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...compiler.module import Module
from ...runtime.compare import Comparison, Tally
from ...runtime.profile import ACCELERATOR, CPU, HOST, LayerProfile, Profile
from ..cli.console import configuration_sentence as configuration_sentence
from ..cli.console import say as say
from ..execution.samples import Samples

TABLE_COLUMNS = 200
"""More than any table has, so that a narrow terminal wraps lines rather than cutting numbers."""

NAME_COLUMNS = 14, 34
"""Least and most columns of a layer's name, as the terminal has room."""

OPERATOR_COLUMNS = 20
"""Most columns of the operators of a layer's nodes."""

NUMBER_COLUMNS = 90
"""What the per-layer table needs beside names and operators."""


class _Results(Console):
    """Lets the command line see that the reader of a pipe went away; Rich would exit by itself."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """A console for results; nothing in them is taken for markup."""
    return _Results(file=sys.stdout, width=TABLE_COLUMNS, markup=False, highlight=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table with its first `left` columns left-aligned, the others right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        if index < left:
            made.add_column(heading, overflow="ellipsis", no_wrap=True)
        else:
            made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def layer_table(profile: Profile) -> Table:
    """The per-layer table with totals."""
    unstalled = profile.cycles is not None and not profile.exact
    cycles = "cycles (no stalls)" if unstalled else "cycles"
    headings = ["layer", "operator", "target", "host us", cycles, "MACs", "use"]
    headings += ["read", "written", "instr."]
    least, most = NAME_COLUMNS
    operators = max((len(layer.op) for layer in profile.layers), default=0)
    taken = NUMBER_COLUMNS + min(operators, OPERATOR_COLUMNS)
    room = shutil.get_terminal_size((taken + most, 0)).columns - taken
    width = max(least, min(most, room))
    rows = [_layer_row(layer, width) for layer in profile.layers]
    made = table(headings, rows, left=3)
    made.add_section()
    made.add_row(
        Text("total"), Text(""), Text(""), *(Text(cell) for cell in _total_cells(profile)),
        style="bold",
    )  # fmt: skip
    return made


def _layer_row(layer: LayerProfile, width: int) -> list[str]:
    name, op = shorten(layer.short, width), shorten(layer.op, OPERATOR_COLUMNS, "+")
    if layer.target != ACCELERATOR:
        macs = grouped(layer.macs) if layer.macs else "-"
        return [name, op, layer.target, microseconds(layer), "-", macs, *["-"] * 4]
    return [
        name,
        op,
        layer.target,
        "-",
        grouped(layer.cycles),
        grouped(layer.macs) if layer.macs else "-",
        percent(layer.utilisation) if layer.macs else "-",
        grouped(layer.read_bytes),
        grouped(layer.written_bytes),
        grouped(layer.instructions),
    ]


def microseconds(*layers: LayerProfile) -> str:
    """What layers of the host took together; a dash where nobody looked at the clock."""
    times = [layer.microseconds for layer in layers if layer.microseconds is not None]
    return f"{sum(times):,.0f}" if times else "-"


def _total_cells(profile: Profile) -> list[str]:
    accelerated = any(layer.target == ACCELERATOR for layer in profile.layers)
    moved = (profile.read_bytes, profile.written_bytes, profile.instructions)
    return [
        microseconds(*profile.layers),
        grouped(profile.cycles),
        grouped(profile.all_macs),
        percent(profile.utilisation),
        *(grouped(count) if accelerated else "-" for count in moved),
    ]


def shorten(text: str, width: int, joint: str = " + ") -> str:
    """A text of at most `width` characters: of joined names the outer ones, of one name its end."""
    first, *others = text.split(joint)
    choices = [text, *(joint.join((first, "…", *last)) for last in (others[-1:], ()) if others)]
    fitting = (choice for choice in choices if len(choice) <= width)
    return next(fitting, "…" + text[1 - width :])


def grouped(number: int | None) -> str:
    """A whole number in groups of three digits; a dash for None."""
    return "-" if number is None else f"{number:,}"


def percent(share: float | None) -> str:
    """A share of one in per cent; a dash for None."""
    return "-" if share is None else f"{share:.1%}"


def host_sentence(profile: Profile) -> str:
    """Which steps the host runs, and how many of each, in words."""
    targets = Counter(layer.target for layer in profile.layers)
    accelerated = targets[ACCELERATOR]
    if accelerated == len(profile.layers):
        return f"all {accelerated} layers on the accelerator"
    there = f"{accelerated} layers" if accelerated else "nothing"
    parts = []
    for target, way in ((CPU, "as kernels"), (HOST, "in NumPy")):
        counts = Counter(layer.op for layer in profile.layers if layer.target == target)
        if counts:
            listed = ", ".join(f"{op} ({n})" if n > 1 else op for op, n in counts.items())
            parts.append(f"{way}: {listed}")
    return f"{there} on the accelerator; on the host, {'; '.join(parts)}"


def agreement(outputs: np.ndarray, samples: Samples) -> dict[str, float]:
    """Accuracy, and the share of outputs that equal those of the input file.

    Parameters
    ----------
    outputs
        [samples, ...]: the network's first output.

    Returns
    -------
    dict
        `accuracy` where labels are known; where outputs are, `equal_samples` and `equal_values` as
        shares, and `sqnr_db`, the ratio of signal to noise, for floats that are not all equal.
    """
    found: dict[str, float] = {}
    flat = outputs.reshape(len(outputs), -1)
    if samples.labels is not None and samples.labels.ndim == 1:
        found["accuracy"] = float(np.mean(flat.argmax(axis=1) == samples.labels))
    if samples.outputs is not None:
        expected = samples.outputs.reshape(len(samples.outputs), -1)
        if expected.shape == flat.shape:
            same = flat == expected
            found["equal_samples"] = float(np.mean(same.all(axis=1)))
            found["equal_values"] = float(np.mean(same))
            noise = np.square(flat.astype(np.float64) - expected).sum()
            if flat.dtype.kind == "f" and noise and expected.any():
                signal = np.square(expected.astype(np.float64)).sum()
                found["sqnr_db"] = float(10 * np.log10(signal / noise))
    return found


def agreement_sentences(found: dict[str, float], count: int) -> list[str]:
    """`agreement` in words."""
    lines = []
    if "accuracy" in found:
        lines.append(f"accuracy: {found['accuracy']:.2%} of {count} labels")
    if "equal_samples" in found:
        lines.append(
            f"outputs equal to the input file's: {found['equal_samples']:.2%} of {count} samples, "
            f"{found['equal_values']:.3%} of all values"
        )
    if "sqnr_db" in found:
        lines.append(f"signal to noise of the outputs beside those: {found['sqnr_db']:.1f} dB")
    return lines


def _equal(tallies: Sequence[Tally]) -> str:
    return f"{sum(not tally.differing for tally in tallies)} of {len(tallies)}"


def comparison_sentences(comparison: Comparison, module: Module) -> list[str]:
    """What was compared, and how it came out."""
    layers = [tally for tally in comparison.layers.values() if tally.values]
    kernels = [tally for tally in comparison.kernels.values() if not tally.tolerance]
    rounded = [tally for tally in comparison.kernels.values() if tally.tolerance]
    compared = {"accelerator layers": layers, "host kernels": kernels}
    counts = [f"{_equal(tallies)} {what}" for what, tallies in compared.items() if tallies]
    values = [*layers, *kernels, *comparison.outputs.values()]
    said = f"reference: {_equal(values)} outputs"
    if counts:
        said = f"integer reference: {' and '.join(counts)}"
    lines = [
        f"{said} equal in every "
        f"value of {comparison.samples} sample{'s' * (comparison.samples != 1)} "
        f"({grouped(sum(tally.values for tally in values))} values, outputs included)"
    ]
    if rounded:
        lines.append(
            f"kernels that round in another order: {_equal(rounded)} near the definition, at most "
            f"{max(tally.largest for tally in rounded):.1g} of the largest magnitude apart"
        )
    if comparison.not_kept:
        plural = "s" * (len(comparison.not_kept) != 1)
        lines.append(
            f"not compared: {len(comparison.not_kept)} layer{plural} of `{module.name}` whose "
            "memory later layers reuse; compile with `--keep-all` to compare all"
        )
    if inside := comparison.on_chip:
        plural = "s" * (len(inside) != 1)
        lines.append(
            f"not compared by themselves: {len(inside)} node{plural} inside fused layers, whose "
            "values stay on chip; what their layers give was compared"
        )
    for tally in comparison.windows.values():
        verdict = "equal" if not tally.differing else f"{tally.differing} bytes differ"
        lines.append(f"{tally.name}: {grouped(tally.values)} bytes, {verdict}")
    return lines
