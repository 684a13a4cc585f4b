"""Gate-level simulation: a core mapped by Yosys to the cells of an FPGA, built by Verilator.

The flows for FPGAs place and route the same netlists.
"""
