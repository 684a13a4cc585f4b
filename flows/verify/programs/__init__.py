"""Random programs, corner cases, mutants and configurations for verification."""
