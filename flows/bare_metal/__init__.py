"""Export a network as C for a board without an operating system."""
