"""The verbs of `sim`, one file each: a dataclass whose fields are its options, and `run`."""
