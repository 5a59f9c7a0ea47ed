"""Shared by all stages: whole-file writes, tables, sizes and numbers, JSON, and errors."""
