"""Placements of nextpnr-ecp5, refined by their timing: a workaround for nextpnr up to 0.11.1.

The static placer of that release estimates wires inside carry chains like ordinary ones; commit
930fef44 of nextpnr, the third after the release, mends that. `test_upstream.py` fails as soon as a
nextpnr with the commit is installed, and says what to measure before this folder goes.
"""
