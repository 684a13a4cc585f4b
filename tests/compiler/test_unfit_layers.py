"""Layers that a machine's loops and scratchpads do not fit: split where possible, or the host's."""

import numpy as np
import pytest

from tilewright.compiler.graph import (
    Builder,
    Graph,
    Node,
    Output,
    QAvgPool,
    QConv,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.compiler.graph.macs import macs_of
from tilewright.compiler.graph.operators import FromBytes, QSums
from tilewright.compiler.passes.split_pools import split_pools
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.pipeline.network_bound import network_work
from tilewright.compiler.placement import COST, HOST, STRICT_PLACEMENT, Costs, HostSpeed, Placement
from tilewright.compiler.placement.user_placement import ACCELERATOR
from tilewright.errors import CompileError, UnfitError
from tilewright.flows.execution.timed import require_segments
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.settings import DEFAULT_MEMORY
from tilewright.runtime import Session, open_device
from tilewright.sim.timing import ExactMeasure

GATEMATE, GOWIN = PRESETS["gatemate"], PRESETS["gowin20"]
KIND = Quantisation(0.5, 3)

MAXIMA = (
    QMaxPool((3, 3), (2, 2), (1, 1, 1, 1)),
    QMaxPool((2, 3), (1, 2), (0, 1, 1, 0), low=-20, high=50),
    QMaxPool((3, 2), (1, 1), (2, 0, 1, 3), (2, 3)),
)
AVERAGES = (
    QAvgPool((3, 3), (2, 2), (1, 1, 1, 1), -5, 45, 0.21, 3),
    QAvgPool((2, 4), (1, 3), (0, 0, 0, 0), 0, 0, 0.3, 3, -30, 40),
    QAvgPool((11, 9), (1, 1), (0, 0, 0, 0), 2, -198, 0.02, 3),
)
LONG = QMaxPool((1, 100), (1, 1), (0, 0, 0, 0))
"""A window that is longer than a loop of `gatemate`, which has 64 steps."""

TOO_LONG = (
    "kernel `long`: vector: a reduction takes 2 loops of `reduce_loops` (axes kx), but "
    "configuration `gatemate` has 1; raise `reduce_loops`"
)


def pooled(pool: QMaxPool | QAvgPool, shape: tuple[int, ...] = (1, 11, 9, 6)) -> Graph:
    """A network of one pool."""
    return network({"pool": pool}, shape)


def network(pools: dict[str, QMaxPool | QAvgPool], shape: tuple[int, ...]) -> Graph:
    """Pools one after the other."""
    builder = Builder("net", (Value("x", TensorType("int8", shape, KIND)),))
    value = "x"
    for name, pool in pools.items():
        kind = KIND if isinstance(pool, QAvgPool) else None
        value = builder.emit(pool, [value], name, quantisation=kind)
    return verify(builder.graph([Output("y", value)]), "test")


def rows_and_equality(
    graph: Graph, configuration: Configuration, **asked
) -> tuple[dict[str, dict], bool]:
    """Compile and run; the placement table by names, and whether the result is the definition's."""
    module = compile_module(graph, configuration, **asked)
    x = np.random.default_rng(5).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    with open_device("sim", configuration) as device:
        result = Session(module, device).run(x).outputs["y"]
    placement = module.report["placement"]
    assert isinstance(placement, dict)
    rows = {row["name"]: row for row in placement["rows"]}
    return rows, np.array_equal(result, evaluate(graph, {"x": x})["y"])


def nodes_of(graph: Graph, kind: type) -> list[Node]:
    return [node for node in graph.nodes if isinstance(node.attributes, kind)]


@pytest.mark.parametrize("configuration", [GATEMATE, GOWIN], ids=lambda one: one.name)
@pytest.mark.parametrize("pool", [*MAXIMA, *AVERAGES], ids=lambda pool: f"{pool.op}{pool.kernel}")
def test_a_machine_with_one_loop_runs_pools_of_images(pool, configuration):
    rows, equal = rows_and_equality(pooled(pool), configuration)
    assert {row["target"] for row in rows.values()} == {"accelerator"}
    assert equal


@pytest.mark.parametrize("pool", [*MAXIMA, *AVERAGES])
def test_split_pools_keep_the_meaning_and_the_type(pool):
    graph = pooled(pool)
    split = verify(split_pools(graph, GATEMATE), "split_pools")
    assert split.types[split.outputs[0].value] == graph.types[graph.outputs[0].value]
    x = np.random.default_rng(6).integers(-128, 128, (1, 11, 9, 6)).astype(np.int8)
    np.testing.assert_array_equal(evaluate(split, {"x": x})["y"], evaluate(graph, {"x": x})["y"])


def test_sums_of_an_average_do_not_count_as_multiplications_of_the_model():
    split = split_pools(pooled(AVERAGES[0]), GATEMATE)
    (node,) = nodes_of(split, QConv)
    assert macs_of(split, node) == 0


def test_only_windows_that_need_two_loops_are_split():
    whole = QAvgPool((4, 9), (1, 1), (0, 0, 0, 0), 0, 0, 0.1, 3)
    wide = QAvgPool((8, 9), (1, 1), (0, 0, 0, 0), 0, 0, 0.1, 3)
    row = QMaxPool((1, 3), (1, 2), (0, 1, 0, 1))
    for pool in (whole, row):
        assert nodes_of(split_pools(pooled(pool), GATEMATE), type(pool))
    assert nodes_of(split_pools(pooled(wide), GOWIN), QAvgPool), "a loop of 72 steps"
    assert nodes_of(split_pools(pooled(wide), GATEMATE), QConv), "a loop has 64 steps at most"
    for pool in (*MAXIMA, *AVERAGES):
        assert split_pools(pooled(pool), PRESETS["8x8"]) == pooled(pool), "two loops"


@pytest.mark.parametrize("pool", [MAXIMA[0], AVERAGES[0]])
def test_the_bound_holds_for_split_pools(pool):
    graph = pooled(pool)
    report = compile_module(graph, GATEMATE, measure=ExactMeasure(), lean=True).report
    (work,) = network_work(graph, GATEMATE)
    assert 0 < work.bound(DEFAULT_MEMORY).cycles <= report["cycles"]


@pytest.mark.parametrize("measure", [None, ExactMeasure()])
@pytest.mark.parametrize("policy", [ACCELERATOR, COST])
def test_a_layer_that_does_not_fit_is_the_hosts(policy, measure):
    graph = network({"first": MAXIMA[0], "long": LONG}, (1, 6, 200, 4))
    placement = Placement(policy, (("first", ACCELERATOR),))
    slow = Costs(host=HostSpeed(kernel_call_us=1000.0, numpy_call_us=1000.0))
    rows, equal = rows_and_equality(
        graph, GATEMATE, placement=placement, costs=slow, measure=measure
    )
    assert rows["first"]["target"] == "accelerator"
    assert rows["long"]["target"] != "accelerator"
    assert rows["long"]["reason"] == f"does not fit there: {TOO_LONG}"
    assert equal


@pytest.mark.parametrize("policy", [ACCELERATOR, COST, HOST])
def test_a_layer_that_does_not_fit_is_refused_if_the_user_wants_it_there(policy):
    graph = network({"first": MAXIMA[0], "long": LONG}, (1, 6, 200, 4))
    with pytest.raises(UnfitError) as found:
        compile_module(graph, GATEMATE, placement=Placement(policy, (("long", ACCELERATOR),)))
    assert str(found.value) == (
        "placement of `long`: expected a layer that fits the accelerator, got: "
        f"{TOO_LONG}, or leave the layer to the host"
    )


def test_a_strict_placement_refuses_what_does_not_fit():
    graph = network({"long": LONG}, (1, 6, 200, 4))
    with pytest.raises(UnfitError) as found:
        compile_module(graph, GATEMATE, placement=STRICT_PLACEMENT)
    assert str(found.value) == TOO_LONG


def convolution(shape: tuple[int, ...], kernel: tuple[int, ...]) -> Graph:
    """A network of one convolution without padding; `kernel` is [KH, KW, Ci, Co]."""
    builder = Builder("net", (Value("x", TensorType("int8", shape, KIND)),))
    draw = np.random.default_rng(7)
    constants = (
        builder.constant(draw.integers(-9, 10, kernel).astype(np.int8), "w"),
        builder.constant(np.zeros(kernel[3], np.int32), "b"),
        builder.constant(np.full(kernel[3], 0.01, np.float32), "s"),
    )
    operator = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 3)
    made = builder.emit(operator, ["x", *constants], "conv", quantisation=KIND)
    return verify(builder.graph([Output("y", made)]), "test")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tile_loops": 1}, "a reduction takes 3 loops of `tile_loops` (axes i, ky, kx)"),
        ({"wgt_depth": 16}, "no tile fits configuration `small`"),
    ],
)
def test_convolutions_that_do_not_fit_are_the_hosts(changes, reason):
    small = GATEMATE.replace(name="small", **changes)
    rows, equal = rows_and_equality(convolution((1, 5, 5, 32), (3, 3, 32, 8)), small)
    assert rows["conv"]["target"] != "accelerator"
    assert reason in rows["conv"]["reason"]
    assert equal


