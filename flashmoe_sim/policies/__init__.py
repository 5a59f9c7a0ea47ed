"""Eviction policies: one file each, and the table POLICIES."""
