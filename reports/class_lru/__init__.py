"""Policies against the rule of llama.cpp's own cache."""
