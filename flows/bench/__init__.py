"""Benchmarks: the figures of docs/reference/figures.md."""
