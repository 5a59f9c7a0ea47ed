"""Computers as they describe themselves."""
