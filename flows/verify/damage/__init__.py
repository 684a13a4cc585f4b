"""Damaged model files: a clear error or a correct result, nothing else."""
