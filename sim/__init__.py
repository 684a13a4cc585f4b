"""Simulators: `functional` (fast, same bits), `timing` (exact time), `rtl` (the Verilated core).

`ptx` is another one: it runs kernels for GPUs.
"""
