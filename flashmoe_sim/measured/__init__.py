"""Measured speeds: what engines and benchmarks print about themselves, read from files or given by hand."""

from flashmoe_sim.measured.read import read_measured, read_with_notes
from flashmoe_sim.measured.usable import with_layers
from flashmoe_sim.measured.value import Measured, distinct, missing

__all__ = ["Measured", "distinct", "missing", "read_measured", "read_with_notes", "with_layers"]
