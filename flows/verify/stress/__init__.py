"""Stress: processes racing on the cache, kills in the middle of writes, forks, shared modules."""
