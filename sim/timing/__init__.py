"""The exact timing model."""
