"""How far predictions are from what was measured elsewhere."""
