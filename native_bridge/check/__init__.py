"""What the simulator predicts of a run against what the runtime did: counts exactly, seconds from other runs."""
