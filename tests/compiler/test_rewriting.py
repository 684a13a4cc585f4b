"""Patterns find what they describe; the driver works where something has changed, and ends."""

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, drop_unused
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.rewriting import (
    GraphMatch,
    Rule,
    Site,
    each,
    either,
    first_match,
    number,
    op,
    repeated,
    rewrite,
    rewrite_once,
    rule,
    value,
)
from tilewright.errors import CompileError

RELU, NEG, ABS = ops.Unary("Relu"), ops.Unary("Neg"), ops.Unary("Abs")
ADD, MUL, SUB = ops.Binary("Add"), ops.Binary("Mul"), ops.Binary("Sub")
LONG = 3000


def made(write, *shown: str) -> Graph:
    """Return a graph of one input `x`, float32[4], and what `write(builder)` adds."""
    builder = Builder("made", [Value("x", TensorType("float32", (4,)))])
    names = write(builder)
    names = (names,) if isinstance(names, str) else names
    return builder.graph([Output(f"out{i}", name) for i, name in enumerate((*names, *shown))])


def chain(*operators: ops.Operator) -> Graph:
    """Return functions in a row."""

    def write(builder: Builder) -> str:
        name = "x"
        for place, operator in enumerate(operators):
            name = builder.emit(operator, [name], f"n{place}")
        return name

    return made(write)


def kinds(graph: Graph) -> list[str]:
    return [getattr(node.attributes, "kind", node.op) for node in graph.nodes]


def matched(pattern, graph: Graph):
    return first_match(pattern, graph, graph.outputs[0].value)


def found(pattern, graph: Graph) -> GraphMatch:
    match = matched(pattern, graph)
    assert match is not None
    return match


def test_a_capture_that_occurs_twice_is_one_value():
    square = op(MUL, value("x"), value("x"))
    assert found(square, made(lambda b: b.emit(MUL, ["x", "x"])))["x"] == "x"
    assert matched(square, made(lambda b: b.emit(MUL, ["x", b.emit(NEG, ["x"])]))) is None


def test_commutative_operands_are_found_in_any_order():
    halved = op(MUL, op(RELU, value("x")), number(equal=0.5), commutative=True)
    for order in (1, -1):
        graph = made(
            lambda b, order=order: b.emit(
                MUL, [b.emit(RELU, ["x"]), b.constant(np.array(0.5, np.float32))][::order]
            )
        )
        assert found(halved, graph)["x"] == "x"
        assert matched(op(MUL, op(NEG), number(), commutative=True), graph) is None


def test_a_later_choice_counts_when_the_first_does_not_fit_the_rest():
    """`a` is bound by the first choice, and must be given back."""
    pattern = op(SUB, either(op(NEG, value("a")), value("a")), value("a"))
    graph = made(lambda b: b.emit(SUB, [(y := b.emit(NEG, ["x"])), y]))
    match = found(pattern, graph)
    assert match["a"] == graph.nodes[0].output.name
    assert [node.op for node in match.nodes] == ["binary"]


@pytest.mark.parametrize("others", [1, 2])
def test_a_private_value_has_one_reader_and_is_not_shown(others):
    pattern = op(NEG, op(RELU, private=True))

    def write(builder: Builder) -> list[str]:
        middle = builder.emit(RELU, ["x"])
        return [builder.emit(NEG, [middle]), *([middle] if others == 2 else [])]

    assert (matched(pattern, made(write)) is not None) == (others == 1)
    assert matched(op(NEG, op(RELU)), made(write)) is not None


def test_each_operand_of_a_concatenation_is_captured():
    pattern = op(ops.Concat, each(either(op(NEG, value("x"), capture="sign"), value("x"))))
    graph = made(lambda b: b.emit(ops.Concat(0), ["x", b.emit(NEG, ["x"]), "x"]))
    match = found(pattern, graph)
    assert match["x"] == ("x", "x", "x")
    assert match["sign"] == (None, NEG, None)


def test_repeated_nodes_are_captured_last_one_first():
    pattern = repeated(op(ops.Unary, where=lambda f: f.kind != "Abs"), value("x"), "row")
    match = found(pattern, chain(ABS, RELU, NEG))
    assert match["row"] == (NEG, RELU)
    assert match["x"] == chain(ABS).nodes[0].output.name


def test_more_operands_need_an_ellipsis():
    graph = made(lambda b: b.emit(ADD, ["x", b.emit(NEG, ["x"])]))
    assert matched(op(ADD, value()), graph) is None
    assert matched(op(ADD, value(), ...), graph) is not None


