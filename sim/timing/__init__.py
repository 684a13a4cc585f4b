"""The exact timing model: the RTL's cycles without the RTL.

`definition.Model` says what the hardware does, as recurrences in Python; `engine.cpp` is the same
compiled; `timing.time_program` is what others call.
"""

from .timing import ExactMeasure, Timer, Timing, time_program
from .transfers import COLUMNS

__all__ = ["COLUMNS", "ExactMeasure", "Timer", "Timing", "time_program"]
