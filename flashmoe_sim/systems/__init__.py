"""Real systems: programs that place, cache or stream routed experts, each with its settings, memory and flags."""
