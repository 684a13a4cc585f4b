"""Resources of a configuration without synthesis: exact counts, and a model fitted to syntheses."""
