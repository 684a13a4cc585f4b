"""Drivers of GPUs, and networks on them: kernels of the host as PTX, memory planned in advance."""

from .driver import GpuBuffer, GpuDriver, GpuFunction
from .drivers import DRIVERS, open_driver
from .network import GpuSide

__all__ = ["DRIVERS", "GpuBuffer", "GpuDriver", "GpuFunction", "GpuSide", "open_driver"]
