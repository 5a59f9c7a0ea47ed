"""Stage 2: how long it takes. Work x costs x execution model give a Timeline, and its Timing."""
