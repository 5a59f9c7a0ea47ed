"""Searches for a better setup: slots by layer, and what to ask for."""
