"""The real runtimes beside the simulator: find, describe and run them, read what they wrote, and compare."""
