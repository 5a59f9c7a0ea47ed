"""`sim` as people type it: the simulator's verbs, and those that need a real runtime, model or machine."""
