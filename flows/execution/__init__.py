"""Running networks: compiled modules from files or the cache, samples, devices and timing."""
