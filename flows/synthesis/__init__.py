"""Synthesis for FPGAs with open tools: area by unit, clock, critical path, and their ledger."""
