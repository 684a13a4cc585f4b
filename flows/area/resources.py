"""All resources of a configuration on a device, exact or estimated, without synthesis."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import UsageError
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ..synthesis.devices import DEVICES, RESOURCES, FpgaDevice
from .counts import BLOCKS, count_blocks, memory_bits
from .features import UNITS, unit_of
from .model import estimate, estimated, is_modelled, read_model


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a machine on a device.

    Parameters
    ----------
    device
        The chip for which the machine is built.
    units
        Counts by unit and name: `lut`, `gates` and `ff` are estimates, all others exact.
    known
        Names of the resources that are known without synthesis.
    """

    device: FpgaDevice
    units: Mapping[str, Mapping[str, int]]
    known: frozenset[str]

    @property
    def used(self) -> dict[str, int]:
        """Counts of the core by name."""
        return {
            name: sum(unit.get(name, 0) for unit in self.units.values())
            for name in RESOURCES
            if name in self.known
        }

    @property
    def short(self) -> list[str]:
        """Resources of which the device has too few."""
        return self.device.short(self.used)

    def error(self, name: str) -> float | None:
        """Median error of an estimated resource, as a share; None if it is exact or unknown."""
        technology = self.device.family.technology
        if not is_modelled(technology):
            return None
        of = read_model()[technology.value]["errors"].get(name)
        return of and of["median"]


def resources(configuration: Configuration, device: FpgaDevice) -> Resources:
    """Return the resources of a configuration on a device.

    Raises
    ------
    UsageError
        If only synthesis can tell them.
    """
    technology, chip = device.family.technology, device.capacity.get("multipliers")
    known: dict[str, Mapping[str, int]] = {}
    if technology is Technology.ASIC:
        known["memory_bits"] = memory_bits(configuration)
    elif technology in BLOCKS:
        counts = count_blocks(configuration, technology, chip)
        known["multipliers"] = counts.multipliers_of
        if counts.rams_of is not None:
            known["ram"] = counts.rams_of
    else:
        names = ", ".join(
            name
            for name, other in DEVICES.items()
            if other.family.technology in (*BLOCKS, Technology.ASIC)
        )
        raise UsageError(
            f"device `{device.name}`: expected one of {names}, because the resources of others are "
            "known only after synthesis (`tilewright synth --no-place`); choose one"
        )
    units: dict[str, dict[str, int]] = {unit: {} for unit in UNITS}
    for name, instances in known.items():
        for instance, used in instances.items():
            of = units[unit_of(instance.split("."))]
            of[name] = of.get(name, 0) + used
    if is_modelled(technology):
        for unit, logic in estimate(configuration, technology, chip).units.items():
            units[unit].update(logic)
    names = {*known, *(estimated(technology) if is_modelled(technology) else ())}
    return Resources(device, units, frozenset(names))


def smallest_device(configuration: Configuration) -> Resources:
    """Return the resources on the smallest ECP5 that is large enough, or on the largest."""
    chips = [device for device in DEVICES.values() if device.family.technology is Technology.ECP5]
    chips.sort(key=lambda device: device.capacity["lut"])
    found = [resources(configuration, device) for device in chips]
    return next((each for each in found if not each.short), found[-1])