def test_another_schedule_is_taken_if_the_likeliest_does_not_fit():
    graph = convolution((1, 4, 67, 4), (1, 1, 4, 4))  # rows of 67 pixels, loops of 64 steps
    with pytest.raises(UnfitError, match="a loop of 67 steps does not fit 64"):
        compile_module(graph, GATEMATE, placement=STRICT_PLACEMENT)  # by the estimate alone
    rows, equal = rows_and_equality(graph, GATEMATE, measure=ExactMeasure())
    assert rows["conv"]["target"] == "accelerator"
    assert equal


def test_data_beyond_the_reach_of_addresses_are_refused():
    with pytest.raises(CompileError) as found:
        compile_module(convolution((1, 1, 1, 1024), (1, 1, 1024, 1024)), GATEMATE)
    assert str(found.value) == (
        "model `net`: its activations and constants take 1,050,880 bytes, but `address_bits` = 20 "
        "of configuration `gatemate` reaches 1,048,576; raise it, or leave layers to the host"
    )


def test_cycles_of_a_network_that_does_not_fit_are_refused_with_the_reason():
    """Other placements would not help, so none is proposed."""
    module = compile_module(network({"long": LONG}, (1, 4, 120, 6)), GATEMATE)
    with pytest.raises(CompileError) as found:
        require_segments(module)
    assert str(found.value) == (
        "model `net`: expected layers on the accelerator, got none, so there are no cycles to tell "
        f"of; 1 layer runs on the host, as it does not fit the accelerator: {TOO_LONG}"
    )


def test_sums_that_do_not_fit_say_so():
    """The host reads accumulators as int32 in the same kernel, which no accelerator can do."""
    random = np.random.default_rng(7)
    builder = Builder("net", (Value("x", TensorType("int8", (1, 6, 6, 8), KIND)),))
    weights = builder.constant(random.integers(-9, 9, (5, 5, 8, 4)).astype(np.int8))
    sums = QSums("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 3)
    value = builder.emit(FromBytes(), [builder.emit(sums, ["x", weights], "sums")], "sums")
    graph = verify(builder.graph([Output("y", value)]), "test")
    small = PRESETS["4x4"].replace(wgt_depth=64, wgt_banks=1)
    rows, equal = rows_and_equality(graph, small)
    assert equal
    assert rows["sums"]["reason"].startswith("does not fit there: ")
