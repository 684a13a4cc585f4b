"""Simulators: `functional` (fast, same bits), `estimate` (its time), `rtl` (the Verilated core)."""
