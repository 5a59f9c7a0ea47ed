"""A class per verb that needs a real runtime, model or machine: its fields are its options."""
