"""Other people's programs that say how fast a model will run, and what each answers to the same questions."""
