"""The agent: offers the devices of a machine to clients elsewhere."""
