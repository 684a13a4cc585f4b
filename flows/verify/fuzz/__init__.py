"""Fuzzing: random graphs and models through the compiler, outputs compared."""
