"""The demo shows digits, proves agreement, and fails where anything differs."""

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows import demo
from tilewright.flows.execution.samples import Samples
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import devices
from tilewright.sim.functional import FunctionalMachine

SOFTWARE = {"sim": 6, "reference": 2}


@pytest.mark.slow
def test_the_demo_passes_on_the_hardware(capsys):
    demo.demo(PRESETS["8x16"], {"sim": 12, "reference": 2, "rtl": 6})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("demo: passed in ")
    assert "sim, reference, rtl agree in every byte of every layer; accuracy 100.0%" in last


def test_the_demo_shows_scans_and_what_the_network_says(capsys):
    demo.demo(PRESETS["8x16"], SOFTWARE)
    said = capsys.readouterr().out
    assert "4, right" in said
    assert "██" in said
    assert said.splitlines()[-1].startswith("demo: passed in ")


def test_the_demo_fails_where_a_device_differs(monkeypatch, capsys):
    right = FunctionalMachine._vector

    def wrong(self, vector):
        right(self, vector)
        self.memories[0][-1] ^= 1
        self.memories[0][vector.dst * self.configuration.vector_lanes] ^= 1

    monkeypatch.setattr(FunctionalMachine, "_vector", wrong)
    monkeypatch.setattr(devices, "functional_machine", lambda _: FunctionalMachine)
    with pytest.raises(DeviceError, match=r"demo: failed; device `sim`: `conv1`: \d+ of \d+ "):
        demo.demo(PRESETS["8x16"], SOFTWARE)
    assert "demo: passed" not in capsys.readouterr().out


def test_a_wrong_answer_is_shown_with_the_right_one():
    scans = np.zeros((2, 1, 1, 8, 8), np.float32)
    scans[0] = 16
    samples = Samples("scans", {"scan": scans}, labels=np.array([3, 7]))
    outputs = np.eye(10, dtype=np.float32)[[3, 1]][:, None]
    lines = list(demo.pictures(samples, outputs))
    assert lines[0] == "█" * 16 + " " * 19
    assert (lines[-2][:16].strip(), lines[-2][19:].strip()) == ("3, right", "1, but is 7")
