"""Faults in Python: every kind is drawn, and every user of a faulty module sees the fault."""

import multiprocessing
import types

from tilewright.flows.verify.mutation.python_faults import draw_faults, put_fault
from tilewright.isa import checker, footprints, tokens


def test_the_same_seed_draws_the_same_faults():
    modules: list[types.ModuleType] = [checker, footprints]
    assert draw_faults(modules, 30, 5) == draw_faults(modules, 30, 5)
    assert draw_faults(modules, 30, 5) != draw_faults(modules, 30, 6)


def test_comparisons_constants_operators_and_conditions_are_changed():
    texts = [fault.text for fault in draw_faults([footprints], 10_000, 1)]
    for text in (
        "`stride == 0` becomes `stride != 0`",
        "`stride <= length` becomes `stride < length`",
        "`few is None or many is None` becomes `few is None and many is None`",
        "`reads & later_reads` becomes `reads | later_reads`",
        "`if ports > 1:` becomes `if False:`",
        "`1` becomes `2`",
    ):
        assert f"footprints: {text}" in texts


def test_messages_and_documentation_are_left_alone():
    for fault in draw_faults([checker, footprints], 10_000, 1):
        assert '"""' not in fault.before


def _with_fault(fault, answer) -> None:
    put_fault(fault)
    answer.put((footprints.last_conflict is tokens.last_conflict, _conflicts()))


def _conflicts() -> bool:
    nothing = footprints.Footprint(None, 0, 0, (), (), 0, -1)
    return tokens.last_conflict((nothing,), 0, nothing) is not None


def test_a_fault_reaches_those_who_imported_the_function_before():
    assert not _conflicts()
    fault = next(
        fault
        for fault in draw_faults([footprints], 10_000, 1)
        if fault.text == "footprints: `if ports > 1:` becomes `if True:`"
    )
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=_with_fault, args=(fault, answer))
    process.start()
    assert answer.get() == (True, True)
    process.join()
    assert not _conflicts()
