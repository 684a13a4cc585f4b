"""Choice of fused groups and of their schedules, by exact time or by estimate."""
