"""Speed of a network: milliseconds per sample and inferences per second, at a clock."""

from dataclasses import asdict, dataclass
from typing import Any

from ...runtime.profile import Profile
from ..cli.clock_options import milliseconds_text


@dataclass(frozen=True, slots=True)
class Speed:
    """Time of one sample; accelerator and host work one after the other.

    Parameters
    ----------
    clock_mhz : float
        Clock of the accelerator.
    accelerator_ms : float or None
        Time on the accelerator; None if it runs nothing, or the device does not measure time.
    host_ms : float or None
        Time measured on this machine; None if the host runs nothing.
    """

    clock_mhz: float
    accelerator_ms: float | None
    host_ms: float | None

    @property
    def sample_ms(self) -> float:
        return (self.accelerator_ms or 0.0) + (self.host_ms or 0.0)

    @property
    def inferences_per_s(self) -> float | None:
        """Samples per second; None where no time is known."""
        return 1e3 / self.sample_ms if self.sample_ms else None

    def to_json(self) -> dict[str, Any]:
        """Return the speed as JSON values."""
        times = {"sample_ms": self.sample_ms, "inferences_per_s": self.inferences_per_s}
        return {**asdict(self), **times}

    def sentence(self) -> str:
        """Return the speed in one line."""
        parts = []
        if self.accelerator_ms is not None:
            there = milliseconds_text(self.accelerator_ms)
            parts.append(f"{there} on the accelerator at {self.clock_mhz:g} MHz")
        if self.host_ms is not None:
            parts.append(f"{milliseconds_text(self.host_ms)} on the host")
        time = " + ".join(parts)
        if len(parts) > 1:
            time += f" = {milliseconds_text(self.sample_ms)}"
        rate = self.inferences_per_s or 0.0
        count = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        return f"time per sample: {time}; {count} inferences per second"


def speed_of(profile: Profile, clock_mhz: float) -> Speed | None:
    """Return the speed of a run; None where the accelerator's part of the time is not known."""
    accelerated = any(layer.cycles is not None for layer in profile.layers)
    unknown = any(
        layer.target == "accelerator" and layer.cycles is None for layer in profile.layers
    )
    times = [layer.microseconds for layer in profile.layers if layer.microseconds is not None]
    if unknown or (not accelerated and not times):
        return None
    there = profile.cycles / clock_mhz / 1e3 if accelerated and profile.cycles is not None else None
    return Speed(clock_mhz, there, sum(times) / 1e3 if times else None)
