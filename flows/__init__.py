"""Flows: what users start, the command line and the demo."""
