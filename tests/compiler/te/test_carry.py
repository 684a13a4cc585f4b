"""A carried reduction advances with the loop of another one, and gives what it gave before."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.tensor import Kernel, evaluate

Parts = dict[str, te.DeclaredTensor]


def attention(
    queries: int = 5,
    keys: int = 11,
    *,
    power: Callable[..., te.TensorExpression] = lambda s, most: te.exp(s - most),
    total: Callable[..., te.TensorExpression] = lambda w, v: w * v,
    mass: Callable[..., te.TensorExpression] = lambda w: w,
) -> Kernel:
    """A softmax of scores, and the sum of values that it weights."""
    m, k, c = te.axes(m=queries, k=keys, c=3)
    (r,) = te.reduce_axes(r=keys)
    q, v = te.tensor("q", "float32", (queries, keys)), te.tensor("v", "float32", (keys, 3))
    scores = te.compute("scores", "float32", (k, m), q[m, k] * 3.0)
    most = te.compute("most", "float32", (m,), te.max(scores[r, m], over=r))
    weights = te.compute("weights", "float32", (k, m), power(scores[k, m], most[m]))
    whole = te.compute("mass", "float32", (m,), te.sum(mass(weights[r, m]), over=r))
    value = te.sum(total(weights[r, m], v[r, c]), over=r) / whole[m]
    return te.kernel("attention", te.compute("out", "float32", (m, c), value))


def carried(kernel: Kernel, step: int = 4, rows: int = 2) -> te.Schedule:
    schedule = te.Schedule(kernel)
    schedule.nest("out", "m.o r.o m.i c r.i", m=rows, r=step)
    schedule.carry("mass", "out", "r.o")
    schedule.compute_at("weights", "out", "r.o")
    schedule.carry("most", "out", "r.o")
    schedule.compute_at("scores", "out", "r.o")
    return schedule


def drawn(kernel: Kernel) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    shapes = {name: kernel.tensors[name].shape for name in kernel.inputs}
    return {name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


@pytest.mark.parametrize(("step", "rows"), [(4, 2), (1, 5), (11, 1), (20, 3), (3, 2)])
def test_an_online_softmax_is_a_softmax(step: int, rows: int):
    kernel = attention()
    schedule, given = carried(kernel, step, rows), drawn(kernel)
    found = te.interpret(schedule.program(), given)
    np.testing.assert_allclose(found, evaluate(kernel, given), rtol=1e-5, atol=1e-6)
    again = te.Schedule.parse(kernel, str(schedule))
    assert str(again.program()) == str(schedule.program())


def test_scores_of_a_few_keys_at_a_time_are_kept():
    program = carried(attention(keys=400)).program()
    elements = {name: int(np.prod(node.shape)) for name, node in program.buffers.items()}
    del elements["out"]
    assert max(elements.values()) == 8


def test_sums_are_scaled_where_the_maximum_grows():
    """Scores that grow beyond the range of float32: without rescaling, the sum overflows."""
    kernel = attention(1, 8)
    given = {"q": np.arange(8, dtype=np.float32)[None] * 40, "v": np.ones((8, 3), np.float32)}
    found = te.interpret(carried(kernel, 2, 1).program(), given)
    np.testing.assert_allclose(found, 1, rtol=1e-6)


def test_a_sum_without_a_maximum_is_carried():
    kernel = attention(power=lambda s, most: s + 0.0 * most)
    schedule, given = te.Schedule(kernel), drawn(kernel)
    schedule.nest("out", "m.o r.o m.i c r.i", m=2, r=4)
    schedule.carry("mass", "out", "r.o")
    schedule.compute_at("weights", "out", "r.o")
    found = te.interpret(schedule.program(), given)
    np.testing.assert_allclose(found, evaluate(kernel, given), rtol=1e-5)


def test_a_maximum_has_no_elements_behind_the_last():
    m, c = te.axes(m=2, c=3)
    (r,) = te.reduce_axes(r=11)
    x, v = te.tensor("x", "float32", (11, 2)), te.tensor("v", "float32", (11, 3))
    most = te.compute("most", "float32", (m,), te.max(x[r, m], over=r))
    value = te.sum(x[r, m] * v[r, c], over=r) + most[m]
    kernel = te.kernel("k", te.compute("out", "float32", (m, c), value))
    schedule = te.Schedule(kernel)
    schedule.nest("out", "r.o m c r.i", r=4)
    schedule.carry("most", "out", "r.o")
    given = {name: -np.abs(array) - 1 for name, array in drawn(kernel).items()}
    found = te.interpret(schedule.program(), given)
    np.testing.assert_allclose(found, evaluate(kernel, given), rtol=1e-5)


def test_compute_root_takes_carry_back():
    kernel = attention()
    schedule = te.Schedule(kernel)
    plain = schedule.program()
    schedule.carry("mass", "out", "r")
    assert str(schedule.program()) != str(plain)
    schedule.compute_root("mass")
    assert schedule.program() == plain


def copied(total: Callable[..., te.TensorExpression] = lambda w, v: w * v) -> te.Schedule:
    """Attention whose weights are transposed by a copy before the product."""
    m, k, c = te.axes(m=5, k=11, c=3)
    (r,) = te.reduce_axes(r=11)
    q, v = te.tensor("q", "float32", (5, 11)), te.tensor("v", "float32", (11, 3))
    scores = te.compute("scores", "float32", (k, m), q[m, k] * 3.0)
    most = te.compute("most", "float32", (m,), te.max(scores[r, m], over=r))
    weights = te.compute("weights", "float32", (k, m), te.exp(scores[k, m] - most[m]))
    whole = te.compute("mass", "float32", (m,), te.sum(weights[r, m], over=r))
    shares = te.compute("shares", "float32", (m, k), weights[k, m])
    value = te.sum(total(shares[m, r], v[r, c]), over=r) / whole[m]
    schedule = te.Schedule(te.kernel("k", te.compute("out", "float32", (m, c), value)))
    schedule.nest("out", "m.o r.o m.i c r.i", m=2, r=4)
    schedule.carry("mass", "out", "r.o")
    schedule.compute_at("shares", "out", "r.o")
    schedule.compute_at("weights", "out", "r.o")
    schedule.carry("most", "out", "r.o")
    return schedule


def test_powers_are_seen_through_copies():
    schedule = copied()
    given = drawn(schedule.kernel)
    found = te.interpret(schedule.program(), given)
    np.testing.assert_allclose(found, evaluate(attention(), given), rtol=1e-5, atol=1e-6)
    with pytest.raises(te.ScheduleError, match="`out` reads `shares`, which is relative"):
        copied(lambda w, v: w + v)


REFUSED = {
    "another power": (
        {"power": lambda s, most: te.exp(most - s)},
        "`weights` reads `most` before it is complete; only `exp(x - maximum)` may",
    ),
    "no power": (
        {"power": lambda s, most: s - most},
        "`weights` reads `most` before it is complete; only `exp(x - maximum)` may",
    ),
    "a term beside the weights": (
        {"total": lambda w, v: w + v},
        "`out` reads `weights`, which is relative to the maximum so far",
    ),
    "a square of weights": (
        {"mass": lambda w: w * w},
        "`mass` reads `weights`, which is relative to the maximum so far",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_need_the_result_is_refused(name: str):
    forms, message = REFUSED[name]
    with pytest.raises(te.ScheduleError) as error:
        carried(attention(**forms))
    assert message in str(error.value)


LOOPS = {
    "an inner block": ("m.o r.i m.i c r.o", "r.i"),
    "a data loop": ("m.o r.o m.i c r.i", "m.o"),
    "unrolled": ("m.o r.o* m.i c r.i", "r.o"),
    "inside": ("m.o r.o m.i c r.i", "r.i"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_only_a_loop_that_advances_carries(name: str):
    nest, loop = LOOPS[name]
    schedule = te.Schedule(attention())
    schedule.nest("out", nest, m=2, r=4)
    with pytest.raises(te.ScheduleError, match="must be the outermost reduction loop of `out`"):
        schedule.carry("mass", "out", loop)


def test_later_steps_keep_the_loop():
    schedule = carried(attention())
    with pytest.raises(te.ScheduleError, match="outermost reduction"):
        schedule.unroll("out", "r.o")
    with pytest.raises(te.ScheduleError, match="outermost reduction"):
        schedule.reorder("out", "r.i", "m.i", "c", "r.o")


def test_a_maximum_is_not_carried_before_its_readers():
    schedule = te.Schedule(attention())
    schedule.split("out", "r", 4)
    schedule.reorder("out", "r.o", "m", "c")
    with pytest.raises(te.ScheduleError, match="reads `most` outside the loop"):
        schedule.carry("most", "out", "r.o")


def test_extents_must_agree():
    m, c = te.axes(m=4, c=3)
    (r,), (j,) = te.reduce_axes(r=8), te.reduce_axes(j=6)
    x, v = te.tensor("x", "float32", (8, 4)), te.tensor("v", "float32", (8, 3))
    part = te.compute("part", "float32", (m,), te.sum(x[j, m], over=j))
    value = te.sum(x[r, m] * v[r, c], over=r) * part[m]
    schedule = te.Schedule(te.kernel("k", te.compute("out", "float32", (m, c), value)))
    schedule.reorder("out", "r", "m", "c")
    with pytest.raises(te.ScheduleError, match="reduces 6 elements and `out` 8"):
        schedule.carry("part", "out", "r")
