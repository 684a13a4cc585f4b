"""Simulators: `functional` (fast, same bits), `timing` (exact time), `rtl` (the Verilated core)."""
