"""How many runs a search needs on grids that people published."""
