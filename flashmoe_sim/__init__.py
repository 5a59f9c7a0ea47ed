"""Replay recorded routing of mixture-of-experts models against expert banks, policies and machines."""
