"""Placement: minimum cuts against all assignments, user choices by name, and a true table."""

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QConcat,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
    verify,
)
from tilewright.compiler.graph.operators import Dequantize, Reshape, Shift, Transpose, Unary
from tilewright.compiler.module import Module
from tilewright.compiler.options import DEFAULT_OPTIONS
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import node_cycles
from tilewright.compiler.placement.costs import Costs, HostSpeed, LinkSpeed
from tilewright.compiler.placement.decide import Placement
from tilewright.compiler.placement.min_cut import FlowNetwork
from tilewright.compiler.placement.node_cycles import cycles_alone, cycles_by_node
from tilewright.compiler.placement.problem import OUTSIDE, Crossing, Problem
from tilewright.compiler.placement.user_placement import ACCELERATOR, HOST, user_sides
from tilewright.errors import CompileError, UnfitError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MACHINE = PRESETS["8x8"]
SLOW_HOST = Costs(host=HostSpeed(0.01, 0.01, 0.01, 0.01, 1e4, 1e4, 1e4))
FAST_HOST = Costs(host=HostSpeed(1e6, 1e6, 1e6, 1e6, 1e-6, 1e-6, 1e-6))
FAR_LINK = Costs(host=HostSpeed(), link=LinkSpeed(gbps=1e-6, start_us=1e6))


def random_problem(chance: random.Random) -> Problem:
    """A few nodes, each reading some that stand before it; some can run on the host alone."""
    names = [f"n{index}" for index in range(chance.randint(1, 7))]
    times = {name: chance.randint(0, 20) for name in names}
    there = {name: None if chance.random() < 0.2 else chance.randint(0, 20) for name in names}
    host = {
        name: None if there[name] is not None and chance.random() < 0.1 else time
        for name, time in times.items()
    }
    crossings = []
    for index, maker in enumerate([OUTSIDE, *names]):
        later = names[index:]
        readers = chance.sample(later, chance.randint(0, min(3, len(later))))
        if not later or chance.random() < 0.2:
            readers.append(OUTSIDE)
        enter, leave = chance.randint(0, 12), chance.randint(0, 12)
        crossings.append(Crossing(maker, frozenset(readers), enter, leave))
    return Problem(host, there, tuple(crossings))


def subsets(names):
    return itertools.chain.from_iterable(
        itertools.combinations(names, count) for count in range(len(names) + 1)
    )


@pytest.mark.parametrize("seed", range(300))
def test_no_assignment_is_cheaper_than_the_cut(seed):
    problem = random_problem(random.Random(seed))
    allowed = {
        frozenset(chosen): cost
        for chosen in subsets(list(problem.host_ns))
        if (cost := problem.cost_ns(frozenset(chosen))) is not None
    }
    found = problem.solve()
    assert allowed[found] == min(allowed.values())
    largest = max(len(chosen) for chosen, cost in allowed.items() if cost == allowed[found])
    assert len(found) == largest, "of equals, the one with the most nodes on the accelerator"


def test_a_value_with_several_readers_crosses_once():
    crossing = Crossing("a", frozenset({"b", "c", OUTSIDE}), 5, 7)
    assert crossing.cost_ns(frozenset({"a"})) == 7
    assert crossing.cost_ns(frozenset({"b", "c"})) == 5
    assert crossing.cost_ns(frozenset({"a", "b", "c"})) == 7, "an output leaves"
    assert crossing.cost_ns(frozenset()) == 0


def test_flow_goes_back_where_that_is_needed():
    network = FlowNetwork()
    for tail, head, capacity in (
        *(("s", "a", 3), ("s", "b", 2), ("a", "b", 3)),
        *(("a", "t", 1), ("b", "t", 4), ("b", "c", 9)),
    ):
        network.connect(tail, head, capacity)
    flow, side = network.cut("s", "t")
    assert flow == 5
    assert side == {"s", "a", "b", "c"}, "of equal cuts, the largest side"


def network() -> Graph:
    """A pool, an addition beside the pool, another pool, and what the host alone can do."""
    builder = Builder("net")
    x = builder.input(Value("x", TensorType("int8", (1, 8, 8, 16))))
    pool = QMaxPool((3, 3), (1, 1), (1, 1, 1, 1))
    first = builder.emit(pool, [x], "block/first")
    sums = QAdd((3, 5), 7, 0.1, 2)
    kind = Quantisation(0.5, 2)
    added = builder.emit(sums, [first, x], "block/add", quantisation=kind)
    second = builder.emit(pool, [added], "block/second")
    turned = builder.emit(Transpose((0, 3, 1, 2)), [second], "turn")
    back = builder.emit(Transpose((0, 2, 3, 1)), [turned], "back")
    last = builder.emit(pool, [back], "tail/pool")
    flat = builder.emit(Reshape((1, 1024)), [last], "flat")
    shown = builder.emit(Shift(), [flat], "shift")
    return verify(builder.graph([Output("y", shown)]), "test")


def table_of(module: Module) -> dict[str, Any]:
    table = module.report["placement"]
    assert isinstance(table, dict)
    return table


