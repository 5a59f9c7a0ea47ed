"""How far a setup is from the best possible, and why."""
