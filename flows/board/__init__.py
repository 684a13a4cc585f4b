"""The virtual board: a system on chip in Verilator, served on a TCP port or a pseudo-terminal."""
