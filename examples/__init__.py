"""Examples, which a wheel brings too: `python -m tilewright.examples.keywords`."""
