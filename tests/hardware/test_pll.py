"""PLLs: every clock that is promised is made by legal settings."""

from fractions import Fraction

import pytest
from amaranth.back import rtlil

from tilewright.errors import HardwareError
from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.hardware.soc.pll import LIMITS, MIN_SHARE, Pll, PllSettings, find_settings
from tilewright.hardware.technology import Technology

ECP5, GOWIN, GATEMATE = Technology.ECP5, Technology.GOWIN, Technology.GATEMATE
XILINX7 = Technology.XILINX7


OSCILLATORS = {ECP5: (25, 27, 48, 100), GOWIN: (25, 27, 48, 100), GATEMATE: (10, 25)}
OSCILLATORS |= {XILINX7: (12, 25, 50, 100), Technology.CYCLONE5: (25, 50, 100)}
"""Frequencies in MHz that boards have; the divisors of a GateMate are few."""


@pytest.mark.parametrize(
    ("technology", "oscillator_mhz"),
    [(technology, mhz) for technology in LIMITS for mhz in OSCILLATORS[technology]],
    ids=str,
)
def test_clocks_are_legal_and_close_to_the_wanted_ones(technology, oscillator_mhz):
    limits = LIMITS[technology]
    for wanted_mhz in range(30, 121, 7):
        found = find_settings(technology, oscillator_mhz * 10**6, wanted_mhz * 10**6)
        assert MIN_SHARE <= found.clock_hz / (wanted_mhz * 10**6) <= 1
        assert limits.detector_hz[0] <= found.detector_hz <= limits.detector_hz[1]
        assert limits.internal_hz[0] <= found.internal_hz <= limits.internal_hz[1]
        assert found.reference in limits.references
        assert found.feedback in limits.feedbacks
        assert found.output in limits.outputs


def test_the_usual_clocks_of_boards_are_exact():
    # The controller of a DDR memory makes its own clock.
    for board in (each for each in pin_boards().values() if not each.ddr):
        technology = DEVICES[board.device].family.technology
        assert technology
        wanted_hz = round(board.clock_mhz * 1e6)
        assert find_settings(technology, board.oscillator_hz, wanted_hz).clock_hz == wanted_hz


def test_a_cyclone_is_told_both_frequencies():
    settings = find_settings(Technology.CYCLONE5, 50_000_000, 75_000_000)
    assert settings.clock_hz == 75_000_000
    text = rtlil.convert(Pll(settings), platform=Technology.CYCLONE5)
    assert 'parameter \\reference_clock_frequency "50 MHz"' in text
    assert 'parameter \\output_clock_frequency0 "75 MHz"' in text


def test_settings_are_those_of_the_makers_of_the_tools():
    """Of `ecppll -i 25 -o 80`, and of `gowin_pll -i 27 -o 54`."""
    assert find_settings(ECP5, 25_000_000, 80_000_000) == PllSettings(25_000_000, 5, 16, 7)
    assert find_settings(GOWIN, 27_000_000, 54_000_000) == PllSettings(27_000_000, 1, 2, 16)


def test_the_internal_oscillator_of_a_gatemate_is_a_multiple_of_four_times_the_board_s():
    for wanted_mhz in (20, 25, 27, 33):
        found = find_settings(GATEMATE, 10_000_000, wanted_mhz * 10**6)
        assert found.internal_hz % 40_000_000 == 0
        assert found.internal_hz % (8 * found.clock_hz) == 0


def test_an_mmcm_multiplies_the_oscillator_and_divides_the_output():
    settings = find_settings(XILINX7, 100_000_000, 80_000_000)
    assert settings.clock_hz == 80_000_000
    assert settings.internal_hz == 100_000_000 * settings.feedback
    text = rtlil.convert(Pll(settings), platform=XILINX7)
    assert f'parameter real \\CLKFBOUT_MULT_F "{settings.feedback}.0' in text
    assert f'parameter real \\CLKOUT0_DIVIDE_F "{settings.output}.0' in text


def test_a_clock_that_cannot_be_made_is_refused():
    with pytest.raises(HardwareError) as problem:
        find_settings(ECP5, 25_000_000, 802_000_000)
    assert str(problem.value) == (
        "clock of 802 MHz: the PLL cannot make it from the oscillator's 25 MHz; choose another "
        "one, from 10 to 400 MHz"
    )


@pytest.mark.parametrize(("settings", "whole", "eighths"), [
    (PllSettings(25_000_000, 5, 16, 7), 4, 3),  # 560 MHz: 13 eighths before 6
    (PllSettings(25_000_000, 1, 4, 6), 3, 2),  # 600 MHz: 14 eighths before 5
])  # fmt: skip
def test_a_clock_ahead_has_an_earlier_phase(settings, whole, eighths):
    text = rtlil.convert(Pll(settings, lead_ns=3.0), platform=ECP5)
    assert f"parameter \\CLKOP_CPHASE {settings.output - 1}\n" in text
    assert f"parameter \\CLKOS_CPHASE {whole}\n" in text
    assert f"parameter \\CLKOS_FPHASE {eighths}\n" in text


@pytest.mark.parametrize(("lead_ns", "phase"), [(0.0, "0000"), (3.0, "1101"), (1.0, "1111")])
def test_a_phase_of_a_gowin_is_in_sixteenths_of_a_cycle(lead_ns, phase):
    text = rtlil.convert(Pll(PllSettings(27_000_000, 1, 2, 16), lead_ns), platform=GOWIN)
    assert f'parameter \\PSDA_SEL "{phase}"\n' in text
    assert 'parameter \\DUTYDA_SEL "1000"\n' in text, "half of a cycle"


def test_cells_have_the_settings():
    ecp5 = rtlil.convert(Pll(PllSettings(25_000_000, 5, 16, 7)), platform=ECP5)
    for line in (
        "parameter \\CLKI_DIV 5",
        "parameter \\CLKFB_DIV 16",
        "parameter \\CLKOP_DIV 7",
        'attribute \\FREQUENCY_PIN_CLKI "25"',
        'attribute \\FREQUENCY_PIN_CLKOP "80"',
    ):
        assert line in ecp5
    assert "parameter \\CLKOS_CPHASE 6" in ecp5, "in step"
    gowin = rtlil.convert(Pll(PllSettings(27_000_000, 1, 2, 16)), platform=GOWIN)
    for line in (
        "parameter \\IDIV_SEL 0",
        "parameter \\FBDIV_SEL 1",
        "parameter \\ODIV_SEL 16",
        'parameter \\FCLKIN "27"',
    ):
        assert line in gowin
    gatemate = rtlil.convert(Pll(PllSettings(10_000_000, 2, 5, 64)), platform=GATEMATE)
    for line in 'parameter \\REF_CLK "10"', 'parameter \\OUT_CLK "25"':
        assert line in gatemate
    assert PllSettings(25_000_000, 3, 10, 6).clock_hz == Fraction(250_000_000, 3)
