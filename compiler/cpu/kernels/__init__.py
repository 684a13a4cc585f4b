"""Descriptions of kernels, each with its declaration in `te` and its schedule for a level."""
