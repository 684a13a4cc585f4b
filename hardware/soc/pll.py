"""PLLs: the clock of a system from a board's oscillator, on five families of FPGAs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from amaranth.hdl import Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...errors import HardwareError
from ..technology import Technology


@dataclass(frozen=True, slots=True, kw_only=True)
class PllLimits:
    """Legal settings of a PLL.

    Its phase detector compares the board's oscillator with the output clock, each one divided. The
    output clock is that of the internal oscillator, divided too.

    Parameters
    ----------
    references, feedbacks, outputs
        Divisors: of the board's oscillator, of the output clock, of the internal oscillator.
    detector_hz, internal_hz, clock_hz
        Least and greatest frequency of the detector, the internal oscillator, the output clock.
    internal_step
        The internal oscillator is a multiple of so many times the board's; 0 if it need not be.
    compares_internal
        The phase detector compares the internal oscillator. So the divisor of the output is that of
        the board's oscillator too, and `detector_hz` holds for the quotient.
    """

    references: range
    feedbacks: range
    outputs: tuple[int, ...]
    detector_hz: tuple[int, int]
    internal_hz: tuple[int, int]
    clock_hz: tuple[int, int]
    internal_step: int = 0
    compares_internal: bool = False


LIMITS: Mapping[Technology, PllLimits] = MappingProxyType(
    {
        # EHXPLLL: those of Project Trellis' `ecppll`, which follow Lattice's FPGA-DS-02012.
        Technology.ECP5: PllLimits(
            references=range(1, 129),
            feedbacks=range(1, 81),
            outputs=tuple(range(1, 129)),
            detector_hz=(3_125_000, 400_000_000),
            internal_hz=(400_000_000, 800_000_000),
            clock_hz=(10_000_000, 400_000_000),
        ),
        # rPLL of a GW2A-18 C8/I7: those of Apicula's `gowin_pll`.
        Technology.GOWIN: PllLimits(
            references=range(1, 65),
            feedbacks=range(1, 65),
            outputs=(2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128),
            detector_hz=(3_000_000, 500_000_000),
            internal_hz=(500_000_000, 1_250_000_000),
            clock_hz=(3_906_250, 625_000_000),
        ),
        # CC_PLL with little jitter in its economy mode: those of nextpnr's
        # `himbaechel/uarch/gatemate/pll.cc`. The cell is told both frequencies, and the tool
        # chooses the divisors. The internal oscillator has a feedback of its own.
        Technology.GATEMATE: PllLimits(
            references=range(1, 33),
            feedbacks=range(1, 65),
            outputs=tuple(range(8, 257, 8)),
            detector_hz=(250_000, 50_000_000),
            internal_hz=(1_000_000_000, 2_000_000_000),
            clock_hz=(4_000_000, 250_000_000),
            internal_step=4,
        ),
        # MMCME2_BASE of speed grade 1 with an input divisor of 1: DS181, table of the MMCM.
        Technology.XILINX7: PllLimits(
            references=range(1, 129),
            feedbacks=range(2, 65),
            outputs=tuple(range(1, 129)),
            detector_hz=(78_125, 800_000_000),
            internal_hz=(600_000_000, 1_200_000_000),
            clock_hz=(4_690_000, 400_000_000),
            compares_internal=True,
        ),
        # Fractional PLL of a Cyclone V of speed grade 7 in integer mode: CV-51002, "PLL
        # Specifications". The tool chooses the divisors.
        Technology.CYCLONE5: PllLimits(
            references=range(1, 33),
            feedbacks=range(1, 65),
            outputs=tuple(range(1, 513)),
            detector_hz=(5_000_000, 325_000_000),
            internal_hz=(600_000_000, 1_400_000_000),
            clock_hz=(4_000_000, 400_000_000),
        ),
    }
)

MIN_SHARE = Fraction(9, 10)
"""A clock may be this much slower than the wanted one if the PLL cannot make that one."""


@dataclass(frozen=True, slots=True)
class PllSettings:
    """Divisors of a PLL.

    Parameters
    ----------
    oscillator_hz
        Frequency of the board's oscillator.
    reference, feedback, output
        Divisors, as in `PllLimits`.
    """

    oscillator_hz: int
    reference: int
    feedback: int
    output: int

    @property
    def detector_hz(self) -> Fraction:
        """Frequency of the phase detector."""
        return Fraction(self.oscillator_hz, self.reference)

    @property
    def clock_hz(self) -> Fraction:
        """Frequency of the output clock."""
        return self.detector_hz * self.feedback

    @property
    def internal_hz(self) -> Fraction:
        """Frequency of the internal oscillator."""
        return self.clock_hz * self.output

    def legal(self, limits: PllLimits) -> bool:
        """Whether all frequencies are within their limits."""
        step_hz = limits.internal_step * self.oscillator_hz
        if step_hz and self.internal_hz % step_hz:
            return False
        if limits.compares_internal and self.reference != self.output:
            return False
        return all(
            least <= frequency <= greatest
            for frequency, (least, greatest) in (
                (self.detector_hz, limits.detector_hz),
                (self.internal_hz, limits.internal_hz),
                (self.clock_hz, limits.clock_hz),
            )
        )


def find_settings(technology: Technology, oscillator_hz: int, wanted_hz: int) -> PllSettings:
    """Return the settings for the fastest clock that is not above the wanted one.

    Of several, those with the fastest phase detector are chosen, which make the steadiest clock,
    and the internal oscillator in the middle of its range.

    Raises
    ------
    HardwareError
        If that clock is more than 10 % below the wanted one.
    """
    limits = LIMITS[technology]
    middle_hz = sum(limits.internal_hz) // 2
    found = max(
        _candidates(limits, oscillator_hz, wanted_hz),
        key=lambda each: (each.clock_hz, each.detector_hz, -abs(each.internal_hz - middle_hz)),
        default=None,
    )
    if found is None or found.clock_hz < MIN_SHARE * wanted_hz:
        low, high = (limit / 1e6 for limit in limits.clock_hz)
        raise HardwareError(
            f"clock of {wanted_hz / 1e6:g} MHz: the PLL cannot make it from the oscillator's "
            f"{oscillator_hz / 1e6:g} MHz; choose another one, from {low:g} to {high:g} MHz"
        )
    return found


def _candidates(limits: PllLimits, oscillator_hz: int, wanted_hz: int) -> Iterator[PllSettings]:
    """Legal settings: for each divisor of the oscillator, the fastest clock."""
    for reference in limits.references:
        feedback = min(wanted_hz * reference // oscillator_hz, limits.feedbacks[-1])
        if feedback < 1 or oscillator_hz < limits.detector_hz[0] * reference:
            continue
        clock_hz = oscillator_hz * feedback // reference
        fastest = limits.internal_hz[1] // clock_hz
        for output in (each for each in limits.outputs if each <= fastest):
            settings = PllSettings(oscillator_hz, reference, feedback, output)
            if settings.legal(limits):
                yield settings


class Pll(wiring.Component):
    """Make a clock from an oscillator. ECP5 and Gowin also make a second one that is ahead of it.

    Parameters
    ----------
    settings : PllSettings
    lead_ns : float
        By how much the second clock is ahead; less than a cycle of the first one.

    Members
    -------
    oscillator : In(1)
    clock : Out(1)
    ahead : Out(1)
        The second clock.
    locked : Out(1)
        The clock is steady; asynchronous to it.
    """

    oscillator: In(1)
    clock: Out(1)
    ahead: Out(1)
    locked: Out(1)

    def __init__(self, settings: PllSettings, lead_ns: float = 0.0):
        self.settings, self.lead_ns = settings, lead_ns
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        cells = {
            Technology.ECP5: self._ehxplll,
            Technology.GOWIN: self._rpll,
            Technology.GATEMATE: self._cc_pll,
            Technology.XILINX7: self._mmcm,
            Technology.CYCLONE5: self._altera_pll,
        }
        m.submodules.cell = cells[platform]()
        return m

    def _mmcm(self) -> Module:
        """Return Xilinx' cell, and a buffer that leads its clock to the clock network."""
        m = Module()
        settings = self.settings
        clock, feedback = Signal(), Signal()
        m.submodules.mmcm = Instance(
            "MMCME2_BASE",
            p_CLKIN1_PERIOD=1e9 / settings.oscillator_hz,
            p_DIVCLK_DIVIDE=1,
            p_CLKFBOUT_MULT_F=float(settings.feedback),
            p_CLKOUT0_DIVIDE_F=float(settings.output),
            i_CLKIN1=self.oscillator,
            i_CLKFBIN=feedback,
            i_PWRDWN=Const(0),
            i_RST=Const(0),
            o_CLKFBOUT=feedback,
            o_CLKOUT0=clock,
            o_LOCKED=self.locked,
        )
        m.submodules.buffer = Instance("BUFG", i_I=clock, o_O=self.clock)
        return m

    def _ehxplll(self) -> Instance:
        """Return Lattice's cell, with the values that `ecppll` writes.

        A phase is a delay in cycles of the internal oscillator, and in eighths of one.
        """
        settings = self.settings
        phase = settings.output - 1
        lead = round(8 * self.lead_ns * 1e-9 * settings.internal_hz)
        ahead, ahead_eighths = divmod(8 * phase - lead, 8)
        return Instance(
            "EHXPLLL",
            a_FREQUENCY_PIN_CLKI=_megahertz(settings.oscillator_hz),
            a_FREQUENCY_PIN_CLKOP=_megahertz(settings.clock_hz),
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_CLKI_DIV=settings.reference,
            p_CLKFB_DIV=settings.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=settings.output,
            p_CLKOP_CPHASE=phase,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=settings.output,
            p_CLKOS_CPHASE=ahead,
            p_CLKOS_FPHASE=ahead_eighths,
            i_CLKI=self.oscillator,
            i_CLKFB=self.clock,
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(1),
            i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1),
            i_PLLWAKESYNC=Const(0),
            i_ENCLKOP=Const(0),
            o_CLKOP=self.clock,
            o_CLKOS=self.ahead,
            o_LOCK=self.locked,
        )

    def _rpll(self) -> Instance:
        """Return Gowin's cell; its first two parameters are one less than the divisors.

        A phase is a delay in sixteenths of a cycle.
        """
        settings = self.settings
        ahead = -round(16 * self.lead_ns * 1e-9 * settings.clock_hz) % 16
        return Instance(
            "rPLL",
            p_FCLKIN=_megahertz(settings.oscillator_hz),
            p_IDIV_SEL=settings.reference - 1,
            p_FBDIV_SEL=settings.feedback - 1,
            p_ODIV_SEL=settings.output,
            p_PSDA_SEL=f"{ahead:04b}",
            p_DUTYDA_SEL="1000",
            i_CLKIN=self.oscillator,
            i_CLKFB=Const(0),
            i_RESET=Const(0),
            i_RESET_P=Const(0),
            i_FBDSEL=Const(0, 6),
            i_IDSEL=Const(0, 6),
            i_ODSEL=Const(0, 6),
            i_PSDA=Const(0, 4),
            i_DUTYDA=Const(0, 4),
            i_FDLY=Const(0, 4),
            o_CLKOUT=self.clock,
            o_CLKOUTP=self.ahead,
            o_LOCK=self.locked,
        )

    def _cc_pll(self) -> Instance:
        """Return Cologne Chip's cell, which takes frequencies."""
        return Instance(
            "CC_PLL",
            p_REF_CLK=_megahertz(self.settings.oscillator_hz),
            p_OUT_CLK=_megahertz(self.settings.clock_hz),
            p_PERF_MD="ECONOMY",
            p_LOW_JITTER=1,
            i_CLK_REF=self.oscillator,
            i_CLK_FEEDBACK=Const(0),
            i_USR_CLK_REF=Const(0),
            i_USR_LOCKED_STDY_RST=Const(0),
            o_CLK0=self.clock,
            o_USR_PLL_LOCKED=self.locked,
        )

    def _altera_pll(self) -> Instance:
        """Return Intel's megafunction, which takes frequencies."""
        return Instance(
            "altera_pll",
            p_reference_clock_frequency=f"{_megahertz(self.settings.oscillator_hz)} MHz",
            p_fractional_vco_multiplier="false",
            p_operation_mode="direct",
            p_number_of_clocks=1,
            p_output_clock_frequency0=f"{_megahertz(self.settings.clock_hz)} MHz",
            p_phase_shift0="0 ps",
            p_duty_cycle0=50,
            i_refclk=self.oscillator,
            i_rst=Const(0),
            i_fbclk=Const(0),
            o_outclk=self.clock,
            o_locked=self.locked,
        )


def _megahertz(frequency: Fraction | int) -> str:
    return f"{float(frequency) / 1e6:g}"