def test_a_rule_names_a_capture_that_no_pattern_has():
    expected = r"rule `wrong`: expected parameters named as captures of its patterns \(x\), got `y`"
    with pytest.raises(CompileError, match=expected):

        @rule(op(NEG, value("x")))
        def wrong(site: Site, y: str) -> str | None:
            return y


def test_a_rule_that_returns_no_value_is_named():
    @rule(op(NEG, value("x")))
    def wrong(site: Site, x: str) -> str | None:
        return "nowhere"

    expected = "rule `wrong`: expected the name of a value or None, got `nowhere`; return what"
    with pytest.raises(CompileError, match=expected):
        rewrite(chain(NEG), wrong)


def test_an_operator_is_no_pattern_and_a_function_no_rule():
    def wrong(site: Site) -> str | None:
        return None

    with pytest.raises(CompileError, match=r"rule `wrong`: expected patterns, got `.*write `op"):
        rule(NEG)(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CompileError, match="expected rules, got `wrong`; put `@rule"):
        rewrite(chain(NEG), wrong)  # pyright: ignore[reportArgumentType]


def test_a_rule_that_makes_an_unknown_function_is_told_the_known_ones():
    @rule(op(NEG, value("x")))
    def wrong(site: Site, x: str) -> str | None:
        return site.become(ops.Unary("Sigmoidd"), x)

    with pytest.raises(CompileError, match="got kind `Sigmoidd`; did you mean `Sigmoid`"):
        rewrite(chain(NEG), wrong)


@rule(op(NEG, op(NEG, value("x"))))
def cancel(site: Site, x: str) -> str | None:
    """-(-x) -> x."""
    return x


@rule(op(NEG, op(RELU, value("x"))))
def hoist(site: Site, x: str) -> str | None:
    """-relu(x) -> relu(-x); not true, but easily counted."""
    return site.emit(RELU, site.emit(NEG, x))


@rule(op(RELU, op(NEG, value("x"))))
def sink(site: Site, x: str) -> str | None:
    """relu(-x) -> -relu(x), the other way round."""
    return site.emit(NEG, site.emit(RELU, x))


def test_what_cancels_is_gone_and_the_output_follows():
    graph = rewrite(chain(NEG, NEG, NEG), cancel)
    assert kinds(graph) == ["Neg"]
    assert rewrite(chain(NEG, NEG), cancel).outputs[0].value == "x"


def test_a_graph_without_a_match_is_the_same_object():
    graph = chain(RELU, ABS)
    assert rewrite_once(graph, cancel) is graph
    assert rewrite(graph, cancel) == graph


def test_one_sweep_offers_each_node_once():
    once = drop_unused(rewrite_once(chain(RELU, RELU, NEG), hoist))
    assert kinds(once) == ["Relu", "Neg", "Relu"]
    assert kinds(rewrite(chain(RELU, RELU, NEG), hoist)) == ["Neg", "Relu", "Relu"]


@pytest.mark.parametrize(
    ("rules", "operators"),
    [((hoist,), (RELU,) * LONG + (NEG,)), ((sink,), (NEG,) + (RELU,) * LONG)],
    ids=["up", "down"],
)
def test_work_is_linear_in_a_long_chain(rules, operators, monkeypatch):
    """Whole sweeps would offer four and a half million nodes on the way up."""
    offered, apply, (only,) = [], Rule.apply, rules

    def counted(self, rewriter, root):
        offered.append(root)
        return apply(self, rewriter, root)

    monkeypatch.setattr(Rule, "apply", counted)
    graph = rewrite(chain(*operators), *rules)
    expected = ["Neg"] + ["Relu"] * LONG
    assert kinds(graph) == (expected if only is hoist else expected[::-1])
    assert len(offered) <= 4 * LONG


def test_rules_that_undo_each_other_are_an_error(monkeypatch):
    monkeypatch.setattr("tilewright.compiler.rewriting.rewriter.MAX_REWRITES", 10)
    with pytest.raises(CompileError, match="the last ones by `hoist`, `sink`; a rule must"):
        rewrite(chain(RELU, NEG), hoist, sink)


def test_equal_constants_are_shared_and_unread_ones_are_dropped():
    @rule(op(NEG, value("x")))
    def times(site: Site, x: str) -> str | None:
        """-x -> x * -1."""
        return site.emit(MUL, x, site.constant(np.array(-1, np.float32), "minus_one"))

    graph = rewrite(chain(NEG, RELU, NEG), times)
    assert [constant.name for constant in graph.constants] == ["minus_one"]

    @rule(op(MUL, value("x"), number(equal=-1.0)))
    def back(site: Site, x: str) -> str | None:
        """x * -1 -> |x|."""
        return site.emit(ABS, x)

    assert rewrite(graph, back).constants == ()
