"""One run of the fuzzer: compile, run and compare a graph; and the tally of many runs."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import numpy as np

from ....compiler.graph import Graph
from ....compiler.graph.macs import macs_of
from ....compiler.graph.types import DTYPES
from ....compiler.host import MIN_WORK
from ....compiler.module import Module
from ....compiler.pipeline import compile_module
from ....errors import CompileError, InputError
from ....isa.configuration import PRESETS, Configuration
from ....runtime.compare import Comparison
from ....runtime.device import Device
from ....runtime.devices import open_device
from ....runtime.manifest import describe_segment, read_segment
from ....runtime.session import Session
from ..programs.random_configurations import verification_configurations
from .graph_specs import Sketch

ROOMY = ("4x4", "8x8", "8x16", "16x8", "16x16", "32x32")
"""Presets on which every random graph fits."""

TIGHT = (
    "tiny", "wide-in", "wide-out", "two-by-eight", "eight-by-two", "narrow-vector", "bus-256",
    "single-beats", "queue-1", "one-loop", "most-loops", "uneven-loops", "short-extents",
    "least-memory", "many-banks", "deep-weights", "full-addresses",
)  # fmt: skip
"""Configurations with small memories or few loops, where tiles are cut or graphs refused."""


@dataclass(frozen=True, slots=True)
class FuzzOutcome:
    """Result for one graph.

    Parameters
    ----------
    kind
        `equal`, `refused`, or `failed`.
    text
        The refusal, or the failure.
    layers, values
        Compared layers, and compared elements of layers and outputs.
    products, reasons
        Number of products, and why the host runs some of them, with their number.
    """

    kind: str
    text: str = ""
    layers: int = 0
    values: int = 0
    products: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing graph or model, and the smallest one found that also fails.

    Parameters
    ----------
    smallest
        Input that reproduces it: a sketch for `realise`, or `(seed, steps)` for `random_model`.
    graph
        The smallest one as text; empty if it could not be imported.
    """

    seed: int
    configuration: str
    device: str
    text: str
    smallest: Sketch | tuple[int, int]
    graph: str


@dataclass(slots=True)
class FuzzTally:
    """Totals of a run of the fuzzer."""

    graphs: int = 0
    models: int = 0
    equal: int = 0
    refused: int = 0
    on_rtl: int = 0
    layers: int = 0
    values: int = 0
    products: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def passes(self, outcome: FuzzOutcome, configuration: Configuration) -> bool:
        """Count an outcome; False means that the failure must be shrunk and kept."""
        self.layers += outcome.layers
        self.values += outcome.values
        self.products += outcome.products
        self.reasons.update(outcome.reasons)
        self.equal += outcome.kind == "equal"
        if outcome.kind == "refused":
            self.refused += 1
            self.refusals[_alike(outcome.text, configuration)] += 1
        return outcome.kind != "failed"

    def __add__(self, other: "FuzzTally") -> "FuzzTally":
        """Return the totals of both tallies."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return FuzzTally(**{name: ours + theirs for name, ours, theirs in pairs})


Run = Callable[[Graph, Configuration, int, str], FuzzOutcome]


class FuzzRunner:
    """Compiles and runs graphs; caches opened devices."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, int], Device] = {}

    def __enter__(self) -> "FuzzRunner":
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
    ) -> FuzzOutcome:
        """Compile, run on random inputs, and compare all readable values.

        Odd seeds reuse memory of activations; even seeds keep every layer. For half of the seeds,
        the host uses kernels for all nodes, however small.
        """
        try:
            module = compile_module(graph, configuration, keep_all=seed % 2 == 0)
        except CompileError as refusal:
            return FuzzOutcome("refused", str(refusal))
        except Exception as problem:
            return FuzzOutcome("failed", f"compiling raises {type(problem).__name__}: {problem}")
        try:
            outcome = self.compare(module, seed, device)
        except Exception as problem:
            return FuzzOutcome("failed", f"running raises {type(problem).__name__}: {problem}")
        products = sum(macs_of(module.graph, node) > 0 for node in module.graph.nodes)
        reasons: Counter[str] = Counter()
        for row in module.report["host_products"]:
            reasons.update(row["reasons"] if row["macs"] else {})
        return replace(outcome, products=products, reasons=reasons)

    def compare(self, module: Module, seed: int, device: str) -> FuzzOutcome:
        """Run on random inputs and compare all readable values with the definition.

        Raises
        ------
        TilewrightError
            When the network refuses the inputs, for instance an index out of range.
        """
        for segment in module.segments:  # an artifact that is written can be read
            described = json.loads(json.dumps(describe_segment(segment)))
            read_segment(described, segment.program, segment.constants)
        inputs = random_inputs(module.graph, seed)
        opened = self.device(device, module.configuration)
        least_work = 0 if seed % 4 < 2 else MIN_WORK
        session = Session(module, opened, keep_all=seed % 2 == 0, least_work=least_work)
        comparison = Comparison(module)
        run = session.run(inputs)
        comparison.add(inputs, run)
        difference = comparison.first_difference()
        if difference is not None:
            return FuzzOutcome("failed", f"on `{device}`, {difference}")
        explained = sum(row["macs"] for row in module.report["host_products"])
        if lost := run.profile.all_macs - run.profile.macs - explained:
            return FuzzOutcome("failed", f"{lost:,} multiplications on the host without a reason")
        cycles, bound = run.profile.cycles, module.report["bound"]
        if cycles is not None and cycles < bound:
            return FuzzOutcome("failed", f"{cycles:,} cycles are less than the bound, {bound:,}")
        return FuzzOutcome(
            "equal",
            layers=sum(bool(tally.values) for tally in comparison.layers.values()),
            values=sum(tally.values for tally in comparison.tallies),
        )


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs: any int8, often extremes; normal floats; 0 or 1 for other types.

    Raises
    ------
    InputError
        When the inputs do not fit memory.
    """
    try:
        return _random_inputs(graph, np.random.default_rng(seed))
    except MemoryError as error:
        raise InputError(
            f"network `{graph.name}`: its inputs do not fit memory: {error}"
        ) from error


def _random_inputs(graph: Graph, chance: np.random.Generator) -> dict[str, np.ndarray]:
    inputs = {}
    for value in graph.inputs:
        kind, shape = DTYPES[value.type.dtype], value.type.shape
        if value.type.dtype == "int8":
            data = chance.integers(-128, 128, shape).astype(np.int8)
            data[chance.random(data.shape) < 0.1] = chance.choice([-128, 127])
        elif np.issubdtype(kind, np.floating):
            data = chance.normal(0, 2, shape).astype(kind)
        else:
            data = chance.integers(0, 2, shape).astype(kind)
        inputs[value.name] = data
    return inputs


def configuration_of(seed: int) -> Configuration:
    """Configurations with large and with small memories, in turn."""
    named = {**PRESETS, **verification_configurations()}
    half, names = seed // 2, ROOMY if seed % 2 else TIGHT
    return named[names[half % len(names)]]


def _alike(text: str, configuration: Configuration) -> str:
    """Text of a refusal without names and numbers, which differ between graphs."""
    words = text.replace(f"`{configuration.name}`", "`...`").split("(", 1)[0].split()
    return " ".join("..." if any(c.isdigit() for c in word) else word for word in words)
