"""Mutation score: the share of seeded faults that the tests find, in hardware and software."""
