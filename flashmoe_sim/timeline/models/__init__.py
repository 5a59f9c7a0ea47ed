"""One file per execution model: what it needs of a machine, what its work costs there, and how it serves a call."""
