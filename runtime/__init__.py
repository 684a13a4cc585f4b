"""Runtime: artifacts, the devices that run them, and comparison with the reference."""

from .artifact import load, save
from .compare import Comparison
from .device import Device, Result
from .devices import open_device
from .session import Run, Session

__all__ = ["Comparison", "Device", "Result", "Run", "Session", "load", "open_device", "save"]
