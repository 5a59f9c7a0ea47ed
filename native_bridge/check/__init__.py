"""The simulator's predictions for a run against the runtime: counts exactly, seconds from other runs."""
