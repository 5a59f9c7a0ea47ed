"""Stage 2: how long it takes. Work x costs x execution model become a Timeline and its Timing."""
