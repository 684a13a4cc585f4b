"""All resources of a configuration on a device, exact or estimated, without synthesis."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import UsageError
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ..synthesis.devices import DEVICES, Device
from .counts import BLOCKS, count_blocks
from .model import ESTIMATED, estimate, read_model


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a machine on a device.

    Parameters
    ----------
    device
        The chip that it is built for.
    used
        Counts by name: `lut` and `ff` are estimates, `ram` and `multipliers` exact. What nobody
        knows without synthesis is left out.
    """

    device: Device
    used: Mapping[str, int]

    @property
    def short(self) -> list[str]:
        """Resources of which the device has fewer."""
        return self.device.short(self.used)

    def error(self, name: str) -> float | None:
        """Median error of an estimated resource, as a share; None if it is exact."""
        return read_model()["errors"][name]["median"] if name in ESTIMATED else None


def resources(configuration: Configuration, device: Device) -> Resources:
    """Return the resources of a configuration on a device.

    Raises
    ------
    UsageError
        If only synthesis can tell them.
    """
    technology = device.family.technology
    if technology is None or technology not in BLOCKS:
        known = ", ".join(
            name for name, other in DEVICES.items() if other.family.technology in BLOCKS
        )
        raise UsageError(
            f"device `{device.name}`: expected one of {known}, because the resources of others are "
            "known only after synthesis (`tilewright synth --no-place`); choose one"
        )
    chip = device.capacity["multipliers"]
    counts = count_blocks(configuration, technology, chip)
    used = {} if counts.ram is None else {"ram": counts.ram}
    used["multipliers"] = counts.multipliers
    if technology is Technology.ECP5:
        logic = estimate(configuration, chip)
        used |= {"lut": logic.lut, "ff": logic.ff}
    return Resources(device, used)


def smallest_device(configuration: Configuration) -> Resources:
    """Return the resources on the smallest ECP5 that has enough, or else on the largest one."""
    chips = [device for device in DEVICES.values() if device.family.technology is Technology.ECP5]
    chips.sort(key=lambda device: device.capacity["lut"])
    found = [resources(configuration, device) for device in chips]
    return next((each for each in found if not each.short), found[-1])
