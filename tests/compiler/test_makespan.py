"""Both sides at work: timelines by hand, and a search against all assignments of small graphs."""

import itertools
import random
import statistics
from typing import Any

import pytest

from tilewright.compiler.cpu import Elementwise
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
)
from tilewright.compiler.host import HostKernel
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import improve as search
from tilewright.compiler.placement.costs import Costs, HostSpeed, LinkSpeed
from tilewright.compiler.placement.decide import Placement
from tilewright.compiler.placement.improve import improve
from tilewright.compiler.placement.problem import Problem, crossings_of
from tilewright.compiler.placement.timeline import Evaluator, Timeline
from tilewright.compiler.placement.user_placement import ACCELERATOR, HOST
from tilewright.isa.configuration import PRESETS

SHAPE = (1, 4, 4, 16)
VALUE_NS = 256
"""Of a value on its way: 256 bytes at 10^9 a second."""
START_NS = 20_000
COSTS = Costs(link=LinkSpeed(gbps=1.0, start_us=20.0))
POOL = QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))


def graph_of(reads: list[list[int]], shown: list[int] | None = None) -> Graph:
    """Nodes that read one or two earlier values, of which number 0 is the input."""
    builder, names = Builder("net", (Value("x", TensorType("int8", SHAPE)),)), ["x"]
    for index, places in enumerate(reads, 1):
        given, kind = [names[place] for place in places], Quantisation(1.0, 0)
        operator = POOL if len(given) == 1 else QAdd((1, 1), 0, 0.5, 0)
        quantisation = None if len(given) == 1 else kind
        names.append(builder.emit(operator, given, f"n{index}", quantisation=quantisation))
    outputs = [Output(f"y{place}", names[place]) for place in shown or [len(names) - 1]]
    return builder.graph(outputs)


def names_of(graph: Graph) -> list[str]:
    return [node.outputs[0].name for node in graph.nodes]


def evaluator(graph: Graph, host: list[int], there: list[int | None], **more) -> Evaluator:
    names = names_of(graph)
    times = dict(zip(names, host, strict=True)), dict(zip(names, there, strict=True))
    return Evaluator(graph, Problem(*times, crossings_of(graph, COSTS)), COSTS, **more)


def chosen(graph: Graph, *numbers: int) -> frozenset[str]:
    """Nodes by their numbers, from 1."""
    return frozenset(names_of(graph)[number - 1] for number in numbers)


def overlap_ns(found: Timeline) -> int:
    """Time during which both sides work."""
    return found.host_ns + found.accelerator_ns + found.transfer_ns - found.total_ns


BRANCHES = [[0], [0], [1, 2]]
"""Two nodes that read the input, and one that reads both."""


def test_the_longer_branch_is_what_takes_time():
    graph = graph_of(BRANCHES)
    found = evaluator(graph, [50_000, 70_000, 9_000], [40_000, 30_000, 1])
    moved = START_NS + 2 * VALUE_NS
    long_host = found.exact(chosen(graph, 1))
    total = START_NS + VALUE_NS + 70_000 + VALUE_NS + 9_000
    assert long_host == Timeline(total, 79_000, 40_000, moved)
    assert overlap_ns(long_host) == 40_000
    long_there = found.exact(chosen(graph, 2))
    assert long_there == Timeline(moved + 50_000 + 9_000, 59_000, 30_000, moved)
    assert found.exact(frozenset()) == Timeline(129_000, 129_000, 0, 0)


def test_a_chain_takes_one_side_after_the_other():
    graph = graph_of([[0], [1], [2]])
    found = evaluator(graph, [5_000] * 3, [1_000] * 3).exact(chosen(graph, 2))
    assert found.total_ns == 2 * 5_000 + 1_000 + START_NS + 2 * VALUE_NS
    assert overlap_ns(found) == 0


def test_a_value_between_two_segments_passes_through_the_hosts_memory():
    # n1 and n3 on the accelerator; n2 between them, and n3 reads n1 too
    graph = graph_of([[0], [1], [1, 2]])
    found = evaluator(graph, [5_000] * 3, [1_000] * 3)
    there = chosen(graph, 1, 3)
    assert found.exact(there).transfer_ns == 2 * START_NS + (2 + 3) * VALUE_NS
    assert found.problem.cost_ns(there) == 7_000 + 2 * START_NS + 4 * VALUE_NS, "n1 enters unpaid"


def test_a_kernel_of_two_nodes_waits_for_all_that_it_reads():
    graph = graph_of(BRANCHES)
    second, last = graph.nodes[1], graph.nodes[2]
    kernel = HostKernel(
        Elementwise(SHAPE, (("a", "float32"), ("b", "float32")), ("add", "a", "b")),
        {"a": "x", "b": graph.nodes[0].output.name},
        nodes=(second, last),
    )
    seen = []

    def find(nodes):
        seen.append([node.name for node in nodes])
        return [kernel]

    found = evaluator(graph, [50_000, 70_000, 9_000], [40_000, 30_000, 1], kernels=find)
    there = chosen(graph, 1)
    assert overlap_ns(found.rough(there)) == 40_000
    assert overlap_ns(found.exact(there)) == 0
    together = sum(COSTS.host_us(graph, node, kernel) for node in (second, last))
    assert found.exact(there).host_ns == round(1000 * together)
    assert seen == [["n2", "n3"]], "asked once, for what the host runs"


def test_branches_are_shared_between_the_sides():
    """One after the other the accelerator is faster with all; together the sides share the work."""
    graph = graph_of([[0], [1], [0], [3], [2, 4]])
    found = evaluator(graph, [200_000] * 5, [190_000] * 5)
    assert found.problem.solve() == frozenset(names_of(graph))
    best = improve(found)
    assert overlap_ns(found.exact(best)) >= 380_000
    assert found.exact(best).total_ns < 0.65 * found.exact(frozenset(names_of(graph))).total_ns


