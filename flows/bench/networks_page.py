"""The page of the bench of networks: figures by kind, failures, products on the host, sources."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from ...atomic_write import write_output
from ...compiler.scheduling.bound_report import share_over
from ...errors import UsageError
from ...isa.markdown import cell_text

BEGIN, END = "<!-- networks -->", "<!-- end of networks -->"
"""Lines of a page between which the tables are written."""

Record = Mapping[str, Any]


def summary(records: Iterable[Record]) -> str:
    """Return a sentence about all records."""
    listed = list(records)
    failed = sum("failed" in each for each in listed)
    kinds = len({each["kind"] for each in listed})
    return f"{len(listed)} networks of {kinds} kinds, {len(listed) - failed} without a failure"


def means(records: Iterable[Record]) -> str:
    """Return a sentence with geometric means, or an empty one if no record has figures."""
    listed = list(records)
    pairs = [(each["cycles"], each["bound"]) for each in listed if each.get("bound")]
    ratios: dict[str, list[float]] = {"float": [], "int8": []}
    for each in listed:
        rows = [row["ratio"] for row in each.get("cpu", ())]
        ratios["int8" if each["int8"] else "float"] += rows[:1]
        ratios["int8"] += rows[1:]
    figures = [
        f"{geometric_mean(found):.2f}x on the CPU in {form} ({len(found)} networks)"
        for form, found in ratios.items()
        if found
    ]
    if pairs:
        over = geometric_mean(cycles / bound for cycles, bound in pairs) - 1
        figures.insert(0, f"{over:.1%} over the bound ({len(pairs)} networks)")
    return f"Geometric means: {', '.join(figures)}." if figures else ""


def write_page(path: Path, records: Mapping[str, Record]) -> None:
    """Write the tables between the two lines of a page, or as a page of their own.

    Raises
    ------
    UsageError
        If the file cannot be read or written.
    """
    try:
        page = path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"`--output {path}`: expected a page, got `{problem}`") from None
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n\n{tables(records)}\n{END}{after or chr(10)}"
    write_output(path, text, f"`--output {path}`")


def tables(records: Mapping[str, Record]) -> str:
    """Return Markdown: figures by kind, failures, what the host multiplies and why, sources."""
    order = sorted(records, key=lambda name: (records[name]["kind"], name))
    lines = [f"{summary(records.values())}. {means(records.values())}".rstrip(), "", *FIGURES]
    lines += [figures_row(name, records[name]) for name in order]
    failures = [(name, records[name]) for name in order if "failed" in records[name]]
    if failures:
        lines += ["", "| failed | step | reason |", "| --- | --- | --- |"]
        lines += [
            f"| {name} | {each['failed']} | {cell_text(each['reason'])} |"
            for name, each in failures
        ]
    hosts = [(name, records[name]["host"]) for name in order if records[name].get("host")]
    if hosts:
        lines += ["", "| network | multiplications on the host |", "| --- | --- |"]
        lines += [f"| {name} | {cell_text('; '.join(said))} |" for name, said in hosts]
    lines += ["", "| network | source | licence |", "| --- | --- | --- |"]
    for name in order:
        lines.append(
            f"| {name} | {cell_text(records[name]['source'])} | {records[name]['licence']} |"
        )
    return "\n".join(lines) + "\n"


FIGURES = (
    "| network | kind | MACs, millions | accelerated | cycles | over bound | utilisation "
    "| SQNR, dB | same class | CPU, float | CPU, int8 |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def figures_row(name: str, record: Record) -> str:
    """Return a network's line of the table; a dash stands for a figure that it lacks."""

    def shown(key: str, form: str, scale: float = 1) -> str:
        value = record.get(key)
        return "-" if value is None else format(value * scale, form)

    over = share_over(record["cycles"], record["bound"]) if record.get("bound") else None
    ratios = [f"{each['ratio']:.2f}x" for each in record.get("cpu", ())]
    if record["int8"]:
        ratios.insert(0, "-")
    ratios += ["-"] * (2 - len(ratios))
    words = (
        name,
        record["kind"],
        shown("macs", ",.2f", 1e-6),
        shown("share", ".1%"),
        shown("cycles", ","),
        "-" if over is None else f"{over:.1%}",
        shown("utilisation", ".1%"),
        shown("sqnr_db", ".1f"),
        shown("same_class", ".0%"),
        *ratios,
    )
    return f"| {' | '.join(words)} |"
