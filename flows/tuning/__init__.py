"""Tuning: schedules of layers judged one after the other."""
