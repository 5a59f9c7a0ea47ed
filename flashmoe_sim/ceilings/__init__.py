"""How far a setup is from what any could do, and why."""
