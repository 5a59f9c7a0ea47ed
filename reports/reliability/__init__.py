"""What sweeps survive: faults at random moments, and what was lost."""
