"""Compile random graphs, run them, and compare every layer with the integer definition.

`python -m tilewright.flows.fuzz --graphs 500 --seed 1` tries seeds 1 to 500 on configurations taken
in turn, on `sim`, and a share of them on `rtl` too. What the compiler refuses with a sentence is
counted; anything else that is not equality is a failure, an illegal program too, and is shrunk and
printed with the numbers that make it again.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ..compiler.compile import compile_graph
from ..compiler.graph import Graph, print_graph
from ..errors import CompileError, UsageError
from ..isa.configuration import PRESETS, Configuration
from ..isa.random_configurations import verification_configurations
from ..runtime.compare import Comparison
from ..runtime.devices import Device, open_device
from ..runtime.session import Session
from .command import guarded
from .json_output import write_json
from .random_graphs import Sketch, random_sketch, realise
from .shrink_graphs import shrink_sketch

ROOMY = ("4x4", "8x8", "8x16", "16x8", "16x16", "32x32")
"""Presets on which every random graph fits."""

TIGHT = (
    "tiny", "wide-in", "wide-out", "two-by-eight", "eight-by-two", "narrow-vector", "bus-256",
    "single-beats", "queue-1", "one-loop", "most-loops", "uneven-loops", "short-extents",
    "least-memory", "many-banks", "deep-weights", "full-addresses",
)  # fmt: skip
"""Configurations with small memories or few loops, where tiles are cut or graphs refused."""

RTL = ("4x4", "8x8")
"""Configurations of the runs on the hardware: few, since each must be built."""

RTL_STRIDE = 7919
"""A prime: spreads the runs on `rtl` over configurations and seeds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one graph.

    Parameters
    ----------
    kind
        `equal`, `refused`, or `failed`.
    text
        The refusal, or what failed.
    layers, values
        Layers compared, and their and the outputs' elements.
    """

    kind: str
    text: str = ""
    layers: int = 0
    values: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A graph that went wrong, and the smallest one found that does so too."""

    seed: int
    configuration: str
    device: str
    text: str
    sketch: Sketch
    smallest: Sketch
    graph: str


@dataclass(slots=True)
class Tally:
    """What a run of the fuzzer has seen."""

    graphs: int = 0
    equal: int = 0
    refused: int = 0
    on_rtl: int = 0
    layers: int = 0
    values: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


Run = Callable[[Graph, Configuration, int, str], Outcome]


class Runner:
    """Compiles and runs graphs; keeps the devices that it has opened."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, int], Device] = {}

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_) -> None:
        for device in self._devices.values():
            device.close()

    def device(self, name: str, configuration: Configuration) -> Device:
        """An open device."""
        key = name, configuration.hash
        if key not in self._devices:
            self._devices[key] = open_device(name, configuration)
        return self._devices[key]

    def __call__(
        self, graph: Graph, configuration: Configuration, seed: int, device: str
    ) -> Outcome:
        """Compile, run on random inputs, compare all that can be read.

        Places of activations are reused for odd seeds; even ones keep every layer.
        """
        try:
            module = compile_graph(graph, configuration, keep_all=seed % 2 == 0)
        except CompileError as refusal:
            return Outcome("refused", str(refusal))
        except Exception as problem:
            return Outcome("failed", f"compiling raises {type(problem).__name__}: {problem}")
        try:
            inputs = random_inputs(graph, seed)
            session = Session(module, self.device(device, configuration))
            comparison = Comparison(module)
            comparison.add(inputs, session.run(inputs))
        except Exception as problem:
            return Outcome("failed", f"running raises {type(problem).__name__}: {problem}")
        difference = comparison.first_difference()
        if difference is not None:
            return Outcome("failed", f"on `{device}`, {difference}")
        return Outcome(
            "equal",
            layers=sum(bool(tally.values) for tally in comparison.layers.values()),
            values=sum(tally.values for tally in comparison.tallies),
        )


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Values of all int8, the ends often, for every input."""
    chance = np.random.default_rng(seed)
    inputs = {}
    for value in graph.inputs:
        data = chance.integers(-128, 128, value.type.shape).astype(np.int8)
        data[chance.random(data.shape) < 0.1] = chance.choice([-128, 127])
        inputs[value.name] = data
    return inputs