def placed(graph: Graph, **asked) -> tuple[Module, dict[str, dict[str, Any]]]:
    module = compile_module(graph, MACHINE, **asked)
    return module, {row["name"]: row for row in table_of(module)["rows"]}


def test_by_default_the_accelerator_runs_all_that_it_can():
    module, rows = placed(network())
    assert {n for n, row in rows.items() if row["target"] == "accelerator"} == {
        *("block/first", "block/add", "block/second", "tail/pool")
    }
    assert len(module.segments) == 2
    assert rows["shift"]["reason"] == "cannot run there: `shift` of uint8"
    assert rows["tail/pool"]["reason"] == "placement `accelerator`"


def test_the_host_runs_whole_networks():
    module, rows = placed(network(), placement=Placement("host"))
    assert module.segments == ()
    assert module.report["cycles"] is None or module.report["cycles"] == 0
    assert not any(row["target"] == "accelerator" for row in rows.values())
    assert table_of(module)["total_us"]["transfer"] == 0


@pytest.mark.parametrize(("costs", "segments"), [(SLOW_HOST, 2), (FAST_HOST, 0), (FAR_LINK, 0)])
def test_costs_decide(costs, segments):
    module, rows = placed(network(), placement=Placement("cost"), costs=costs)
    assert len(module.segments) == segments
    for row in rows.values():
        assert row["gain_us"] is None or row["gain_us"] <= 1e-3, "no move alone is a gain"


@pytest.mark.parametrize("seed", range(8))
def test_every_placement_gives_the_same_bits(seed):
    graph, chance = network(), random.Random(seed)
    able = [node.name for node in graph.nodes if is_accelerated(node)]
    forced = tuple((name, chance.choice((ACCELERATOR, HOST))) for name in able)
    module, rows = placed(graph, placement=Placement("cost", forced), costs=FAST_HOST)
    for name, side in forced:
        targets = {row["target"] for at, row in rows.items() if name in at.split(" + ")}
        assert targets <= ({"accelerator"} if side == ACCELERATOR else {"host", "numpy"})
    x = np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 16)).astype(np.int8)
    with open_device("sim", MACHINE) as device:
        got = Session(module, device).run(x).outputs["y"]
    np.testing.assert_array_equal(got, evaluate(graph, {"x": x})["y"])


def test_what_is_not_said_of_is_as_the_policy_wants():
    wish = (("block/*", HOST), ("second", ACCELERATOR))
    module, rows = placed(network(), placement=Placement(forced=wish))
    assert rows["block/second"]["target"] == "accelerator"
    assert rows["block/second"]["reason"] == "forced"
    assert rows["tail/pool"]["reason"] == "placement `accelerator`"
    assert all(
        row["target"] != "accelerator" for name, row in rows.items() if "block/first" in name
    )
    assert len(module.segments) == 2


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("block/add", {"block/add"}),
        ("add", {"block/add"}),
        ("t", {"block/first"}),
        ("*pool", {"tail/pool"}),
        ("block/*", {"block/first", "block/add", "block/second"}),
        ("tail", {"tail/pool"}),
        ("*", {"block/first", "block/add", "block/second", "tail/pool"}),
    ],
)
def test_a_wish_names_nodes_by_name_end_part_or_pattern(wanted, names):
    graph = network()
    found = user_sides(graph, [(wanted, HOST)])
    assert {node.name for node in graph.nodes if node.outputs[0].name in found} == names
    assert set(found.values()) == {HOST}


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (("blok/ad", HOST), "placement of `blok/ad`: expected a layer of `net`, the end of a "
         "layer's name or a pattern with `*`, got none; did you mean `block`?"),
        (("d", HOST), "placement of `d`: expected the end of one layer's name, got that of "
         "`block/add`, `block/second`; give more of the name, or `*d` for all of them"),
        (("turn", ACCELERATOR), "placement of `turn`: the accelerator cannot run `transpose` of "
         "int8; leave it to the host"),
    ],
)  # fmt: skip
def test_a_wish_that_cannot_be_fulfilled(wish, message):
    with pytest.raises(CompileError) as found:
        compile_module(network(), MACHINE, placement=Placement(forced=(wish,)))
    assert str(found.value).startswith(message)
    assert "quantise" not in str(found.value)


def test_only_a_step_in_float_is_to_be_quantised():
    builder = Builder("float", [Value("x", TensorType("float32", (1, 8)))])
    graph = builder.graph([Output("y", builder.emit(Unary("Exp"), ["x"], "curve"))])
    with pytest.raises(CompileError, match=r"float32; leave it to the host, or quantise it$"):
        compile_module(graph, MACHINE, placement=Placement(forced=(("curve", ACCELERATOR),)))


def test_a_dequantised_output_is_not_to_be_quantised():
    builder = Builder("bytes", [Value("x", TensorType("int8", (1, 8)))])
    graph = builder.graph([Output("y", builder.emit(Dequantize((0.1,), (0,)), ["x"], "floats"))])
    with pytest.raises(CompileError, match=r"`dequantize` of float32; leave it to the host$"):
        compile_module(graph, MACHINE, placement=Placement(forced=(("floats", ACCELERATOR),)))


