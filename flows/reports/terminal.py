"""Tables and sentences about a run, for the terminal."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from ...compiler.module import Module
from ...quoting import printable
from ...runtime.compare import Comparison, Tally
from ...runtime.profile import ACCELERATOR, GPU, HOST, NUMPY, LayerProfile, Profile
from ...wording import counted, three_digits
from ..cli.console import configuration_sentence as configuration_sentence
from ..cli.console import say as say
from ..cli.tables import GAP, terminal_columns
from ..cli.tables import stdout as stdout
from ..cli.tables import table as table
from ..execution.samples import Samples

NAME_COLUMNS = 14, 40
"""Fewest and most columns of a layer's name."""

OPERATOR_COLUMNS = 10, 20
"""Fewest and most columns of the operators of a layer's nodes."""

LAYOUTS = (True, 7, True), (False, 7, True), (False, 6, True), (False, 6, False)
"""Layouts of the per-layer table, widest first: whether counts are exact, the number of columns
after the names, and whether operators come before these columns. The first that fits is used."""

RESHAPE = "reshape"

TARGETS = {ACCELERATOR: "accel"}
"""Short names of targets in tables."""


def layer_table(profile: Profile) -> Table:
    """The per-layer table with totals, as wide as the terminal.

    Reshapes that cost nothing are left out; `free_sentence` counts them. On a narrow terminal,
    counts are rounded, then instructions are omitted, then operators.
    """
    layers = [layer for layer in profile.layers if not is_free(layer)]
    cycles = "cycles" if profile.cycles is None or profile.exact else "cycles (no stalls)"
    headings = ["target", cycles, "MACs", "use", "read", "written", "instr."]
    if not any(layer.target == ACCELERATOR for layer in layers):
        headings = ["target", "time", "MACs"]
    room, readable = terminal_columns(), 24
    longest = min(readable, max((len(layer.short) for layer in layers), default=0))
    for exact, columns, with_operator in LAYOUTS:
        columns = min(columns, len(headings))
        numbers = [_layer_cells(layer, exact)[:columns] for layer in layers]
        numbers.append(_total_cells(profile, exact)[:columns])
        widths = [max(map(len, column)) for column in zip(headings, *numbers, strict=False)]
        left = room - sum(width + GAP for width in widths) - with_operator * GAP
        if left >= (longest if exact else NAME_COLUMNS[0]) + with_operator * OPERATOR_COLUMNS[0]:
            break
    operator = name = 0
    if with_operator:
        widest = max((len(layer.op) for layer in layers), default=0)
        spare = min(left - readable, OPERATOR_COLUMNS[1])
        operator = min(widest, max(OPERATOR_COLUMNS[0], spare))
    name = max(NAME_COLUMNS[0], min(NAME_COLUMNS[1], left - operator))
    made = table(
        ["layer", *["operator"] * with_operator, *headings[:columns]], (), left=2 + with_operator
    )
    for layer, cells in zip(layers, numbers, strict=False):
        ops = [shorten(layer.op, operator, "+")] * with_operator
        made.add_row(*map(Text, [printable(shorten(layer.short, name)), *ops, *cells]))
    made.add_section()
    made.add_row(*map(Text, ["total", *[""] * with_operator, *numbers[-1]]), style="bold")
    return made


def is_free(layer: LayerProfile) -> bool:
    """Whether a layer only reshapes an array, which moves no data."""
    return layer.target == NUMPY and layer.op == RESHAPE


def free_sentence(count: int) -> str:
    """Say how many reshapes a table leaves out."""
    return f"+ {counted(count, 'reshape')} at no cost"


def _layer_cells(layer: LayerProfile, exact: bool) -> list[str]:
    target = TARGETS.get(layer.target, layer.target)
    count, size = (grouped, grouped) if exact else (rounded, rounded_bytes)
    macs = count(layer.macs) if layer.macs else "-"
    if layer.target != ACCELERATOR:
        return [target, microseconds(layer), macs, *["-"] * 4]
    return [
        target,
        grouped(layer.cycles),
        macs,
        percent(layer.utilisation) if layer.macs else "-",
        size(layer.read_bytes),
        size(layer.written_bytes),
        grouped(layer.instructions),
    ]


def microseconds(*layers: LayerProfile) -> str:
    """Return the total time of host layers; a dash if it was not measured."""
    times = [layer.microseconds for layer in layers if layer.microseconds is not None]
    return f"{three_digits(sum(times))} us" if times else "-"


def _total_cells(profile: Profile, exact: bool) -> list[str]:
    count, size = (grouped, grouped) if exact else (rounded, rounded_bytes)
    macs = count(profile.all_macs)
    if not any(layer.target == ACCELERATOR for layer in profile.layers):
        return ["", microseconds(*profile.layers), macs, *["-"] * 4]
    return [
        "",
        grouped(profile.cycles),
        macs,
        percent(profile.utilisation),
        size(profile.read_bytes),
        size(profile.written_bytes),
        grouped(profile.instructions),
    ]


def shorten(text: str, width: int, joint: str = " + ") -> str:
    """Cut the middle of a text to fit `width` characters; of joined names, keep the outer ones."""
    first, *others = text.split(joint)
    choices = [text, *(joint.join((first, "…", *last)) for last in (others[-1:], ()) if others)]
    fitting = (choice for choice in choices if len(choice) <= width)
    head, tail = width // 2, width - width // 2 - 1
    return next(fitting, f"{text[:head]}…{text[len(text) - tail :]}")


def rounded(number: int | None) -> str:
    """Return an integer with three or more digits, and with a unit from 10,000 on."""
    if number is None or number < 10_000:
        return grouped(number)
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number / 1e3:.1f} k"


