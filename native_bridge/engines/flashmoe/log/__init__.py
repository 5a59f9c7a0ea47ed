"""The log of a run of the patched runtime, read into a `RunLog`."""
