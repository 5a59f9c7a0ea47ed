"""Stage 1: what a bank hits. Trace x geometry x contract x policy x predictor become Counts and an InstallStream."""
