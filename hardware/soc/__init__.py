"""The system on chip around the core: link to the host, main memory and its arbiter."""
