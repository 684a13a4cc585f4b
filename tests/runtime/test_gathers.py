"""Gathers and scatters in machine code give the bits and the errors of their definitions."""

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operator import Operator
from tilewright.compiler.graph.operators import (
    Gather,
    GatherElements,
    GatherND,
    Reshape,
    ScatterElements,
    ScatterND,
    Unary,
)
from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.module import Module
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.host import HostSide

pytestmark = [pytest.mark.processor, pytest.mark.cpu_kernels]

Shape = tuple[int, ...]

CASES: Sequence[tuple[Operator, Shape, Shape]] = [
    *((Gather(axis), (5, 6, 7), (4, 3)) for axis in range(3)),
    (Gather(0), (30, 24), (2, 9)),  # vectors that overlap
    (Gather(0), (9, 700), (8,)),  # memcpy
    (Gather(1), (3, 5), ()),
    (Gather(0), (7,), ()),
    (Gather(0), (1000, 64), (513,)),  # shared by threads
    (Gather(1), (64, 100, 2), (300,)),
    *((GatherElements(axis), (5, 6, 7), (5, 4, 7) if axis == 1 else (3, 6, 7)) for axis in (0, 1)),
    (GatherElements(2), (2, 3, 4), (2, 2, 9)),
    (GatherElements(0), (9,), (20,)),
    (GatherElements(2), (3, 3, 4, 5, 3), (2, 2, 3, 4, 2)),  # one axis more than the nest: NumPy
    (GatherND(), (5, 6, 7), (4, 3)),
    (GatherND(), (5, 6, 7), (2, 4, 2)),
    (GatherND(), (5, 6, 7), (1,)),
    (GatherND(1), (5, 6, 7), (5, 3, 1)),
    (GatherND(2), (2, 3, 7, 4), (2, 3, 2)),
    *((ScatterElements(axis), (5, 6, 7), (4, 5, 6)) for axis in range(3)),
    (ScatterElements(0), (9,), (30,)),  # of equal indices, the last counts
    (ScatterND(), (5, 6, 7), (40, 2)),
    (ScatterND(), (5, 6, 7), (3, 2, 3)),
    (ScatterND(), (90, 64), (70, 1)),
]


def graph_of(operator: Operator, x: Shape, places: Shape, dtype: str, index: str) -> Graph:
    """The operator alone, on inputs `x`, `places` and, for a scatter, `updates`."""
    inputs = [Value("x", TensorType(dtype, x)), Value("places", TensorType(index, places))]
    if isinstance(operator, ScatterElements | ScatterND):
        slices = x[places[-1] :] if isinstance(operator, ScatterND) else ()
        updates = (*places[:-1], *slices) if isinstance(operator, ScatterND) else places
        inputs.append(Value("updates", TensorType(dtype, updates)))
    builder = Builder("gather", tuple(inputs))
    out = builder.emit(operator, [value.name for value in inputs], "out")
    return builder.graph([Output("out", out)])


def extents_of(operator: Operator, x: Shape, places: Shape) -> np.ndarray:
    """The extents that indices must stay below, in the indices' shape."""
    if isinstance(operator, GatherND | ScatterND):
        batch = getattr(operator, "batch_dims", 0)
        return np.broadcast_to(np.array(x[batch : batch + places[-1]]), places)
    assert isinstance(operator, Gather | GatherElements | ScatterElements)
    return np.full(places, x[operator.axis])


