"""Sessions: inputs in, outputs and a profile out, every layer equal to the integer reference."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.errors import DeviceError, InputError
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Load, Store, Unit
from tilewright.runtime import Comparison, Session, open_device
from tilewright.runtime.compare import Tally
from tilewright.runtime.names import layer_names
from tilewright.runtime.profile import layer_cycles

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SMALL = PRESETS["8x16"]


@pytest.fixture(scope="module")
def module() -> Module:
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    return compile_module(graph, SMALL, keep_all=True)


@pytest.fixture(scope="module")
def scans() -> np.ndarray:
    return np.load(DIGITS / "test_digits.npz")["inputs"]


def refused(module: Module, inputs) -> str:
    with open_device("sim", SMALL) as sim, pytest.raises(InputError) as raised:
        Session(module, sim).run(inputs)
    return str(raised.value)


@pytest.mark.parametrize("device", ["reference", "sim"])
def test_every_layer_equals_the_integer_reference(module, scans, device):
    comparison = Comparison(module)
    with open_device(device, SMALL) as opened:
        session = Session(module, opened)
        for scan in scans[:3]:
            comparison.add({"scan": scan[None]}, session.run(scan[None]))
    assert comparison.first_difference() is None
    assert comparison.equal
    assert comparison.not_kept == []
    assert len(comparison.layers) + len(comparison.on_chip) == 6, "nodes on the accelerator"
    for name, tally in comparison.layers.items():
        assert tally.values == 3 * int(np.prod(module.graph.types[name].shape))


def test_one_wrong_weight_is_found_and_named(module, scans):
    """The comparison can fail: a constant of the first layer is changed in the data window."""
    comparison = Comparison(module)
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim)
        session._windows[0][module.segments[0].constants_offset + 200 :][:4000] ^= 0x11
        comparison.add({"scan": scans[:1]}, session.run(scans[:1]))
    assert not comparison.equal
    difference = comparison.first_difference()
    assert difference is not None
    assert difference.startswith("`conv1`: ")
    assert "values differ (sample 0: at [0, " in difference


def test_samples_do_not_disturb_one_another(module, scans):
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim)
        first = session.run(scans[:1])
        session.run(scans[1:2])
        again = session.run(scans[:1])
    np.testing.assert_array_equal(again.outputs["logits"], first.outputs["logits"])
    for name, array in first.layers.items():
        np.testing.assert_array_equal(again.layers[name], array)


def test_outputs_are_the_networks_own(module, scans):
    with open_device("sim", SMALL) as sim:
        outputs = Session(module, sim).run(scans[:1]).outputs
    expected = evaluate(module.graph, {"scan": scans[:1]})
    assert list(outputs) == ["logits"]
    np.testing.assert_array_equal(outputs["logits"], expected["logits"])


def test_data_windows_of_two_devices_are_equal(module, scans):
    comparison = Comparison(module)
    with open_device("sim", SMALL) as sim, open_device("reference", SMALL) as reference:
        one, other = Session(module, reference), Session(module, sim)
        for scan in scans[:2]:
            comparison.add_windows(one.run(scan[None]), other.run(scan[None]))
    (window,) = comparison.windows.values()
    assert window.name == "data window 0 of `sim`"
    assert (window.values, window.differing) == (2 * module.segments[0].data_bytes, 0)


def test_reused_places_are_not_compared_but_listed(scans):
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    module = compile_module(graph, SMALL)
    comparison = Comparison(module)
    with open_device("sim", SMALL) as sim:
        comparison.add({"scan": scans[:1]}, Session(module, sim).run(scans[:1]))
    assert comparison.equal
    assert comparison.not_kept
    assert set(comparison.not_kept) < set(layer_names(module).values())


def test_layers_say_where_they_run_and_what_they_move(module, scans):
    with open_device("sim", SMALL) as sim:
        profile = Session(module, sim).run(scans[:1]).profile
    layers = len(module.segments[0].layers)
    assert [layer.target for layer in profile.layers] == [
        "numpy", "numpy", *["accelerator"] * layers, "numpy", "numpy",
    ]  # fmt: skip
    program = module.segments[0].program
    loads = [i for i in program if isinstance(i, Load) and not i.fill]
    stores = [i for i in program if isinstance(i, Store)]
    assert profile.read_bytes == sum(i.length * i.steps() for i in loads)
    assert profile.written_bytes == sum(i.length * i.steps() for i in stores)
    assert profile.instructions == len(program) - 1
    assert profile.counters["LOAD_BYTES"] == profile.read_bytes
    assert profile.counters["STORE_BYTES"] == profile.written_bytes
    conv1 = profile.layers[2]
    assert (conv1.short, conv1.op, conv1.macs) == ("conv1", "conv", 8 * 8 * 16 * 9)
    (conv3,) = (layer for layer in profile.layers if "conv3" in layer.short.split(" + "))
    assert conv3.macs == 4 * 4 * 32 * 9 * 32
    assert conv3.short.count(" + ") == conv3.op.count("+")


def test_layers_cycles_are_what_they_add_to_the_completion(module, scans):
    with open_device("sim", SMALL) as sim:
        run = Session(module, sim).run(scans[:1])
    spans = run.results[0].spans
    assert spans is not None
    cycles = [layer.cycles for layer in run.profile.layers if layer.cycles is not None]
    assert sum(cycles) == spans[:, 1].max()
    assert min(cycles) >= 0
    assert run.profile.cycles is not None
    assert run.profile.cycles == run.results[0].cycles
    assert run.profile.cycles >= sum(cycles)
    assert run.profile.exact
    for layer in run.profile.layers:
        if layer.cycles and layer.utilisation is not None:
            assert layer.utilisation == layer.macs / (layer.cycles * 8 * 16)


def test_a_layer_that_ends_before_its_predecessor_adds_nothing(module):
    segment = module.segments[0]
    spans = np.full((len(segment.program), 2), 50)
    first = segment.layers[0]
    spans[first.places, 1] = 70
    others = len(segment.layers) - 1
    assert layer_cycles(segment, spans) == [70, *[0] * others]
    assert layer_cycles(segment, None) == [None] * len(segment.layers)


def test_a_device_without_time_gives_no_cycles(module, scans):
    with open_device("reference", SMALL) as reference:
        profile = Session(module, reference).run(scans[:1]).profile
    assert profile.cycles is None
    assert profile.utilisation is None
    assert {layer.cycles for layer in profile.layers} == {None}


def test_a_devices_name_is_no_device(module: Module):
    with pytest.raises(DeviceError) as raised:
        Session(module, "sim")  # pyright: ignore[reportArgumentType]
    assert str(raised.value) == (
        "`Session`: expected `Device` as `device`, got 'sim'; `tilewright.open_device` makes one"
    )


def test_a_device_of_another_configuration_is_refused(module):
    with open_device("sim", PRESETS["16x16"]) as sim, pytest.raises(DeviceError) as raised:
        Session(module, sim)
    assert str(raised.value) == (
        "device `sim`: expected configuration `8x16`, got `16x16`: `lanes_in` 16 against 8, "
        "`vector_lanes` 16 against 8, `wgt_depth` 2048 against 1024; open the device with the "
        "module's configuration, or compile the model for the device's"
    )


def test_inputs_that_do_not_fit_are_refused(module, scans):
    assert refused(module, scans[:2]) == (
        "input `scan`: expected float32[1, 1, 8, 8], got float32[2, 1, 8, 8]; a run "
        "takes one sample: call `run(array[i : i + 1])` for each `i`"
    )
    assert refused(module, scans[:1].astype(np.int8)) == (
        "input `scan`: expected float32[1, 1, 8, 8], got int8[1, 1, 8, 8]; convert it"
    )
    assert refused(module, scans[:1, :, :4]) == (
        "input `scan`: expected float32[1, 1, 8, 8], got float32[1, 1, 4, 8]; give an array of "
        "this shape"
    )
    assert refused(module, {"image": scans[:1]}) == (
        "network `digits_int8_qdq`: expected inputs `scan`, got `image`; give each by its name"
    )
    assert refused(module, {}) == (
        "network `digits_int8_qdq`: expected inputs `scan`, got none; give each by its name"
    )


def test_tallies_count_bits_not_values():
    tally = Tally("floats")
    nan, zero = np.float32("nan"), np.float32(0)
    tally.add(np.array([nan, zero]), np.array([nan, -zero]), "sample 0")
    assert (tally.values, tally.differing) == (2, 1)
    assert tally.first == "sample 0: at [1] expected -0.0, got 0.0"
    tally.add(np.zeros(2, np.int8), np.zeros(3, np.int8), "sample 1")
    assert (tally.values, tally.differing) == (5, 4)


def test_units_counted_by_sim_are_those_of_the_program(module, scans):
    with open_device("sim", SMALL) as sim:
        counters = Session(module, sim).run(scans[:1]).profile.counters
    program = module.segments[0].program
    for unit in Unit:
        assert counters[f"{unit.name}_INSTRUCTIONS"] == sum(i.home is unit for i in program)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int4", "bool"])
def test_bits_of_every_type_equal_themselves(dtype):
    """NaNs of types that NumPy does not know do too."""
    values = np.array([0, 1, np.nan if "float" in dtype else 1]).astype(DTYPES[dtype])
    tally = Tally("bits")
    tally.add(values, values.copy(), "sample 0")
    assert not tally.differing
    tally.add(values, np.flip(values), "sample 0")
    assert tally.differing == 2


class Tensor:
    """A tensor of another library: it hands its memory over, or says why it does not."""

    def __init__(self, array: np.ndarray, problem: str = "") -> None:
        self.array, self.problem = array, problem

    def __dlpack__(self, **options):
        if self.problem:
            raise BufferError(self.problem)
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_of_other_libraries_go_in_and_out_without_copies(module, scans):
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim)
        plain = session.run(scans[:1])
        given = session.run(Tensor(scans[:1]))
        assert np.shares_memory(given.inputs["scan"], scans)
        named = session.run({"scan": Tensor(scans[:1])})
    for run in (given, named):
        np.testing.assert_array_equal(run.outputs["logits"], plain.outputs["logits"])
    out = plain.outputs["logits"]
    assert np.shares_memory(np.from_dlpack(out), out)


def test_a_tensor_that_cannot_be_shared_is_refused(module, scans):
    assert refused(module, Tensor(scans[:1], "Can't export tensors that require gradient")) == (
        "input `scan`: expected a tensor in memory of the host, got one that DLPack does not hand "
        "over (`Can't export tensors that require gradient`); detach it and move it to the host: "
        "`tensor.detach().cpu()`"
    )


def test_the_cpu_needs_no_configuration(module, scans):
    graph = import_model(DIGITS / "digits_int8_qdq.onnx")
    for_host = compile_module(graph, SMALL, placement=Placement("host"))
    with open_device("host") as cpu, open_device("sim", SMALL) as sim:
        ours = Session(for_host, cpu, threads=1).run(scans[:1])
        theirs = Session(module, sim).run(scans[:1])
        np.testing.assert_array_equal(ours.outputs["logits"], theirs.outputs["logits"])
        with pytest.raises(DeviceError) as raised:
            Session(module, cpu)
    assert str(raised.value) == (
        "device `host`: expected a network without layers for an accelerator, got 5 for `8x16`; "
        'compile the model with `placement=Placement("host")`, or open another device'
    )
    with pytest.raises(DeviceError, match="device `sim`: expected the configuration of its mach"):
        open_device("sim")
