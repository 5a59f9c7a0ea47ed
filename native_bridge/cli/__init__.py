"""The full `sim`: the simulator's verbs, and those that need a real runtime, model or machine."""
