"""The ablation's tables, for the terminal and as JSON values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ..reports import terminal as report
from .traffic import bytes_per_cycle
from .variants import ALL_ROOM, LayerResult, VariantResult, depth_text, geometric_means, total


def introduction(name: str, configuration: Configuration, memory: MemoryModel) -> list[str]:
    """Lines that describe network and machine."""
    return [
        f"network        {name}",
        f"configuration  {report.configuration_sentence(configuration)}",
        f"main memory    latency {memory.latency_cycles}, bandwidth {memory.beats}/"
        f"{memory.cycles}, {memory.outstanding_bursts} bursts outstanding",
        "",
    ]


def variants_table(results: Sequence[VariantResult]) -> Table:
    """One row per variant."""
    base = results[0].cycles
    headings = ["variant", "cycles", "of peak", "ratio", "read", "written", "over least"]
    rows = [
        [
            result.name,
            f"{result.cycles:,}",
            report.percent(result.of_peak),
            f"{result.cycles / base:.2f}",
            f"{result.moved.read_bytes:,}",
            f"{result.moved.written_bytes:,}",
            f"{result.over_least:.2f}",
        ]
        for result in results
    ]
    made = report.table(headings, rows)
    least = results[0].least
    made.add_section()
    made.add_row(
        "least traffic", "", "", "", f"{least.read_bytes:,}", f"{least.written_bytes:,}", "1.00"
    )
    return made


def variants_json(
    name: str,
    configuration: Configuration,
    memory: MemoryModel,
    results: Sequence[VariantResult],
) -> dict[str, Any]:
    """The table as JSON values."""
    base = results[0].cycles
    return {
        **_setting(name, configuration, memory),
        "least": asdict(results[0].least),
        "variants": [
            {
                "name": result.name,
                "cycles": result.cycles,
                "of_peak": result.of_peak,
                "ratio": result.cycles / base,
                **asdict(result.moved),
                "over_least": result.over_least,
            }
            for result in results
        ],
    }


def layers_table(layers: Sequence[LayerResult]) -> Table:
    """One row per layer and depth, and all layers together."""
    headings = [
        "layer", "depth", "times", "MACs/byte", "roofline", "cycles", "of peak", "of roofline",
    ]  # fmt: skip
    made = report.table(headings, [], left=2)
    for layer in (*layers, total(layers)):
        about = [
            layer.name, str(layer.times), f"{layer.macs_per_byte:.1f}", report.percent(layer.bound),
        ]  # fmt: skip
        for depth, cycles in layer.cycles.items():
            name, *rest = about
            cells = [
                name,
                depth_text(depth),
                *rest,
                f"{cycles:,}",
                report.percent(layer.of_peak(depth)),
                report.percent(layer.of_bound(depth)),
            ]
            made.add_row(*map(Text, cells))
            about = [""] * len(about)
        made.add_section()
    return made


def layers_means(layers: Sequence[LayerResult]) -> list[str]:
    """Lines below the table."""
    once, repeated = geometric_means(layers, ALL_ROOM)
    return [
        "",
        f"geometric mean of the shares of each layer's own roofline, with {depth_text(ALL_ROOM)}:",
        f"{once:.1%} of each layer once, {repeated:.1%} of each as often as the network has it",
    ]


def layers_json(
    name: str, configuration: Configuration, memory: MemoryModel, layers: Sequence[LayerResult]
) -> dict[str, Any]:
    """The table as JSON values; depth 0 is all the room."""
    return {
        **_setting(name, configuration, memory),
        "layers": list(map(_layer_json, layers)),
        "total": _layer_json(total(layers)),
        "geometric_means": [_means_json(layers, depth) for depth in layers[0].cycles],
    }


def _means_json(layers: Sequence[LayerResult], depth: int) -> dict[str, Any]:
    """Mean shares of each layer's own roofline."""
    once, repeated = geometric_means(layers, depth)
    return {
        "depth": depth,
        "of_bound_each_layer_once": once,
        "of_bound_as_often_as_in_network": repeated,
    }


def _setting(name: str, configuration: Configuration, memory: MemoryModel) -> dict[str, Any]:
    return {
        "network": name,
        "configuration": configuration.name,
        "memory": asdict(memory),
        "peak": configuration.lanes_in * configuration.lanes_out,
        "bytes_per_cycle": bytes_per_cycle(configuration, memory),
    }


def _layer_json(layer: LayerResult) -> dict[str, Any]:
    return {
        "name": layer.name,
        "times": layer.times,
        "macs": layer.macs,
        "least": asdict(layer.least),
        "macs_per_byte": layer.macs_per_byte,
        "bound": layer.bound,
        "depths": [
            {
                "depth": depth,
                "cycles": cycles,
                "of_peak": layer.of_peak(depth),
                "of_bound": layer.of_bound(depth),
            }
            for depth, cycles in layer.cycles.items()
        ],
    }
