"""Runtime: artifacts, and the devices that run them."""

from .devices import Device, Result, open_device

__all__ = ["Device", "Result", "open_device"]
