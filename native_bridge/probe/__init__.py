"""What a machine's storage, memory and link do, measured in a bounded time."""
