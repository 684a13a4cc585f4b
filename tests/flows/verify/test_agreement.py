"""Every way to ask for a network's cycles gives the same answer; see `flows.verify.agreement`."""

from pathlib import Path

import pytest

from tilewright.compiler.frontend import import_model
from tilewright.errors import TilewrightError
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.verify import agreement
from tilewright.flows.verify.agreement import agree, answers, random_case
from tilewright.isa.configuration import PRESETS

CASES = 30
QUICK = 15
ANEW = 5
"""Cases whose ways compile each for themselves, as `make verify` does in all of them."""

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


@pytest.fixture
def digits():
    return import_model(DIGITS)


def test_every_way_compiles_the_same_program():
    assert agree(range(ANEW)) >= 3, "most networks have layers for the accelerator"


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=() if n < QUICK else pytest.mark.slow) for n in range(ANEW, CASES, 5)],
)
def test_every_way_gives_the_same_cycles(first):
    """Ways that ask the compiler for the same program get the same one."""
    assert agree(range(first, first + 5)) >= 3, "most networks have layers for the accelerator"


@pytest.mark.usefixtures("compiled_once")
def test_two_programs_of_one_network_differ(tmp_path):
    """Otherwise the cases would compare equal numbers only."""
    for seed in range(CASES):
        (tmp_path / str(seed)).mkdir()
        found = answers(random_case(seed), tmp_path / str(seed))
        numbers = {cycles for answered in found.values() for cycles in answered.values()}
        if len(numbers) > 1:
            return
    pytest.fail("no memory needs a program of its own")


def test_the_order_for_a_narrower_port_is_tried():
    """Behind a slow memory, the order that is best for 32 bits is the best for 64 bits too."""
    assert agree(range(700_004, 700_005)) == 1


def test_a_wider_port_never_loses(digits):
    """The search alone loses here: it judges kernels mostly apart."""
    machine = PRESETS["8x8"]
    machines = [machine.replace(bus_bits=bits) for bits in (64, 128, 256)]
    modules = [compile_graph(digits, each, cache=False, lean=True) for each in machines]
    found = [module.report["cycles"] for module in modules]
    assert sorted(found, reverse=True) == found


@pytest.mark.usefixtures("compiled_once")
def test_an_answer_that_differs_is_named(monkeypatch):
    monkeypatch.setattr(agreement, "_api", lambda folder, case, made_for: 7)
    with pytest.raises(TilewrightError, match=r"got .*'API': 7"):
        agree(range(CASES))
