"""Verilog of a core for people and for other tools."""