def test_a_branch_moves_as_a_whole_where_none_of_its_nodes_pays_alone():
    graph = graph_of([[0], [1], [2], [0], [4], [5]], [3, 6])
    found = evaluator(graph, [12_000] * 6, [12_000] * 6)
    hosted = found.problem.solve()
    assert hosted == frozenset()
    least = found.exact(hosted).total_ns
    assert all(found.exact(frozenset({name})).total_ns > least for name in names_of(graph))
    assert found.exact(improve(found)).total_ns == least_of_all(found) < 0.8 * least


def random_case(seed: int) -> Evaluator:
    chance = random.Random(seed)
    count = chance.randint(3, 8)
    reads = []
    for index in range(count):
        last = list(range(max(0, index - 3), index + 1))
        reads.append(chance.sample(last, min(len(last), chance.choice((1, 1, 2)))))
    graph = graph_of(reads, sorted(chance.sample(range(1, count + 1), 2)))
    there = [None if chance.random() < 0.15 else chance.randint(1, 120_000) for _ in range(count)]
    return evaluator(graph, [chance.randint(1, 120_000) for _ in range(count)], there)


def least_of_all(found: Evaluator) -> int:
    able = [name for name, time in found.problem.accelerator_ns.items() if time is not None]
    every = itertools.chain.from_iterable(
        itertools.combinations(able, count) for count in range(len(able) + 1)
    )
    return min(found.exact(frozenset(some)).total_ns for some in every)


def test_the_search_is_near_the_best_of_all_assignments_and_never_behind_the_cut():
    ratios, cuts = [], []
    for seed in range(200):
        found = random_case(seed)
        best, cut = least_of_all(found), found.exact(found.problem.solve()).total_ns
        chosen = random_case(seed)
        time = chosen.exact(improve(chosen)).total_ns
        assert best <= time <= cut
        ratios.append(time / best)
        cuts.append(cut / best)
    assert sum(ratio == 1 for ratio in ratios) >= 0.85 * len(ratios)
    assert statistics.mean(ratios) < 1.02
    assert statistics.mean(cuts) > 1.05, "there was something to gain"


def test_a_search_that_gives_up_keeps_the_cut(monkeypatch):
    monkeypatch.setattr(search, "MAX_VISITS", 0)
    for seed in range(50):
        found = random_case(seed)
        least = found.exact(found.problem.solve()).total_ns
        assert found.exact(improve(found)).total_ns <= least


def test_what_the_user_has_placed_stays():
    graph = graph_of([[0], [1], [0], [3], [2, 4]])
    names = names_of(graph)
    problem = Problem(
        {name: None if name == names[0] else 200_000 for name in names},
        {name: None if name == names[2] else 190_000 for name in names},
        crossings_of(graph, COSTS),
    )
    best = improve(Evaluator(graph, problem, COSTS))
    assert names[0] in best
    assert names[2] not in best


def pools() -> Graph:
    """Two pools of the same input, each an output."""
    builder = Builder("pools", (Value("x", TensorType("int8", (1, 64, 64, 16))),))
    pool = QMaxPool((3, 3), (1, 1), (1, 1, 1, 1))
    outputs = [Output(f"y.{name}", builder.emit(pool, ["x"], name)) for name in ("left", "right")]
    return builder.graph(outputs)


EQUAL = Costs(
    clock_mhz=80,
    host=HostSpeed(10.0, 10.0, 0.13, 1.0, 10.0, 5.0, 5.0),
    link=LinkSpeed(gbps=10.0, start_us=1.0),
)
"""A pool takes a millisecond on either side."""


def report(placement: Placement) -> dict[str, Any]:
    module = compile_module(pools(), PRESETS["8x8"], placement=placement, costs=EQUAL)
    found = module.report["placement"]
    assert isinstance(found, dict)
    return found


def test_the_report_tells_what_both_sides_take_at_once():
    shared = report(Placement("host", (("left", ACCELERATOR),)))
    rows, total = {row["name"]: row for row in shared["rows"]}, shared["total_us"]
    left, right = rows["left"]["accelerator_us"], rows["right"]["host_us"]
    assert left > 900
    assert right > 900
    assert total["sum"] == pytest.approx(left + right + total["transfer"])
    assert total["makespan"] == pytest.approx(max(left, right) + total["transfer"], abs=10)
    for policy in (ACCELERATOR, HOST):
        total = report(Placement(policy))["total_us"]
        assert total["makespan"] == pytest.approx(total["sum"], abs=0.1), "one side has nothing"


@pytest.mark.cpu_kernels
def test_what_costs_decide_takes_the_least_with_both_sides_at_work():
    found = report(Placement("cost"))
    others = [
        report(Placement(HOST, tuple((name, ACCELERATOR) for name in names)))
        for names in ((), ("left",), ("right",), ("left", "right"))
    ]
    makespans = [other["total_us"]["makespan"] for other in others]
    assert found["total_us"]["makespan"] == min(makespans) < 0.6 * makespans[-1]
    assert sum(row["target"] == ACCELERATOR for row in found["rows"]) == 1


@pytest.mark.cpu_kernels
def test_a_layer_that_the_other_side_would_run_faster_says_why_it_stays():
    rows = report(Placement("cost"))["rows"]
    slower = [row for row in rows if row["gain_us"] > 0]
    assert slower
    assert {row["reason"] for row in slower} == {"works while the other side does"}
