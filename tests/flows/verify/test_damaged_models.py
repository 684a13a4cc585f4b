"""Damaged model files give a clear error or a correct result."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.compiler.graph import Graph, Output, TensorType, Value
from tilewright.errors import InputError
from tilewright.flows.verify.damage import file_damage as damage
from tilewright.flows.verify.damage.byte_damage import BYTES
from tilewright.flows.verify.damage.campaign import try_files
from tilewright.flows.verify.damage.models import damaged_files, main, model_trial, try_model
from tilewright.flows.verify.damage.operator_models import operator_models
from tilewright.flows.verify.damage.workers import DamageWorker
from tilewright.flows.verify.fuzz.fuzz_runs import FuzzRunner, random_inputs
from tilewright.flows.verify.fuzz.random_models import random_model

EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS = (EXAMPLES / "digits" / "digits_int8_qdq.onnx").read_bytes()


@pytest.fixture
def worker():
    made = DamageWorker(model_trial)
    yield made
    made.stop()


def test_damaged_random_models_are_refused_or_right(worker):
    count = try_files(damaged_files([], [], range(1, 200)), [worker])
    assert not count.failures
    assert count.kinds.total() == 199
    assert min(count.kinds["equal"], count.kinds["refused"]) > 20


def test_damaged_operators_are_refused_or_right(worker):
    operators = operator_models()
    assert len(operators) > 1000
    seeds = itertools.islice(range(1, 10**6, 2), 200)
    files = (next(damaged_files([], operators[::7], range(seed, seed + 1))) for seed in seeds)
    count = try_files(files, [worker])
    assert not count.failures
    assert count.kinds.total() == 200


@pytest.mark.parametrize(("source", "seed"), [(random_model(21116), 21116), (DIGITS, 22226)])
def test_shapes_that_would_take_a_million_instructions_are_refused_at_once(source, seed):
    """A batch, and an image's height, of 65,536."""
    with FuzzRunner() as runner:
        kind, text = try_model(damage.damaged(source, seed), seed, runner)
    assert kind == "refused"
    assert text.startswith("the program needs about ")
    assert "but `most_instructions` is 65,536" in text


@pytest.mark.parametrize(
    "name",
    [
        "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
        "test_castlike_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ",
        "test_celu_bfloat16",
        "test_constant",
        "test_globalaveragepool",
        "test_layer_normalization_default_axis",
        "test_maxpool_1d_default",
    ],
)
def test_operators_that_were_once_damaged_into_failures(name):
    """By odd element types, by nodes without work, by pools that look like convolutions."""
    (model,) = (model for other, model in operator_models() if other == name)
    with FuzzRunner() as runner:
        assert try_model(model, 0, runner) == ("equal", "")


@pytest.mark.parametrize("dtype", ["int8", "float32", "int64"])
def test_inputs_that_no_memory_holds_are_refused(dtype):
    graph = Graph("vast", (Value("x", TensorType(dtype, (1 << 44,))),), (Output("x", "x"),), (), ())
    with pytest.raises(InputError, match="network `vast`: its inputs do not fit memory"):
        random_inputs(graph, 0)


def test_the_same_seed_does_the_same_damage():
    model = random_model(3)
    once = [damage.damaged(model, seed) for seed in range(100)]
    assert once == [damage.damaged(model, seed) for seed in range(100)]
    assert sum(changed == model for changed in once) < 20
    assert len(set(once)) > 70


@pytest.mark.parametrize("harm", BYTES)
def test_each_harm_to_bytes_harms(harm):
    model = random_model(5)
    changed = {harm(damage.random.Random(seed), model) for seed in range(20)}
    assert len(changed - {model}) > 10


def test_a_process_that_takes_too_long_is_told_and_replaced():
    worker = DamageWorker(model_trial, limit_s=0.0)
    try:
        count = try_files(iter([(1, "slow", random_model(1)), (2, "slow", b"")]), [worker])
    finally:
        worker.stop()
    assert [failure.kind for failure in count.failures] == ["hung", "hung"]
    assert count.failures[0].text == "no result after 0 s"


def test_a_process_that_dies_is_told_and_replaced(worker):
    worker.send(1, random_model(1))
    worker.process.kill()
    assert _answer(worker) == ("crashed", "the process ended with code -9")
    worker.send(2, b"")
    assert _answer(worker)[0] == "refused"


def _answer(worker: DamageWorker) -> tuple[str, str]:
    while (answer := worker.answer()) is None:
        pass
    return answer


def test_a_file_that_cannot_be_read(capsys, tmp_path):
    absent = tmp_path / "absent.onnx"
    assert main(["--models", "1", str(absent)]) == 2
    assert capsys.readouterr().err == (
        f"error: damaged models: cannot read `{absent}`: No such file or directory; check the "
        "path\n"
    )


def test_no_process_at_all_makes_no_sense(capsys):
    assert main(["--workers", "0"]) == 2
    assert capsys.readouterr().err == "error: `--workers 0`: expected at least 1; correct it\n"


def test_the_command_prints_what_it_saw(capsys):
    assert main(["--models", "3", "--seed", "7", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("damaged models: 3 in ")


def test_the_command_gives_its_trials_to_other_processes():
    command = [sys.executable, "-m", "tilewright.flows.verify.damage", "--models", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("damaged models: 2 in ")
