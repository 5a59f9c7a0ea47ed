"""Measurements of a machine's storage, memory and link in a bounded time."""
