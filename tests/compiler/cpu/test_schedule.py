"""Schedules: calls in order on fixed addresses, their times, and schedules inside schedules."""

import gc

import numpy as np

from tilewright.aligned import address_of
from tilewright.compiler.cpu import (
    Box,
    CallSequence,
    Elementwise,
    IndexMap,
    KernelCall,
    compile_kernel,
    copy_call,
    gather_call,
)

SHAPE = (5, 7)


def doubled(array: np.ndarray) -> KernelCall:
    """A call that doubles an array in place, by a kernel that nobody else holds."""
    kernel = compile_kernel(Elementwise(SHAPE, (("x", "float32"),), ("add", "x", "x")))
    return KernelCall.of(kernel.bind()).place(x=address_of(array), out=address_of(array))


def test_calls_run_in_order_each_time():
    x = np.ones(SHAPE, np.float32)
    y = np.zeros(SHAPE, np.float32)
    copied = copy_call([Box(0, 0, 0, (x.size,), (1,), (1,))], 4, 1)
    copied.place(in0=address_of(x), out=address_of(y))
    schedule = CallSequence([doubled(x), copied, doubled(x)])
    gc.collect()
    for turn in (1, 4):
        schedule.run()
        assert (x == 4 * turn).all()
        assert (y == 2 * turn).all()
    ticks = schedule.ticks()
    assert len(ticks) == 4
    assert (np.diff(ticks.astype(np.int64)) > 0).all()


def test_a_schedule_is_a_step_of_another_one():
    x = np.ones(SHAPE, np.float32)
    inner = CallSequence([doubled(x), doubled(x)]).call()
    outer = CallSequence([inner, doubled(x), inner])
    del inner
    gc.collect()
    outer.run()
    assert (x == 2**5).all()
    assert len(outer.ticks()) == 4


def test_a_step_that_fails_ends_its_schedule_and_those_around_it():
    x, y, z = (np.ones(SHAPE, np.float32) for _ in range(3))
    out, index = np.zeros(1, np.float32), np.zeros(1, np.int64)
    gather = gather_call(IndexMap(((1, 0, 1),), ((x.size, 1),), 1), 4, 8)
    gather.place(addressed=address_of(x), indices=address_of(index), other=address_of(out))
    inner = CallSequence([doubled(x), doubled(x), gather, doubled(y)])
    outer = CallSequence([inner.call(), doubled(z)])
    assert outer.run() is None
    assert (x[0, 0], y[0, 0], z[0, 0], out[0]) == (4, 2, 2, 4)
    for wrong in (x.size, -x.size - 1):
        index[0] = wrong
        assert inner.run() == 2
        assert outer.run() == 0
    assert (x[0, 0], y[0, 0], z[0, 0], out[0]) == (4**5, 2, 2, 4)


def test_an_empty_schedule_does_nothing():
    CallSequence([]).run()
    CallSequence([CallSequence([]).call()]).run()
