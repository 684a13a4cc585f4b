"""The benches, which go into every export as they are."""
