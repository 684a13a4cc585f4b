"""A hardware/software co-design workbench: one contract for machine, compiler and simulators."""

__version__ = "0.1.0"
