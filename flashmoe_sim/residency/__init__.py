"""Stage 1: what a bank hits. Trace x geometry x contract x policy x predictor give Counts and an InstallStream."""
