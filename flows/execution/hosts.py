"""Processors that run the layers which the accelerator does not: this one, or those beside an FPGA.

The figures of other processors are assumptions, not measured and without a source to cite: half of
the peak that the comments below state for kernels, and typical bandwidths of their memories. They
tell a microsecond from a millisecond.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...compiler.placement.costs import HostSpeed

HERE = "here"
"""This machine, whose figures are measured."""

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class KnownHost:
    """A processor by name, with the figures that stand for it."""

    title: str
    speed: HostSpeed


HOSTS: Mapping[str, KnownHost] = {
    # Two lanes of float32 and eight products of bytes every other cycle, DDR3 of 16 or 32 bits.
    "cortex-a9": KnownHost(
        "Arm Cortex-A9 at 667 MHz, as in a Zynq-7000",
        HostSpeed(2.6, 1.3, 0.8, 0.7, 8.0, 250.0, 40.0),
    ),
    # Four lanes of float32 and eight products of bytes a cycle, DDR4 of 32 or 64 bits.
    "cortex-a53": KnownHost(
        "Arm Cortex-A53 at 1.2 GHz, as in a Zynq UltraScale+",
        HostSpeed(9.6, 4.8, 3.0, 2.4, 4.0, 120.0, 20.0),
    ),
    # About 18 cycles for a product of bytes with its loads, 200 for one of floats in software; C
    # takes the place of NumPy.
    "picorv32": KnownHost(
        "PicoRV32 with RV32IM at 50 MHz, a soft core",
        HostSpeed(0.0055, 0.0005, 0.04, 0.0005, 400.0, 2.0, 2.0),
    ),
}


def host_title(name: str) -> str:
    """Return the name of a processor and where its figures are from, for people."""
    if name in HOSTS:
        return f"{HOSTS[name].title}, with assumed figures, not measured"
    from .host_figures import measured_host, measured_while_busy  # needs the code generator

    when = " while it was busy" if measured_while_busy(measured_host()) else ""
    return f"{this_processor()}, this machine's processor, with figures measured on it{when}"


def this_processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = CPU_INFO.read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()