def values_of(graph: Graph, operator: Operator, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs; indices reach from the first negative one to the last."""
    random = np.random.default_rng(seed)
    values = {}
    for value in graph.inputs:
        dtype = np.dtype(DTYPES[value.type.dtype])
        values[value.name] = np.asarray(random.integers(-99, 99, value.type.shape)).astype(dtype)
    (x, places) = (values[name] for name in ("x", "places"))
    extents = extents_of(operator, x.shape, places.shape)
    values["places"] = np.asarray(random.integers(-extents, extents), places.dtype)
    return values


def host_of(graph: Graph, threads: int = 1, least_work: int | None = 0) -> HostSide:
    steps = tuple(node.outputs[0].name for node in graph.nodes)
    module = Module(graph.name, PRESETS["8x16"], graph, steps, (), {})
    return HostSide(module, threads=threads, least_work=least_work)


def run(host: HostSide, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    values = {constant.name: constant.data for constant in host._graph.constants} | inputs
    for stage in host.stages:
        host.run(stage, values)
    return {output.name: values[output.value] for output in host._graph.outputs}


def message_of(host: HostSide, inputs: dict[str, np.ndarray]) -> str:
    with pytest.raises(CompileError) as problem:
        run(host, inputs)
    return str(problem.value)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "float64", "bool", "bfloat16"])
def test_every_bit_is_the_definitions(dtype: str, index: str) -> None:
    for operator, x, places in CASES:
        graph = graph_of(operator, x, places, dtype, index)
        inputs = values_of(graph, operator)
        (expected,) = evaluate(graph, inputs).values()
        for threads in (1, 2):
            host = host_of(graph, threads)
            assert len(host.plan.kernels) == (len(places) < 5), operator
            assert not host.refused
            found = run(host, inputs)["out"]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), operator
            assert found.tobytes() == expected.tobytes(), operator


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_an_index_out_of_range_gives_the_definitions_error(index: str) -> None:
    """Also of many threads, at either end, and of the largest numbers."""
    limits = np.iinfo(index)
    for operator, x, places in CASES:
        graph = graph_of(operator, x, places, "float32", index)
        inputs = values_of(graph, operator)
        extents = extents_of(operator, x, places).reshape(-1)
        for at in {0, extents.size // 2, extents.size - 1}:
            for wrong in (extents[at], -extents[at] - 1, limits.min, limits.max):
                bad = inputs["places"].reshape(-1).copy()
                bad[at] = wrong
                given = inputs | {"places": bad.reshape(places)}
                with pytest.raises(CompileError) as problem:
                    evaluate(graph, given)
                assert f"index {wrong} of {extents[at]} elements" in str(problem.value)
                for threads in (1, 2):
                    assert message_of(host_of(graph, threads), given) == str(problem.value)


def chain() -> Graph:
    """Two gathers between kernels; the first one's inputs are in the arena, and one is a view."""
    inputs = (
        Value("x", TensorType("float32", (8, 64))),
        Value("first", TensorType("int64", (50,))),
        Value("second", TensorType("int32", (30,))),
    )
    builder = Builder("chain", inputs)
    bent = builder.emit(Unary("Abs"), ["x"], "bent")
    flat = builder.emit(Reshape((512,)), [bent], "flat")
    once = builder.emit(Gather(0), [flat, "first"], "once")
    twice = builder.emit(Gather(0), [once, "second"], "twice")
    last = builder.emit(Unary("Neg"), [twice], "last")
    return builder.graph([Output("last", last)])


def test_the_first_failing_step_is_reported_and_the_next_run_is_right() -> None:
    graph = chain()
    random = np.random.default_rng(0)
    good = {
        "x": random.standard_normal((8, 64), np.float32),
        "first": random.integers(-512, 512, 50),
        "second": random.integers(-50, 50, 30, np.int32),
    }
    host = host_of(graph)
    assert len(host.stages) == 1
    for wrong in ({"first": 512}, {"second": -51}, {"first": -513, "second": 50}):
        bad = dict(good)
        for name, index in wrong.items():
            bad[name] = np.where(np.arange(good[name].size) == 7, index, good[name])
            bad[name] = bad[name].astype(good[name].dtype)
        with pytest.raises(CompileError) as problem:
            evaluate(graph, bad)
        assert message_of(host, bad) == str(problem.value)
        (expected,) = evaluate(graph, good).values()
        np.testing.assert_array_equal(run(host, good)["last"], expected)


def test_constant_tables_and_constant_indices() -> None:
    """An embedding; and scattered constant indices, which a movement has too many boxes for."""
    random = np.random.default_rng(0)
    table = random.standard_normal((300, 20), np.float32)
    builder = Builder("embedding", (Value("tokens", TensorType("int64", (2, 17))),))
    rows = builder.emit(Gather(0), [builder.constant(table, "table"), "tokens"], "rows")
    places = builder.constant(random.integers(-20, 20, 999), "places")
    out = builder.emit(Gather(2), [rows, places], "out")
    graph = builder.graph([Output("out", out)])
    inputs = {"tokens": random.integers(-300, 300, (2, 17))}
    host = host_of(graph)
    assert len(host.plan.kernels) == 2
    (expected,) = evaluate(graph, inputs).values()
    np.testing.assert_array_equal(run(host, inputs)["out"], expected)


def test_indices_in_another_memory_order() -> None:
    graph = graph_of(Gather(0), (30, 24), (20, 9), "float32", "int64")
    inputs = values_of(graph, Gather(0))
    turned = np.asfortranarray(inputs["places"])
    (expected,) = evaluate(graph, inputs).values()
    np.testing.assert_array_equal(run(host_of(graph), inputs | {"places": turned})["out"], expected)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_reductions_stay_in_numpy(reduction: str) -> None:
    graph = graph_of(ScatterND(reduction), (5, 6, 7), (40, 2), "float32", "int64")
    assert not host_of(graph).plan.kernels


def test_empty_tensors_stay_in_numpy() -> None:
    for x, places in (((4, 0), (3,)), ((4, 5), (0,)), ((0, 5), (0, 2))):
        graph = graph_of(Gather(0), x, places, "float32", "int64")
        inputs = {"x": np.ones(x, np.float32), "places": np.zeros(places, np.int64)}
        host = host_of(graph)
        assert not host.plan.kernels
        (expected,) = evaluate(graph, inputs).values()
        assert run(host, inputs)["out"].shape == expected.shape
