"""A small network on which the accelerator and kernels of several threads work at the same time."""

import hashlib
from dataclasses import replace
from functools import cache

import numpy as np

from ....compiler.graph import Graph, Output, QAdd, Quantisation, TensorType, Value
from ....compiler.graph.build import Builder
from ....compiler.graph.operators import Binary, Softmax
from ....compiler.module import Module
from ....compiler.pipeline import CompileRequest, compile_request
from ....isa.configuration import PRESETS
from ....runtime.session import Session

MACHINE = PRESETS["4x4"]
THREADS = 2
SHAPES = {"a": ("int8", (1, 4, 4, 8)), "x": ("float32", (64, 512))}


@cache
def graph() -> Graph:
    """A sum for the accelerator, beside float kernels of more than one thread's work."""
    inputs = [Value(name, TensorType(*kind)) for name, kind in SHAPES.items()]
    builder = Builder("stress", inputs)
    twice = builder.emit(QAdd((1, 1), 0, 0.5, 0), ["a", "a"], quantisation=Quantisation(1.0, 0))
    soft = builder.emit(Softmax(1, 2), ["x"], "soft")
    both = builder.emit(Binary("Add"), [soft, "x"], "both")
    return builder.graph([Output("y", twice), Output("z", both)])


@cache
def request() -> CompileRequest:
    """The network for its machine."""
    return CompileRequest(graph=graph(), configuration=MACHINE)


@cache
def module() -> Module:
    """The compiled network."""
    return compile_request(request()).module


@cache
def renamed(name: str) -> Module:
    """The compiled network under another name."""
    return replace(module(), name=name)


def inputs(seed: int) -> dict[str, np.ndarray]:
    """A sample."""
    chance = np.random.default_rng(seed)
    (_, small), (_, wide) = SHAPES["a"], SHAPES["x"]
    a = chance.integers(-128, 128, small).astype(np.int8)
    return {"a": a, "x": chance.standard_normal(wide).astype(np.float32)}


def digest(session: Session, seed: int) -> str:
    """A hash of the outputs for a sample, which are the same for any number of threads."""
    outputs = session.run(inputs(seed)).outputs
    found = b"".join(outputs[name].tobytes() for name in sorted(outputs))
    return hashlib.sha256(found).hexdigest()
