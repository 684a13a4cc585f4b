"""Benchmarks: the figures of docs/figures.md."""
