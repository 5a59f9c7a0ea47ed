"""Many setups over one or more traces, and one table of results."""
