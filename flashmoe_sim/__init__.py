"""Replay recorded routing of mixture-of-experts models against expert banks, policies and machines.

From Python, begin with `flashmoe_sim.api`.
"""