def test_policies_and_sides_that_do_not_exist():
    with pytest.raises(CompileError, match="expected one of accelerator, cost, host"):
        Placement("fastest")
    with pytest.raises(CompileError, match="expected accelerator or host, got `gpu`"):
        Placement(forced=(("add", "gpu"),))
    with pytest.raises(CompileError, match="expected a positive `clock`, got 0"):
        Costs(clock_mhz=0)


def test_what_does_not_fit_the_accelerator_is_the_hosts_when_costs_decide():
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    small = PRESETS["tiny"].replace(name="small", wgt_depth=8, act_depth=8)
    with pytest.raises(UnfitError, match="no tile fits"):
        compile_module(graph, small, placement=Placement(strict=True))
    module = compile_module(graph, small, placement=Placement("cost"), costs=SLOW_HOST)
    rows = table_of(module)["rows"]
    refused = [row for row in rows if row["reason"].startswith("does not fit there: ")]
    assert refused
    assert not any(row["target"] == "accelerator" for row in refused)
    assert any(row["target"] == "accelerator" for row in rows), "what fits stays there"
    wish = Placement("cost", ((refused[0]["name"].split(" + ")[0], ACCELERATOR),))
    with pytest.raises(CompileError, match="no tile fits"):
        compile_module(graph, small, placement=wish)


def test_nodes_of_one_kernel_share_its_cycles():
    graph = network()
    cycles = cycles_by_node(graph, MACHINE, DEFAULT_OPTIONS)
    assert set(cycles) == {n.output.name for n in graph.nodes if is_accelerated(n)}
    assert all(isinstance(count, int) and count > 0 for count in cycles.values())


def test_equal_layers_are_estimated_once(monkeypatch):
    graph, kernels = network(), []
    choose = node_cycles.choose_candidate

    def count(kernel, *rest):
        kernels.append(kernel)
        return choose(kernel, *rest)

    monkeypatch.setattr(node_cycles, "choose_candidate", count)
    node_cycles.estimator_of.cache_clear()
    twice = [node for node in graph.nodes if is_accelerated(node)] * 2
    cycles_alone(graph, twice, MACHINE, DEFAULT_OPTIONS)
    assert 0 < len(kernels) <= len(twice) // 2


def test_the_total_is_that_of_the_rows():
    module, rows = placed(
        network(), costs=Costs(clock_mhz=50, link=LinkSpeed(gbps=0.5, start_us=3))
    )
    table = table_of(module)
    assert table["costs"]["clock_mhz"] == 50
    there = [row for row in rows.values() if row["target"] == "accelerator"]
    layers = module.report["layers"]
    assert isinstance(layers, list)
    cycles = sum(layer["cycles"] for layer in layers)
    assert sum(row["accelerator_us"] for row in there) == pytest.approx(cycles / 50)
    # 1,024 bytes enter twice and leave twice, and two segments start.
    assert table["total_us"]["transfer"] == pytest.approx(4 * 1024 / 500 + 2 * 3, abs=0.01)
    assert table["total_us"]["sum"] == pytest.approx(
        sum(table["total_us"][part] for part in ("accelerator", "host", "transfer"))
    )


@pytest.mark.parametrize("policy", ["accelerator", "cost", "host"])
def test_samples_without_elements_are_the_hosts(policy):
    shapes = {"x": (1, 2, 2, 8), "e": (1, 2, 2, 0)}
    values = [Value(name, TensorType("int8", shape)) for name, shape in shapes.items()]
    builder = Builder("empty", values)
    joined = builder.emit(QConcat(3), ["x", "e"])
    halved = builder.emit(QAdd((1, 1), 0, 0.5, 0), ["e", "e"], quantisation=Quantisation(1.0, 0))
    graph = builder.graph([Output("y", joined), Output("z", halved)])
    module = compile_module(graph, MACHINE, placement=Placement(policy))
    assert not module.segments
    x = np.arange(32, dtype=np.int8).reshape(1, 2, 2, 8)
    with open_device("sim", MACHINE) as device:
        ran = Session(module, device).run({"x": x, "e": np.zeros((1, 2, 2, 0), np.int8)})
    np.testing.assert_array_equal(ran.outputs["y"], x)
    assert ran.outputs["z"].shape == (1, 2, 2, 0)
    with pytest.raises(CompileError, match="the accelerator cannot run `qadd` of no elements"):
        compile_module(graph, MACHINE, placement=Placement(forced=((halved, "accelerator"),)))


def test_layers_without_samples_take_no_cycles():
    builder = Builder("empty", (Value("x", TensorType("int8", (0, 2, 2, 8))),))
    double = builder.emit(QAdd((1, 1), 0, 0.5, 0), ["x", "x"], quantisation=Quantisation(1.0, 0))
    graph = builder.graph([Output("y", double)])
    assert cycles_by_node(graph, MACHINE, DEFAULT_OPTIONS) == {double: 0}
