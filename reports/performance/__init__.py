"""How fast replays are, and how their cost grows: `python -m reports.performance`."""
