"""Main memory: the placement of each activation, and the addresses during a run."""
