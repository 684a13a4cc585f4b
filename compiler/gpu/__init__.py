"""Kernels for GPUs: loop programs of blocks and threads as PTX."""
