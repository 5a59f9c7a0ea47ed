"""Routing traces: one file per format, all read into a RoutingTrace."""

from flashmoe_sim.trace.formats import FORMATS
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace

__all__ = ["FORMATS", "RoutingTrace", "load_trace"]
