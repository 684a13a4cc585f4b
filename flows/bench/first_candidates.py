"""Order of the accelerator's candidates: the best of the first five, over the best known.

The order is that of the compiler's estimates, which have learned from no layer and no machine, so
all layers and machines are unseen. The best known is the fastest of the first candidates by exact
cycles of the layer alone.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...compiler.frontend import import_model
from ...errors import UsageError
from ...isa.configuration import PRESETS
from ..cli.json_output import check_json, write_json
from ..cli.main import guarded
from ..execution.compile_graph import compile_graph
from ..tuning.layer_bench import LayerBench
from .kernel_tuners import FIRST
from .resnet18_layers import RESNET18, layer_graph


def benches(model: Path | None, machine: str) -> Iterator[LayerBench]:
    """Yield the layers of a network that have candidates, equal ones once; None is ResNet-18."""
    graphs = [import_model(model)] if model else map(layer_graph, RESNET18)
    seen = set()
    for graph in graphs:
        module = compile_graph(graph, PRESETS[machine])
        for layer in (layer for segment in module.segments for layer in segment.layers):
            try:
                bench = LayerBench(module, layer.name)
            except UsageError:  # it only moves data
                continue
            if bench.candidates() and bench.form not in seen:
                seen.add(bench.form)
                yield bench


def row_of(bench: LayerBench, count: int) -> dict[str, Any]:
    """Time the first candidates of a layer."""
    candidates = bench.candidates()
    cycles = [bench.cycles(candidate) for candidate in candidates[:count]]
    gap = bench.gap
    best = min(*cycles, gap.cycles)
    return {
        "layer": bench.name,
        "space": len(candidates),
        "timed": len(cycles),
        "best": best,
        "bound": gap.bound,
        "first": cycles[0] / best - 1,
        "first_five": min(cycles[:FIRST]) / best - 1,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the candidates and print how far the first ones are from the best known."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.first_candidates", description=__doc__
    )
    parser.add_argument("model", nargs="?", type=Path, help="default: C2 to C11 of ResNet-18")
    parser.add_argument(
        "--config", action="append", choices=PRESETS, help="may be repeated; default: 16x16"
    )
    parser.add_argument("--candidates", type=int, default=64, help="timed per layer; default: 64")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="stdout without FILE")
    options = parser.parse_args(arguments)

    def call() -> None:
        check_json(options.json)
        if options.candidates < 1:
            raise UsageError(f"`--candidates {options.candidates}`: expected at least 1")
        rows = []
        for machine in options.config or ("16x16",):
            for bench in benches(options.model, machine):
                rows.append({"machine": machine, **row_of(bench, options.candidates)})
                row = rows[-1]
                print(
                    f"{machine} {row['layer']}: {row['timed']} of {row['space']} timed; best "
                    f"{row['best']:,} cycles, bound {row['bound']:,}; the first is "
                    f"{row['first']:.2%} slower, the best of {FIRST} {row['first_five']:.2%}",
                    file=sys.stderr if options.json == "-" else sys.stdout,
                    flush=True,
                )
        if options.json:
            write_json(options.json, {"rows": rows})

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
