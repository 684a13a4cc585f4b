"""Feed damaged artifacts to the runtime: a clear refusal or a right result, nothing else.

`python -m tilewright.flows.verify.damage.artifacts --artifacts 10000` changes bytes, JSON values,
graph text and array headers of good artifacts, recomputes all checksums, and loads and runs each
file in a process with a limit on time and memory. An artifact may describe another network than
before: its result is right if it is what the file says. The graph's definition gives the results of
the host's steps, and the definition of the instructions those of programs. An artifact fails if the
process dies or hangs, if another exception than ours appears, if a refusal is not one sentence, or
if a value differs.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from pathlib import Path

import numpy as np

from ....compiler.frontend import import_model
from ....compiler.graph import Graph, evaluate_node
from ....compiler.host import MIN_WORK, host_target, plan_host
from ....compiler.host.kernel_store import compile_host
from ....compiler.module import Module
from ....compiler.pipeline import compile_module
from ....compiler.placement import ACCELERATOR, HOST, Placement
from ....errors import TilewrightError
from ....isa.configuration import PRESETS
from ....runtime.artifact import artifact_bytes, load
from ....runtime.compare import TOLERANCE, Tally
from ....runtime.devices import open_device
from ....runtime.session import Session
from ..fuzz.fuzz_runs import random_inputs
from ..fuzz.graph_specs import realise
from ..fuzz.random_graphs import random_sketch
from .artifact_damage import damaged_artifact, trusts
from .campaign import Files, Operators, run_command
from .workers import Trial

MACHINE = PRESETS["4x4"]
LIMIT_BYTES = 2 << 30
MAX_MESSAGE = 2000
"""Characters of a refusal that a person would read."""
SKETCHES = (1, 2, 3)
"""Seeds of random networks, beside the example."""
EXPANDED = ("_expanded", "_expanded_ver18")
"""Ends of names of operator tests that are made of other operators, which take long to compile."""
EXAMPLE = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


@cache
def small_networks() -> tuple[bytes, ...]:
    """Artifacts of small networks for the accelerator and for the host."""
    graphs = [import_model(EXAMPLE), *(realise(random_sketch(seed)) for seed in SKETCHES)]
    return tuple(good_artifact(graph, side) for graph in graphs for side in (ACCELERATOR, HOST))


def good_artifact(graph: Graph, policy: str) -> bytes:
    """An artifact with machine code for all of the host's steps, however small."""
    module = compile_module(graph, MACHINE, placement=Placement(policy))
    target = host_target()
    plan = plan_host(module.graph, module.steps, module.segments, target, least_work=0)
    return artifact_bytes(replace(module, code=compile_host(plan)) if target else module)


@cache
def _operator_artifact(model: bytes) -> tuple[bytes, ...]:
    """The artifact of an operator; none where it cannot be compiled."""
    with suppress(TilewrightError), redirect_stderr(StringIO()):
        return (good_artifact(import_model(model), ACCELERATOR),)
    return ()


def damaged_artifacts(
    operators: Sequence[tuple[str, bytes]], seeds: range
) -> Iterator[tuple[int, str, bytes]]:
    """Damaged copies of small networks and, for a quarter, of operators that can be compiled."""
    networks = small_networks()
    for seed in seeds:
        source, given = "network", networks
        if operators and seed % 4 == 1:
            source, model = operators[seed // 4 % len(operators)]
            given = _operator_artifact(model) or networks
        yield seed, source, damaged_artifact(given, seed)


@contextmanager
def artifact_trial() -> Iterator[Trial]:
    """A trial of a user who has signed nothing yet, and whose cache is empty."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_DATA_HOME"] = os.environ["TILEWRIGHT_CACHE"] = home
        yield partial(try_artifact, Path(home) / "damaged.tw")


def try_artifact(path: Path, data: bytes, seed: int) -> tuple[str, str]:
    """Load and run an artifact; return the kind of result and its message."""
    path.write_bytes(data)
    step = "loading"
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings(action="ignore"):
            module = load(path, trust_code=trusts(seed))
            step = "running"
            inputs = random_inputs(module.graph, seed)
            with open_device("sim" if module.segments else "host", module.configuration) as device:
                least_work = 0 if seed % 8 else MIN_WORK
                session = Session(module, device, keep_all=seed % 3 == 0, least_work=least_work)
                run = session.run(inputs)
                got, _ = run.outputs, run.profile
            step = "computing the definition of"
            expected = defined_outputs(module, inputs)
    except TilewrightError as refusal:
        text = str(refusal)
        if step.startswith("comp") or "\n" in text or not 0 < len(text) <= MAX_MESSAGE:
            return "failed", f"{step} refuses: {text}"
        return "refused", text
    except Exception as problem:
        return "failed", f"{step} raises {type(problem).__name__}: {problem}"
    exact = all(kernel.exact for kernel in run.host.kernels)
    for name, array in expected.items():
        tally = Tally(name, tolerance=0.0 if exact else TOLERANCE)
        tally.add(got[name], array, "output")
        if tally.differing:
            return "failed", f"`{name}`: {tally.first}"
    return "equal", ""


def defined_outputs(module: Module, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a module means: the definitions of its nodes and of its instructions, step by step.

    Raises
    ------
    TilewrightError
        If a step cannot compute with its values.
    """
    graph = module.graph
    values = {constant.name: constant.data for constant in graph.constants} | dict(inputs)
    with open_device("reference", module.configuration) as reference:
        for step in module.steps:
            if isinstance(step, int):
                segment = module.segments[step]
                window = segment.image(values)
                reference.run(segment.program, window)
                values |= {binding.name: binding.read(window) for binding in segment.outputs}
                continue
            node = graph.producer(step)
            assert node is not None
            results = evaluate_node(node, [values[name] for name in node.inputs])
            values |= {value.name: r for value, r in zip(node.outputs, results, strict=True)}
    return {output.name: values[output.value] for output in graph.outputs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its results, and return 1 if an artifact failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.damage.artifacts", description=__doc__
    )

    def files(options: argparse.Namespace, operators: Operators) -> Files:
        plain = [(name, model) for name, model in operators if not name.endswith(EXPANDED)]
        return partial(damaged_artifacts, plain)

    return run_command(parser, arguments, "artifacts", 10_000, files, artifact_trial, LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
