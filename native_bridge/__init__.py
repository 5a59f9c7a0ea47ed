"""The real runtimes: find, describe and run them, read their output, and compare it with the simulator."""
