"""The exact timing model: the RTL's cycles without the RTL.

`definition.Model` describes the hardware as recurrences in Python. `engine.cpp` is the same model
in C++, and `weave.cpp` adds tokens as `isa.tokens` does. Other folders call `timing.time_program`.
"""

from .timing import ExactMeasure, Timer, Timing, time_program
from .transfers import COLUMNS

__all__ = ["COLUMNS", "ExactMeasure", "Timer", "Timing", "time_program"]
