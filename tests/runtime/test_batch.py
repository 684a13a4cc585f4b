"""Batches: the host's consecutive steps in machine code as one call, on arrays of any layout."""

import time

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import (
    Binary,
    Pad,
    Reshape,
    Slice,
    Softmax,
    TopK,
    Transpose,
    Unary,
)
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device
from tilewright.runtime.batch import Batch
from tilewright.runtime.compare import TOLERANCE

pytestmark = [pytest.mark.processor, pytest.mark.cpu_kernels]

SMALL = PRESETS["8x16"]
SHAPE = (64, 96)


def network(sorted_inside: bool = False) -> Graph:
    """Kernels, movements and views; a node that only NumPy computes may lie between them.

    One output is read by a later step, and one is a view of another.
    """
    builder = Builder("batch", (Value("x", TensorType("float32", SHAPE)),))
    bent = builder.emit(Unary("Tanh"), ["x"], "bent")
    soft = builder.emit(Softmax(1, 2), [bent], "soft")
    turned = builder.emit(Transpose((1, 0)), [soft], "turned")
    value = builder.emit(Pad((0, 1), (0, 1), 0.0), [turned], "padded")
    if sorted_inside:
        axis = TopK(axis=1, largest=True, count=66)
        value, _ = builder.emit_outputs(axis, [value], "sorted", ["values", "indices"])
    value = builder.emit(Slice((0, 1), (96, 65), (1, 1)), [value], "cut")
    flat = builder.emit(Reshape((96 * 64,)), [value], "flat")
    last = builder.emit(Unary("Exp"), [flat], "last")
    both = builder.emit(Binary("Add"), [bent, soft], "both")
    shown = [Output("last", last), Output("both", both), Output("soft", soft)]
    view = builder.emit(Reshape((96, 64)), [last], "view")
    return builder.graph([*shown, Output("view", view)])


def x_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def assert_close(outputs: dict[str, np.ndarray], graph: Graph, x: np.ndarray) -> None:
    for name, expected in evaluate(graph, {"x": x}).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=TOLERANCE, atol=1e-6)


@pytest.mark.parametrize("keep_all", [False, True])
def test_steps_that_follow_one_another_are_one_stage(keep_all):
    graph = network()
    with open_device("sim", SMALL) as sim:
        session = Session(compile_module(graph, SMALL), sim, keep_all=keep_all, least_work=0)
        assert [type(stage.work) for stage in session.host.stages] == [Batch]
        for seed in range(3):
            assert_close(session.run(x_of(seed)).outputs, graph, x_of(seed))


@pytest.mark.parametrize("keep_all", [False, True])
def test_what_numpy_computes_lies_between_two_stages(keep_all):
    graph = network(sorted_inside=True)
    with open_device("sim", SMALL) as sim:
        session = Session(compile_module(graph, SMALL), sim, keep_all=keep_all, least_work=0)
        kinds = [isinstance(stage.work, Batch) for stage in session.host.stages]
        assert kinds == [True, False, True]
        for seed in range(3):
            assert_close(session.run(x_of(seed)).outputs, graph, x_of(seed))


def test_inputs_may_have_any_layout_and_be_read_only():
    graph = network()
    strided = np.zeros((SHAPE[0], 2 * SHAPE[1]), np.float32)
    strided[:, ::2] = x_of()
    fixed = x_of()
    fixed.flags.writeable = False
    with open_device("sim", SMALL) as sim:
        session = Session(compile_module(graph, SMALL), sim, least_work=0)
        for x in (np.asfortranarray(x_of()), strided[:, ::2], fixed, {"x": fixed}):
            assert_close(session.run(x).outputs, graph, x_of())


@pytest.mark.parametrize("sorted_inside", [False, True])
def test_every_step_has_a_time(sorted_inside):
    """Shares of a batch and the times of other steps; together at most those of the run."""
    module = compile_module(network(sorted_inside), SMALL)
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim, least_work=0)
        session.run(x_of())
        began = time.perf_counter()
        run = session.run(x_of())
        whole = time.perf_counter() - began
    seconds = run.host.seconds
    assert {kernel.output for kernel in run.host.kernels} <= set(seconds)
    assert all(seconds[kernel.output] > 0 for kernel in run.host.kernels)
    assert 0 < sum(seconds.values()) <= whole
    rows = {row.short: row.microseconds for row in run.profile.layers}
    assert None not in rows.values()
