"""Programs that stream experts, and what the bridge knows about each."""
