"""Runtime: artifacts, the devices that run them, and comparison with the reference."""

from .artifact import load, save
from .benchmark import Benchmark
from .compare import Comparison
from .device import Device, Result
from .devices import open_device
from .profile import Profile
from .session import Run, Session

__all__ = [
    "Benchmark",
    "Comparison",
    "Device",
    "Profile",
    "Result",
    "Run",
    "Session",
    "load",
    "open_device",
    "save",
]
