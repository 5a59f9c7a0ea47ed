"""Prefetch predictors: one file each, and the table PREFETCHERS."""