def configuration_of(seed: int) -> Configuration:
    """Roomy and tight ones in turn."""
    named = {**PRESETS, **verification_configurations()}
    half, names = seed // 2, ROOMY if seed % 2 else TIGHT
    return named[names[half % len(names)]]


def fuzz(
    seeds: range,
    run: Run,
    *,
    budget_s: float = float("inf"),
    rtl_share: float = 0.0,
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Try graphs until the seeds or the time are used up.

    Parameters
    ----------
    seeds
        One graph each.
    run
        A `Runner`.
    budget_s
        Seconds after which no further graph is begun.
    rtl_share
        Share of the graphs that run on the hardware too.
    told
        Called after each graph.
    """
    tally, started = Tally(), time.monotonic()
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
            tally.layers += outcome.layers
            tally.values += outcome.values
            tally.on_rtl += device == "rtl"
            if outcome.kind == "refused":
                tally.refused += 1
                tally.refusals[_alike(outcome.text, configuration)] += 1
            elif outcome.kind == "failed":
                failure = _shrunk(sketch, configuration, seed, device, outcome, run)
                tally.failures.append(failure)
            else:
                tally.equal += 1
        tally.seconds = time.monotonic() - started
        told(tally)
    return tally


def _alike(text: str, configuration: Configuration) -> str:
    """A refusal without the names and numbers that differ from graph to graph."""
    words = text.replace(f"`{configuration.name}`", "`...`").split("(", 1)[0].split()
    return " ".join("..." if any(c.isdigit() for c in word) else word for word in words)


def _shrunk(
    sketch: Sketch,
    configuration: Configuration,
    seed: int,
    device: str,
    outcome: Outcome,
    run: Run,
) -> Failure:
    kind = outcome.text.split(":", 1)[0].split("`", 1)[0]

    def fails(candidate: Sketch) -> bool:
        again = run(realise(candidate), configuration, seed, device)
        return again.kind == "failed" and again.text.startswith(kind)

    smallest = shrink_sketch(sketch, fails)
    text = print_graph(realise(smallest))
    return Failure(seed, configuration.name, device, outcome.text, sketch, smallest, text)


def report(tally: Tally) -> str:
    """What a person reads at the end."""
    lines = [
        f"fuzz: {tally.graphs} graphs in {tally.seconds:.0f} s: {tally.equal} runs equal in "
        f"{tally.layers} layers and {tally.values} values ({tally.on_rtl} of them on rtl), "
        f"{tally.refused} refused, {len(tally.failures)} failed"
    ]
    lines += [f"  refused {count} times: {text}" for text, count in tally.refusals.most_common()]
    for failure in tally.failures:
        lines += [
            f"  failed: seed {failure.seed} on configuration `{failure.configuration}`: "
            f"{failure.text}",
            f"    smallest: {failure.smallest!r}",
            *(f"    {line}" for line in failure.graph.splitlines()),
        ]
    return "\n".join(lines)


def figures(tally: Tally) -> dict[str, object]:
    """What a machine reads."""
    return {
        **{k: getattr(tally, k) for k in ("graphs", "equal", "refused", "on_rtl", "layers")},
        "values": tally.values,
        "seconds": tally.seconds,
        "steps": dict(tally.steps),
        "refusals": dict(tally.refusals),
        "failures": [asdict(failure) for failure in tally.failures],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print, and return 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.flows.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph (default: 1)")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--rtl-share", type=float, default=0.0, help="part that runs on rtl too")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON")
    options = parser.parse_args(arguments)
    failed = False

    def call() -> None:
        nonlocal failed
        if options.graphs < 1 or not 0 <= options.rtl_share <= 1:
            raise UsageError("fuzz: expected --graphs of at least 1 and --rtl-share from 0 to 1")
        seeds = range(options.seed, options.seed + options.graphs)
        with Runner() as run:
            tally = fuzz(
                seeds, run, budget_s=options.budget, rtl_share=options.rtl_share, told=_tell
            )
        failed = bool(tally.failures)
        if options.json:
            write_json(options.json, figures(tally))
        if options.json != "-":
            print(report(tally))

    code = guarded(call)
    return code or int(failed)


def _tell(tally: Tally) -> None:
    if tally.graphs % 50 == 0:
        print(
            f"fuzz: {tally.graphs} graphs, {tally.refused} refused, {len(tally.failures)} failed, "
            f"{tally.seconds:.0f} s",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
