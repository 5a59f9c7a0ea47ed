"""Machines: numbers, each with a unit, an interval and a source; presets, and the user's own files."""

from flashmoe_sim.machines.guessed import ask, guessed
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import Anchors, Compute, Host, Link, Machine, Memory, Quantity, Storage
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.machines.table import PRESETS

__all__ = [
    "PRESETS",
    "Anchors",
    "Compute",
    "Host",
    "Link",
    "Machine",
    "MeasuredRead",
    "Memory",
    "Quantity",
    "Storage",
    "ask",
    "guessed",
    "load_machine",
    "parse_machine",
]
