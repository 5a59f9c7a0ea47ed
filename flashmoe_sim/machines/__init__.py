"""Machines: numbers, each with a unit, an interval and a source; presets, and the user's own files."""
