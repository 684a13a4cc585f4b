"""The whole product in a hundred lines: describe a machine, compile a network, simulate, compare.

Read from top to bottom; every step uses what the one before it made.
"""

from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.compiler.module import Module
from tilewright.errors import ConfigurationError, ProgramError
from tilewright.isa import Configuration, check, encode_program, parse_program
from tilewright.runtime import Comparison, Session, load, open_device, save

DIGITS = Path(__file__).parents[1] / "examples" / "digits"

# 1. A configuration describes the machine. Sizes, instruction words and hardware follow.
MACHINE = Configuration(
    name="tour", lanes_in=8, lanes_out=16, vector_lanes=8, wgt_depth=1024, bus_bits=64
)

# 2. Instructions are loop nests. This program multiplies 16 rows of activations with a tile of
#    weights, scales the sums to int8 and stores them; tokens order the four units.
MULTIPLY = """
    load destination=act length=128 memory=0 local=0                         # 16 rows of 8 bytes
    load destination=wgt length=128 memory=128 local=0                       # 8 rows of 16 bytes
    load destination=param length=128 memory=256 local=0 signal=gemm,vector  # bias and scale
    gemm act=0 wgt=0 acc=0 row[16: act 1, acc 1] wait=load signal=vector
    vector a_from_acc bias scale dst=4096 a=0 map[2: dst 1, a 1, param 1] map[16: dst 2, a 2] \
        wait=load,gemm signal=store
    store source=act length=256 local=32768 memory=512 wait=vector
    halt
""".replace("\\\n", "")


def test_describe_a_machine():
    assert MACHINE.replace(name="twin").hash == MACHINE.hash
    with pytest.raises(ConfigurationError, match="`act_depth` must be a power of two from 8 to"):
        MACHINE.replace(act_depth=1000)


def test_check_and_run_a_program():
    program = parse_program(MULTIPLY)
    check(program, MACHINE, data_bytes=1024)
    hasty = parse_program(MULTIPLY.replace(" wait=vector", "").replace(" signal=store", ""))
    with pytest.raises(ProgramError, match=r"races with instruction 4 \(vector\)"):
        check(hasty, MACHINE, data_bytes=1024)

    random = np.random.default_rng(1)
    rows = random.integers(-128, 128, (16, 8), dtype=np.int8)
    weights = random.integers(-128, 128, (8, 16), dtype=np.int8)
    parameters = np.zeros(16, dtype=[("bias", np.int32), ("scale", np.float32)])
    parameters["bias"], parameters["scale"] = 1000, 1 / 512

    dram = np.zeros(1024, np.uint8)
    dram[:384] = np.frombuffer(rows.tobytes() + weights.tobytes() + parameters.tobytes(), np.uint8)
    with open_device("sim", MACHINE) as device:
        device.run(encode_program(program, MACHINE), dram)

    sums = rows.astype(np.int32) @ weights.astype(np.int32) + 1000
    expected = np.clip(np.rint(sums.astype(np.float32) * np.float32(1 / 512)), -128, 127)
    np.testing.assert_array_equal(dram[512:768].view(np.int8).reshape(16, 16), expected)


# 3. The compiler makes such programs from ONNX; `keep_all` lets us look at every layer afterwards.
@pytest.fixture(scope="module")
def module() -> Module:
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    return compile_graph(graph, MACHINE, keep_all=True)


# 4. Three devices run it: the meaning of the instructions, the fast simulator, and the hardware.
@pytest.mark.parametrize(
    "device", ["reference", "sim", pytest.param("rtl", marks=pytest.mark.slow)]
)
def test_run_digits_and_compare_every_layer(module, device):
    with np.load(DIGITS / "test_digits.npz") as file:
        scans, labels = file["inputs"][:5], file["labels"][:5]
    comparison, answers = Comparison(module), []
    with open_device(device, MACHINE) as opened, open_device("sim", MACHINE) as sim:
        session, beside = Session(module, opened), Session(module, sim)
        for scan in scans:
            run = session.run(scan[None])
            comparison.add({"scan": scan[None]}, run)  # with the integer reference
            comparison.add_windows(run, beside.run(scan[None]))  # with `sim`, all of memory
            answers.append(run.outputs["logits"].argmax())
            for layer in run.profile.layers:
                print(layer.short, layer.target, layer.cycles, layer.utilisation)
    assert comparison.equal, comparison.first_difference()
    assert answers == list(labels)


# 5. An artifact is all of it in one file, which runs without the model.
def test_keep_the_module_as_one_file(module, tmp_path):
    save(module, tmp_path / "digits.tw")
    again = load(tmp_path / "digits.tw", MACHINE)
    assert (again.graph, again.segments, again.steps) == (
        module.graph,
        module.segments,
        module.steps,
    )
