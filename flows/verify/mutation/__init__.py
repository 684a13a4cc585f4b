"""Mutation score: how many seeded faults the tests find, in the hardware and in the checker."""
