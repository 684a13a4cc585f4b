"""Compile random graphs, run them, and compare every layer with the integer definition.

`python -m tilewright.flows.verify.fuzz --graphs 500 --styled 3000 --seed 1` tries integer graphs 1
to 500, and ONNX models 1 to 3,000 in the styles of several quantisers, on configurations taken in
turn, on `sim`, and some of the graphs on `rtl` too. `--models` adds models with Q/DQ behind every
operator. Refusals with a clear error are counted. Any other difference, an illegal program, fewer
cycles than the certified bound, or a product that the host runs without a reason in the report, is
a failure: it is shrunk and printed with the numbers that reproduce it. With `--peer`, onnxruntime
runs the models too.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from ....compiler.frontend import import_model
from ....compiler.graph import Graph, evaluate, print_graph
from ....errors import CompileError, ImportModelError, UsageError
from ....isa.configuration import PRESETS, Configuration
from ...bench.onnxruntime_peer import peer_session
from ...cli.json_output import write_json
from ...cli.main import guarded
from .fuzz_runs import (
    Failure,
    FuzzOutcome,
    FuzzRunner,
    FuzzTally,
    Run,
    configuration_of,
    random_inputs,
)
from .graph_specs import Sketch, realise
from .random_graphs import random_sketch
from .random_models import MAX_STEPS, random_model
from .shrink_graphs import shrink_sketch
from .styled_models import styled_model

RTL = ("4x4", "8x8")
"""Configurations of the runs on the RTL; few, because each must be built."""

IMPORT_FAILS = "importing raises"

PEER_TOLERANCE = 0.02
"""Mean distance from onnxruntime, relative to the mean size of an output."""

Build = Callable[[int, int], bytes]
"""Function that makes a model from a seed and a number of steps."""

RTL_STRIDE = 7919
"""A prime: spreads the runs on `rtl` over configurations and seeds."""


def fuzz(
    seeds: range,
    run: Run,
    *,
    budget_s: float = float("inf"),
    rtl_share: float = 0.0,
    told: Callable[[FuzzTally], None] = lambda tally: None,
) -> FuzzTally:
    """Try graphs until the seeds or the time run out.

    Parameters
    ----------
    seeds
        One graph each.
    run
        A `Runner`.
    budget_s
        Seconds after which no new graph starts.
    rtl_share
        Share of the graphs that run on the hardware too.
    told
        Called after each graph.
    """
    tally, started = FuzzTally(), time.monotonic()
    for seed in seeds:
        if time.monotonic() - started > budget_s:
            break
        sketch = random_sketch(seed)
        graph = realise(sketch)
        tally.steps.update(step.kind for step in sketch.steps)
        tally.graphs += 1
        tries = [(configuration_of(seed), "sim")]
        if seed * RTL_STRIDE % 1000 < 1000 * rtl_share:
            tries.append((PRESETS[RTL[seed % len(RTL)]], "rtl"))
        for configuration, device in tries:
            outcome = run(graph, configuration, seed, device)
            tally.on_rtl += device == "rtl"
            if not tally.passes(outcome, configuration):
                failure = _shrunk(sketch, configuration, seed, device, outcome, run)
                tally.failures.append(failure)
        tally.seconds = time.monotonic() - started
        told(tally)
    return tally


def fuzz_models(
    seeds: range,
    run: Run,
    *,
    build: Build = random_model,
    peer: bool = False,
    budget_s: float = float("inf"),
    told: Callable[[FuzzTally], None] = lambda tally: None,
) -> FuzzTally:
    """Try ONNX models, import included; see `fuzz`.

    Parameters
    ----------
    build
        Makes the model of a seed, `random_model` or `styled_model`.
    peer
        Whether to compare the definition with onnxruntime as well.
    """
    tally, started = FuzzTally(), time.monotonic()
    for seed in seeds:
        if time.monotonic() - started > budget_s:
            break
        tally.models += 1
        configuration = configuration_of(seed)
        outcome = _try_model(build, seed, MAX_STEPS, run, peer)
        if not tally.passes(outcome, configuration):
            tries = (
                (steps, _try_model(build, seed, steps, run, peer))
                for steps in range(1, MAX_STEPS + 1)
            )
            steps, fewest = next((k, found) for k, found in tries if found.kind == "failed")
            text = ""
            if not fewest.text.startswith(IMPORT_FAILS):
                text = print_graph(import_model(build(seed, steps)))
            tally.failures.append(
                Failure(seed, configuration.name, "sim", outcome.text, (seed, steps), text)
            )
        tally.seconds = time.monotonic() - started
        told(tally)
    return tally


def _try_model(build: Build, seed: int, steps: int, run: Run, peer: bool) -> FuzzOutcome:
    """Import a model and run its graph."""
    model = build(seed, steps)
    try:
        graph = import_model(model)
    except (ImportModelError, CompileError) as refusal:
        return FuzzOutcome("refused", str(refusal))
    except Exception as problem:
        return FuzzOutcome("failed", f"{IMPORT_FAILS} {type(problem).__name__}: {problem}")
    outcome = run(graph, configuration_of(seed), seed, "sim")
    if peer and outcome.kind == "equal" and (text := peer_difference(model, graph, seed)):
        return FuzzOutcome("failed", text)
    return outcome


def peer_difference(model: bytes, graph: Graph, seed: int) -> str:
    """Say how far the definition is from onnxruntime; empty if it is near.

    Floats that are summed in another order may be rounded to another step, which later layers
    carry on, so that means are compared.

    Raises
    ------
    ToolError
        When onnxruntime is missing, or cannot run the model.
    """
    session, inputs = (
        peer_session(model, 1, exact=True, optimised=False),
        random_inputs(graph, seed),
    )
    names = [output.name for output in session.get_outputs()]
    wanted = dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))
    for name, got in evaluate(graph, inputs).items():
        apart = np.abs(got.astype(np.float64) - wanted[name]).mean()
        if not apart <= PEER_TOLERANCE * (np.abs(wanted[name]).mean() + PEER_TOLERANCE):
            return f"output `{name}` is {apart:.3g} from onnxruntime's in the mean"
    return ""


def _shrunk(
    sketch: Sketch,
    configuration: Configuration,
    seed: int,
    device: str,
    outcome: FuzzOutcome,
    run: Run,
) -> Failure:
    kind = outcome.text.split(":", 1)[0].split("`", 1)[0]

    def fails(candidate: Sketch) -> bool:
        again = run(realise(candidate), configuration, seed, device)
        return again.kind == "failed" and again.text.startswith(kind)

    smallest = shrink_sketch(sketch, fails)
    text = print_graph(realise(smallest))
    return Failure(seed, configuration.name, device, outcome.text, smallest, text)


def report(tally: FuzzTally) -> str:
    """Summary for people."""
    lines = [
        f"fuzz: {tally.graphs} graphs and {tally.models} models in {tally.seconds:.0f} s: "
        f"{tally.equal} runs equal in {tally.layers} layers and {tally.values} values "
        f"({tally.on_rtl} of them on rtl), "
        f"{tally.refused} refused, {len(tally.failures)} failed"
    ]
    if tally.products:
        there = tally.products - tally.reasons.total()
        lines.append(f"  {there} of {tally.products} products ran on the accelerator")
    lines += [f"  on the host {count} times: {why}" for why, count in tally.reasons.most_common()]
    lines += [f"  refused {count} times: {text}" for text, count in tally.refusals.most_common()]
    for failure in tally.failures:
        lines += [
            f"  failed: seed {failure.seed} on configuration `{failure.configuration}`: "
            f"{failure.text}",
            f"    smallest: {failure.smallest!r}",
            *(f"    {line}" for line in failure.graph.splitlines()),
        ]
    return "\n".join(lines)


def figures(tally: FuzzTally) -> dict[str, object]:
    """Summary as JSON values."""
    return {
        "graphs": tally.graphs,
        "models": tally.models,
        "equal": tally.equal,
        "refused": tally.refused,
        "on_rtl": tally.on_rtl,
        "layers": tally.layers,
        "values": tally.values,
        "seconds": tally.seconds,
        "products": tally.products,
        "host_products": dict(tally.reasons),
        "steps": dict(tally.steps),
        "refusals": dict(tally.refusals),
        "failures": [asdict(failure) for failure in tally.failures],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print the results, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.fuzz", description=__doc__
    )
    parser.add_argument("--graphs", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--models", type=int, default=0, help="ONNX models too (default: 0)")
    parser.add_argument("--styled", type=int, default=0, help="in quantisers' styles (default: 0)")
    parser.add_argument("--peer", action="store_true", help="compare models with onnxruntime too")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph (default: 1)")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--rtl-share", type=float, default=0.0, help="part that runs on rtl too")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON")
    options = parser.parse_args(arguments)
    failed = False

    def call() -> None:
        nonlocal failed
        counts = options.graphs, options.models, options.styled
        if min(counts) < 0 or not 0 <= options.rtl_share <= 1:
            raise UsageError(
                "fuzz: expected --graphs, --models and --styled of at least 0 and --rtl-share "
                "from 0 to 1"
            )
        first, budget = options.seed, options.budget
        with FuzzRunner() as run:
            seeds = range(first, first + options.graphs)
            tally = fuzz(seeds, run, budget_s=budget, rtl_share=options.rtl_share, told=_tell)
            for count, build in ((options.models, random_model), (options.styled, styled_model)):
                tally += fuzz_models(
                    range(first, first + count),
                    run,
                    build=build,
                    peer=options.peer,
                    budget_s=budget - tally.seconds,
                    told=_tell,
                )
        failed = bool(tally.failures)
        if options.json:
            write_json(options.json, figures(tally))
        if options.json != "-":
            print(report(tally))

    code = guarded(call)
    return code or int(failed)


def _tell(tally: FuzzTally) -> None:
    tried = tally.graphs + tally.models
    if tried % 50 == 0:
        print(
            f"fuzz: {tried} {'graphs' if tally.graphs else 'models'}, {tally.refused} refused, "
            f"{len(tally.failures)} failed, {tally.seconds:.0f} s",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
