"""ONNX's own operator tests: what passes is all that is not listed, and the list is true."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import recognise_layers
from tilewright.compiler.frontend.import_with_inputs import import_with_inputs
from tilewright.compiler.graph import evaluate, parse_graph, print_graph
from tilewright.compiler.host import kernel_store
from tilewright.errors import CompileError
from tilewright.flows.cli.commands import conformance
from tilewright.flows.cli.main import main
from tilewright.flows.conformance import kernel_cases
from tilewright.flows.conformance.cases import (
    CRASHED,
    PASSED,
    REFUSED,
    WRONG,
    CaseResult,
    arrays_of,
    compare,
    load_cases,
    read_listed,
    render,
    run_cases,
    surprises,
)
from tilewright.flows.conformance.kernel_cases import KernelRunner

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "conformance.md"
LISTED = read_listed(PAGE.read_text())


@pytest.fixture(scope="module")
def cases():
    return load_cases()


@pytest.fixture(scope="module")
def results(cases):
    return list(run_cases(cases))


@pytest.mark.slow
def test_every_case_passes_or_is_listed_as_refused(results):
    assert not surprises(results, LISTED)


@pytest.mark.slow
def test_nine_of_ten_cases_pass(results):
    assert len(results) > 1000
    assert sum(result.outcome == PASSED for result in results) >= 0.9 * len(results)


@pytest.mark.slow
def test_graphs_of_all_cases_are_read_back_and_pass_the_front_end(cases, results):
    """The recipe may replace operators, but not what a case computes."""
    for case, result in zip(cases, results, strict=True):
        if result.outcome != PASSED:
            continue
        inputs, expected = arrays_of(case)
        graph, _ = import_with_inputs(case.model.SerializeToString(), inputs)
        constants = {constant.name: constant.data for constant in graph.constants}
        assert parse_graph(print_graph(graph), constants) == graph, case.name
        recognised = recognise_layers(graph)
        fed = {value.name: inputs[value.name] for value in recognised.inputs}
        results = list(evaluate(recognised, fed).values())
        assert not compare(results, expected, case.rtol, case.atol), case.name


def test_the_page_lists_what_it_was_made_of():
    results = [
        CaseResult("test_a", PASSED),
        CaseResult("test_b", REFUSED, "strings", "no strings"),
        CaseResult("test_c", REFUSED, "sequences", "no sequences"),
        CaseResult("test_d", REFUSED, "strings", "no strings"),
    ]
    page = render(results)
    listed = {"test_b": "strings", "test_d": "strings", "test_c": "sequences"}
    assert read_listed(page) == listed
    assert "1 pass on the host (25.0%)" in page
    assert not surprises(results, listed)


SURPRISES = {
    "passes now": (
        CaseResult("test_b", PASSED),
        "`test_b` passes now: remove it from the list",
    ),
    "newly refused": (
        CaseResult("test_a", REFUSED, "strings", "no strings"),
        "`test_a` is refused: no strings",
    ),
    "another cause": (
        CaseResult("test_b", REFUSED, "sequences", "no sequences"),
        "`test_b` is refused for `sequences`, not for `strings`",
    ),
    "wrong though listed": (
        CaseResult("test_b", WRONG, "wrong", "output 0 differs"),
        "`test_b` is wrong: output 0 differs",
    ),
    "crashed": (
        CaseResult("test_a", CRASHED, "KeyError", "'x'"),
        "`test_a` is crashed: 'x'",
    ),
}


@pytest.mark.parametrize("kind", SURPRISES)
def test_a_surprise_is_told(kind):
    result, sentence = SURPRISES[kind]
    assert surprises([result], {"test_b": "strings"}) == [sentence]


def test_a_wrong_result_is_seen():
    (case,) = (case for case in load_cases("test_abs") if case.name == "test_abs")
    assert [result.outcome for result in run_cases([case])] == [PASSED]
    assert case.data_sets
    ((inputs, outputs),) = case.data_sets
    spoilt = replace(case, data_sets=[(inputs, [outputs[0] + np.float32(1)])])
    (result,) = run_cases([spoilt])
    assert result.outcome == WRONG
    assert result.message.startswith("output 0: 60 of 60 elements differ")


@pytest.mark.parametrize(
    ("got", "difference"),
    [
        ([np.zeros(2, np.float32)], ""),
        ([np.full(2, 1e-8, np.float32)], ""),
        ([np.zeros(2)], "output 0: expected float32[2], got float64[2]"),
        ([np.zeros((1, 2), np.float32)], "output 0: expected float32[2], got float32[1, 2]"),
        ([], "expected 1 output, got 0"),
        (
            [np.array([0, np.nan], np.float32)],
            "output 0: 1 of 2 elements differ, the first at [1]: expected 0.0, got nan",
        ),
    ],
)
def test_type_shape_and_values_are_compared(got, difference):
    assert compare(got, [np.zeros(2, np.float32)], 1e-3, 1e-7) == difference


def test_the_command_counts_and_tells_causes(capsys):
    assert main(["conformance", "--match", "test_string_split_basic"]) == 0
    said = capsys.readouterr().out
    assert "1 cases: 0 passed, 1 refused, 0 decided, 0 wrong, 0 crashed (0.0% pass)" in said
    assert "strings" in said


@pytest.mark.parametrize("outcome", [WRONG, CRASHED])
def test_a_wrong_or_crashed_case_is_an_exit_code(capsys, monkeypatch, outcome):
    bad = [CaseResult("test_relu", outcome, "spoilt", "spoilt")]
    monkeypatch.setattr(conformance, "run_cases", lambda cases, kernels: bad)
    assert main(["conformance", "--match", "test_relu"]) == 1
    assert capsys.readouterr().err.endswith(
        "error: 1 of 1 cases: expected a right result or a refusal, got a wrong one or a crash "
        "(the first: `test_relu`); this is a fault of Tilewright: report it\n"
    )


@pytest.mark.parametrize("text", ["StringSplitBasic", "STRING_split_basic"])
def test_operators_are_found_however_they_are_spelt(capsys, text):
    assert main(["conformance", "--match", text]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 cases: ")


def test_the_command_writes_no_page_of_some_cases(capsys):
    assert main(["conformance", "--match", "abs", "--write"]) == 2
    assert capsys.readouterr().err == (
        "error: `--match abs`: expected all cases with `--write`, got some; leave one of them out\n"
    )


@pytest.mark.cpu_kernels
def test_kernels_compute_what_cases_expect():
    cases = [case for case in load_cases("test_add") if case.name in ("test_add", "test_add_bcast")]
    kernels = KernelRunner()
    results = list(run_cases(cases, kernels=kernels))
    assert [(result.outcome, result.kernels) for result in results] == [(PASSED, 1)] * 2
    made = dict(kernels.code)
    assert len(made) == 2
    list(run_cases(cases, kernels=kernels))
    assert kernels.code == made


@pytest.mark.cpu_kernels
def test_a_kernel_that_cannot_be_made_is_left_to_numpy(monkeypatch):
    def refuse(*_):
        raise CompileError("no registers left")

    monkeypatch.setattr(kernel_cases, "compile_kernel", refuse)
    monkeypatch.setattr(kernel_store, "compile_kernel", refuse)
    (case,) = (case for case in load_cases("test_add") if case.name == "test_add")
    kernels = KernelRunner()
    (result,) = run_cases([case], kernels=kernels)
    assert (result.outcome, result.kernels) == (PASSED, 0)
    assert list(kernels.refused.values()) == ["no registers left"]


@pytest.mark.cpu_kernels
def test_the_command_tells_how_many_kernels_there_were(capsys):
    assert main(["conformance", "--match", "test_add_bcast", "--kernels"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1 kernel took part in 1 case; 1 of the 1 that passed used them"
    )


@pytest.mark.slow
def test_every_case_passes_by_kernels_too(cases):
    by_kernels = list(run_cases(cases, kernels=KernelRunner()))
    assert not surprises(by_kernels, LISTED)
    assert sum(result.kernels > 0 for result in by_kernels) > 300
