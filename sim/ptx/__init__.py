"""An interpreter of PTX for tests: it runs the text that ships, and reports what a GPU hides."""

from .faults import FaultKind, PtxFault
from .launch import TensorArgument, run
from .parse import parse_ptx
from .syntax import PtxKernel

__all__ = ["FaultKind", "PtxFault", "PtxKernel", "TensorArgument", "parse_ptx", "run"]