def rounded_bytes(number: int | None) -> str:
    """Return `rounded` with a unit of bytes."""
    text = rounded(number)
    return text if number is None else f"{text}B" if " " in text else f"{text} B"


def grouped(number: int | None) -> str:
    """Return an integer in groups of three digits; a dash for None."""
    return "-" if number is None else f"{number:,}"


def percent(share: float | None) -> str:
    """Return a share of one in per cent; a dash for None."""
    return "-" if share is None else f"{share:.1%}"


def host_sentence(profile: Profile) -> str:
    """Say which steps the host runs, and how many of each."""
    targets = Counter(layer.target for layer in profile.layers)
    accelerated = targets[ACCELERATOR]
    if accelerated == len(profile.layers):
        some = {0: "nothing to compute", 1: "its only layer on the accelerator"}
        return some.get(accelerated, f"all {accelerated} layers on the accelerator")
    there = counted(accelerated, "layer") if accelerated else "nothing"
    parts = []
    for target, way in ((GPU, "on its GPU"), (HOST, "as kernels"), (NUMPY, "in NumPy")):
        counts = Counter(layer.op for layer in profile.layers if layer.target == target)
        if counts:
            listed = ", ".join(f"{op} ({n})" if n > 1 else op for op, n in counts.items())
            parts.append(f"{way}: {listed}")
    return f"{there} on the accelerator; on the host, {'; '.join(parts)}"


def agreement(outputs: np.ndarray, samples: Samples) -> dict[str, float]:
    """Return the accuracy, and the share of outputs that equal those of the input file.

    Parameters
    ----------
    outputs : ndarray
        [samples, ...]: the network's first output.

    Returns
    -------
    dict
        `accuracy` if labels are known and the output is one number per class. If outputs are
        known, `equal_samples` and `equal_values` as shares and, for floats that are not all equal,
        the signal-to-noise ratio `sqnr_db`.
    """
    found: dict[str, float] = {}
    flat = outputs.reshape(len(outputs), -1)
    has_classes = sum(extent != 1 for extent in outputs.shape[1:]) == 1
    if samples.labels is not None and samples.labels.ndim == 1 and has_classes:
        found["accuracy"] = float(np.mean(flat.argmax(axis=1) == samples.labels))
    if samples.outputs is not None:
        expected = samples.outputs.reshape(len(samples.outputs), -1)
        if expected.shape == flat.shape:
            same = flat == expected
            found["equal_samples"] = float(np.mean(same.all(axis=1)))
            found["equal_values"] = float(np.mean(same))
            noise = np.square(flat.astype(np.float64) - expected).sum()
            if flat.dtype.kind not in "iub" and noise and expected.any():
                signal = np.square(expected.astype(np.float64)).sum()
                found["sqnr_db"] = float(10 * np.log10(signal / noise))
    return found


def agreement_sentences(found: dict[str, float], count: int) -> list[str]:
    """Describe `agreement` in words: accuracy first, equality of bits last."""
    lines = []
    if "accuracy" in found:
        lines.append(f"accuracy: {found['accuracy']:.2%} of {counted(count, 'label')}")
    if "sqnr_db" in found:
        lines.append(
            f"signal to noise, against the input file's outputs: {found['sqnr_db']:.1f} dB"
        )
    if "equal_samples" in found:
        lines.append(
            f"identical to the input file's outputs: {found['equal_samples']:.2%} of {count} "
            f"samples, {found['equal_values']:.3%} of all values"
        )
    return lines


def _equal(tallies: Sequence[Tally], what: str) -> str:
    return f"{sum(not tally.differing for tally in tallies)} of {counted(len(tallies), what)}"


def comparison_sentences(comparison: Comparison, module: Module) -> list[str]:
    """Say what was compared, and with what result."""
    return [
        *(_value_sentences(comparison, module) if comparison.samples else []),
        *(_window_sentence(tally) for tally in comparison.windows.values()),
    ]


def _window_sentence(tally: Tally) -> str:
    verdict = "equal" if not tally.differing else f"{tally.differing} bytes differ"
    return f"{tally.name}: {grouped(tally.values)} bytes, {verdict}"


def _value_sentences(comparison: Comparison, module: Module) -> list[str]:
    layers = [tally for tally in comparison.layers.values() if tally.values]
    kernels = [tally for tally in comparison.kernels.values() if not tally.tolerance]
    rounded = [tally for tally in comparison.kernels.values() if tally.tolerance]
    compared = {"accelerator layer": layers, "host kernel": kernels}
    counts = [_equal(tallies, what) for what, tallies in compared.items() if tallies]
    values = [*layers, *kernels, *comparison.outputs.values()]
    said = f"reference: {_equal(values, 'output')}"
    if counts:
        said = f"integer reference: {' and '.join(counts)}"
    lines = [
        f"{said} equal in every "
        f"value of {counted(comparison.samples, 'sample')} "
        f"({grouped(sum(tally.values for tally in values))} values, outputs included)"
    ]
    if rounded:
        lines.append(
            f"rounding in another order: {_equal(rounded, 'kernel')} near the definition, at most "
            f"{max(tally.largest for tally in rounded):.1g} of the largest magnitude apart"
        )
    if comparison.not_kept:
        plural = "s" * (len(comparison.not_kept) != 1)
        lines.append(
            f"not compared: {len(comparison.not_kept)} layer{plural} of `{module.name}` whose "
            "results stay on chip or are overwritten; compile with `--keep-all` to compare all"
        )
    if inside := comparison.on_chip:
        plural = "s" * (len(inside) != 1)
        lines.append(
            f"not compared by themselves: {len(inside)} node{plural} inside fused layers, whose "
            "values stay on chip; what their layers give was compared"
        )
    return lines
