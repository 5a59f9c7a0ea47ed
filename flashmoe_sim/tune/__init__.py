"""Choosing: objectives, the search over systems and their settings, and advice."""
