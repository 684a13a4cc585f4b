"""A network as hex files, with benches that run it on the core in any simulator."""
