"""Main memory: placement of activations, and addresses during a run.

`accelerator.constant_pool` gives weights and other constants their addresses.
"""
