"""Bounds and reasons: what could be reached at best, and what holds it back."""
