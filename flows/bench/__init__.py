"""Benchmarks: the figures that the README quotes."""
