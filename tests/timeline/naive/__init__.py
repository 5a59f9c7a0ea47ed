"""The twins of the execution models, on SimPy."""
