"""Verification on random programs: `comparison` of all machines, and the command."""
