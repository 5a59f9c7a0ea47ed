"""Routing traces: one file per format, all read into a RoutingTrace."""
