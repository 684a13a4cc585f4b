"""The ablation as a figure: SVG with real text; equal data give equal bytes.

Only this file needs Matplotlib, so it is imported only when a figure is requested.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from ...atomic_write import write_output
from .variants import ALL_ROOM, DEPTHS, LayerResult, VariantResult, depth_text, total

INK, MUTED, GRID = "#1b2430", "#5b6675", "#e8ebef"
BLUE, LIGHT_BLUE, PALE_BLUE, ORANGE = "#0072b2", "#3d9bd1", "#8fd0f2", "#e69f00"
"""Colours of the report's page, after Okabe and Ito."""

NEAR = 1.15
"""Intensities with a smaller ratio share a label."""

DEPTH_COLOURS = {1: ORANGE, 2: PALE_BLUE, 3: LIGHT_BLUE, ALL_ROOM: BLUE}

STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tilewright",
}


def draw_layers(
    path: Path,
    title: str,
    layers: Sequence[LayerResult],
    peak: int,
    bytes_per_cycle: float,
) -> None:
    """Utilisation per layer and depth beside the roofline.

    Parameters
    ----------
    peak
        MACs a cycle.
    bytes_per_cycle
        Bandwidth of one channel of the bus.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """

    def draw(figure: Figure) -> None:
        bars, roofline = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_bars(bars, [*layers, total(layers)])
        _draw_roofline(roofline, layers, peak, bytes_per_cycle)

    _save(path, title, (11.5, 4.4), draw)


def draw_variants(path: Path, title: str, results: Sequence[VariantResult]) -> None:
    """Cycles and traffic of every variant, side by side.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """

    def draw(figure: Figure) -> None:
        cycles, traffic = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _draw_cycles(cycles, results)
        _draw_traffic(traffic, results)

    _save(path, title, (11.5, 1.6 + 0.32 * len(results)), draw)


def _save(
    path: Path, title: str, inches: tuple[float, float], draw: Callable[[Figure], None]
) -> None:
    """Draw in our own style instead of the user's."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=inches, layout="constrained", facecolor="white")
        figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=11)
        draw(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    write_output(path, drawn.getvalue(), f"`--figure {path}`")


def _draw_bars(axes: Axes, layers: Sequence[LayerResult]) -> None:
    depths = (*DEPTHS, ALL_ROOM)
    width = 0.8 / len(depths)
    for place, depth in enumerate(depths):
        lefts = [index - 0.4 + place * width for index in range(len(layers))]
        heights = [layer.of_peak(depth) for layer in layers]
        colour = DEPTH_COLOURS[depth]
        axes.bar(lefts, heights, width, align="edge", color=colour, label=depth_text(depth))
    bounds = [layer.bound for layer in layers]
    lefts = [index - 0.45 for index in range(len(layers))]
    rights = [index + 0.45 for index in range(len(layers))]
    axes.hlines(bounds, lefts, rights, color=INK, linewidth=1.5, label="roofline")
    axes.set_xticks(range(len(layers)), [layer.name for layer in layers])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="y")
    axes.set_title("Share of peak by pipeline depth", pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, borderaxespad=0.2)


def _draw_roofline(
    axes: Axes, layers: Sequence[LayerResult], peak: int, bytes_per_cycle: float
) -> None:
    """Williams, Waterman and Patterson, CACM 2009; a line joins a layer's two points."""
    ridge = peak / bytes_per_cycle
    across = [layer.macs_per_byte for layer in layers]
    slow = [peak * layer.of_peak(1) for layer in layers]
    fast = [peak * layer.of_peak(ALL_ROOM) for layer in layers]
    low, high = min(*across, ridge) / 2, max(*across, ridge) * 2
    axes.plot([low, ridge, high], [low * bytes_per_cycle, peak, peak], color=INK, linewidth=1.5)
    axes.vlines(across, slow, fast, color=GRID, linewidth=1.5, zorder=1)
    axes.plot(across, slow, "o", color="white", markeredgecolor=ORANGE, label=depth_text(1))
    axes.plot(across, fast, "o", color=BLUE, label=depth_text(ALL_ROOM))
    for near in _near_each_other(layers):
        middle = near[len(near) // 2].macs_per_byte
        lowest = peak * min(layer.of_peak(1) for layer in near)
        axes.annotate(
            " ".join(layer.name for layer in near), (middle, lowest), (0, -6),
            textcoords="offset points", horizontalalignment="center", verticalalignment="top",
            fontsize=8, color=MUTED,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(2))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(low, high)
    axes.set_ylim(min(slow) / 1.6, peak * 1.3)
    axes.grid()
    axes.set_xlabel("MACs per byte that must move")
    axes.set_ylabel("MACs per cycle")
    axes.set_title(f"Roofline: {peak} MACs, {bytes_per_cycle:g} bytes a cycle", pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _near_each_other(layers: Sequence[LayerResult]) -> list[list[LayerResult]]:
    """Layers by intensity, grouped if their labels would overlap."""
    groups: list[list[LayerResult]] = []
    for layer in sorted(layers, key=lambda layer: layer.macs_per_byte):
        if groups and layer.macs_per_byte < NEAR * groups[-1][-1].macs_per_byte:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return groups


def _draw_cycles(axes: Axes, results: Sequence[VariantResult]) -> None:
    names = [result.name for result in results]
    base = results[0].cycles
    colours = [BLUE] + [PALE_BLUE] * (len(results) - 1)
    bars = axes.barh(names, [result.cycles / 1e6 for result in results], 0.7, color=colours)
    labels = [f"{result.cycles / base:.2f}" for result in results]
    axes.bar_label(bars, labels, padding=4, color=INK)
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x")
    axes.set_title("Million cycles, and how much slower than everything", pad=24)


def _draw_traffic(axes: Axes, results: Sequence[VariantResult]) -> None:
    names = [result.name for result in results]
    read = [result.moved.read_bytes / 1e6 for result in results]
    written = [result.moved.written_bytes / 1e6 for result in results]
    axes.barh(names, read, 0.7, color=LIGHT_BLUE, label="read")
    bars = axes.barh(names, written, 0.7, left=read, color=ORANGE, label="written")
    axes.bar_label(bars, [f"{result.over_least:.2f}" for result in results], padding=4, color=INK)
    least = results[0].least.total_bytes / 1e6
    axes.axvline(least, color=INK, linewidth=1.5, label="least")
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title("Megabytes moved, and over the least", pad=24)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
